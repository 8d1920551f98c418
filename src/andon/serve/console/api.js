// Api: what the console asks of the server, and the events that it reads from there.

const TOKEN = "andon-token";
const FIRST_PAUSE = 500; // milliseconds before a lost connection is opened again; then twice as long, and so on
const LONGEST_PAUSE = 10_000;
let askForToken = async () => null;

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the server answered ${status}`);
    this.status = status;
  }
}

// `ask(why)` gives a token, or null if there is none.
export function onTokenNeeded(ask) {
  askForToken = ask;
}

async function send(path, options) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = token ? { ...options.headers, Authorization: `Bearer ${token}` } : options.headers;
    const response = await fetch(path, { ...options, headers });
    if (response.ok) return response;
    const problem = new Problem(response.status, await response.json().catch(() => ({})));
    if (response.status !== 401) throw problem;
    if (sessionStorage.getItem(TOKEN) !== token) continue; // another request was given one meanwhile
    const given = await askForToken(problem.message);
    if (!given) throw problem;
    sessionStorage.setItem(TOKEN, given);
  }
}

export async function get(path) {
  return (await send(path, { method: "GET" })).json();
}

export async function post(path, body = {}) {
  const headers = { "Content-Type": "application/json" };
  return (await send(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

export function sessionPath(row) {
  const [app, user, session] = [row.app, row.user, row.session].map(encodeURIComponent);
  return `/apps/${app}/users/${user}/sessions/${session}`;
}

// Reads server-sent events until `isOver()` when a stream ends, or `signal` is aborted. A connection that is
// lost is opened again behind the last event that came. A page that nobody sees reads nothing: browsers open
// six connections to a server, and the buttons of another tab need one.
export async function follow(path, take, { signal, isOver, onState }) {
  let last = null;
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    await seen(signal);
    const hidden = whenHidden();
    try {
      const headers = { Accept: "text/event-stream", ...(last === null ? {} : { "Last-Event-ID": last }) };
      const response = await send(path, { headers, signal: AbortSignal.any([signal, hidden.signal]) });
      onState("connected");
      pause = FIRST_PAUSE;
      for await (const event of events(response.body)) {
        if (event.id) last = event.id;
        if (event.kind !== "end" && event.data) take(event.kind, JSON.parse(event.data));
      }
      if (isOver()) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status < 500 && error.status !== 429) throw error;
    } finally {
      hidden.abort();
    }
    if (document.hidden) continue;
    onState("reconnecting");
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

function whenHidden() {
  const hidden = new AbortController();
  const look = () => document.hidden && hidden.abort();
  document.addEventListener("visibilitychange", look, { signal: hidden.signal });
  return hidden;
}

async function seen(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    yield* blocks.map(parse).filter((event) => event !== null);
  }
}

function parse(block) {
  const event = { id: null, kind: "message", data: "" };
  let said = false;
  for (const line of block.split("\n")) {
    if (line.startsWith(":") || !line) continue;
    const at = line.indexOf(":");
    const value = line.slice(at + 1).replace(/^ /, "");
    said = true;
    if (line.startsWith("id:")) event.id = value;
    else if (line.startsWith("event:")) event.kind = value;
    else if (line.startsWith("data:")) event.data += (event.data && "\n") + value;
  }
  return said ? event : null;
}
