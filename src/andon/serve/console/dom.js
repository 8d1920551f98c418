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
