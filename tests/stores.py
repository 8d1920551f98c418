"""Stores for tests: one that keeps, one that never answers, one that fails."""

from collections.abc import Coroutine
from typing import Any

import anyio


class MemoryStore:
    """Keeps checkpoints in a dict."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    async def get(self, checkpoint_id: str, /) -> bytes | None:
        """Give what is stored, or None."""
        return self.data.get(checkpoint_id)

    async def set(self, checkpoint_id: str, data: bytes, /) -> None:
        """Store."""
        await anyio.lowlevel.checkpoint()
        self.data[checkpoint_id] = data

    async def delete(self, checkpoint_id: str, /) -> None:
        """Forget it."""
        self.data.pop(checkpoint_id, None)


class HangingStore(MemoryStore):
    """Never answers."""

    async def set(self, _id: str, _data: bytes, /) -> None:
        """Wait for ever."""
        await anyio.sleep_forever()


class BrokenStore(MemoryStore):
    """Always fails."""

    async def set(self, _id: str, _data: bytes, /) -> None:
        """Fail."""
        msg = "the disk is full"
        raise OSError(msg)


class RefusingStore:
    """Fails before it has made a coroutine."""

    def set(self, _id: str, _data: bytes, /) -> Coroutine[Any, Any, None]:
        """Refuse."""
        msg = "not yours"
        raise PermissionError(msg)

    async def get(self, _id: str, /) -> bytes | None:
        """Have nothing."""

    async def delete(self, _id: str, /) -> None:
        """Forget nothing."""
