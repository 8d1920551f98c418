// Verbs: the buttons and forms by which a person cancels, steers, answers, resumes and starts runs.

import { get, post, sessionPath } from "./api.js";
import { make, write } from "./dom.js";
import { LIVE, report } from "./words.js";

export class Verbs {
  constructor({ row, onRun }) {
    this.row = row;
    this.onRun = onRun;
    this.questions = new Map();
    this.told = make("p", { className: "told", role: "status", ariaLive: "polite" });
    this.bar = make("div", { className: "bar" });
    this.asked = make("div", { className: "questions" });
    this.element = make("div", { className: "verbs" }, this.asked, this.bar, this.told);
    this.update(row);
  }

  update(row) {
    const before = this.row && this.built ? this.kind() : null;
    this.row = row;
    if (this.kind() === before) return;
    this.built = true;
    this.bar.replaceChildren(...this.buttons());
  }

  kind() {
    return LIVE.has(this.row.state) ? "live" : this.row.state;
  }

  buttons() {
    if (this.kind() === "live") return [this.cancelMenu(), this.steerForm()];
    const made = [this.pushForm()];
    const goesOn = ["cancelled", "limit", "failed"].includes(this.row.state) && !this.row.went_on_as;
    if (goesOn) made.unshift(make("button", { type: "button", onclick: () => this.resume() }, "Resume"));
    return made;
  }

  cancelMenu() {
    const grace = make("input", { type: "number", name: "grace", min: "0.1", step: "any", placeholder: "none", inputMode: "decimal" });
    const reason = make("input", { type: "text", name: "reason", maxLength: 1000, placeholder: "why" });
    const ask = (at) => () => {
      menu.open = false;
      this.cancel(at, Number(grace.value) || null, reason.value.trim() || null);
    };
    const menu = make(
      "details",
      { className: "menu" },
      make("summary", { accessKey: "c" }, "Cancel ▾"),
      make(
        "div",
        { className: "panel" },
        make("button", { type: "button", className: "danger", onclick: ask(null) }, "Now"),
        make("button", { type: "button", onclick: ask(["model"]) }, "After the model"),
        make("button", { type: "button", onclick: ask(["tools"]) }, "After the tools"),
        make("button", { type: "button", onclick: ask(["model", "tools"]) }, "At the next safe point"),
        make("label", {}, "Grace, in seconds; then now", grace),
        make("label", {}, "Reason", reason),
      ),
    );
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      menu.open = false;
      menu.querySelector("summary").focus();
    });
    return menu;
  }

  async cancel(at, grace, reason) {
    const asked = { ...(at ? { at } : {}), ...(at && grace ? { grace } : {}), ...(reason ? { reason } : {}) };
    this.say(at ? "Asked to stop; it stops at the point." : "Asked to stop.");
    await this.do(async () => {
      const given = await post(`/runs/${this.row.run_id}:cancel`, { ...asked, wait: 60 });
      if (given.result) this.say(report(given).map(([name, words]) => `${name}: ${words}`).slice(0, 2).join(" · "));
      else this.say("It has not stopped yet; the request stands.");
    });
  }

  steerForm() {
    const words = make("input", { type: "text", required: true, placeholder: "Say something to it", ariaLabel: "Steer", accessKey: "s" });
    const when = make(
      "select",
      { ariaLabel: "When it is heard" },
      make("option", { value: "next" }, "at the next call"),
      make("option", { value: "now" }, "now"),
      make("option", { value: "idle" }, "at the end"),
    );
    return form("Steer", async () => {
      const said = words.value.trim();
      if (!said) return;
      await this.do(async () => {
        await post(`/runs/${this.row.run_id}:steer`, { input: said, when: when.value });
        words.value = "";
        this.say("Said.");
      });
    }, words, when);
  }

  pushForm() {
    const words = make("input", { type: "text", required: true, placeholder: "Say something more", ariaLabel: "Say something more" });
    return form("Send", () =>
      this.do(async () => {
        const run = await post(`${sessionPath(this.row)}/runs`, { input: words.value });
        this.onRun(run.run_id);
      }), words);
  }

  resume() {
    return this.do(async () => {
      const given = await post(`${sessionPath(this.row)}:resume`);
      if (given.run_id) this.onRun(given.run_id);
    });
  }

  // A question is shown when it was asked; it can be answered once the run waits for that.
  ask(question) {
    this.questions.set(question.id, question);
  }

  waits(outcome) {
    if (outcome.stop_reason !== "interrupt") return;
    const fields = outcome.interrupts.map((interrupt) => {
      const input = make("input", { type: "text", required: true, name: interrupt.id });
      const payload = interrupt.payload;
      const words = typeof payload === "string" ? payload : JSON.stringify(payload, null, 1);
      const way = (interrupt.path || []).join(" → ");
      return make("label", {}, make("b", {}, words), way ? make("small", {}, ` asked by ${way}`) : null, input);
    });
    const answer = form("Answer", () =>
      this.do(async () => {
        const answers = Object.fromEntries(new FormData(answer));
        const given = await post(`${sessionPath(this.row)}:answer`, { answers });
        this.onRun(given.run_id);
      }), ...fields);
    answer.className = "answer-form";
    this.asked.replaceChildren(answer);
    answer.querySelector("input")?.focus();
  }

  say(words) {
    write(this.told, words);
  }

  async do(act) {
    try {
      await act();
    } catch (error) {
      this.say(error.message);
      this.told.classList.add("failed");
      return;
    }
    this.told.classList.remove("failed");
  }
}

