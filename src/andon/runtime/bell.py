"""Bell: wakes whoever waits, in any loop or thread."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Give the event loop of this thread, if one runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def wall_clock() -> Callable[[], float]:
    """Give the wall clock that goes with the running loop.

    A loop with a clock of its own may say by its `epoch` when that began; else it begins now.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop) and type(loop).time is not asyncio.BaseEventLoop.time:
        epoch: float = getattr(loop, "epoch", time.time() - loop.time())
        return lambda: loop.time() + epoch
    return time.time


def wall_now() -> float:
    """Give the wall time here and now: on a loop with a clock of its own, by that."""
    return time.time() if running_loop() is None else wall_clock()()


def rouse(loop: asyncio.AbstractEventLoop) -> None:
    """Let this thread's loop look at what it was just told, also if a signal handler told it in its sleep."""
    if asyncio.current_task(loop) is None:  # else a task is at work, so the loop is awake
        loop.call_soon_threadsafe(_look)


class Bell:
    """Wakes whoever waits, in any loop or thread; costs nothing while nobody does."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: list[asyncio.Future[None]] = []  # of one or none: a deque would weigh ten times as much

    def ring(self) -> None:
        """Wake all who wait now."""
        while self.waiters:
            try:
                waiter = self.waiters.pop(0)
            except IndexError:
                return  # another thread has just rung for the last one
            loop = waiter.get_loop()
            if loop is running_loop():
                _wake(waiter)
                rouse(loop)
            else:
                with suppress(RuntimeError):  # in a loop that is closed nobody waits any more
                    loop.call_soon_threadsafe(_wake, waiter)

    async def wait(self, ready: Callable[[], bool]) -> None:
        """Wait for the next ring, unless it is `ready` already."""
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        # Looked at again only now: a ring in another thread may have come just before the append.
        try:
            if not ready():
                await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                self._forget(waiter)

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        with suppress(ValueError):  # a ring in another thread has just taken it
            self.waiters.remove(waiter)


def _look() -> None:
    """Nothing: what was told before is there to be done."""


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
