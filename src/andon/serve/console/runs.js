// Runs: the list of runs, kept in step with the server; a row is touched only when it has changed.

import { get } from "./api.js";
import { make, write } from "./dom.js";
import { LIVE, STATES, cost, seconds, tokens } from "./words.js";

const EVERY = 1000; // milliseconds between two looks, while the page is seen
const MOST = 1000;

export class Runs {
  constructor({ list, count, filter, onHealth }) {
    this.list = list;
    this.count = count;
    this.filter = filter;
    this.onHealth = onHealth;
    this.rows = new Map();
    this.current = null;
    filter.addEventListener("input", () => this.look());
    filter.addEventListener("submit", (event) => event.preventDefault());
    list.addEventListener("keydown", (event) => this.step(event));
    document.addEventListener("visibilitychange", () => this.look());
  }

  start() {
    this.look();
  }

  async look() {
    clearTimeout(this.timer);
    const turn = (this.turn = (this.turn || 0) + 1);
    if (!document.hidden) {
      try {
        const state = new FormData(this.filter).get("state");
        const query = new URLSearchParams({ limit: MOST });
        for (const one of state.split(" ").filter(Boolean)) query.append("state", one);
        const found = await get(`/runs?${query}`);
        if (turn !== this.turn) return;
        this.show(found.runs, found.next !== null);
        this.onHealth("");
      } catch (error) {
        this.onHealth(error.status ? error.message : "The server cannot be reached; trying again.");
      }
    }
    if (turn === this.turn) this.timer = setTimeout(() => this.look(), EVERY);
  }

  show(runs, areMore) {
    const words = new FormData(this.filter).get("text").trim().toLowerCase();
    const wanted = words ? runs.filter((row) => told(row).includes(words)) : runs;
    const now = Date.now() / 1000;
    const seen = new Set();
    wanted.forEach((row, place) => {
      seen.add(row.run_id);
      const item = this.rows.get(row.run_id) || this.add(row.run_id);
      item.update(row, now);
      const there = this.list.children[place];
      if (there !== item.element) this.list.insertBefore(item.element, there || null);
    });
    for (const [runId, item] of this.rows) {
      if (seen.has(runId)) continue;
      item.element.remove();
      this.rows.delete(runId);
    }
    const live = runs.filter((row) => LIVE.has(row.state)).length;
    const more = areMore ? `; the newest ${runs.length} are shown` : "";
    const named = wanted.length === 1 ? "1 run" : `${wanted.length} runs`;
    write(this.count, wanted.length ? `${named}, ${live} live${more}` : "No runs to show.");
  }

  add(runId) {
    const item = new Row(runId);
    this.rows.set(runId, item);
    item.choose(runId === this.current);
    return item;
  }

  choose(runId) {
    this.rows.get(this.current)?.choose(false);
    this.current = runId;
    this.rows.get(runId)?.choose(true);
  }

  step(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    const links = [...this.list.querySelectorAll("a")];
    const next = links[links.indexOf(document.activeElement) + by];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }
}

class Row {
  constructor(runId) {
    this.sign = make("span", { className: "sign", ariaHidden: "true" });
    this.state = make("span", { className: "state" });
    this.prompt = make("span", { className: "prompt" });
    this.where = make("span", { className: "where" });
    this.facts = make("span", { className: "facts" });
    this.link = make(
      "a",
      { href: `#/runs/${runId}` },
      make("span", { className: "line" }, this.sign, this.prompt),
      make("span", { className: "line dim" }, this.where, this.facts),
      this.state,
    );
    this.element = make("li", {}, this.link);
    this.was = "";
  }

  update(row, now) {
    const is = JSON.stringify(row);
    if (is !== this.was) {
      this.was = is;
      const [mark, words] = STATES[row.state];
      this.element.dataset.state = row.state;
      write(this.sign, mark);
      write(this.state, words);
      write(this.prompt, row.prompt || row.run_id);
      write(this.where, `${row.app} · ${row.user}`);
    }
    const age = seconds(Math.max(0, (row.ended || now) - (row.began || row.queued)));
    const facts = [row.step, age, tokens(row.usage), cost(row.usage)];
    write(this.facts, facts.filter(Boolean).join(" · "));
  }

  choose(chosen) {
    if (chosen) this.link.setAttribute("aria-current", "true");
    else this.link.removeAttribute("aria-current");
  }
}

function told(row) {
  return [row.app, row.user, row.session, row.run_id, row.prompt, row.by].join(" ").toLowerCase();
}

