"""Kept: the state of a session as this process has read it last, so that it need only be read on."""

import anyio

from andon.core.command import Key
from andon.core.journal import record_from_json
from andon.core.session import SessionState
from andon.ports import Substrate


class Kept:
    """The state of a session as it was read last; one at a time reads on."""

    __slots__ = ("head", "lock", "state")

    def __init__(self, key: Key) -> None:
        self.head = 0
        self.state = SessionState(key)
        self.lock = anyio.Lock()

    async def read_on(self, substrate: Substrate) -> None:
        """Read what has come since; a session that was deleted, and perhaps made anew, is read anew."""
        key = self.state.key
        if await substrate.head(key) < self.head:
            self.head, self.state = 0, SessionState(key)
        for head, record in await substrate.read(key, after=self.head):
            entries = record_from_json(record)
            if entries and entries[0].n == 1:
                self.state = SessionState(key)
            for entry in entries:
                self.state.apply(entry)
            self.head = head