function form(name, act, ...fields) {
  const made = make("form", { className: "verb" }, ...fields, make("button", { type: "submit" }, name));
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = made.querySelector("button");
    button.disabled = true;
    await act();
    button.disabled = false;
  });
  return made;
}

export async function newRun(onRun) {
  const apps = await get("/list-apps");
  const app = make("select", { name: "app", required: true }, ...apps.map((name) => make("option", { value: name }, name)));
  const user = make("input", { name: "user", required: true, value: localStorage.getItem("andon-user") || "me", pattern: "[A-Za-z0-9_.@+=~\\-]{1,128}" });
  const prompt = make("textarea", { name: "prompt", required: true, rows: 4, autofocus: true });
  const told = make("p", { className: "told failed", role: "alert" });
  const dialog = make(
    "dialog",
    { ariaLabel: "New run" },
    make(
      "form",
      { method: "dialog" },
      make("h2", {}, "New run"),
      make("label", {}, "App", app),
      make("label", {}, "User", user),
      make("label", {}, "Prompt", prompt),
      told,
      make("div", { className: "bar" }, make("button", { type: "button", onclick: () => dialog.close() }, "Close"), make("button", { type: "submit", className: "primary" }, "Start")),
    ),
  );
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) dialog.querySelector("form").requestSubmit();
  });
  dialog.addEventListener("close", () => dialog.remove());
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      localStorage.setItem("andon-user", user.value);
      const sessions = `/apps/${encodeURIComponent(app.value)}/users/${encodeURIComponent(user.value)}/sessions`;
      const session = await post(sessions);
      const run = await post(`${sessions}/${encodeURIComponent(session.id)}/runs`, { input: prompt.value });
      dialog.close();
      onRun(run.run_id);
    } catch (error) {
      write(told, error.message);
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

export function askToken() {
  return new Promise((resolve) => {
    const token = make("input", { type: "password", required: true, autocomplete: "off" });
    const dialog = make(
      "dialog",
      { ariaLabel: "Token" },
      make("form", { method: "dialog" }, make("h2", {}, "This server asks for a token"), make("label", {}, "Token", token), make("button", { type: "submit", className: "primary" }, "Use it")),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(token.value.trim() || null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
