// Runs: the list of runs, kept in step with the server; a row is touched only when it has changed.

import { get } from "./api.js";
import { make, step, write } from "./dom.js";
import { LIVE, STATES, age, cost, tokens } from "./words.js";

const EVERY = 1000; // milliseconds between two looks, while the page is seen
const MOST = 1000;

export class Runs {
  constructor({ list, count, filter, onHealth }) {
    this.list = list;
    this.count = count;
    this.filter = filter;
    this.onHealth = onHealth;
    this.found = { runs: [], next: null };
    this.rows = new Map();
    this.current = null;
    this.stop = null; // the one link that Tab reaches: a thousand would be in the way
    filter.elements.state.addEventListener("change", () => this.look());
    filter.elements.text.addEventListener("input", () => this.show());
    filter.addEventListener("submit", (event) => event.preventDefault());
    list.addEventListener("keydown", (event) => step(event, [...list.querySelectorAll("a")]));
    list.addEventListener("focusin", (event) => this.reach(event.target.closest("a")));
    document.addEventListener("visibilitychange", () => this.look());
  }

  async look() {
    clearTimeout(this.timer);
    const turn = (this.turn = (this.turn || 0) + 1);
    const began = performance.now();
    if (!document.hidden) {
      try {
        const query = new URLSearchParams({ limit: MOST });
        for (const one of this.filter.elements.state.value.split(" ").filter(Boolean)) query.append("state", one);
        const found = await get(`/runs?${query}`);
        if (turn !== this.turn) return;
        this.found = found;
        this.show();
        this.onHealth("");
      } catch (error) {
        if (turn !== this.turn) return;
        this.onHealth(error.status ? error.message : "The server cannot be reached; trying again.");
      }
    }
    this.timer = setTimeout(() => this.look(), Math.max(EVERY, 4 * (performance.now() - began)));
  }

  show() {
    const { runs, next } = this.found;
    const words = this.filter.elements.text.value.trim().toLowerCase();
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
    if (!this.stop?.isConnected) this.reach((this.rows.get(this.current)?.element || this.list).querySelector("a"));
    const live = wanted.filter((row) => LIVE.has(row.state)).length;
    const more = next === null ? "" : `; the newest ${runs.length} are looked at`;
    const named = wanted.length === 1 ? "1 run" : `${wanted.length} runs`;
    write(this.count, wanted.length ? `${named}, ${live} live${more}` : `No runs to show${more}.`);
  }

  add(runId) {
    const item = new Row(runId);
    this.rows.set(runId, item);
    if (runId === this.current) this.choose(runId);
    return item;
  }

  choose(runId) {
    this.rows.get(this.current)?.choose(false);
    this.current = runId;
    const item = this.rows.get(runId);
    item?.choose(true);
    if (item) this.reach(item.link);
  }

  reach(link) {
    if (this.stop) this.stop.tabIndex = -1;
    this.stop = link;
    if (link) link.tabIndex = 0;
  }
}

class Row {
  constructor(runId) {
    this.sign = make("span", { className: "sign", ariaHidden: "true" });
    this.state = make("span", { className: "state" });
    this.prompt = make("span", { className: "prompt" });
    this.where = document.createTextNode("");
    this.age = make("span", { className: "facts" });
    this.facts = make("span", { className: "facts" });
    this.link = make(
      "a",
      { href: `#/runs/${runId}`, tabIndex: -1 },
      make("span", { className: "line" }, this.sign, this.prompt, this.age),
      make("span", { className: "line dim" }, make("span", { className: "where" }, this.state, this.where), this.facts),
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
      write(this.where, ` · ${row.app} · ${row.user}`);
      write(this.facts, [row.step, tokens(row.usage), cost(row.usage)].filter(Boolean).join(" · "));
    }
    write(this.age, age(row, now));
  }

  choose(chosen) {
    if (chosen) this.link.setAttribute("aria-current", "true");
    else this.link.removeAttribute("aria-current");
  }
}

function told(row) {
  return [row.app, row.user, row.session, row.run_id, row.prompt, row.by].join(" ").toLowerCase();
}

