"""A worker that stops, pauses and asks: what waits, waits, and goes on where it was."""

import pytest

from andon import Stop
from andon.core.stop import StopResult, Where
from andon.errors import SessionError
from andon.testing import virtual
from tests.deeds import Deeds, lines
from tests.hall import KEY, Hall, hall, settle, sound


async def ended(here: Hall, run_id: str) -> str:
    """Wait for the end of a run, and say how it was."""
    row = await here.office.ended(KEY, run_id, 10_000)
    assert row is not None
    return row.state


async def history(here: Hall) -> list[str]:
    """Give the history of the session in words."""
    return lines((await here.office.state(KEY)).messages)


@virtual
async def test_a_session_that_is_stopped_takes_nothing_until_it_is_resumed() -> None:
    """The live run goes on to its end; what waits stays unhandled."""
    async with hall(Deeds().agent) as here:
        run_id = await here.office.push(KEY, "again")
        await here.live(run_id)
        waiting = await here.office.push(KEY, "hello")
        report = await here.office.stop(KEY, by="ann", wait=100)
        assert report is not None
        assert report.result is StopResult.FINISHED_FIRST
        with pytest.raises(SessionError, match="was stopped: resume it first"):
            await here.office.push(KEY, "late")
        assert await here.office.push(KEY, "again", run_id=run_id) == run_id
        assert (await here.office.run(waiting)).state == "queued"
        assert await here.office.resume(KEY) is None
        assert await ended(here, waiting) == "finished"
        again = await here.office.push(KEY, "hang")
        await here.live(again)
        report = await here.office.stop(KEY, Stop.now())
        assert report is not None
        assert report.result is StopResult.STOPPED
        await sound(here)


@virtual
async def test_a_session_that_is_paused_goes_on_where_it_was() -> None:
    """What is pushed meanwhile waits behind it."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        run_id = await here.office.push(KEY, "once")
        await here.live(run_id, "once")
        report = await here.office.pause(KEY, by="ann", reason="lunch", wait=100)
        assert report is not None
        assert [(cause.source, cause.by) for cause in report.causes] == [("pause", "ann")]
        waiting = await here.office.push(KEY, "hello")
        await settle()
        assert deeds.asked == 1
        again = await here.office.resume(KEY)
        assert again is not None
        assert [await ended(here, name) for name in (again, waiting)] == ["finished", "finished"]
        assert (await here.office.run(run_id)).went_on_as == again
        assert deeds.tally.begun["once"] == 1
        with pytest.raises(SessionError, match="nothing to resume"):
            await here.office.resume(KEY)
        await sound(here)


@virtual
async def test_a_resume_may_come_while_the_pause_is_pending() -> None:
    """The run stops where it was asked to, and goes on at once as another."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        run_id = await here.office.push(KEY, "once")
        await here.live(run_id, "once")
        assert await here.office.pause(KEY, wait=0) is None
        assert await here.office.resume(KEY) == run_id
        assert await ended(here, run_id) == "cancelled"
        again = (await here.office.run(run_id)).went_on_as
        assert again is not None
        assert await ended(here, again) == "finished"
        assert deeds.tally.begun["once"] == 1
        assert not (await here.office.state(KEY)).held
        await sound(here)


@virtual
async def test_a_paused_session_that_is_idle_only_holds() -> None:
    """There was nothing to stop; what comes waits."""
    async with hall(Deeds().agent) as here:
        report = await here.office.pause(KEY)
        assert report is not None
        assert report.result is StopResult.NOTHING_RUNNING
        waiting = await here.office.push(KEY, "hello")
        await here.until(KEY, lambda state: bool(state.queue))
        assert await here.office.resume(KEY) is None
        assert await ended(here, waiting) == "finished"


@virtual
async def test_a_question_is_answered() -> None:
    """In part, and wrongly, too: who answered nothing that was asked hears what is open."""
    async with hall(Deeds().agent) as here:
        row = await here.run("ask")
        assert (row.state, [asked.payload for asked in row.interrupts]) == ("interrupted", ["Really?"])
        with pytest.raises(SessionError, match="answers has 'other', and the open interrupts are"):
            await here.office.answer(KEY, {"other": 1})
        nothing = await here.office.answer(KEY, {})
        assert await ended(here, nothing) == "interrupted"
        again = (await here.office.run(nothing)).interrupts
        run_id = await here.office.answer(KEY, {again[0].id: "yes"}, by="bob")
        assert await ended(here, run_id) == "finished"
        assert "tool:  | ask=was told yes" in await history(here)
        with pytest.raises(SessionError, match="waits for no answer"):
            await here.office.answer(KEY, {again[0].id: "no"})
        await sound(here)


@virtual
async def test_a_question_may_be_cancelled_or_passed_over() -> None:
    """A cancel discards it, an ordinary push as well."""
    async with hall(Deeds().agent) as here:
        row = await here.run("ask")
        report = await here.office.cancel(KEY)
        assert report is not None
        assert (report.result, report.stopped_at, report.run_id) == (
            StopResult.STOPPED,
            Where.PAUSED,
            row.run_id,
        )
        with pytest.raises(SessionError, match="waits for no answer"):
            await here.office.answer(KEY, {row.interrupts[0].id: "yes"})
        row = await here.run("ask")
        assert (await here.run("hello")).state == "finished"
        with pytest.raises(SessionError, match="waits for no answer"):
            await here.office.answer(KEY, {row.interrupts[0].id: "yes"})
        await sound(here)
