"""Parking: where a turn loop keeps what it leaves behind, and finds it again."""

import os
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Raw

from andon.core.checkpoint import Checkpoint
from andon.core.parked import VERSION, Codec, Parked, check_item, read, unpark, write
from andon.errors import CheckpointError, UserError
from andon.ports import Store
from andon.runtime.isolate import Cut, Job

T = TypeVar("T")
STORE_TIMEOUT = 30.0  # seconds a store may take
STORE_GRACE = 1.0


class Parking(Generic[T]):
    """One id in a store: what is there is only replaced or deleted by the loop that has read it."""

    __slots__ = ("_codec", "_id", "_seen", "_store")

    def __init__(self, store: Store, checkpoint_id: str, codec: Codec[T]) -> None:
        missing = [name for name in ("get", "set", "delete") if not callable(getattr(store, name, None))]
        if missing:
            msg = f"the store has no {' and no '.join(missing)}: it needs get, set and delete"
            raise UserError(msg)
        self._store = store
        self._id = checkpoint_id
        self._codec = codec
        self._seen: bytes | None = None

    def check(self, item: T) -> None:
        """Refuse an item that could not be kept."""
        check_item(self._codec, item)

    @property
    def holds(self) -> bool:
        """Whether something of this loop, or of the one before it, is in the store."""
        return bool(self._seen)

    async def load(self) -> Parked | None:
        """Read what is there; what cannot be read raises, and is left alone."""
        self._seen = await self._store.get(self._id)
        if not self._seen:
            return None
        return unpark(self._seen)

    def items(self, kept: Sequence[Raw]) -> list[T]:
        """Read items back."""
        return read(self._codec, kept)

    async def keep(self, turn: Checkpoint | None, interrupted: Sequence[T], unhandled: Sequence[T]) -> None:
        """Put down what there is to go on from; with nothing, what was there is deleted."""
        parked = Parked(
            version=VERSION,
            revision=os.urandom(8).hex(),
            turn=turn,
            interrupted=write(self._codec, interrupted),
            unhandled=write(self._codec, unhandled),
        )
        now_there = await self._store.get(self._id)
        if (now_there or b"") != (self._seen or b""):
            msg = (
                f"another loop has written the checkpoint {self._id!r} since this one read it: "
                "run one loop for an id; what the other wrote was left alone"
            )
            raise CheckpointError(msg)
        if parked.is_empty:
            if self._seen:
                await self._store.delete(self._id)
            self._seen = None
            return
        data = parked.to_json()
        await self._store.set(self._id, data)
        self._seen = data


async def bounded(work: Coroutine[Any, Any, Any], *, patient: bool) -> tuple[Job, Cut | None]:
    """Let a store work, for a bounded time; one who is not patient gives it up when cancelled meanwhile."""
    job = Job().start(work)
    job.after(STORE_TIMEOUT, partial(job.end_within, STORE_GRACE, cancel=True))
    hurry = partial(job.end_within, STORE_GRACE, cancel=True)
    cut = await job.wait(_go_on if patient else hurry)
    if job.abandoned or isinstance(job.error, Cut):
        what = "stored" if patient else "read"
        job.error = TimeoutError(f"it was not {what} within {STORE_TIMEOUT:g} s")
    return job, cut


def _go_on() -> None:
    """Keep on keeping: what cancels the task of the loop is let pass when that is done."""
