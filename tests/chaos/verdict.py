"""Verdict: reads the file and the ledger by itself, and says what is not as it was acknowledged."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from andon.core.command import Key
from andon.core.journal import record_from_json
from andon.core.session import fold_session
from andon.testing.conversation import problems
from tests.chaos.client import Told
from tests.chaos.program import IDEMPOTENT

Json = dict[str, Any]
DEATHS = 5  # the first may have been in the midst of a step that began before


class Ledger:
    """What the tools have done, by the tokens of their calls."""

    def __init__(self, path: Path) -> None:
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.tools: dict[str, str] = {}
        for line in path.read_text().splitlines():
            said = json.loads(line)
            (self.begun if said["event"] == "begin" else self.ended)[said["token"]] += 1
            self.tools[said["token"]] = said["tool"]


class Book:
    """The journal of one session, as it is in the file."""

    def __init__(self, session: str, records: list[bytes]) -> None:
        self.session = session
        self.records = records
        self.items: list[Json] = [item for record in records for item in json.loads(record)["items"]]
        self.received = [item["command"] for item in self.of("received")]
        self.ends: dict[str, list[Json]] = defaultdict(list)
        for item in self.of("run_ended"):
            self.ends[item["outcome"]["run_id"]].append(item["outcome"])
        self.steered = Counter(item.get("id", "") for item in self.of("steered"))
        self.started: set[str] = set()
        self.states: dict[str, list[str]] = defaultdict(list)
        self.results: dict[str, list[str]] = defaultdict(list)
        self._read_calls()

    def of(self, kind: str) -> list[Json]:
        """Give the items of a kind that are the session's own."""
        return [item for item in self.items if item["type"] == kind and not item.get("path")]

    def _read_calls(self) -> None:
        tokens: dict[str, str] = {}
        for item in self.items:
            match item["type"]:
                case "message_added":
                    self._read_parts(item["message"]["parts"], tokens)
                case "tool_started":
                    self.started.add(tokens[item["call_id"]])
                case "tool_ended":
                    self.states[tokens[item["call_id"]]].append(item["state"])
                case _:
                    pass

    def _read_parts(self, parts: list[Json], tokens: dict[str, str]) -> None:
        for part in parts:
            if part["type"] == "call":
                given = part["arguments"]
                tokens[part["id"]] = given.get("token") or given["request"].split()[1]
            elif part["type"] == "result":
                self.results[tokens[part["call_id"]]].append(part.get("state", "completed"))


def books(file: Path) -> dict[str, Book]:
    """Read all journals of a file."""
    records: dict[str, list[bytes]] = defaultdict(list)
    db = sqlite3.connect(file)
    try:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = db.execute(
            "SELECT s.session, r.record FROM records AS r JOIN sessions AS s ON s.id = r.session "
            "ORDER BY r.head"
        )
        for session, record in found:
            records[session].append(record)
    finally:
        db.close()
    return {session: Book(session, some) for session, some in records.items()}


def rows(file: Path) -> dict[str, Json]:
    """Read the index of runs."""
    db = sqlite3.connect(file)
    try:
        return {run: json.loads(row) for run, row in db.execute("SELECT run, row FROM rows")}
    finally:
        db.close()


def waiting(file: Path) -> int:
    """Count the sessions that have something to do."""
    db = sqlite3.connect(file)
    try:
        return int(db.execute("SELECT count(*) FROM claims").fetchone()[0])
    finally:
        db.close()


def wrong(file: Path, ledger: Path, told: Iterable[Told]) -> Iterator[str]:
    """Say what is wrong, in a sentence each."""
    did, found, index = Ledger(ledger), books(file), rows(file)
    for one in told:
        book = found[one.session]
        told_wrong = [
            *one.wrong,
            *_numbers(book),
            *_pushes(book, one),
            *_order(book, one),
            *_steers(book, one),
            *_reports(book, one),
            *_readers(book, one),
            *_index(book, index),
            *_health(book),
            *_history(book),
        ]
        yield from (f"{one.session}: {sentence}" for sentence in told_wrong)
    yield from _effects(did, list(found.values()))


def _numbers(book: Book) -> Iterator[str]:
    if [item["n"] for item in book.items] != list(range(1, len(book.items) + 1)):
        yield "its items are not numbered from 1 without a gap"


def _pushes(book: Book, told: Told) -> Iterator[str]:
    received = Counter(command["run_id"] for command in book.received if command["type"] == "push")
    for one in told.pushed:
        if received[one.run_id] != 1:
            yield f"push {one.token} was received {received[one.run_id]} times"
        said = len(book.ends.get(one.run_id, [])) + book.steered[f"push-{one.run_id}"]
        if said != 1 or (one.on_busy != "steer" and len(book.ends.get(one.run_id, [])) != 1):
            yield f"push {one.token} ({one.on_busy}) was handled {said} times"
    for run_id, ends in book.ends.items():
        if run_id not in received or len(ends) > 1:
            yield f"run {run_id} was pushed {received[run_id]} times, and ended {len(ends)} times"


