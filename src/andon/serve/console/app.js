// App: one page: the list of runs, and the one that is looked at.

import { follow, get, onTokenNeeded } from "./api.js";
import { make, sign, write } from "./dom.js";
import { Runs } from "./runs.js";
import { Timeline } from "./timeline.js";
import { Verbs, askToken, newRun } from "./verbs.js";
import { STATES, age, cost, tokens } from "./words.js";

const main = document.getElementById("main");
const health = document.getElementById("health");
const key = document.getElementById("key");
const AGAIN = 1000; // milliseconds
const runs = new Runs({
  list: document.getElementById("runs"),
  count: document.getElementById("count"),
  filter: document.getElementById("filter"),
  onHealth: (words) => write(health, words),
});

let asking = null;
let withheld = false;
onTokenNeeded(async (why) => {
  if (withheld) return null;
  asking ||= askToken(why).finally(() => (asking = null));
  const token = await asking;
  withheld = !token;
  key.hidden = !withheld;
  return token;
});
key.addEventListener("click", () => {
  withheld = false;
  key.hidden = true;
  runs.look();
  show();
});

let open = null;

function go(runId) {
  location.hash = `#/runs/${runId}`;
  main.focus();
}

function show() {
  const [, runId] = location.hash.match(/^#\/runs\/([^/]+)$/) || [];
  open?.abort();
  runs.choose(runId || null);
  document.body.classList.toggle("looks", Boolean(runId));
  if (!runId) {
    document.title = "Andon";
    main.replaceChildren(make("p", { className: "empty" }, "Choose a run, or begin a new one."));
    return;
  }
  const mine = (open = new AbortController());
  look(runId, mine.signal).catch((error) => {
    if (mine.signal.aborted) return;
    const words = error.status ? error.message : "The server cannot be reached; trying again.";
    main.replaceChildren(make("p", { className: "empty failed", role: "alert" }, words));
    if (!error.status) setTimeout(() => mine.signal.aborted || show(), AGAIN);
  });
}

async function look(runId, signal) {
  const path = `/runs/${encodeURIComponent(runId)}`;
  const row = await get(path);
  if (signal.aborted) return;
  const head = new Head(row);
  const verbs = new Verbs({ row, onRun: go, onChange: refresh });
  const story = make("div", { className: "timeline", tabIndex: 0, role: "log", ariaLabel: "Timeline", ariaLive: "off" });
  const timeline = new Timeline({ element: story, onEnd: refresh });
  main.replaceChildren(head.element, story, verbs.element);

  async function refresh() {
    const fresh = await get(path).catch(() => null); // what is lost here comes with the next look
    if (signal.aborted || !fresh) return;
    head.update(fresh);
    verbs.update(fresh);
    timeline.know(fresh);
  }

  const timer = setInterval(() => (document.hidden ? null : refresh()), AGAIN);
  signal.addEventListener("abort", () => clearInterval(timer));
  await follow(`${path}/events`, (kind, event) => timeline.take({ type: kind, ...event }), {
    signal,
    isOver: () => timeline.over,
    onState: (state) => head.connection(state),
  });
}

class Head {
  constructor(row) {
    this.state = make("span", { className: "state", role: "status" });
    this.facts = make("p", { className: "facts dim" });
    this.spent = make("span", { className: "dim" });
    this.link = make("span", { className: "connection failed", role: "status" });
    this.back = make("a", { href: "#/", className: "back" }, "← Runs");
    this.element = make("header", { className: "head" }, this.back, make("h2", {}, row.prompt || "Run"), make("p", {}, this.state, this.spent, " ", this.link), this.facts);
    this.update(row);
  }

  update(row) {
    if (this.element.dataset.state !== row.state) this.state.replaceChildren(sign(STATES[row.state]), ` ${STATES[row.state][1]}`);
    this.element.dataset.state = row.state;
    document.title = `${STATES[row.state][0]} ${row.prompt || row.run_id} · Andon`;
    const spent = [row.step, age(row, Date.now() / 1000), tokens(row.usage), cost(row.usage)];
    write(this.spent, ["", ...spent.filter(Boolean)].join(" · "));
    write(this.facts, `${row.app} · ${row.user} · session ${row.session} · run ${row.run_id}`);
  }

  connection(state) {
    write(this.link, state === "reconnecting" ? "connection lost; trying again" : "");
  }
}

document.getElementById("new-run").addEventListener("click", () => newRun(go).catch((error) => write(health, error.message)));
window.addEventListener("hashchange", show);
document.addEventListener("pointerdown", (event) => {
  const menu = document.querySelector(".menu[open]");
  if (menu && !menu.contains(event.target)) menu.open = false;
});
show();
runs.look();
