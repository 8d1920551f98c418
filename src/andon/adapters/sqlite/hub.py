"""Hub: who in this process waits for what happens in the file, and how they hear of it.

News come from the writer of this process, from the bells of others, and, should those be missed or
not to be had, from a look at the file, after which everybody looks for himself.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from andon.adapters.sqlite.bells import DELTA, GROWN, RING, WORK, Bells
from andon.adapters.sqlite.lane import CLOSED, News
from andon.core.command import Key
from andon.errors import SessionError
from andon.runtime.bell import Bell
from andon.runtime.watcher import Watcher


class Hold:
    """What rings for the worker that has a session."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.bell = Bell()
        self.rings = False

    def ring(self) -> None:
        """Let the worker look into the mailbox."""
        self.rings = True
        self.bell.ring()


class Hub:
    """Passes news on; from any thread.

    Args:
        quiet: Is called when the peers have said for now what they had to say.
        died: Is called with a peer that has died.
    """

    def __init__(self, quiet: Callable[[], None], died: Callable[[str], None]) -> None:
        self.bells = Bells(self._heard, quiet, died)
        self.work = Bell()
        self.calls = 0  # how often there was a call to work
        self.closed = False
        self._watchers: dict[Key, tuple[Watcher, ...]] = {}
        self._holds: dict[Key, Hold] = {}

    def check(self) -> None:
        """Refuse what comes after the end."""
        if self.closed:
            raise SessionError(CLOSED, "closed")

    def close(self) -> None:
        """Tell all who wait that there is nothing more to wait for."""
        self.closed = True
        self._call()
        for watcher in self._all_watchers():
            watcher.close()
        for hold in list(self._holds.values()):
            hold.ring()

    @contextmanager
    def watching(self, key: Key) -> Generator[Watcher]:
        """Let one watch a session."""
        watcher = Watcher()
        self._watchers[key] = (*self._watchers.get(key, ()), watcher)
        try:
            yield watcher
        finally:
            left = tuple(one for one in self._watchers[key] if one is not watcher)
            self._watchers[key] = left
            if not left:
                del self._watchers[key]

    def hold(self, key: Key) -> Hold:
        """Let the bell of a session ring for whoever has it from here on."""
        self._holds[key] = Hold(key)
        return self._holds[key]

    def let_go(self, hold: Hold) -> None:
        """Ring for this one no more."""
        if self._holds.get(hold.key) is hold:
            del self._holds[hold.key]

    def ring(self, key: Key) -> None:
        """Ring for whoever has the session here."""
        hold = self._holds.get(key)
        if hold is not None:
            hold.ring()

    def tell(self, key: Key, delta: bytes) -> None:
        """Tell whoever watches, here and elsewhere."""
        self._heard(DELTA, key, delta)
        self.bells.whisper(DELTA, key, delta)

    def spread(self, news: Iterable[News]) -> None:
        """Tell what was written here."""
        for kind, key in news:
            self._heard(kind, key, b"")
            self.bells.post(kind, key)

    def look(self) -> None:
        """Let everybody look for himself."""
        self._call()
        for watcher in self._all_watchers():
            watcher.hear(None)
        for hold in list(self._holds.values()):
            hold.ring()

    def _heard(self, kind: bytes, key: Key | None, body: bytes) -> None:
        if kind == WORK:
            self._call()
        elif key is None:
            return  # of a kind that a newer version tells
        elif kind == RING:
            self.ring(key)
        elif kind in {GROWN, DELTA}:
            for watcher in self._watchers.get(key, ()):
                watcher.hear(body if kind == DELTA else None)

    def _call(self) -> None:
        self.calls += 1
        self.work.ring()

    def _all_watchers(self) -> list[Watcher]:
        return [one for some in list(self._watchers.values()) for one in some]
