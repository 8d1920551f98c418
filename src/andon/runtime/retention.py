"""Retention: forgets sessions that nobody has used for long, or that are more than are kept."""

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from andon.core.command import Key
from andon.core.stop import check_seconds
from andon.errors import SessionError
from andon.ports import SessionInfo
from andon.runtime.config import check_count
from andon.runtime.isolate import nap
from andon.runtime.office import Office
from andon.runtime.record import logger

EVERY = 600.0  # seconds between two looks


class Retention(Struct, frozen=True, kw_only=True):
    """What is kept: sessions used within `age` seconds, and of each user the `count` used last; None is all.

    A session that works, waits in a queue or for an answer, is held or in quarantine, is kept in any case.
    """

    age: float | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        check_seconds("age", self.age)
        if self.count is not None:
            check_count("count", self.count, 1, ", or None to keep all")

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever forgotten."""
        return self.age is None and self.count is None

    def too_old(self, sessions: Iterable[SessionInfo], now: float) -> list[Key]:
        """Name the sessions that need not be kept, the oldest first."""
        of_user: dict[tuple[str, str], list[SessionInfo]] = defaultdict(list)
        for info in sorted(sessions, key=lambda info: info.touched, reverse=True):
            of_user[info.key.app, info.key.user].append(info)
        old = [
            info
            for mine in of_user.values()
            for place, info in enumerate(mine)
            if (self.count is not None and place >= self.count)
            or (self.age is not None and info.touched < now - self.age)
        ]
        return [info.key for info in sorted(old, key=lambda info: info.touched)]


async def sweep(office: Office, retention: Retention) -> int:
    """Forget what need not be kept; gives how many sessions that were."""
    forgotten = 0
    for key in retention.too_old(await office.sessions(), office.now()):
        try:
            if await _is_idle(office, key):
                await office.delete(key)
                forgotten += 1
        except SessionError as error:
            if error.kind != "missing":  # somebody else has just forgotten it
                logger.warning("session %s is kept for now: %s", key, error)
    return forgotten


async def keep_sweeping(office: Office, retention: Retention, *, every: float = EVERY) -> None:
    """Forget, again and again, what need not be kept."""
    while not retention.keeps_all:
        forgotten = await sweep(office, retention)
        if forgotten:
            logger.info("%d sessions were forgotten, as they need not be kept", forgotten)
        await nap(every)


async def _is_idle(office: Office, key: Key) -> bool:
    state = await office.state(key)
    waits = state.waiting is not None and bool(state.waiting.interrupts)
    return not (state.live or state.queue or waits or state.held or state.quarantined)