def _order(book: Book, told: Told) -> Iterator[str]:
    pushed = [one.run_id for one in told.pushed]
    received = [one["run_id"] for one in book.received if one["type"] == "push" and one["run_id"] in pushed]
    if received != pushed:
        yield "pushes were received in another order than they were acknowledged in"
    queued = [one.run_id for one in told.pushed if one.on_busy == "enqueue"]
    started = list(dict.fromkeys(item["run_id"] for item in book.of("run_started")))
    if [run_id for run_id in started if run_id in queued] != queued:
        yield "runs began in another order than they were pushed in"


def _steers(book: Book, told: Told) -> Iterator[str]:
    received = Counter(command["id"] for command in book.received if command["type"] == "steer")
    for steer, run_id in told.steered:
        if received[steer] != 1 or book.steered[steer] > 1:
            yield f"steer {steer} was received {received[steer]} times, and heard {book.steered[steer]} times"
        if not book.ends.get(run_id, []):
            yield f"steer {steer} was for run {run_id}, which never ended"


def _reports(book: Book, told: Told) -> Iterator[str]:
    for run_id, result in told.reports:
        reasons = [end["stop_reason"] for end in book.ends.get(run_id, [])]
        if len(reasons) != 1 or (reasons[0] == "cancelled") != (result == "STOPPED"):
            yield f"run {run_id} was reported as {result}, and ended as {reasons}"


def _readers(book: Book, told: Told) -> Iterator[str]:
    if told.read != [(item["n"], item["type"]) for item in book.items]:
        seen = [n for n, _ in told.read]
        yield f"its reader read {len(seen)} of {len(book.items)} items, {len(set(seen))} different ones"


def _index(book: Book, index: dict[str, Json]) -> Iterator[str]:
    states = {"cancelled": "cancelled", "error": "failed", "limit": "limit"}
    for run_id, ends in book.ends.items():
        expected = states.get(ends[0]["stop_reason"], "finished")
        if index[run_id]["state"] != expected:
            yield f"the index says that run {run_id} is {index[run_id]['state']}, and it is {expected}"


def _health(book: Book) -> Iterator[str]:
    """No run was stopped by a shutdown alone, none has failed, and none was given up that should not be."""
    yield from (f"run {run_id} failed: {ends[0]}" for run_id, ends in book.ends.items() if _failed(ends[0]))
    for item in book.of("stop_requested"):
        if all(cause["source"] == "shutdown" for cause in item["stop"]["causes"]):
            yield f"a shutdown has stopped a run, in item {item['n']}"
    deaths = 0
    for item in book.items:
        if item["type"] in {"message_added", "model_ended", "tool_ended", "handed_over"}:
            deaths = 0
        elif item["type"] == "run_started" and not item.get("path"):
            deaths += 1
        elif item["type"] == "quarantined" and deaths < DEATHS - 1:
            yield f"it was put into quarantine after {deaths} deaths, in item {item['n']}"


def _failed(end: Json) -> bool:
    return end["stop_reason"] == "error"


def _history(book: Book) -> Iterator[str]:
    """What the next model is told is what providers take."""
    entries = [entry for record in book.records for entry in record_from_json(record)]
    state = fold_session(Key("trips", "ann", book.session), entries)
    yield from problems(state.messages)
    if state.live is not None or state.queue:
        yield "it has not come to its end"


def _effects(did: Ledger, found: list[Book]) -> Iterator[str]:
    """A tool began only once that was written down, and once, and what is told of it is what it did."""
    started = {token for book in found for token in book.started}
    states = {token: some for book in found for token, some in book.states.items()}
    results = {token: some for book in found for token, some in book.results.items()}
    for token, times in did.begun.items():
        name = did.tools[token]
        if token not in started:
            yield f"{name} {token} began, and nothing of that is in the journal"
        if times > 1 and name not in IDEMPOTENT:
            yield f"{name} {token} began {times} times"
        last = (results.get(token) or states.get(token) or ["unknown"])[-1]
        if last == "not_started":
            yield f"{name} {token} began, and is told as {last}"
        if not _is_told(token, results):
            yield f"{name} {token} began, and the model is told nothing of it ({states.get(token)})"
    for token in did.tools.keys() & {*states, *results}:
        said = {*states.get(token, ()), *results.get(token, ())}
        if "completed" in said and not did.ended[token]:
            yield f"call {token} is told as completed, and it was not"
    for token, some in (*states.items(), *results.items()):
        if not set(some[:-1]) <= {
            "unknown",
            "not_started",
        }:  # one that a worker left, the next may go on with
            yield f"call {token} ended as {some}"


def _is_told(token: str, results: dict[str, list[str]]) -> bool:
    """Look for a result: of a call inside a child that was cut with it, what is told of the child tells."""
    if token in results:
        return True
    outer = token.rsplit(".", 2)[0]
    return outer in results and "completed" not in results[outer]
