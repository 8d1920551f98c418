// Verbs: the buttons and forms by which a person cancels, steers, answers, resumes and starts runs.

import { get, post, sessionPath } from "./api.js";
import { make, step, write } from "./dom.js";
import { LIVE, payload, report } from "./words.js";

export class Verbs {
  constructor({ row, onRun, onChange }) {
    this.onRun = onRun;
    this.onChange = onChange;
    this.told = make("p", { className: "told", role: "status", ariaLive: "polite" });
    this.bar = make("div", { className: "bar" });
    this.asked = make("div", { className: "questions" });
    this.element = make("section", { className: "verbs", ariaLabel: "What you can do" }, this.asked, this.bar, this.told);
    this.update(row);
  }

  update(row) {
    this.row = row;
    const asks = row.state === "interrupted" && !row.went_on_as && (row.interrupts || []).length > 0;
    const kind = LIVE.has(row.state) ? "live" : asks ? "asks" : `${row.state} ${row.went_on_as || ""}`;
    if (kind === this.kind) return;
    this.kind = kind;
    const held = this.element.contains(document.activeElement);
    this.asked.replaceChildren(...(asks ? [this.answerForm()] : []));
    this.bar.replaceChildren(...this.buttons());
    if (held) this.element.querySelector("input, button, summary")?.focus(); // what had the focus is gone
  }

  buttons() {
    if (this.kind === "live") return [this.cancelMenu(), this.steerForm()];
    if (this.kind === "asks") return [this.cancelMenu(), this.pushForm()];
    const next = this.row.went_on_as;
    if (next) return [make("a", { href: `#/runs/${next}` }, "It went on as another run"), this.pushForm()];
    const dropped = this.row.cancelled?.stopped_at === "paused"; // nothing is left of it to go on from
    if (dropped || !["cancelled", "limit", "failed"].includes(this.row.state)) return [this.pushForm()];
    return [make("button", { type: "button", onclick: () => this.resume() }, "Resume"), this.pushForm()];
  }

  cancelMenu() {
    const grace = make("input", { type: "number", name: "grace", min: "0.1", step: "any", placeholder: "none", inputMode: "decimal" });
    const reason = make("input", { type: "text", name: "reason", maxLength: 1000 });
    const ask = (at) => {
      this.cancel(at, Number(grace.value) || null, reason.value.trim() || null);
      grace.value = reason.value = "";
    };
    const button = (name, at, className = "") => make("button", { type: "button", className, onclick: () => ask(at) }, name);
    const now = button("Now", null, "danger");
    const buttons = [now, button("After the model", ["model"]), button("After the tools", ["tools"]), button("After either", ["model", "tools"])];
    const points = make("fieldset", {}, make("legend", {}, "Or at a safe point"), ...buttons.slice(1), make("label", {}, "Grace in seconds; then now", grace));
    const panel = make("div", { className: "panel" }, make("label", {}, "Reason", reason), now, points);
    const menu = make("details", { className: "menu" }, make("summary", { accessKey: "c" }, "Cancel ▾"), panel);
    menu.addEventListener("toggle", () => menu.open && now.focus());
    menu.addEventListener("keydown", (event) => {
      step(event, buttons);
      if (event.key === "Escape") this.closeMenu();
    });
    menu.addEventListener("focusout", (event) => {
      if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
    });
    return menu;
  }

  closeMenu() {
    const menu = this.bar.querySelector(".menu");
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  }

  async cancel(at, grace, reason) {
    const asked = { ...(at ? { at } : {}), ...(at && grace ? { grace } : {}), ...(reason ? { reason } : {}) };
    this.closeMenu();
    this.say(at ? "Asked to stop; it stops at the point." : "Asked to stop.");
    await this.do(async () => {
      const given = await post(`/runs/${this.row.run_id}:cancel`, { ...asked, wait: 60 });
      if (given.result) this.say(report(given).map(([name, words]) => `${name}: ${words}`).slice(0, 2).join(" · "));
      else this.say("It has not stopped yet; the request stands.");
    });
    this.onChange();
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

  answerForm() {
    const fields = this.row.interrupts.map((interrupt) => {
      const way = (interrupt.path || []).join(" → ");
      const input = make("input", { type: "text", required: true, name: interrupt.id, autocomplete: "off" });
      const inside = way ? make("small", {}, ` asked by ${way}`) : null;
      return make("label", {}, make("b", {}, payload(interrupt.payload)), inside, input);
    });
    const answer = form("Answer", () =>
      this.do(async () => {
        const answers = Object.fromEntries(new FormData(answer));
        const given = await post(`${sessionPath(this.row)}:answer`, { answers });
        this.onRun(given.run_id);
      }), ...fields);
    answer.className = "answer-form";
    return answer;
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
  const made = make("form", { className: "verb" }, ...fields, make("button", { type: "submit", className: "primary" }, name));
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

// Gives a token, or null if whoever is asked has none.
export function askToken(why) {
  return new Promise((resolve) => {
    const token = make("input", { type: "password", name: "token", required: true, autocomplete: "off" });
    const dialog = make("dialog", { ariaLabel: "Token" });
    const close = make("button", { type: "button", onclick: () => dialog.close() }, "Close");
    const use = make("button", { type: "submit", className: "primary" }, "Use it");
    const bar = make("div", { className: "bar" }, close, use);
    const told = make("p", { className: "dim" }, why);
    const asked = make("form", { method: "dialog" }, make("h2", {}, "Who are you?"), told, make("label", {}, "Token", token), bar);
    let given = null;
    asked.addEventListener("submit", () => (given = token.value.trim() || null));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
    dialog.append(asked);
    document.body.append(dialog);
    dialog.showModal();
  });
}
