"""Memory: the substrate that lasts as long as its process; for tests, and servers that need not remember."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

from andon.core.command import Key
from andon.errors import SessionError
from andon.ports import Claim, SessionInfo
from andon.runtime.bell import Bell, wall_clock
from andon.runtime.isolate import Timer, clock
from andon.runtime.watcher import Watcher

MAILBOX = 1_000
LEASE = 15.0
CLOSED = "the substrate is closed"


class Box:
    """All that is known of one session."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.mail: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self.sent: dict[str, int] = {}
        self.waits = False
        self.holder: Holder | None = None
        self.deliveries = 0
        self.not_before = 0.0
        self.created = self.touched = 0.0

    @property
    def head(self) -> int:
        """The number of the last record."""
        return self.records[-1][0] if self.records else 0


class MemorySubstrate:
    """Journals, mailboxes and claims in dicts.

    Args:
        mailbox: How many commands may wait in one session.
        lease: Seconds after which a session is given to another worker, if the one that has it is silent.
    """

    def __init__(self, *, mailbox: int = MAILBOX, lease: float = LEASE) -> None:
        self._mailbox = mailbox
        self.lease = lease
        self._boxes: dict[Key, Box] = {}
        self._rows: dict[str, tuple[Key, bytes]] = {}
        self._watchers: dict[Key, list[Watcher]] = {}
        self._head = self._count = 0  # of all sessions: one that is made anew does not begin again
        self._work = Bell()
        self._closed = False
        self.now: Callable[[], float] = lambda: 0.0
        self.wall: Callable[[], float] = lambda: 0.0

    async def __aenter__(self) -> Self:
        self.now = clock()
        self.wall = wall_clock()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._work.ring()
        for watcher in [one for some in self._watchers.values() for one in some]:
            watcher.close()
        for box in self._boxes.values():
            if box.holder is not None:
                box.holder.bell.ring()

    async def append(
        self, key: Key, record: bytes, *, head: int, rows: Mapping[str, bytes] | None = None
    ) -> int:
        """Append a record, if the journal has not grown since."""
        self._check()
        box = self._box(key) if not head else self._boxes.get(key)
        if box is None or box.head != head:
            msg = f"another worker has written to session {key} since: this one has it no longer"
            raise SessionError(msg, "fenced")
        self._head += 1
        box.records.append((self._head, record))
        box.touched = self.wall()
        box.created = box.created or box.touched
        self._rows.update({run_id: (key, row) for run_id, row in (rows or {}).items()})
        self._tell(key, None)
        return self._head

    async def head(self, key: Key) -> int:
        """Give the head of a journal."""
        self._check()
        box = self._boxes.get(key)
        return 0 if box is None else box.head

    async def read(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        """Give the records behind a head."""
        self._check()
        box = self._boxes.get(key)
        return [] if box is None else [one for one in box.records if one[0] > after]

    async def send(self, key: Key, command_id: str, command: bytes) -> int:
        """Put a command into the mailbox."""
        self._check()
        box = self._box(key)
        known = box.sent.get(command_id)
        if known is not None:
            return known
        if len(box.mail) >= self._mailbox:
            msg = (
                f"the mailbox of session {key} is full, {self._mailbox} commands wait: try again in a moment"
            )
            raise SessionError(msg, "full")
        self._count += 1
        box.sent[command_id] = self._count
        box.mail[command_id] = (self._count, command)
        if not box.waits:
            box.waits = True
            self._boxes[key] = self._boxes.pop(key)  # the last in the row
        self._work.ring()
        return self._count

    async def commands(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        """Give the commands behind a number, and forget the others."""
        self._check()
        box = self._boxes.get(key)
        if box is None:
            return []
        for command_id in [name for name, (number, _) in box.mail.items() if number <= after]:
            del box.mail[command_id]
        return list(box.mail.values())

    async def ring(self, key: Key) -> bool:
        """Wake the worker that has the session."""
        self._check()
        box = self._boxes.get(key)
        if box is None or box.holder is None or box.holder.until <= self.now():
            return False
        box.holder.rings = True
        box.holder.bell.ring()
        return True

    def tell(self, key: Key, delta: bytes) -> None:
        """Tell whoever watches."""
        self._tell(key, delta)

    def _tell(self, key: Key, what: bytes | None) -> None:
        for watcher in self._watchers.get(key, ()):
            watcher.hear(what)

    def watch(self, key: Key) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Hear what happens in a session."""
        return self._watch(key)

    @asynccontextmanager
    async def _watch(self, key: Key) -> AsyncGenerator[AsyncIterator[bytes | None]]:
        self._check()
        watcher = Watcher()
        self._watchers.setdefault(key, []).append(watcher)
        try:
            yield watcher.listen(self._check)
        finally:
            self._watchers[key].remove(watcher)
            if not self._watchers[key]:
                del self._watchers[key]

    async def claim(self, worker: str) -> Claim:
        """Take the session that has waited longest."""
        while True:
            self._check()
            key = next((key for key, box in self._boxes.items() if self._is_free(box)), None)
            if key is not None:
                return self._give(key, worker)
            await self._wait_for_work()

    def _is_free(self, box: Box) -> bool:
        now = self.now()
        held = box.holder is not None and box.holder.until > now
        return box.waits and not held and box.not_before <= now

    def _give(self, key: Key, worker: str) -> "Holder":
        box = self._boxes[key] = self._boxes.pop(key)  # the last in the row from here on
        box.deliveries += 1
        box.holder = Holder(self, key, box, worker)
        return box.holder

    async def _wait_for_work(self) -> None:
        """Wait until something may be claimed: work that comes, a lease or a delay that ends."""
        now = self.now()
        ends = [
            end
            for box in self._boxes.values()
            if box.waits
            for end in (box.not_before, 0.0 if box.holder is None else box.holder.until)
            if end > now
        ]
        timer = Timer(min(ends) - now, self._work.ring) if ends else None
        try:
            await self._work.wait(lambda: self._closed or any(map(self._is_free, self._boxes.values())))
        finally:
            if timer is not None:
                timer.cancel()

    async def sessions(self, app: str | None = None, user: str | None = None) -> Sequence[SessionInfo]:
        """List sessions."""
        self._check()
        return [
            SessionInfo(key, box.created, box.touched)
            for key, box in sorted(self._boxes.items())
            if box.records and app in {None, key.app} and user in {None, key.user}
        ]

    async def row(self, run_id: str) -> bytes | None:
        """Give the row of a run."""
        self._check()
        known = self._rows.get(run_id)
        return None if known is None else known[1]

    async def rows(self) -> Sequence[bytes]:
        """Give all rows."""
        self._check()
        return [row for _, row in self._rows.values()]

    async def delete(self, key: Key) -> None:
        """Forget a session."""
        self._check()
        box = self._boxes.pop(key, None)
        if box is None:
            return
        self._rows = {run_id: one for run_id, one in self._rows.items() if one[0] != key}
        self._tell(key, None)
        if box.holder is not None:
            holder, box.holder = box.holder, None
            holder.bell.ring()

    async def trouble(self) -> str | None:
        """Say whether it is closed."""
        return CLOSED if self._closed else None

    def free(self) -> None:
        """Let somebody look for work."""
        self._work.ring()

    def _box(self, key: Key) -> Box:
        return self._boxes.setdefault(key, Box())

    def check(self) -> None:
        """Refuse what comes after the end."""
        self._check()

    def _check(self) -> None:
        if self._closed:
            raise SessionError(CLOSED, "closed")


class Holder:
    """The claim of one worker."""

    def __init__(self, substrate: MemorySubstrate, key: Key, box: Box, worker: str) -> None:
        self._substrate = substrate
        self._box = box
        self.key = key
        self.worker = worker
        self.deliveries = box.deliveries
        self.until = substrate.now() + substrate.lease
        self.rings = False
        self.bell = Bell()

    async def rung(self) -> None:
        """Wait for the bell."""
        self._substrate.check()
        await self.bell.wait(lambda: self.rings)
        self._substrate.check()
        self.rings = False

    async def beat(self) -> bool:
        """Keep the session, if it is still this worker's."""
        self._substrate.check()
        if self._box.holder is not self:
            return False
        self.until = self._substrate.now() + self._substrate.lease
        return True

    async def release(self, cursor: int) -> bool:
        """Leave it, unless more has come."""
        self._substrate.check()
        if self._box.holder is not self:
            return True
        if any(number > cursor for number, _ in self._box.mail.values()):
            return False
        self._box.holder = None
        self._box.waits = False
        self._box.deliveries = 0
        return True

    async def give_back(self, delay: float = 0.0) -> None:
        """Leave it to the next worker."""
        self._substrate.check()
        if self._box.holder is self:
            self._box.holder = None
            self._box.not_before = self._substrate.now() + delay
            if not delay:
                self._box.deliveries = 0
            self._substrate.free()
