"""Pump: pulls one request in a task of its own, and never waits for whoever reads."""

from collections import deque
from collections.abc import Awaitable, Callable

from andon.core.draft import Chunk
from andon.errors import ModelError
from andon.runtime.bell import Bell
from andon.runtime.isolate import Cut, Job

GRACE = 10.0  # seconds a provider's library has to close its connection before it is left alone

Put = Callable[[Chunk], None]
Pull = Callable[[Put], Awaitable[None]]


class Pump:
    """One request: it is opened, pulled and closed in one task, which only appends what comes."""

    __slots__ = ("_bell", "_job", "_over", "_pull", "chunks")

    def __init__(self, pull: Pull) -> None:
        self._pull = pull
        self.chunks: deque[Chunk] = deque()
        self._bell = Bell()
        self._over = False
        self._job = Job()

    def start(self) -> None:
        """Begin to pull."""
        self._job.start(self._run())
        self._job.if_never_begun(self._end)

    async def more(self) -> bool:
        """Wait until there are chunks; False after the last one, unless something went wrong."""
        await self._bell.wait(self._ready)
        if self.chunks:
            return True
        error = self._job.error
        if isinstance(error, Cut):
            raise ModelError("the request was cancelled from outside, without a stop") from error
        if error is not None:
            raise error
        return False

    async def close(self) -> None:
        """Cancel the pull and wait until its connection is closed; whoever is cancelled here still waits."""
        self._job.end_within(GRACE, cancel=True)
        cuts: list[bool] = []
        await self._job.wait(lambda: cuts.append(True))
        if cuts:
            raise Cut

    async def _run(self) -> None:
        try:
            await self._pull(self._put)
        finally:
            self._end()

    def _put(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self._bell.ring()

    def _end(self) -> None:
        self._over = True
        self._bell.ring()

    def _ready(self) -> bool:
        return self._over or bool(self.chunks)
