"""Feed: what a session tells its readers in this process: items once they are durable, deltas as they pass.

A reader is a cursor in a log of bounded length. One that is too slow for it, or comes late, is given
the items that it missed from the journal, and of a step in flight what was said so far, as one `partial`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import msgspec
from msgspec import Struct

from andon.core.command import Key
from andon.core.items import (
    Delta,
    Item,
    ModelEnded,
    ModelStarted,
    Path,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolProgress,
    from_json,
    to_json,
)
from andon.core.journal import Entry, Partial, Superseded, Unknown, entry_to_json, record_from_json
from andon.errors import SessionError
from andon.ports import Substrate
from andon.runtime.bell import Bell
from andon.runtime.isolate import Job

LONGEST = 4_096  # what the log holds; a reader that is further behind goes back to the journal
MOST_AT_ONCE = 64
FAR_BEHIND = 512  # things that a reader has not taken; it is given the sum of them instead


class Told(Struct):
    """One thing that readers are told: its id, its kind and its JSON; `n` of a delta is 0."""

    id: str
    kind: str
    data: bytes
    n: int = 0
    wire: bytes = b""  # as a reader has written it to the network, for the next one


class _Kind(Struct):
    type: str


_kind = msgspec.json.Decoder(_Kind)


def told(entry: Entry) -> Told:
    """Make what readers are told of an item."""
    data = entry_to_json(entry)
    kind = _kind.decode(data).type if isinstance(entry, Unknown) else str(type(entry).__struct_config__.tag)
    return Told(str(entry.n), kind, data, entry.n)


class Tagger:
    """Tags the deltas of one run: the item before, the step and attempt, and which of these it is."""

    def __init__(self) -> None:
        self._n = 0
        self._steps: dict[Path, tuple[int, int]] = {}
        self._k = 0

    def item(self, item: Item, n: int) -> None:
        """Note an item that has come in between."""
        self._n = n
        if isinstance(item, ModelStarted):
            self._steps[item.path] = (item.step, item.attempt)
            self._k = 0

    def tag(self, delta: Delta) -> bytes:
        """Write a delta down, with its tag and what supersedes it."""
        step, attempt = self._steps.get(delta.path, (0, 0))
        self._k += 1
        of_call = isinstance(delta, ToolProgress)
        of = _of_call(delta.path, delta.call_id) if of_call else _of_model(delta.path, step, attempt)
        head = f"{self._n}.{step}.{attempt}.{self._k} {of} "
        return head.encode() + to_json(delta)


def _of_model(path: Path, step: int, attempt: int) -> str:
    return f"{'/'.join(path)}@{step}.{attempt}"


def _of_call(path: Path, call_id: str) -> str:
    return f"{'/'.join(path)}#{call_id}"


class Flight:
    """A model call in flight: the words that it has said so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._last = ""

    def add(self, one: Told, delta: TextDelta | ReasoningDelta) -> None:
        """Take some more words."""
        self._last = one.id
        (self._text if isinstance(delta, TextDelta) else self._reasoning).append(delta.text)

    def partial(self) -> Told:
        """Say all of it at once."""
        self._text, self._reasoning = ["".join(self._text)], ["".join(self._reasoning)]
        partial = Partial(self._text[0], self._reasoning[0], self._path)
        return Told(self._last, "partial", msgspec.json.encode(partial))


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
        self._flights: dict[str, Flight] = {}
        self._closed: set[str] = set()
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
        await self._bell.wait(lambda: self._ready)
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Listen no more; whoever reads is told so."""
        if self._job is not None:
            self._job.cancel()
        self._fail(SessionError(f"nobody listens to session {self.key} any more", "closed"))

    async def _listen(self) -> None:
        try:
            async with self._substrate.watch(self.key) as news:
                await self._grow()
                self._ready = True
                self._bell.ring()
                await self._hear(news)
        except SessionError as error:
            self._fail(error)

    async def _hear(self, news: AsyncIterator[bytes | None]) -> None:
        async for heard in news:
            if heard is None:
                await self._grow()
            else:
                self._pass(heard)
            if self._bell.waiters:
                self._bell.ring()

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._ready = True
        self._bell.ring()

    async def _grow(self) -> None:
        records = await self._substrate.read(self.key, after=self._head)
        if not records and self._head and not await self._substrate.head(self.key):
            raise SessionError(f"session {self.key} was deleted", "missing")
        for head, record in records:
            self._head = head
            for entry in record_from_json(record):
                self._add(entry)
        if len(self._log) > LONGEST:
            cut = len(self._log) - LONGEST // 2
            del self._log[:cut]
            self._first += cut

    def _add(self, entry: Entry) -> None:
        self.n = entry.n
        self._supersede(entry)
        self._log.append(told(entry))

    def _supersede(self, entry: Entry) -> None:
        """Forget the deltas that an item has made obsolete, and let none of them come later."""
        match entry:
            case ModelStarted(path=path, step=step, attempt=attempt):
                for before in range(1, attempt):  # a call that a crash has cut never ended
                    self._shut(_of_model(path, step, before))
            case ModelEnded(path=path, step=step, attempt=attempt):
                self._shut(_of_model(path, step, attempt))
            case ToolEnded(path=path, call_id=call_id):
                self._shut(_of_call(path, call_id))
            case RunEnded(path=()):
                self._flights.clear()
            case RunStarted(path=(), run_id=run_id):
                if self._flights:  # the worker before has died in the middle of them
                    gone = msgspec.json.encode(Superseded(run_id))
                    self._log.append(Told(f"{entry.n - 1}.0.0.0", "superseded", gone))
                self._flights.clear()
                self._closed.clear()
            case _:
                pass

    def _shut(self, of: str) -> None:
        self._flights.pop(of, None)
        self._closed.add(of)

    def _pass(self, heard: bytes) -> None:
        """Take a delta in, unless an item has superseded it."""
        tag, of, data = heard.split(b" ", 2)
        place = of.decode()
        if place in self._closed:
            return
        delta = from_json(data)
        one = Told(tag.decode(), str(type(delta).__struct_config__.tag), data)
        self._log.append(one)
        if isinstance(delta, TextDelta | ReasoningDelta):
            self._flights.setdefault(place, Flight(delta.path)).add(one, delta)

    def _partials(self) -> list[Told]:
        """Give what the model calls in flight have said so far."""
        return [flight.partial() for flight in self._flights.values()]

    async def read(self, after: int) -> AsyncGenerator[Sequence[Told]]:
        """Give what comes behind item number `after`, several at once where there are several."""
        await self.open()
        while True:
            async for missed in self._catch_up(after):
                yield missed
                after = max([after, *(one.n for one in missed)])
            position = self.end
            while self._first <= position and self.end - position <= FAR_BEHIND:
                if position == self.end:
                    await self._wait(position)
                start = position - self._first
                batch = self._log[start : start + MOST_AT_ONCE]
                position += len(batch)
                after = max([after, *(one.n for one in batch)])
                yield batch

    async def _catch_up(self, after: int) -> AsyncGenerator[Sequence[Told]]:
        """Give the items that were missed, and then, at once with the last of them, what is in flight."""
        while True:
            until = self.n
            missed = await self._items(after, until)
            if until == self.n:
                missed = [*missed, *self._partials()]
            if missed:
                yield missed
            if until == self.n:
                return
            after = until

    async def _items(self, after: int, until: int) -> list[Told]:
        """Give the items of a stretch: from the log, or from the journal what the log has no longer."""
        if after >= until:
            return []
        items = [one for one in self._log if after < one.n <= until]
        if items and items[0].n == after + 1:
            return items
        records = await self._substrate.read(self.key)
        entries = [entry for _, record in records for entry in record_from_json(record)]
        return [told(entry) for entry in entries if after < entry.n <= until]

    async def _wait(self, position: int) -> None:
        await self._bell.wait(lambda: self.end > position or self.failure is not None)
        if self.end <= position and self.failure is not None:
            raise self.failure
