"""Excerpt: of all that a session tells, what belongs to one of its runs: runs of a session never overlap."""

from collections.abc import Sequence
from typing import Self

import msgspec
from msgspec import Struct

from andon.core.items import RunStarted
from andon.core.journal import record_from_json
from andon.core.row import Row
from andon.ports import Substrate
from andon.runtime.feed import Told


class _Outcome(Struct):
    run_id: str = ""


class _Edge(Struct):
    """What of a run's first or last item says whose it is."""

    path: tuple[str, ...] = ()
    run_id: str = ""
    outcome: _Outcome | None = None


_edge = msgspec.json.Decoder(_Edge)


class Excerpt:
    """Passes on what is told between the first item of a run and its last."""

    def __init__(self, run_id: str, *, began: bool) -> None:
        self._run_id = run_id
        self._began = began
        self.ended = False

    @classmethod
    async def begin(cls, substrate: Substrate, row: Row, after: int) -> tuple[Self, int]:
        """Make one, and say behind which item to read on."""
        wanted = row.run_id.encode()
        for _, record in await substrate.read(row.key):
            if wanted not in record or b'"run_started"' not in record:
                continue
            for entry in record_from_json(record):
                if isinstance(entry, RunStarted) and not entry.path and entry.run_id == row.run_id:
                    return cls(row.run_id, began=entry.n <= after), max(after, entry.n - 1)
        return cls(row.run_id, began=False), after

    def of(self, batch: Sequence[Told]) -> list[Told]:
        """Give what belongs to the run."""
        mine: list[Told] = []
        for one in batch:
            if one.kind == "run_started":
                self._began = self._began or self._is_edge(one)
            if self._began and not self.ended:
                mine.append(one)
            if one.kind == "run_ended" and self._began:
                self.ended = self.ended or self._is_edge(one)
        return mine

    def _is_edge(self, one: Told) -> bool:
        edge = _edge.decode(one.data)
        run_id = edge.run_id if edge.outcome is None else edge.outcome.run_id
        return not edge.path and run_id == self._run_id
