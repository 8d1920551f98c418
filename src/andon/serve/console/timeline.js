// Timeline: what happened in one run, as its events tell it; runs inside it are shown under their call.
//
// Nothing here is shown before an event says so: a run is "cancelled" only once its journal has it.

import { make, write } from "./dom.js";
import { TOOL_STATES, asked, cause, cost, payload, report, seconds, tokens } from "./words.js";

const LONG = 2000; // characters of a result that are shown at first
const MANY = 300; // characters of a call's arguments that are shown

export class Timeline {
  constructor({ element, onEnd }) {
    this.element = element;
    this.over = ""; // how it ended
    this.measured = false;
    this.onEnd = onEnd;
    this.groups = new Map();
    this.calls = new Map();
    this.groups.set("[]", new Group(element, ""));
  }

  take(event) {
    const path = event.path || [];
    this.stay();
    this[event.type]?.(event, this.group(path), path);
  }

  // A run that waits for an answer has told its end; if somebody cancels it then, only its row says so.
  know(row) {
    if (this.over !== "interrupt" || row.state !== "cancelled") return;
    this.over = "cancelled";
    this.stay();
    this.element.append(ending({ stop_reason: "cancelled", cancelled: row.cancelled }));
  }

  // Whoever reads the end stays there; measured once a frame, not for every word.
  stay() {
    if (this.measured) return;
    this.measured = true;
    const stays = near(this.element);
    requestAnimationFrame(() => {
      this.measured = false;
      if (stays) this.element.scrollTop = this.element.scrollHeight;
    });
  }

  group(path) {
    return this.groups.get(place(path)) || this.groups.get("[]");
  }

  call(path, callId) {
    return this.calls.get(place(path, callId));
  }

  add(path, call, group) {
    const shown = new Call(call);
    this.calls.set(place(path, call.id), shown);
    group.append(shown.element);
    return shown;
  }

  run_started(event, _group, path) {
    if (!path.length) {
      if (event.checkpoint) this.group([]).note("goes on from where it was stopped");
      return;
    }
    const parent = path.slice(0, -1);
    const call = this.call(parent, event.call_id);
    const inside = make("div", { className: "inside", role: "group", ariaLabel: `agent ${event.agent}` });
    if (call) call.result.before(inside);
    else this.group(parent).append(inside);
    this.groups.set(place(path), new Group(inside, event.agent));
  }

  message_added(event, group, path) {
    const { role, parts, cut, synthetic } = event.message;
    if (role === "user") group.said(text(parts));
    if (role !== "assistant") return;
    if (synthetic) {
      group.settle();
      group.note(text(parts));
    } else group.answer(text(parts), reasoning(parts), cut);
    for (const call of parts.filter((part) => part.type === "call")) this.add(path, call, group);
  }

  model_started(event, group) {
    group.begin(event.model, event.attempt || 1);
  }

  model_ended(event, group) {
    group.ended(event);
  }

  text_delta(event, group) {
    group.add(event.text);
  }

  reasoning_delta(event, group) {
    group.think(event.text);
  }

  partial(event, group) {
    group.replace(event.text || "", event.reasoning || "");
  }

  superseded(_event, group) {
    group.replace("", "");
    group.note("the worker of this run died; another one goes on");
  }

  tool_progress(event, _group, path) {
    this.call(path, event.call_id)?.progress(event.value);
  }

  tool_started(event, group, path) {
    const call = this.call(path, event.call_id) || this.add(path, { name: event.name, id: event.call_id }, group);
    call.started(event.at);
  }

  tool_ended(event, _group, path) {
    this.call(path, event.call_id)?.ended(event);
  }

  steered(event, group) {
    group.said(text(event.message.parts), "steered");
  }

  stop_requested(event, group) {
    const causes = event.stop.causes || [];
    const last = causes[causes.length - 1];
    if (last) group.note(`to stop ${asked(last.asked || event.stop)}: asked by ${cause(last)}`, "stop");
  }

  interrupted(event, group) {
    group.note(`asks: ${payload(event.payload)}`, "ask");
  }

  answered(event, group) {
    group.note(`answered: ${payload(event.answer)}`, "ask");
  }

  handed_over(_event, group) {
    group.note("handed over to another worker; nobody has cancelled it");
  }

  run_ended(event, group, path) {
    group.settle();
    if (path.length) return;
    this.over = event.outcome.stop_reason;
    this.stay();
    this.element.append(ending(event.outcome));
    this.onEnd();
  }
}

// One run's part of the timeline: its own, or that of a run inside it.
class Group {
  constructor(element, name) {
    this.element = element;
    this.name = name;
    this.step = null;
  }

  append(element) {
    this.element.append(element);
  }

  said(words, kind = "said") {
    this.append(make("article", { className: kind }, make("h3", {}, kind === "said" ? "asked" : kind), make("p", {}, words)));
  }

  note(words, kind = "") {
    this.append(make("p", { className: `note ${kind}` }, words));
  }

