"""Substrate: journals, mailboxes and claims in one file, for all processes of one machine."""

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from andon.adapters.sqlite import store
from andon.adapters.sqlite.bells import GROWN, RING, WORK, folder_of
from andon.adapters.sqlite.claim import SqliteClaim
from andon.adapters.sqlite.hub import Hub
from andon.adapters.sqlite.lane import CLOSED, Lane
from andon.adapters.sqlite.problem import problem
from andon.adapters.sqlite.schema import connect, prepare, tag
from andon.adapters.sqlite.writer import BUSY, Writer
from andon.core.command import Key
from andon.ports import Claim, SessionInfo
from andon.runtime.bell import wall_clock
from andon.runtime.isolate import Timer

MAILBOX = 1_000
LEASE = 15.0
SOONEST = 0.001  # seconds: the clock of a timer is not the one that leases run by


class SqliteSubstrate:
    """Journals, mailboxes and claims in one SQLite file; several processes may share it.

    What it says is done is on the disk. Leases run by wall time.

    Args:
        path: The file; it is made if it is not there, its folder is not.
        mailbox: How many commands may wait in one session.
        lease: Seconds after which a session is given to another worker, if the one that has it is silent;
            from one whose process is seen to be dead it is taken at once.
    """

    def __init__(self, path: str | Path, *, mailbox: int = MAILBOX, lease: float = LEASE) -> None:
        self._path = Path(path)
        self._mailbox = mailbox
        self._lease = lease
        self.hub = Hub(self._look_soon, self._has_died)
        self._looks = False
        self._consumed: dict[Key, int] = {}
        self.wall: Callable[[], float] = lambda: 0.0

    # Open and close

    async def __aenter__(self) -> Self:
        self.wall = wall_clock()
        self._loop = asyncio.get_running_loop()
        told = partial(problem, self._path)
        hub = self.hub
        self.reader = Lane("andon-sqlite-reader", partial(connect, self._path), told)
        self.writer = Writer(
            "andon-sqlite-writer", partial(connect, self._path), told, spread=hub.spread, foreign=hub.look
        )
        try:
            await self.writer.open(lambda db: prepare(db, self._path))
            if not await self.reader.open(self._hang_bells):
                self.writer.idle = BUSY
            hub.bells.listen()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self.hub.close()
        self.hub.bells.deafen()
        bells = self.hub.bells
        await self.writer.close(lambda db: store.leave(db, bells.id))
        await self.reader.close(lambda _: bells.close())

    def _hang_bells(self, db: sqlite3.Connection) -> bool:
        name = tag(db)
        return self.hub.bells.open(folder_of(db, self._path.resolve(), name), name)

    def _has_died(self, peer: str) -> None:
        """Take from a peer what it had, as it cannot keep it up any more."""
        with suppress(RuntimeError):  # the loop is closed: the next to open the file does it
            self._loop.call_soon_threadsafe(self._leave_for, peer)

    def _leave_for(self, peer: str) -> None:
        if not self.hub.closed:  # a beat of one that lives after all is refused, and fences it
            self.writer.post(lambda db: store.leave(db, peer), [(WORK, None)])

    def _look_soon(self) -> None:
        """Look at the file, as a bell may have been lost among many."""
        if not self._looks and not self.hub.closed:
            self._looks = True
            Timer(BUSY, self._look)

    def _look(self) -> None:
        self._looks = False
        if not self.hub.closed:
            self.writer.look()

    # Journal

    async def append(
        self, key: Key, record: bytes, *, head: int, rows: Mapping[str, bytes] | None = None
    ) -> int:
        """Append a record, if the journal has not grown since."""
        self.hub.check()

        def append(db: sqlite3.Connection) -> int:
            return store.append(db, key, record, head=head, rows=rows or {}, wall=self.wall())

        return await self.writer.ask(append, [(GROWN, key)])

    async def head(self, key: Key) -> int:
        """Give the head of a journal."""
        self.hub.check()
        return await self.reader.ask(lambda db: store.head(db, key))

    async def read(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        """Give the records behind a head."""
        self.hub.check()
        return await self.reader.ask(lambda db: store.read(db, key, after))

    async def sessions(self, app: str | None = None, user: str | None = None) -> Sequence[SessionInfo]:
        """List sessions."""
        self.hub.check()
        return await self.reader.ask(lambda db: store.sessions(db, app, user))

    async def row(self, run_id: str) -> bytes | None:
        """Give the row of a run."""
        self.hub.check()
        return await self.reader.ask(lambda db: store.row(db, run_id))

    async def rows(self) -> Sequence[bytes]:
        """Give all rows."""
        self.hub.check()
        return await self.reader.ask(store.rows)

    async def delete(self, key: Key) -> None:
        """Forget a session."""
        self.hub.check()
        await self.writer.ask(lambda db: store.delete(db, key), [(GROWN, key), (RING, key)])

    # Mailbox

    async def send(self, key: Key, command_id: str, command: bytes) -> int:
        """Put a command into the mailbox."""
        self.hub.check()

        def send(db: sqlite3.Connection) -> int:
            return store.send(db, key, command_id, command, most=self._mailbox)

        return await self.writer.ask(send, [(WORK, None)])

    async def commands(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        """Give the commands behind a number, and forget the others with what is written next."""
        self.hub.check()
        waiting = await self.reader.ask(lambda db: store.commands(db, key))
        if waiting and waiting[0][0] <= after:
            self._forget(key, after)
        after = max(after, self._consumed.get(key, 0))
        return [one for one in waiting if one[0] > after]

    def _forget(self, key: Key, upto: int) -> None:
        if upto <= self._consumed.get(key, 0):
            return
        self._consumed[key] = upto

        def forgotten(_: "asyncio.Future[None]") -> None:
            if self._consumed.get(key) == upto:
                del self._consumed[key]

        self.writer.post(lambda db: store.forget(db, key, upto), lazy=True).add_done_callback(forgotten)

    async def ring(self, key: Key) -> bool:
        """Wake the worker that has the session, in whichever process it is."""
        self.hub.check()
        bells = self.hub.bells

        def ring(db: sqlite3.Connection) -> bool:
            bell = store.holder(db, key, self.wall())
            if bell == bells.id:
                self.hub.ring(key)
                return True
            return bell is not None and bells.call(bell, RING, key)

        return await self.reader.ask(ring)

    # What passes by

    def tell(self, key: Key, delta: bytes) -> None:
        """Tell whoever watches, in all processes."""
        self.hub.tell(key, delta)

    def watch(self, key: Key) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Hear what happens in a session."""
        return self._watch(key)

    @asynccontextmanager
    async def _watch(self, key: Key) -> AsyncGenerator[AsyncIterator[bytes | None]]:
        self.hub.check()
        with self.hub.watching(key) as watcher:
            yield watcher.listen(self.hub.check)

    # Claims

    async def claim(self, worker: str) -> Claim:
        """Take the session that has waited longest."""
        while True:
            self.hub.check()
            calls = self.hub.calls
            found = await self._try_claim(worker)
            if isinstance(found, SqliteClaim):
                return found
            timer = None if found is None else Timer(max(found - self.wall(), SOONEST), self.hub.work.ring)
            try:
                await self.hub.work.wait(lambda calls=calls: self.hub.calls != calls)
            finally:
                if timer is not None:
                    timer.cancel()

    async def _try_claim(self, worker: str) -> SqliteClaim | float | None:
        token = secrets.token_hex(8)
        bell = self.hub.bells.id

        def claim(db: sqlite3.Connection) -> store.Given | float | None:
            return store.claim(db, token, worker, bell, now=self.wall(), lease=self._lease)

        asked = self.writer.post(claim)
        try:
            given = await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(partial(self._undo, token))
            raise
        if not isinstance(given, store.Given):
            return given
        return SqliteClaim(self.hub, self.writer, given, token=token, wall=self.wall, lease=self._lease)

    def _undo(self, token: str, asked: "asyncio.Future[store.Given | float | None]") -> None:
        """Give back what was given to one that no longer waits for it."""
        if asked.cancelled() or asked.exception() is not None or not isinstance(asked.result(), store.Given):
            return
        if not self.hub.closed:  # else it was left with all others
            self.writer.post(lambda db: store.undo(db, token), [(WORK, None)])

    async def trouble(self) -> str | None:
        """Say what keeps it from writing: it is closed, locked, or the disk is full."""
        if self.hub.closed:
            return CLOSED
        if self.writer.trouble is not None:
            asked = self.writer.post(store.probe)
            await asyncio.wait([asked])
            asked.exception()
        return self.writer.trouble
