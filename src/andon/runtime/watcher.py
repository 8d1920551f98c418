"""Watcher: what one who watches a session has still to hear."""

from collections import deque
from collections.abc import AsyncGenerator, Callable

from andon.runtime.bell import Bell

MOST = 10_000  # things that wait for a slow one; what is told beyond that is lost


class Watcher:
    """One that watches a session, in any loop; told by any thread."""

    def __init__(self) -> None:
        self._heard: deque[bytes | None] = deque()
        self._bell = Bell()
        self._over = False

    def hear(self, what: bytes | None) -> None:
        """Hear one thing; that the journal has grown is heard once, and never lost."""
        if what is None and self._knows():
            return
        if what is None or len(self._heard) < MOST:
            self._heard.append(what)
            self._bell.ring()

    def close(self) -> None:
        """Hear that there will be no more."""
        self._over = True
        self._bell.ring()

    async def listen(self, check: Callable[[], None]) -> AsyncGenerator[bytes | None]:
        """Give what is heard, as it comes; `check` raises when there will be no more."""
        while True:
            check()
            if self._heard:
                yield self._heard.popleft()
            else:
                await self._bell.wait(lambda: bool(self._heard) or self._over)

    def _knows(self) -> bool:
        try:
            return self._heard[-1] is None
        except IndexError:  # nothing waits, or the last was taken just now
            return False
