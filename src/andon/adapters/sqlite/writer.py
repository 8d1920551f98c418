"""Writer: the lane that makes one transaction of all that waits, and tells of it once it is durable.

Many sessions so share the one wait for the disk.
"""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty
from time import monotonic

from andon.adapters.sqlite.lane import Asked, Lane, News, settle
from andon.errors import SessionError

MOST = 1_000  # acts in one transaction
BUSY, IDLE = 0.05, 1.0  # seconds between two looks: without doorbells, and with them


class Writer(Lane):
    """Writes, and notices when another process has.

    Args:
        name: The thread's.
        connect: Opens the file.
        told: Makes words of an error.
        spread: Passes news on, before those who asked are told.
        foreign: Hears that another process has written.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        told: Callable[[BaseException], SessionError],
        *,
        spread: Callable[[Iterable[News]], None],
        foreign: Callable[[], None],
    ) -> None:
        super().__init__(name, connect, told)
        self._spread = spread
        self._foreign = foreign
        self._kept: list[Asked] = []
        self._version = 0
        self._looked = 0.0
        self.idle = IDLE
        self.trouble: str | None = None

    def look(self) -> None:
        """See soon whether another process has written since the last look."""
        self._looked = 0.0
        self.post(_nothing, lazy=True)  # so that it looks up

    def _look(self, db: sqlite3.Connection) -> None:
        self._looked = monotonic()
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._foreign()

    def _serve(self, db: sqlite3.Connection) -> None:
        over = False
        (self._version,) = db.execute("PRAGMA data_version").fetchone()
        while not over:
            group = self._gather()
            over = self._last in group
            if group:
                self._write(db, group)
            if monotonic() - self._looked >= self.idle:
                with suppress(sqlite3.Error):  # whoever reads or writes next is told
                    self._look(db)

    def _gather(self) -> list[Asked]:
        """Wait for something to do, and take what waits with it; lazy things wait on, until there is time."""
        group, self._kept = self._kept, []
        with suppress(Empty):
            group.append(self._queue.get(timeout=self.idle))
            with suppress(Empty):
                while len(group) < MOST:
                    group.append(self._queue.get_nowait())
            if all(one.lazy for one in group):
                group, self._kept = [], group
        return group

    def _write(self, db: sqlite3.Connection, group: list[Asked]) -> None:
        before = db.total_changes
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:  # it has been locked for so long that nobody else need try
            self._fail(group, error)
            return
        try:
            for one in group:
                one.run(db)
            db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 — the boundary: it belongs to whoever asked
            with suppress(sqlite3.Error):  # the failure has rolled it back already
                db.execute("ROLLBACK")
            self._each(db, group, error)
            return
        if db.total_changes != before:
            self.trouble = None
        self._spread(dict.fromkeys(news for one in group if one.error is None for news in one.news))
        settle(one for one in group if one is not self._last)

    def _each(self, db: sqlite3.Connection, group: list[Asked], error: Exception) -> None:
        """Do each for itself, as together they have failed."""
        if len(group) == 1:
            self._fail(group, error)
            return
        for one in group:
            self._write(db, [one])

    def _fail(self, group: list[Asked], error: Exception) -> None:
        told = self._told(error)
        self.trouble = str(told)
        for one in group:
            one.error = SessionError(str(told), told.kind)
        settle(one for one in group if one is not self._last)


def _nothing(_: sqlite3.Connection) -> None:
    """Have nothing to write."""
