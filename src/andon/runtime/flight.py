"""Flight: a model call on its way, and how what passes by of it is told between processes.

Each delta is tagged `n.step.attempt.k`: the item before it, and that it is the `k`-th of its model call. So
whoever has missed some, or comes late, knows it, and rings: the worker then says all of it so far at once.
"""

from urllib.parse import quote

import msgspec

from andon.core.items import (
    CallDelta,
    Delta,
    Item,
    ModelEnded,
    ModelStarted,
    Path,
    ReasoningDelta,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    to_json,
)
from andon.core.journal import Partial

Passing = Delta | Partial
_passing: msgspec.json.Decoder[Passing] = msgspec.json.Decoder(Passing)

Opener = ModelStarted | ToolStarted
Closer = ModelEnded | ToolEnded


def place_of(run_id: str, item: Opener | Closer) -> str:
    """Name the call that an item begins or ends, so that its deltas can be told from all others."""
    if isinstance(item, ModelStarted | ModelEnded):
        return _of_model(run_id, item.path, f"{item.step}.{item.attempt}")
    return _of_tool(run_id, item.path, item.call_id)


def _of_model(run_id: str, path: Path, step: str) -> str:
    return f"{quote('/'.join((run_id, *path)))}@{step}"


def _of_tool(run_id: str, path: Path, call_id: str) -> str:
    return f"{quote('/'.join((run_id, *path)))}#{quote(call_id)}"


def read_passing(heard: bytes) -> tuple[str, str, bytes]:
    """Read what was told: its tag, the call that it belongs to, and its JSON."""
    tag, place, data = heard.split(b" ", 2)
    return tag.decode(), place.decode(), data


def passing_from_json(data: bytes) -> Passing:
    """Read a delta, or what was said so far, back."""
    return _passing.decode(data)


class Flight:
    """A model call in flight: the words that it has said so far, in `k` deltas."""

    def __init__(self, path: Path, step: str) -> None:
        self.path = path
        self.step = step
        self.k = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []

    def add(self, delta: TextDelta | ReasoningDelta | CallDelta) -> None:
        """Take the next delta."""
        self.k += 1
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._reasoning.append(delta.text)

    def become(self, k: int, said: Partial) -> None:
        """Take all that was said in the first `k` deltas."""
        self.k = k
        self._text, self._reasoning = [said.text], [said.reasoning]

    def partial(self) -> Partial:
        """Say all of it at once."""
        self._text, self._reasoning = ["".join(self._text)], ["".join(self._reasoning)]
        return Partial(self._text[0], self._reasoning[0], self.path)


class Tagger:
    """Tags the deltas of one run, and can say at any time what its model calls in flight have said."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._n = 0
        self._progress = 0
        self._flights: dict[Path, Flight] = {}

    def item(self, item: Item, n: int | None) -> None:
        """Note an item that has come in between, by its number in the session if it has one there."""
        self._n = n or self._n
        if isinstance(item, ModelStarted):
            self._flights[item.path] = Flight(item.path, f"{item.step}.{item.attempt}")
        elif isinstance(item, ModelEnded):
            self._flights.pop(item.path, None)

    def tag(self, delta: Delta) -> bytes | None:
        """Write a delta down, with its tag and its call; None of a call that has ended."""
        if isinstance(delta, ToolProgress):
            self._progress += 1
            place = _of_tool(self._run_id, delta.path, delta.call_id)
            return self._write(f"{self._n}.0.0.{self._progress}", place, to_json(delta))
        flight = self._flights.get(delta.path)
        if flight is None:
            return None
        flight.add(delta)
        return self._of(flight, to_json(delta))

    def partials(self) -> list[bytes]:
        """Say what the model calls in flight have said so far."""
        return [
            self._of(flight, msgspec.json.encode(flight.partial()))
            for flight in self._flights.values()
            if flight.k
        ]

    def _of(self, flight: Flight, data: bytes) -> bytes:
        place = _of_model(self._run_id, flight.path, flight.step)
        return self._write(f"{self._n}.{flight.step}.{flight.k}", place, data)

    def _write(self, tag: str, place: str, data: bytes) -> bytes:
        return f"{tag} {place} ".encode() + data
