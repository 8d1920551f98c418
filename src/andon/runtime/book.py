"""Book: the journal of one session, open to the worker that has it.

What is written has its effect on the state at once, and is durable soon after: all that happens in
one step of the loop goes out as one record. Whoever must not act before that waits for `sync`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from andon.core.command import Key
from andon.core.items import Item, RunEnded, StopRequested
from andon.core.journal import Entry, HandedOver, record_to_json, slim
from andon.core.session import SessionState
from andon.core.stop import Stop
from andon.errors import SessionError
from andon.ports import Substrate
from andon.runtime.bell import Bell, wall_clock
from andon.runtime.isolate import Job, nap

AGAIN = 0.5  # seconds until what the substrate had no room for is tried again
LOST = "another worker has the session now"


class Book:
    """Numbers items, applies them to the state, and writes them down in order."""

    def __init__(self, substrate: Substrate, state: SessionState, head: int) -> None:
        self._substrate = substrate
        self.state = state
        self._head = head
        self._waits: list[Entry] = []
        self._taken = 0
        self._written = 0
        self._bell = Bell()
        self._job: Job | None = None
        self._now = wall_clock()
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = _nothing

    @property
    def key(self) -> Key:
        """The session."""
        return self.state.key

    def write(self, entry: Entry) -> None:
        """Let something be true from here on; once this worker was fenced, it is not."""
        if self.failure is not None:
            return
        state = self.state
        numbered = replace(entry, n=state.n + 1, at=entry.at or self._now())
        ends = isinstance(numbered, RunEnded) and state.live is not None and not numbered.path
        lean = slim(
            numbered, state.live.state.messages if ends and state.live is not None else state.messages
        )
        try:
            state.apply(lean)
        except BaseException as error:  # a bug: what came after it would leave a gap in the numbers
            self.fail(error)
            raise
        self._waits.append(lean)
        self._taken += 1
        if self._job is None:
            self._job = Job().start(self._write_down())

    async def sync(self) -> None:
        """Wait until all that was written is durable."""
        taken = self._taken
        while self._written < taken and self.failure is None:
            await self._bell.wait(lambda: self._written >= taken or self.failure is not None)
        if self.failure is not None:
            raise self.failure

    def fence(self, why: str = LOST) -> None:
        """Write nothing more: another worker goes on."""
        self.fail(SessionError(f"{why}: {self.key}", "fenced"))

    def fail(self, error: BaseException) -> None:
        """Write nothing more, and tell whoever waits why."""
        if self.failure is None:
            self.failure = error
            if self._job is not None:
                self._job.cancel()
            self._bell.ring()
            self.on_failure()

    async def _write_down(self) -> None:
        try:
            while self._waits and self.failure is None:
                batch, self._waits = self._waits, []
                await self._append(batch)
                self._written += len(batch)
                self._bell.ring()
        except BaseException as error:  # noqa: BLE001 — whatever it is, nothing may be written behind it
            self._job = None
            self.fail(error)
        else:
            self._job = None

    async def _append(self, batch: list[Entry]) -> None:
        record = record_to_json(batch)
        rows = {row.run_id: row.to_json() for row in self.state.rows()}
        while True:
            try:
                self._head = await self._substrate.append(self.key, record, head=self._head, rows=rows)
                return
            except SessionError as error:
                if error.kind != "full":
                    raise
            await nap(AGAIN)  # work waits, and nothing is lost


def _nothing() -> None:
    """Be there until somebody wants to know."""


class RunJournal:
    """Where one run of a session is written down.

    Once its worker is `draining`, a run that only the shutdown has stopped is handed over: neither that stop
    nor what seals its history is written, as nobody has cancelled it.
    """

    def __init__(self, book: Book, run_id: str) -> None:
        self._book = book
        self.run_id = run_id
        self.draining = False
        self._hands_over = False
        self._sealing: list[Item] | None = None
        self._numbers: dict[int, int] = {}

    def take(self, item: Item, /) -> None:
        """Write an item; what only makes the history whole is written with the end."""
        if isinstance(item, StopRequested) and not item.path and self._is_shutdown(item.stop):
            return
        if self._sealing is None or item.path:
            self._write(item)
        else:
            self._sealing.append(item)

    def _write(self, item: Item) -> None:
        self._book.write(item)
        self._numbers[item.n] = self._book.state.n

    def number(self, item: Item) -> int | None:
        """Give, once, the number that an item of the run has in the session; None if it has none there."""
        return self._numbers.pop(item.n, None)

    async def sync(self) -> None:
        """Wait until it is durable."""
        await self._book.sync()

    def seal(self, stop: Stop | None, /) -> None:
        """Hand the run over, if it was not cancelled by anybody.

        A worker that dies before the end is durable leaves a history to go on with, not a sealed one.
        """
        self._hands_over = stop is not None and self._is_shutdown(stop)
        self._sealing = []

    async def end(self, item: RunEnded, /) -> None:
        """Write the end, or what the next worker goes on from."""
        kept = item.outcome.checkpoint
        if self._hands_over and kept is not None:
            self._book.write(HandedOver(at=item.at, run_id=self.run_id, checkpoint=kept))
        else:
            for sealed in self._sealing or ():
                self._write(sealed)
            self._book.write(item)
        await self._book.sync()

    def _is_shutdown(self, stop: Stop) -> bool:
        return (
            self.draining and bool(stop.causes) and all(cause.source == "shutdown" for cause in stop.causes)
        )
