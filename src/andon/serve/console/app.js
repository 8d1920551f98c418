// App: one page: the list of runs, and the one that is looked at.

import { follow, get, onTokenNeeded } from "./api.js";
import { make, sign, write } from "./dom.js";
import { Runs } from "./runs.js";
import { Timeline } from "./timeline.js";
import { Verbs, askToken, newRun } from "./verbs.js";
import { LIVE, STATES, cost, seconds, tokens } from "./words.js";

const main = document.getElementById("main");
const health = document.getElementById("health");
const runs = new Runs({
  list: document.getElementById("runs"),
  count: document.getElementById("count"),
  filter: document.getElementById("filter"),
  onHealth: (words) => write(health, words),
});

let asking = null;
onTokenNeeded(() => (asking ||= askToken().finally(() => (asking = null))));

let open = null;

function go(runId) {
  location.hash = `#/runs/${runId}`;
}

function show() {
  const [, runId] = location.hash.match(/^#\/runs\/([^/]+)$/) || [];
  open?.abort();
  runs.choose(runId || null);
  document.body.classList.toggle("looks", Boolean(runId));
  if (!runId) {
    main.replaceChildren(make("p", { className: "empty" }, "Choose a run, or begin a new one."));
    return;
  }
  open = new AbortController();
  look(runId, open.signal).catch((error) => {
    main.replaceChildren(make("p", { className: "empty failed", role: "alert" }, error.message));
  });
}

async function look(runId, signal) {
  const row = await get(`/runs/${encodeURIComponent(runId)}`);
  if (signal.aborted) return;
  const head = new Head(row);
  const verbs = new Verbs({ row, onRun: go });
  const story = make("div", { className: "timeline", tabIndex: 0, role: "log", ariaLabel: "Timeline", ariaLive: "off" });
  const timeline = new Timeline({
    element: story,
    onQuestion: (question) => verbs.ask(question),
    onEnd: async (outcome) => {
      verbs.waits(outcome);
      await refresh();
    },
  });
  main.replaceChildren(head.element, story, verbs.element);

  async function refresh() {
    const fresh = await get(`/runs/${encodeURIComponent(runId)}`);
    if (signal.aborted) return;
    head.update(fresh);
    verbs.update(fresh);
    return fresh;
  }

  const timer = setInterval(() => {
    if (!document.hidden && LIVE.has(head.row.state)) refresh().catch(() => {});
    head.tick();
  }, 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
  await follow(`/runs/${encodeURIComponent(runId)}/events`, (kind, event) => timeline.take({ type: kind, ...event }), {
    signal,
    onState: (state) => head.connection(state),
  });
  head.connection("ended");
}

class Head {
  constructor(row) {
    this.state = make("span", { className: "state" });
    this.facts = make("p", { className: "facts dim" });
    this.link = make("span", { className: "connection", role: "status" });
    this.back = make("a", { href: "#/", className: "back" }, "← Runs");
    this.element = make("header", { className: "head" }, this.back, make("h2", {}, row.prompt || "Run"), make("p", {}, this.state, " ", this.link), this.facts);
    this.update(row);
  }

  update(row) {
    this.row = row;
    this.element.dataset.state = row.state;
    this.state.replaceChildren(sign(STATES[row.state]), ` ${STATES[row.state][1]}`);
    document.title = `${STATES[row.state][0]} ${row.prompt || row.run_id} · Andon`;
    this.tick();
  }

  tick() {
    const row = this.row;
    const age = seconds(Math.max(0, (row.ended || Date.now() / 1000) - (row.began || row.queued)));
    const facts = [`${row.app} · ${row.user} · ${row.session}`, `run ${row.run_id}`, row.step, age, tokens(row.usage), cost(row.usage)];
    write(this.facts, facts.filter(Boolean).join(" · "));
  }

  connection(state) {
    write(this.link, state === "reconnecting" ? "connection lost; trying again" : "");
  }
}

document.getElementById("new-run").addEventListener("click", () => newRun(go).catch((error) => write(health, error.message)));
window.addEventListener("hashchange", show);
show();
runs.start();
