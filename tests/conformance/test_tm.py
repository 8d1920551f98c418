"""TM: requests to one turn are joined, whether they come from stops or from preempts."""

import anyio
import pytest

from andon import Call, Point, Preempt, Stop, StopResult
from andon.core.stop import Where
from andon.core.turns import PreemptResult
from andon.core.turns import State as LoopState
from andon.core.turns import stop as stopped
from andon.testing import Gate, Hang, virtual
from tests.looped import Looped, answer, asked_of, held


@virtual
async def test_tm_01_a_point_with_a_minute_joined_with_now_is_now() -> None:
    """Nothing is left of the point and its deadline."""
    scene = Looped([Hang()])
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        scene.loop.stop(Stop.at(Point.MODEL, grace=60))
        scene.loop.stop(Stop.now())
    (stop,) = await asked_of(scene.runs[0])
    assert (stop.immediate, stop.points, stop.grace, stop.deadline) == (True, Point(0), None, None)
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert report.escalated_by == "request"


@virtual
async def test_tm_02_a_point_joined_with_no_intent_stays_that_point() -> None:
    """A stop that asks nothing of the turn, or that waits for idleness, changes nothing for it."""
    gate = Gate("tool")
    scene = Looped(Call("work"), tools=[held(gate)])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        scene.loop.stop(Stop.at(Point.MODEL))
        scene.loop.stop()
        scene.loop.stop(when_idle_for=1)
        await anyio.sleep(5)
        scene.model.script(Call("work"))
        gate.open()
    assert [stop.points for stop in await asked_of(scene.runs[0])] == [Point.MODEL]
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert report.stopped_at is Where.POINT_MODEL


@pytest.mark.parametrize("by_preempt", [False, True])
def test_tm_04_two_points_are_both(*, by_preempt: bool) -> None:
    """MODEL and TOOLS, be it two stops, or a preempt and a stop."""

    @virtual
    async def turn() -> None:
        gate = Gate("tool")
        scene = Looped(Call("work"), tools=[held(gate)])
        async with scene.loop:
            scene.push("first")
            await gate.reached()
            if by_preempt:
                scene.loop.push("second", preempt=Preempt(Point.MODEL))
            else:
                scene.loop.stop(Stop.at(Point.MODEL))
            scene.loop.stop(Stop.at(Point.TOOLS))
            await anyio.sleep(1)
            gate.open()
        assert (await asked_of(scene.runs[0]))[-1].points == Point.MODEL | Point.TOOLS
        assert scene.ends == ["stopped"]

    turn()


def test_tm_04_the_machine_joins_them() -> None:
    """What the stops of a loop ask of its turn is one stop."""
    state, _ = stopped(LoopState(), Stop.at(Point.MODEL))
    state, _ = stopped(state, None)
    state, _ = stopped(state, Stop.at(Point.TOOLS))
    assert state.stop == Stop.at(Point.MODEL | Point.TOOLS)


@virtual
async def test_tm_06_the_earlier_deadline_holds() -> None:
    """Ten seconds, and a moment later one: at most one is left; and a later, longer one changes nothing."""
    scene = Looped([Hang()])
    began = anyio.current_time()
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        scene.loop.stop(Stop.at(Point.MODEL, grace=10))
        await anyio.sleep(0.1)
        scene.loop.push("late", preempt=Preempt(Point.MODEL, grace=0.001))  # refused, and so no part of it
        scene.loop.stop(Stop.at(Point.MODEL, grace=1))
        scene.loop.stop(Stop.at(Point.MODEL, grace=60))
        await scene.loop.wait()
    assert anyio.current_time() - began == pytest.approx(2.1, abs=0.05)
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")


@virtual
async def test_tm_07_a_deadline_that_has_passed_on_the_way_is_now() -> None:
    """The grace of a preempt runs while the turn is planned: it reaches the run as *now*, by timeout."""
    planning = Gate("planning")

    async def prepare(*_: object) -> object:
        await planning
        return scene.agent

    scene = Looped("Done.", prepare_agent=prepare)
    async with scene.loop:
        scene.push("first")
        await planning.reached()
        receipt = scene.loop.push("second", preempt=Preempt(Point.TOOLS, grace=1))
        await anyio.sleep(5)
        planning.open()
        assert await answer(receipt) is PreemptResult.SUBMITTED
        await scene.over(1)
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")
    assert report.stopped_at is Where.BEFORE_START
    assert scene.prompts == ["second"]
