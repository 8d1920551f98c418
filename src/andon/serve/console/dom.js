// Dom: make elements without any HTML from outside.

export function make(name, options = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== "list" && key !== "form") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Sets a text only if it changed, so that a reader's selection stays.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function sign([mark, words]) {
  return make("span", { className: "sign", role: "img", ariaLabel: words }, mark);
}

// Moves the focus among elements with the arrow keys, Home and End; gives the one that has it then.
export function step(event, elements) {
  const at = elements.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: elements.length - 1 }[event.key];
  if (at < 0 || !elements[to]) return null;
  event.preventDefault();
  elements[to].focus();
  return elements[to];
}
