"""Feed: what a session tells its readers in this process: items once they are durable, deltas as they pass.

A reader is a cursor in a log of bounded length. One that is too slow for it, or comes late, is given
the items that it missed from the journal, and of a step in flight what was said so far, as one `partial`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from andon.core.command import Key
from andon.core.items import (
    CallDelta,
    ModelEnded,
    ModelStarted,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from andon.core.journal import (
    Entry,
    HandedOver,
    Partial,
    Superseded,
    Unknown,
    entry_to_json,
    record_from_json,
)
from andon.errors import SessionError
from andon.ports import Substrate
from andon.runtime.bell import Bell
from andon.runtime.flight import Flight, passing_from_json, place_of, read_passing
from andon.runtime.isolate import Job
from andon.runtime.record import logger

ENDS = "the server ends: read on at another, or when it is back"
LONGEST = 4_096  # what the log holds; a reader that is further behind goes back to the journal
MOST_AT_ONCE = 64
FAR_BEHIND = 512  # things that a reader has not taken; it is given the sum of them instead
Words = TextDelta | ReasoningDelta | CallDelta
WORDS: dict[type, str] = {TextDelta: "text_delta", ReasoningDelta: "reasoning_delta", CallDelta: "call_delta"}
ASK_AGAIN = 4  # deltas after which what was missed is asked for again


class Told(Struct, gc=False):
    """One thing that readers are told: its id, its kind and its JSON; `n` of what is no item is 0."""

    id: str
    kind: str
    data: bytes
    n: int = 0
    wire: bytes = b""  # as a reader has written it to the network, for the next one

    @property
    def behind(self) -> int:
        """The item that is next when this is told."""
        return self.n or int(self.id.partition(".")[0]) + 1


class _Kind(Struct):
    type: str


_kind = msgspec.json.Decoder(_Kind)
SUPERSEDED = "superseded"


def told(entry: Entry) -> Told:
    """Make what readers are told of an item."""
    data = entry_to_json(entry)
    kind = _kind.decode(data).type if isinstance(entry, Unknown) else str(type(entry).__struct_config__.tag)
    return Told(str(entry.n), kind, data, entry.n)


class Teller:
    """Tells items in order: where a worker has died, also that what was in flight is said anew."""

    def __init__(self) -> None:
        self._live = ""

    def tell(self, entry: Entry) -> list[Told]:
        """Give what readers are told of the next item."""
        gone = [self._superseded(entry.n)] if self._has_died(entry) else []
        match entry:
            case RunStarted(path=(), run_id=run_id):
                self._live = run_id
            case RunEnded(path=()) | HandedOver():
                self._live = ""
            case _:
                pass
        return [*gone, told(entry)]

    def _has_died(self, entry: Entry) -> bool:
        return isinstance(entry, RunStarted) and not entry.path and entry.run_id == self._live

    def _superseded(self, n: int) -> Told:
        return Told(f"{n - 1}.0.0.0", SUPERSEDED, msgspec.json.encode(Superseded(self._live)))


class Feed:
    """The log of one session's news, filled from its substrate for as long as somebody reads it."""

    def __init__(self, substrate: Substrate, key: Key) -> None:
        self._substrate = substrate
        self.key = key
        self._head = 0
        self.n = 0
        self._log: list[Told] = []
        self._first = 0
        self._bell = Bell()
        self._teller = Teller()
        self._run_id = ""
        self._open: dict[str, Flight | None] = {}  # the calls under way: None for that of a tool
        self._closed: set[str] = set()
        self._asked_at: dict[str, int] = {}
        self._job: Job | None = None
        self._ready = False
        self.failure: BaseException | None = None

    @property
    def end(self) -> int:
        """The place behind the last thing that was told."""
        return self._first + len(self._log)

    async def open(self) -> None:
        """Begin to listen, if nobody does yet."""
        if self._job is None:
            self._job = Job().start(self._listen())
        while not self._ready:
            await self._bell.wait(lambda: self._ready)
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Listen no more; whoever reads is told so."""
        if self._job is not None:
            self._job.cancel()
        self._fail(SessionError(ENDS, "closed"))

    async def _listen(self) -> None:
        try:
            async with self._substrate.watch(self.key) as news:
                await self._grow()
                self._ready = True
                self._bell.ring()
                if any(self._open.values()):  # what was said before anybody listened, its worker says again
                    await self._substrate.ring(self.key)
                await self._hear(news)
        except SessionError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 — whatever it is, readers must not wait for ever
            logger.exception("session %s cannot be followed: a bug of Andon, please report it", self.key)
            self._fail(error)

    async def _hear(self, news: AsyncIterator[bytes | None]) -> None:
        async for heard in news:
            if heard is None:
                await self._grow()
            elif not self._goes_on(heard):
                await self._pass(heard)
            if len(self._log) > LONGEST:
                self._trim()
            if self._bell.waiters:
                self._bell.ring()

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._ready = True
        self._bell.ring()

    async def _grow(self) -> None:
        records = await self._substrate.read(self.key, after=self._head)
        if not records and self._head and await self._substrate.head(self.key) < self._head:
            raise self._deleted()
        for head, record in records:
            self._head = head
            for entry in record_from_json(record):
                if entry.n != self.n + 1:  # it was made anew meanwhile
                    raise self._deleted()
                self._add(entry)

    def _deleted(self) -> SessionError:
        return SessionError(f"session {self.key} was deleted", "missing")

    def _trim(self) -> None:
        cut = len(self._log) - LONGEST // 2
        del self._log[:cut]
        self._first += cut

    def _add(self, entry: Entry) -> None:
        self.n = entry.n
        self._note(entry)
        self._log += self._teller.tell(entry)

    def _note(self, entry: Entry) -> None:
        """Note which calls are under way: of one that has ended nothing is told any more."""
        match entry:
            case ModelStarted(path=path, step=step, attempt=attempt):
                self._open[place_of(self._run_id, entry)] = Flight(path, f"{step}.{attempt}")
            case ToolStarted():
                self._open[place_of(self._run_id, entry)] = None
            case ModelEnded() | ToolEnded():
                place = place_of(self._run_id, entry)
                self._open.pop(place, None)
                self._closed.add(place)
            case RunStarted(path=()) | RunEnded(path=()):
                self._closed.update(self._open)
                self._open.clear()
                self._asked_at.clear()
                if isinstance(entry, RunStarted):
                    self._closed.clear()
                    self._run_id = entry.run_id
            case _:
                pass

    def _goes_on(self, heard: bytes) -> bool:
        """Take the next words of a call, which most of what is heard are; False if it is anything else."""
        tag, place, data = read_passing(heard)
        flight = self._open.get(place)
        if flight is None or not tag.endswith(this := f".{flight.step}.{flight.k + 1}"):
            return False
        delta = passing_from_json(data)
        kind = WORDS.get(type(delta))
        if kind is None:
            return False
        flight.add(cast("Words", delta))
        # Who reads on from it is to miss no item, and to get none twice: its id is behind what was told here.
        # The worker does not count what is no item of its run, and is ahead where it has written since.
        self._log.append(Told(f"{self.n}{this}", kind, data))
        return True

    async def _pass(self, heard: bytes) -> None:
        """Take what passes by in, unless an item has superseded it."""
        tag, place, data = read_passing(heard)
        if place in self._closed:
            return
        if place not in self._open:
            await self._grow()  # that the call began was durable before it said anything
            if place not in self._open or self._goes_on(heard):
                return
        passing = passing_from_json(data)
        one = Told(f"{self.n}.{tag.partition('.')[2]}", str(type(passing).__struct_config__.tag), data)
        flight = self._open[place]
        if flight is None or isinstance(passing, ToolProgress):
            self._log.append(one)
            return
        k = int(tag.rpartition(".")[2])
        if isinstance(passing, Partial) and k > flight.k:
            flight.become(k, passing)
            self._asked_at.pop(place, None)
            self._log.append(one)
        elif k > flight.k:
            await self._ask_for(place, k)

    async def _ask_for(self, place: str, k: int) -> None:
        """Ask the worker to say again what was missed here."""
        if k - self._asked_at.get(place, -ASK_AGAIN) >= ASK_AGAIN:
            self._asked_at[place] = k
            await self._substrate.ring(self.key)

    def _partials(self) -> list[Told]:
        """Give what the model calls in flight have said so far."""
        flights = [flight for flight in self._open.values() if flight is not None and flight.k]
        return [
            Told(f"{self.n}.{flight.step}.{flight.k}", "partial", msgspec.json.encode(flight.partial()))
            for flight in flights
        ]

    async def read(self, after: int) -> AsyncGenerator[Sequence[Told]]:
        """Give what comes behind item number `after`, several at once where there are several."""
        await self.open()
        while True:
            until = self.n
            missed = await self._items(after, until)
            after = until
            if until != self.n:
                if missed:
                    yield missed
                continue
            position = self.end  # in one moment with what is in flight: from here on nothing is missed
            if missed := [*missed, *self._partials()]:
                yield missed
            async for batch in self._from(position):
                after = max([after, *(one.n for one in batch)])
                yield batch

    async def _from(self, position: int) -> AsyncGenerator[Sequence[Told]]:
        """Give what is in the log from a place on, until the reader is too far behind."""
        while True:
            await self._wait(position)
            if position < self._first or self.end - position > FAR_BEHIND:
                return
            start = position - self._first
            batch = self._log[start : start + MOST_AT_ONCE]
            position += len(batch)
            yield batch

    async def _items(self, after: int, until: int) -> list[Told]:
        """Give the items of a stretch: from the log, or from the journal what the log has no longer."""
        if after >= until:
            return []
        items = list(_stretch(self._log, after, until))
        if items and items[0].behind == after + 1:
            return items
        teller = Teller()
        records = await self._substrate.read(self.key)
        entries = [entry for _, record in records for entry in record_from_json(record)]
        return list(_stretch([one for entry in entries for one in teller.tell(entry)], after, until))

    async def _wait(self, position: int) -> None:
        while self.end <= position:
            if self.failure is not None:
                raise self.failure
            await self._bell.wait(lambda: self.end > position or self.failure is not None)


def _stretch(log: Iterable[Told], after: int, until: int) -> Iterable[Told]:
    return (one for one in log if (one.n or one.kind == SUPERSEDED) and after < one.behind <= until)
