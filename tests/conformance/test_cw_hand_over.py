"""CW, of hand-over: stops of the agent that the conversation was handed over to."""

import asyncio

from andon import Agent, Call, Point, Stop, tool
from andon.core.stop import Where
from andon.testing import Delay, Gate, virtual
from tests.flows import Actor, ended, inside, stopped
from tests.stores import MemoryStore

HAND_OVER = Call("hand_over_to_target", {"request": "Please take this."})


def supervisor(target: Agent, *replies: Call, store: MemoryStore | None = None) -> Actor:
    """Make an agent that hands over to another one."""
    return Actor("supervisor", *replies, hand_over=[target], store=store)


@virtual
async def test_cw_03_now_cuts_the_agent_that_was_handed_over_to() -> None:
    """It is a part of the root, so the stop need not be recursive."""
    there = Gate(opened=True)
    target = Actor("target", [there, "Half", Delay(5), " an answer"])
    chief = supervisor(target, HAND_OVER)
    began = asyncio.get_running_loop().time()
    async with chief.start("go") as run:
        await there.reached()
        _, report = await stopped(run, run.cancel(Stop.now()))
    assert asyncio.get_running_loop().time() - began < 1
    assert report.stopped_at is Where.MODEL
    assert (chief.asked, target.asked, target.script.live) == (1, 1, 0)


@virtual
async def test_cw_14_now_keeps_the_target_and_resume_goes_on_inside_it() -> None:
    """The checkpoint names the way to it; resumed, its model is asked once, and the supervisor's is not."""
    answer, store = Gate("model"), MemoryStore()
    target = Actor("target", ["Half", answer])
    async with supervisor(target, HAND_OVER, store=store).start("go") as run:
        await answer.reached()
        outcome, report = await stopped(run, run.cancel(Stop.now(recursive=True)))
    assert [cause.asked for cause in report.causes] == [Stop.now(recursive=True)]
    assert list(inside(outcome.checkpoint)) == ["supervisor/target"]
    fresh = Actor("target", "Whole.")
    chief = supervisor(fresh)
    async with chief.start_from(store.data[report.checkpoint or ""]) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Whole.")
    assert (chief.asked, fresh.asked) == (0, 1)
    assert fresh.heard == ["go", "Please take this."]


@virtual
async def test_cw_15_model_stops_the_target_before_its_tool_and_resume_runs_that() -> None:
    """The stored call runs, and the target's model is asked exactly once more."""
    answer, store, log = Gate("model"), MemoryStore(), list[str]()

    @tool
    async def work() -> str:
        """Work."""
        log.append("work")
        return "done"

    target = Actor("target", [answer, Call("work")], tools=[work])
    async with supervisor(target, HAND_OVER, store=store).start("go") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.MODEL, recursive=True))
        answer.open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_MODEL
    assert [cause.asked for cause in report.causes] == [Stop.at(Point.MODEL, recursive=True)]
    assert list(inside(outcome.checkpoint)) == ["supervisor/target"]
    assert log == []
    fresh = Actor("target", "Worked.", tools=[work])
    chief = supervisor(fresh)
    async with chief.start_from(store.data[report.checkpoint or ""]) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Worked.")
    assert (log, chief.asked, fresh.asked) == (["work"], 0, 1)
    assert fresh.script.requests[0].messages[-1].results[0].content == "done"
