"""What the provider saw: one record an exchange, and ways to wait for them."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from andon.testing.provider.request import Api, Object

_Found = TypeVar("_Found")


class Exchange(Struct, frozen=True, kw_only=True):
    """One request and what became of it. Times are `time.monotonic()`, exchanges count from 1."""

    n: int
    connection: int
    """Which TCP connection it came over, counted from 1."""
    api: Api | None
    """None for a path that no provider has."""
    path: str
    headers: Mapping[str, str]
    """Names in lower case; a key is not kept, as it may be a real one."""
    body: Object | None
    """The parsed JSON; None if it was none."""
    received_at: float
    status: int | None = None
    """None as long as no status line was sent."""
    chunks_sent: int = 0
    """Pieces of content that the operating system has taken."""
    stalls: int = 0
    """How often it stalled, the present stall included."""
    finished: bool = False
    """Everything was sent."""
    closed_by_client: bool = False
    """The client closed the connection before everything was sent."""
    dropped: bool = False
    """The script reset the connection."""
    closed_at: float | None = None
    """When it was over, whichever way."""


class Waitable(Generic[_Found]):
    """Something that will be seen: `await` it, or `wait` for it in a thread."""

    def __init__(self, future: Future[_Found]) -> None:
        self._future = future

    def __await__(self) -> Generator[object, None, _Found]:
        return asyncio.wrap_future(self._future).__await__()

    def wait(self, timeout: float | None = None) -> _Found:
        """Block this thread until it was seen; raise `TimeoutError` if that takes too long."""
        return self._future.result(timeout)


class Log:
    """All exchanges so far, written by the provider's thread and read by any."""

    def __init__(self) -> None:
        # Reentrant: a moment holds it around an update.
        self._lock = threading.RLock()
        self._exchanges: list[Exchange] = []
        self._settlers: list[Callable[[], bool]] = []
        self._closed = False

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges as they are now."""
        with self._lock:
            return tuple(self._exchanges)

    def moment(self) -> AbstractContextManager[object]:
        """Let nobody look before the block has both done something and noted it."""
        return self._lock

    def begin(self, draft: Exchange) -> int:
        """Add an exchange and give it its number."""
        with self._lock:
            n = len(self._exchanges) + 1
            self._exchanges.append(replace(draft, n=n, received_at=time.monotonic()))
            self._settle()
        return n

    def update(self, n: int, **changes: object) -> None:
        """Change what is known of an exchange."""
        with self._lock:
            self._exchanges[n - 1] = replace(self._exchanges[n - 1], **changes)
            self._settle()

    def when(self, probe: Callable[[tuple[Exchange, ...]], _Found | None]) -> Future[_Found]:
        """Resolve with what the probe finds, as soon as it finds something."""
        future: Future[_Found] = Future()
        # Marked as running it cannot be cancelled, so a task that gives up waiting does not spoil it.
        future.set_running_or_notify_cancel()

        def settle() -> bool:
            if future.done():
                return True
            try:
                found = probe(self.exchanges)
            except Exception as error:  # noqa: BLE001 - the probe is the test's: its error goes to the test
                future.set_exception(error)
                return True
            if found is not None:
                future.set_result(found)
            elif self._closed:
                future.set_exception(self._unseen("the provider was shut down"))
            return future.done()

        with self._lock:
            if not settle():
                self._settlers.append(settle)
        return future

    def give_up(self, future: Future[_Found], why: str) -> None:
        """Fail a wait that was not fulfilled, and show what was seen instead."""
        with self._lock:
            if not future.done():
                future.set_exception(self._unseen(why))

    def close(self) -> None:
        """Fail all waits that are not fulfilled: nothing will be seen any more."""
        with self._lock:
            self._closed = True
            self._settle()

    def _unseen(self, why: str) -> TimeoutError:
        seen = "\n  ".join(map(str, self._exchanges)) or "nothing"
        return TimeoutError(f"not seen: {why}; the exchanges were:\n  {seen}")

    def _settle(self) -> None:
        if self._settlers:
            self._settlers = [settle for settle in self._settlers if not settle()]
