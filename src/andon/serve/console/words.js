// Words: how states, times and stops are told to a person.

export const STATES = {
  queued: ["○", "queued"],
  running: ["●", "running"],
  stopping: ["◐", "stopping"],
  quarantined: ["!", "in quarantine"],
  finished: ["✓", "finished"],
  cancelled: ["■", "cancelled"],
  interrupted: ["?", "waits for an answer"],
  limit: ["▲", "ended at a limit"],
  failed: ["✗", "failed"],
};

export const LIVE = new Set(["queued", "running", "stopping", "quarantined"]);

export const TOOL_STATES = {
  waiting: ["○", "not started yet"],
  running: ["●", "running"],
  completed: ["✓", "completed"],
  failed: ["✗", "failed"],
  not_started: ["–", "not started"],
  unknown: ["?", "stopped; whether it took effect is not known"],
  again: ["…", "goes on when the run is resumed"],
};

const PLACES = {
  before_start: "before it started",
  model: "in a model call, which was cut; the partial answer is kept",
  "point:model": "at a safe point: an answer was complete, and none of its tools had started",
  tools: "in a round of tools, which were cut",
  "point:tools": "at a safe point: every tool of the round had ended",
  "point:step": "between two steps",
  paused: "while it waited for an answer",
};

const RESULTS = {
  STOPPED: "stopped, as asked",
  ESCALATED: "stopped at once, because no safe point came within the grace",
  FINISHED_FIRST: "it had ended by itself before the stop took effect",
  NOTHING_RUNNING: "nothing was running",
};

const POINTS = { 1: "anywhere in a model call", 2: "after the model", 4: "after the tools" };

export function seconds(value) {
  if (value < 0.001) return "less than 1 ms";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

export function age(row, now) {
  return seconds(Math.max(0, (row.ended || now) - (row.began || row.queued)));
}

export function asked(stop) {
  if (!stop || stop.now) return "now";
  const where = Object.entries(POINTS).filter(([bit]) => (stop.points || 0) & bit);
  const words = where.map(([, word]) => word).join(" or ");
  return stop.grace ? `${words}, within ${stop.grace} s` : words;
}

export function cause(one) {
  const by = one.by ? `${one.source || "code"} ${one.by}` : one.source || "code";
  return one.reason ? `${by}: “${one.reason}”` : by;
}

export function payload(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 1);
}

// What a stop report says, as pairs of a name and words.
export function report(given) {
  const told = [["Result", RESULTS[given.result] || given.result]];
  if (given.stopped_at) told.push(["Where", PLACES[given.stopped_at] || given.stopped_at]);
  for (const one of given.causes || []) {
    told.push(["Asked by", `${cause(one)} (asked for: ${asked(one.asked)})`]);
  }
  if (given.escalated_by) {
    const why = given.escalated_by === "timeout" ? "the grace ran out" : "a later request asked for more";
    told.push(["Escalated", why]);
  }
  told.push(["Took", seconds(given.latency || 0)]);
  for (const work of given.abandoned || []) {
    told.push(["Abandoned", `${work.name} would not stop; what it may still give is not used`]);
  }
  if (given.durable === false) told.push(["Not durable", given.checkpoint_error || "it could not be stored"]);
  return told;
}

export function tokens(usage = {}) {
  const count = (usage.input_tokens || 0) + (usage.output_tokens || 0);
  return count ? `${usage.estimated ? "≈" : ""}${count.toLocaleString("en")} tokens` : "";
}

export function cost(usage = {}) {
  return usage.cost ? `$${usage.cost.toFixed(usage.cost < 0.01 ? 4 : 2)}` : "";
}
