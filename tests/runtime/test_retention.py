"""Retention: what need not be kept is forgotten, and nothing else."""

import anyio
import pytest

from andon.core.command import Key, Push, command_to_json
from andon.core.journal import Received, SessionCreated, record_to_json
from andon.core.messages import Message
from andon.errors import SessionError
from andon.ports import SessionInfo
from andon.runtime.memory import MemorySubstrate
from andon.runtime.office import Office
from andon.runtime.retention import Retention, keep_sweeping, sweep
from andon.testing import virtual

HOUR = 3_600.0


def info(user: str, session: str, touched: float) -> SessionInfo:
    """A session that was used last then."""
    return SessionInfo(Key("app", user, session), 0.0, touched)


SESSIONS = [info("ann", "a1", 10), info("ann", "a2", 30), info("ann", "a3", 20), info("bob", "b1", 5)]


@pytest.mark.parametrize(
    ("retention", "old"),
    [
        (Retention(), []),
        (Retention(age=25), ["b1", "a1"]),
        (Retention(count=2), ["a1"]),
        (Retention(count=1), ["a1", "a3"]),
        (Retention(age=25, count=1), ["b1", "a1", "a3"]),
    ],
)
def test_what_is_old_or_too_many_need_not_be_kept(retention: Retention, old: list[str]) -> None:
    """By age, by the number of each user, or by both; the oldest first."""
    named = [key.session for key in retention.too_old(SESSIONS, now=40.0)]

    assert named == old


@pytest.mark.parametrize("wrong", [{"age": 0}, {"age": -1.0}, {"count": 0}])
def test_a_retention_that_keeps_nothing_is_refused(wrong: dict[str, int]) -> None:
    """It would forget what is used right now."""
    with pytest.raises(ValueError, match="give a number"):
        Retention(**wrong)


async def add(substrate: MemorySubstrate, name: str, *, busy: bool = False) -> Key:
    """Make a session; a busy one has a run in its queue."""
    key = Key("app", "ann", name)
    push = Push(id="p", at=1.0, run_id="run", message=Message.user("hi"))
    await substrate.append(key, record_to_json([SessionCreated(n=1, at=1.0)]), head=0)
    if busy:
        entry = Received(n=2, at=1.0, seq=1, command=push)
        await substrate.append(key, record_to_json([entry]), head=await substrate.head(key))
        await substrate.send(key, push.id, command_to_json(push))
    return key


@virtual
async def test_a_sweep_forgets_idle_sessions_and_no_others() -> None:
    """One with something to do is kept, however old."""
    async with MemorySubstrate() as substrate:
        office = Office(substrate)
        idle, busy = await add(substrate, "idle"), await add(substrate, "busy", busy=True)

        assert await sweep(office, Retention(age=HOUR)) == 0
        await anyio.sleep(HOUR + 1)
        assert await sweep(office, Retention(age=HOUR)) == 1

        assert (await office.state(busy)).queue
        with pytest.raises(SessionError, match="no session"):
            await office.state(idle)


@virtual
async def test_a_retention_that_keeps_all_never_looks() -> None:
    """It returns at once."""
    async with MemorySubstrate() as substrate:
        await add(substrate, "idle")
        await keep_sweeping(Office(substrate), Retention())

        assert len(await substrate.sessions()) == 1
