"""Office: what is answered is what is durable, says the same whoever asks, and costs little to ask."""

import anyio
import pytest

from andon import Agent
from andon.core.command import Key, Push
from andon.core.journal import Received, SessionCreated, record_to_json
from andon.core.messages import Message
from andon.errors import SessionError
from andon.runtime.memory import MemorySubstrate
from andon.runtime.office import MOST_QUEUED, REMEMBERED, Office
from andon.testing import ScriptedModel, virtual
from tests.deeds import Deeds, lines
from tests.hall import KEY, hall, settle


@virtual
async def test_a_session_begins_once() -> None:
    """With the state that its creator gave; a second one of its name is a conflict."""
    async with MemorySubstrate() as substrate:
        office = Office(substrate)
        await office.create(KEY, {"lang": "de"})
        with pytest.raises(SessionError, match="choose another id"):
            await office.create(KEY)
        state = await office.state(KEY)
        assert state.created is not None
        assert state.created.state == {"lang": "de"}
        await office.create(Key("app", "bob", "s1"))
        await office.create(Key("other", "ann", "s1"))
        assert [info.key.user for info in await office.sessions("app")] == ["ann", "bob"]
        assert [info.key.app for info in await office.sessions(user="ann")] == ["app", "other"]


@virtual
async def test_what_is_asked_of_no_session_is_missing() -> None:
    """Each verb says so, and leaves nothing behind."""
    async with MemorySubstrate() as substrate:
        office = Office(substrate)
        verbs = (
            lambda: office.state(KEY),
            lambda: office.push(KEY, "hello"),
            lambda: office.steer(KEY, "hello"),
            lambda: office.cancel(KEY),
            lambda: office.stop(KEY),
            lambda: office.pause(KEY),
            lambda: office.resume(KEY),
            lambda: office.answer(KEY, {}),
            lambda: office.release(KEY),
            lambda: office.delete(KEY),
            lambda: office.ended(KEY, "r1"),
            lambda: office.run("r1"),
        )
        for verb in verbs:
            with pytest.raises(SessionError) as missing:
                await verb()
            assert missing.value.kind == "missing"
        with pytest.raises(SessionError, match="create it first"):
            async with office.follow(KEY):
                raise AssertionError
        assert await office.sessions() == []


@virtual
async def test_what_nobody_works_on_is_told_after_a_while() -> None:
    """The request stands; a cancel, a pause and a wait for the end give nothing."""
    async with hall(Deeds().agent, workers=0) as here:
        run_id = await here.office.push(KEY, "hello")
        assert await here.office.ended(KEY, run_id, wait=1) is None
        assert await here.office.cancel(KEY, wait=1) is None
        assert await here.office.pause(KEY, wait=0) is None
        with pytest.raises(SessionError, match="the request stands") as busy:
            await here.office.resume(KEY)
        assert busy.value.kind == "busy"
        here.hire()
        row = await here.office.ended(KEY, run_id)
        assert row is not None
        assert row.state == "cancelled"


@virtual
async def test_the_state_is_read_on_and_not_read_again() -> None:
    """Only what has come since is folded; a session that was made anew is another one."""
    async with hall(Deeds().agent) as here:
        await here.run("hello")
        state = await here.office.state(KEY)
        await here.run("hello")
        assert await here.office.state(KEY) is state
        await here.office.delete(KEY)
        await here.office.create(KEY)
        again = await here.office.state(KEY)
        assert (again is state, again.n, again.messages) == (False, 1, [])
        assert (await here.run("hello")).state == "finished"


@virtual
async def test_a_session_that_was_made_anew_elsewhere_is_read_anew() -> None:
    """Another process has deleted it, and it is longer now than it was."""
    async with hall(Deeds().agent) as here:
        elsewhere = Office(here.substrate)
        before = await elsewhere.state(KEY)
        assert before.n == 1
        await here.office.delete(KEY)
        await here.office.create(KEY)
        for text in ("a", "b"):
            await here.run(text)
        state = await elsewhere.state(KEY)
        assert lines(state.messages) == lines((await here.office.state(KEY)).messages)
        assert state.n == (await here.office.state(KEY)).n


@virtual
async def test_many_ask_at_once_and_all_see_the_same() -> None:
    """Who waits for one end hears of it in the same moment; nothing is folded twice."""
    async with hall(Agent(ScriptedModel("Done."))) as here, anyio.create_task_group() as group:
        seen: list[str] = []

        async def wait() -> None:
            row = await here.office.ended(KEY, "r1")
            assert row is not None
            seen.append(row.state)

        for _ in range(50):
            group.start_soon(wait)
        await settle()
        await here.office.push(KEY, "hello", run_id="r1")
        assert await here.office.ended(KEY, "r1") is not None
        await settle()
        assert seen == ["finished"] * 50
        assert (await here.office.state(KEY)).messages[-1] == Message.assistant("Done.")


@virtual
async def test_states_are_remembered_up_to_a_bound() -> None:
    """The one that was asked for longest ago is forgotten."""
    async with MemorySubstrate() as substrate:
        office = Office(substrate)
        keys = [Key("app", "ann", f"k{number}") for number in range(REMEMBERED + 5)]
        for key in keys:
            await office.create(key)
            await office.state(key)
        assert len(office._states) == REMEMBERED  # pyright: ignore[reportPrivateUsage]
        assert (await office.state(keys[0])).n == 1


@virtual
async def test_who_waits_for_a_run_of_a_deleted_session_hears_that_it_is_gone() -> None:
    """It does not wait for ever."""
    async with hall(Deeds().agent, workers=0) as here, anyio.create_task_group() as group:
        told: list[str] = []

        async def wait() -> None:
            try:
                await here.office.ended(KEY, "r1")
            except SessionError as error:
                told.append(error.kind)

        group.start_soon(wait)
        await settle()
        await here.office.delete(KEY)
        await settle()
        assert told == ["missing"]


@virtual
async def test_a_session_takes_only_so_many_runs_that_wait() -> None:
    """Whoever pushes more is told to try again; what was pushed already is no more."""
    pushes = [
        Push(id=f"p{number}", at=1.0, run_id=f"r{number}", message=Message.user("hi"))
        for number in range(MOST_QUEUED)
    ]
    waiting = [
        Received(n=2 + place, at=1.0, seq=1 + place, command=push) for place, push in enumerate(pushes)
    ]
    async with MemorySubstrate() as substrate:
        entries = [SessionCreated(n=1, at=1.0), *waiting]
        await substrate.append(KEY, record_to_json(entries), head=0)
        office = Office(substrate)
        with pytest.raises(SessionError, match="1000 runs wait") as told:
            await office.push(KEY, "one more")

        assert told.value.kind == "full"
        assert await office.push(KEY, "again", run_id="r7") == "r7"
