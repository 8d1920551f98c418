"""Later: a value that somebody will give, and the wait for it, in a task or a thread."""

from collections.abc import Callable, Generator
from contextlib import suppress
from threading import Event
from typing import Generic, TypeVar

from andon.errors import RunStateError
from andon.runtime.bell import Bell, running_loop

T = TypeVar("T")


class Later(Generic[T]):
    """Wait for it with `await`, or with `wait()` in a thread."""

    __slots__ = ("_bell", "_callbacks", "_given")

    def __init__(self) -> None:
        self._given: T | None = None
        self._bell = Bell()
        self._callbacks: list[Callable[[], None]] = []

    def wait(self, timeout: float | None = None) -> T:
        """Block this thread until it is there; TimeoutError after `timeout` seconds."""
        if self._given is None and running_loop() is not None:
            msg = "wait() would block this event loop, which the run may need: use `await`"
            raise RunStateError(msg)
        settled = Event()
        self.when_settled(settled.set)
        if not settled.wait(timeout) or self._given is None:
            self._forget(settled.set)
            msg = f"nothing was given within {timeout} s; the request stands, wait again"
            raise TimeoutError(msg)
        return self._given

    def __await__(self) -> Generator[object, None, T]:
        return self._settled().__await__()

    async def _settled(self) -> T:
        while self._given is None:
            await self._bell.wait(self._is_settled)
        return self._given

    def _is_settled(self) -> bool:
        return self._given is not None

    def settle(self, value: T) -> None:
        """Hand it to whoever waits."""
        self._given = value
        self._bell.ring()
        self._call_back()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call something, in whatever thread, when it is there."""
        self._callbacks.append(callback)
        if self._given is not None:
            self._call_back()

    def _forget(self, callback: Callable[[], None]) -> None:
        with suppress(ValueError):  # it is being called right now
            self._callbacks.remove(callback)

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:
                return  # another thread has just taken the last one
            callback()
