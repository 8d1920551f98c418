"""Claim: the hold that one worker has on a session of a file."""

import sqlite3
from collections.abc import Callable

from andon.adapters.sqlite import store
from andon.adapters.sqlite.bells import WORK
from andon.adapters.sqlite.hub import Hub
from andon.adapters.sqlite.writer import Writer


class SqliteClaim:
    """What a worker has of a session; the file knows it by its token.

    Args:
        hub: Rings for it.
        writer: Writes for it.
        given: What was given.
        token: The name of this claim, and of no other.
        wall: Tells the wall time.
        lease: Seconds for which a beat keeps it.
    """

    def __init__(
        self,
        hub: Hub,
        writer: Writer,
        given: store.Given,
        *,
        token: str,
        wall: Callable[[], float],
        lease: float,
    ) -> None:
        self.key = given.key
        self.deliveries = given.deliveries
        self._hub = hub
        self._writer = writer
        self._token = token
        self._wall = wall
        self._lease = lease
        self._hold = hub.hold(given.key)

    async def rung(self) -> None:
        """Wait for the bell."""
        self._hub.check()
        await self._hold.bell.wait(lambda: self._hold.rings)
        self._hub.check()
        self._hold.rings = False

    async def beat(self) -> bool:
        """Keep the session, unless it was given to another."""
        self._hub.check()

        def beat(db: sqlite3.Connection) -> bool:
            return store.beat(db, self._token, self._wall() + self._lease)

        kept = await self._writer.ask(beat)
        if not kept:
            self._hub.let_go(self._hold)
        return kept

    async def release(self, cursor: int) -> bool:
        """Leave it, unless more has come."""
        self._hub.check()
        left = await self._writer.ask(lambda db: store.release(db, self._token, cursor))
        if left:
            self._hub.let_go(self._hold)
        return left

    async def give_back(self, delay: float = 0.0) -> None:
        """Leave it to the next worker."""
        self._hub.check()

        def give_back(db: sqlite3.Connection) -> None:
            store.give_back(db, self._token, self._wall() + delay, anew=not delay)

        await self._writer.ask(give_back, [(WORK, None)])
        self._hub.let_go(self._hold)