  begin(model, attempt) {
    this.settle();
    this.step = new Step(this.name || model || "model", attempt);
    this.append(this.step.element);
  }

  open() {
    if (!this.step) this.begin("", 1);
    return this.step;
  }

  add(words) {
    this.open().add(words);
  }

  think(words) {
    this.open().think(words);
  }

  replace(words, thoughts) {
    if (words || thoughts || this.step) this.open().replace(words, thoughts);
  }

  ended(event) {
    this.step?.ended(event);
  }

  answer(words, thoughts, cut) {
    const step = this.open();
    step.replace(words, thoughts);
    step.element.classList.toggle("cut", Boolean(cut));
    this.settle();
  }

  settle() {
    this.step?.settle();
    this.step = null;
  }
}

class Step {
  constructor(name, attempt) {
    this.words = document.createTextNode("");
    this.thoughts = document.createTextNode("");
    this.thinking = make("details", { hidden: true }, make("summary", {}, "reasoning"), make("p", {}, this.thoughts));
    this.facts = make("small", { className: "facts" });
    this.text = make("p", { className: "words" }, this.words);
    const title = attempt > 1 ? `${name}, attempt ${attempt}` : name;
    this.element = make("article", { className: "answer live" }, make("h3", {}, title, " ", this.facts), this.thinking, this.text);
  }

  add(words) {
    this.words.appendData(words);
  }

  think(words) {
    this.thinking.hidden = false;
    this.thoughts.appendData(words);
  }

  replace(words, thoughts) {
    if (this.words.data !== words) this.words.data = words;
    if (this.thoughts.data !== thoughts) this.thoughts.data = thoughts;
    this.thinking.hidden = !thoughts;
  }

  ended(event) {
    const facts = [event.end === "cut" ? "cut" : "", tokens(event.usage), cost(event.usage)];
    write(this.facts, facts.filter(Boolean).join(" · "));
    if (event.end === "failed") this.text.append(make("span", { className: "failed" }, ` ${event.error || "failed"}`));
  }

  settle() {
    this.element.classList.remove("live");
    this.text.hidden = !this.text.textContent.trim();
    if (this.text.hidden && this.thinking.hidden && !this.facts.textContent) this.element.remove();
  }
}

class Call {
  constructor(call) {
    this.mark = make("span", { className: "sign" });
    this.state = make("span", { className: "state" });
    this.facts = make("small", { className: "facts" });
    this.told = make("p", { className: "progress", hidden: true });
    this.result = make("div", { className: "result" });
    const given = Object.entries(call.arguments || {}).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
    const told = given.join(", ");
    this.element = make(
      "article",
      { className: "call" },
      make("h3", {}, this.mark, " ", make("b", {}, call.name), make("code", {}, `(${told.length > MANY ? `${told.slice(0, MANY)}…` : told})`), " ", this.state, " ", this.facts),
      this.told,
      this.result,
    );
    this.show("waiting");
  }

  show(state) {
    const [mark, words] = TOOL_STATES[state] || TOOL_STATES.unknown;
    this.element.dataset.state = state;
    write(this.mark, mark);
    write(this.state, words);
  }

  started(at) {
    this.began = at;
    this.show("running");
    this.result.replaceChildren();
  }

  progress(value) {
    this.told.hidden = false;
    write(this.told, payload(value));
  }

  ended(event) {
    this.show(event.again ? "again" : event.state);
    this.told.hidden = true;
    if (this.began) write(this.facts, seconds(Math.max(0, event.at - this.began)));
    const content = event.content || "";
    if (!content) return;
    const shown = make("pre", {}, content.slice(0, LONG));
    this.result.replaceChildren(shown);
    if (content.length > LONG) {
      const more = make("button", { type: "button", onclick: () => (write(shown, content), more.remove()) }, "Show all of it");
      this.result.append(more);
    }
  }
}

function ending(outcome) {
  const titles = { end_turn: "finished", cancelled: "cancelled", interrupt: "waits for an answer", limit: "ended at a limit", error: "failed" };
  const told = outcome.cancelled ? report(outcome.cancelled) : [];
  if (outcome.limit) told.push(["Limit", outcome.limit]);
  if (outcome.error) told.push(["Error", outcome.error]);
  const spent = [tokens(outcome.usage), cost(outcome.usage)].filter(Boolean).join(" · ");
  if (spent) told.push(["Spent", spent]);
  const facts = told.flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, words)]);
  return make("section", { className: `ending ${outcome.stop_reason}` }, make("h3", {}, titles[outcome.stop_reason]), make("dl", {}, ...facts));
}

function text(parts) {
  return parts.filter((part) => part.type === "text").map((part) => part.text).join("");
}

function reasoning(parts) {
  return parts.filter((part) => part.type === "reasoning").map((part) => part.text).join("");
}

function place(path, ...more) {
  return JSON.stringify([...path, ...more]); // ids are a model's words: no character could part them
}

function near(element) {
  return element.scrollHeight - element.scrollTop - element.clientHeight < 80;
}
