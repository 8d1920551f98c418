// Api: what the console asks of the server, and the events that it reads from there.

const TOKEN = "andon-token";
let askForToken = async () => null;

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the server answered ${status}`);
    this.status = status;
  }
}

export function onTokenNeeded(ask) {
  askForToken = ask;
}

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function send(path, options, again = true) {
  const response = await fetch(path, { ...options, headers: headers(options.headers) });
  if (response.status === 401 && again) {
    const token = await askForToken();
    if (token) {
      sessionStorage.setItem(TOKEN, token);
      return send(path, options, false);
    }
  }
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Problem(response.status, body);
  }
  return response;
}

export async function get(path) {
  return (await send(path, { method: "GET" })).json();
}

export async function post(path, body = {}) {
  const response = await send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return response.json();
}

export function sessionPath(row) {
  const [app, user, session] = [row.app, row.user, row.session].map(encodeURIComponent);
  return `/apps/${app}/users/${user}/sessions/${session}`;
}

// Reads server-sent events until the stream says that it has ended, or `signal` is aborted. A connection
// that is lost is opened again behind the last event that came.
export async function follow(path, take, { signal, onState }) {
  let last = null;
  let pause = 500;
  while (!signal.aborted) {
    try {
      const more = last === null ? {} : { "Last-Event-ID": last };
      const response = await send(path, { headers: { Accept: "text/event-stream", ...more }, signal });
      onState("connected");
      pause = 500;
      for await (const event of events(response.body)) {
        if (event.id) last = event.id;
        if (event.kind === "end") return;
        if (event.data) take(event.kind, JSON.parse(event.data));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status < 500 && error.status !== 429) throw error;
    }
    onState("reconnecting");
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 10_000);
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
