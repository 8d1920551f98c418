"""Gates: named points in scripted code at which a test holds tasks and threads, and lets them go."""

import asyncio
from collections.abc import Callable, Generator
from threading import Condition

from andon.runtime.bell import running_loop

MOST = 30.0  # seconds after which a thread no longer waits: a failing test must not hang


class Gate:
    """A point that holds whoever comes, until it is opened.

    Tasks come with `await gate`, threads with `gate.wait()`. A test waits with
    `await gate.reached(n)` until n have come, and lets them pass with `gate.open()`, which any
    thread may call. An open gate lets everybody pass at once.
    """

    def __init__(self, name: str = "gate", *, opened: bool = False) -> None:
        self.name = name
        self._opened = opened
        self._arrived = 0
        self._changed = Condition()
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    @property
    def opened(self) -> bool:
        """Whether whoever comes may pass."""
        return self._opened

    @property
    def arrived(self) -> int:
        """How many have come so far, those that have passed or left included."""
        return self._arrived

    def open(self) -> None:
        """Let everybody pass, now and later; from any thread."""
        with self._changed:
            self._opened = True
        self._tell()

    def wait(self, timeout: float = MOST) -> None:
        """Come to the gate in a thread, and block it until the gate is open."""
        if running_loop() is not None:
            msg = f"gate {self.name!r}: wait() would block this event loop; use `await gate`"
            raise RuntimeError(msg)
        self._come()
        self._block(lambda: self._opened, "opened", timeout)

    def wait_reached(self, n: int = 1, timeout: float = MOST) -> None:
        """Block this thread until n have come."""
        self._block(lambda: self._arrived >= n, f"reached by {n}", timeout)

    async def reached(self, n: int = 1) -> None:
        """Wait until n have come."""
        await self._until(lambda: self._arrived >= n)

    def __await__(self) -> Generator[object, None, None]:
        self._come()
        return self._until(lambda: self._opened).__await__()

    def _come(self) -> None:
        with self._changed:
            self._arrived += 1
        self._tell()

    def _block(self, ready: Callable[[], bool], what: str, timeout: float) -> None:
        with self._changed:
            if not self._changed.wait_for(ready, timeout):
                msg = f"gate {self.name!r} was not {what} within {timeout:g} s ({self!r})"
                raise TimeoutError(msg)

    async def _until(self, ready: Callable[[], bool]) -> None:
        waiter = asyncio.get_running_loop().create_future()
        with self._changed:
            if ready():
                return
            self._waiters.append((ready, waiter))
        try:
            await waiter
        finally:
            with self._changed:
                self._waiters = [one for one in self._waiters if one[1] is not waiter]

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
            told = [waiter for ready, waiter in self._waiters if ready()]
        for waiter in told:
            loop = waiter.get_loop()
            if loop is running_loop():
                _wake(waiter)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(_wake, waiter)

    def __repr__(self) -> str:
        return f"<Gate {self.name} {'open' if self._opened else 'closed'}, {self._arrived} arrived>"


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
