"""Ledger: a journal of one run whose storage the test holds in its hands."""

from collections.abc import Callable

from andon.core.items import Item, ModelStarted, RunEnded, ToolStarted
from andon.core.stop import Stop
from andon.errors import SessionError
from andon.runtime.isolate import nap
from andon.testing import Gate


class Ledger:
    """Takes items at once; they are durable when a sync has passed: after `delay` seconds, and its gate."""

    def __init__(self, *, delay: float = 0.01) -> None:
        self.run_id = "run"
        self.delay = delay
        self.taken: list[Item] = []
        self.durable: list[Item] = []
        self.ended: RunEnded | None = None
        self.syncs = 0
        self.gates: dict[int, Gate] = {}
        self.failure: SessionError | None = None
        self.on_sync: Callable[[int], None] = lambda _: None

    def hold(self, number: int) -> Gate:
        """Let the sync of that number, from 1, wait."""
        return self.gates.setdefault(number, Gate(f"sync {number}"))

    def take(self, item: Item, /) -> None:
        """Take one."""
        assert not isinstance(item, RunEnded)
        self.taken.append(item)

    async def sync(self) -> None:
        """Let all that was taken be durable, in a while."""
        taken = len(self.taken)
        self.syncs += 1
        gate = self.gates.get(self.syncs)
        self.on_sync(self.syncs)
        if gate is not None:
            await gate
        await nap(self.delay)
        if self.failure is not None:
            raise self.failure
        self.durable = self.taken[: max(taken, len(self.durable))]

    def seal(self, stop: Stop | None, /) -> None:
        """Nothing: nobody hands over here."""

    async def end(self, item: RunEnded, /) -> None:
        """Let the end be durable."""
        await self.sync()
        self.ended = item

    def begun(self, kind: type[ModelStarted | ToolStarted]) -> int:
        """Count the calls that are known to have begun, whoever asks."""
        return sum(isinstance(item, kind) for item in self.durable)


def fence(ledger: Ledger, at: int) -> None:
    """Let another worker take the run over at that sync."""

    def look(number: int) -> None:
        if number >= at:
            ledger.failure = SessionError("another worker has the session now", "fenced")

    ledger.on_sync = look
