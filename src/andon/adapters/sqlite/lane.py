"""Lane: a thread with a connection of its own that does what it is asked, in order."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import anyio

from andon.core.command import Key
from andon.errors import SessionError

T = TypeVar("T")
Act = Callable[[sqlite3.Connection], T]
News = tuple[bytes, Key | None]

CLOSED = "the substrate is closed"


class Asked:
    """One thing that was asked of a lane; `lazy` ones wait for one that is not."""

    __slots__ = ("act", "error", "future", "lazy", "loop", "news", "value")

    def __init__(self, act: Act[Any], news: Sequence[News] = (), *, lazy: bool = False) -> None:
        self.act = act
        self.news = news
        self.lazy = lazy
        self.value: Any = None
        self.error: BaseException | None = None
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def run(self, db: sqlite3.Connection) -> None:
        """Do it; what it refuses by a `SessionError`, it has not begun to write."""
        self.value = self.error = None
        try:
            self.value = self.act(db)
        except SessionError as error:
            self.error = error

    def settle(self) -> None:
        """Tell whoever asked, on its own loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)
            self.future.exception()  # not all who ask wait for it


def settle(asked: Iterable[Asked]) -> None:
    """Tell all who asked, with one call a loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Asked]] = {}
    for one in asked:
        by_loop.setdefault(one.loop, []).append(one)
    for loop, ones in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, and with it everybody is gone who could be told
            loop.call_soon_threadsafe(_settle, ones)


def _settle(ones: Sequence[Asked]) -> None:
    for one in ones:
        one.settle()


class Lane:
    """A thread with a connection; this one answers questions."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        told: Callable[[BaseException], SessionError],
    ) -> None:
        self._name = name
        self._connect = connect
        self._told = told
        self._queue: SimpleQueue[Asked] = SimpleQueue()
        self._last: Asked | None = None
        self._over = True

    async def open(self, act: Act[T]) -> T:
        """Start the thread; `act` is what it does first, and if that fails it is no more."""
        first = Asked(act)
        self._over = False
        # A daemon: the interpreter does not wait for one that was never closed.
        Thread(target=self._body, args=(first,), name=self._name, daemon=True).start()
        return await first.future

    async def close(self, act: Act[None] = lambda _: None) -> None:
        """Do what was asked so far, then this, and be no more."""
        self._last = Asked(act)
        self._queue.put(self._last)
        if self._over:
            self._refuse()
        # Whoever closes waits for no more than what was asked before. What fails now, a lease will mend.
        with anyio.CancelScope(shield=True), suppress(SessionError):
            await self._last.future

    async def ask(self, act: Act[T], news: Sequence[News] = ()) -> T:
        """Have something done, and wait for it."""
        return await self.post(act, news)

    def post(self, act: Act[T], news: Sequence[News] = (), *, lazy: bool = False) -> "asyncio.Future[T]":
        """Have something done; `news` are for everybody, once it is."""
        asked = Asked(act, news, lazy=lazy)
        self._queue.put(asked)
        if self._over:  # looked at only now: the thread may have ended just before
            self._refuse()
        return asked.future

    def _body(self, first: Asked) -> None:
        db = None
        try:
            db = self._connect()
            first.run(db)
            if first.error is None:
                settle([first])
                self._serve(db)
        except Exception as error:  # noqa: BLE001 — the boundary: it belongs to whoever opens
            first.error = self._told(error)
        finally:
            if db is not None:
                db.close()
            self._over = True
            settle([first] if self._last is None else [first, self._last])
            self._refuse()

    def _serve(self, db: sqlite3.Connection) -> None:
        asked = None
        while asked is None or asked is not self._last:
            asked = self._queue.get()
            self._try(db, asked)
            if asked is not self._last:  # which is told when the connection is closed
                settle([asked])

    def _try(self, db: sqlite3.Connection, asked: Asked) -> None:
        try:
            asked.run(db)
        except Exception as error:  # noqa: BLE001 — the boundary: it belongs to whoever asked
            asked.error = self._told(error)

    def _refuse(self) -> None:
        with suppress(Empty):
            while True:
                asked = self._queue.get_nowait()
                asked.error = SessionError(CLOSED, "closed")
                settle([asked])
