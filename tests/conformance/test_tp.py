"""TP: preempt at the level of the loop."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import anyio
import pytest

from andon import Agent, Call, Point, Preempt, Stop, StopResult
from andon.core.items import ToolEnded
from andon.core.stop import Where
from andon.core.turns import PreemptResult
from andon.testing import Delay, Gate, Hang, ScriptedModel, virtual
from tests.looped import Looped, answer, asked_of, held


@virtual
async def test_tp_01_a_preempt_cancels_the_running_turn_and_the_loop_goes_on() -> None:
    """The running agent is cancelled at its point, the loop plans again, and a stop ends it cleanly."""
    gate = Gate("tool")
    scene = Looped(Call("work"), "For the urgent.", tools=[held(gate)])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("urgent", preempt=Preempt(Point.ANY))
        assert await answer(receipt) is PreemptResult.SUBMITTED
        gate.open()
        await scene.over(2)
        scene.loop.stop(Stop.now())
    exit_ = await scene.loop.wait()
    assert exit_.reason is None
    assert scene.batches == [["first"], ["urgent"]]
    first, second = [await run.outcome() for run in scene.runs]
    assert first.cancelled is not None
    assert (first.cancelled.result, first.cancelled.stopped_at) == (StopResult.STOPPED, Where.POINT_TOOLS)
    assert [cause.source for cause in first.cancelled.causes] == ["preempt"]
    assert (second.stop_reason, second.text) == ("end_turn", "For the urgent.")
    assert scene.ends == ["preempted", "completed"]


@virtual
async def test_tp_02_the_items_of_a_preempted_turn_are_not_given_again() -> None:
    """The next batch has the urgent item and not the first; it is only told of that one."""
    gate = Gate("tool")
    scene = Looped(Call("work"), "Done.", tools=[held(gate)])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        scene.loop.push("urgent", preempt=Preempt(Point.ANY))
        gate.open()
        await scene.over(2)
        scene.loop.stop()
    exit_ = await scene.loop.wait()
    assert scene.batches == [["first"], ["urgent"]]
    assert [about.preempted for about in scene.about] == [(), ("first",)]
    assert [list(about.preempting) for about in scene.about] == [[], ["urgent"]]
    assert (exit_.reason, exit_.unhandled, exit_.interrupted, exit_.failed) == (None, (), (), ())


@virtual
async def test_tp_02_with_requeue_they_wait_again_in_front() -> None:
    """A loop that was made to requeue gives them once more, before what came since."""
    gate = Gate("tool")
    scene = Looped(Call("work"), *["Done."] * 3, tools=[held(gate)], on_preempt="requeue")
    async with scene.loop:
        scene.push("first", "second")
        await gate.reached()
        scene.loop.push("urgent", preempt=Preempt(Point.ANY))
        gate.open()
    exit_ = await scene.loop.wait()
    assert scene.batches == [
        ["first", "second"],
        ["first", "second", "urgent"],
        ["second", "urgent"],
        ["urgent"],
    ]
    assert [list(about.preempted) for about in scene.about] == [[], ["first"], [], []]
    assert (exit_.reason, exit_.unhandled, exit_.failed) == (None, (), ())


@virtual
async def test_tp_04_the_receipt_is_answered_when_the_cancel_is_submitted() -> None:
    """The agent is still at work, and need not have ended."""
    gate = Gate("tool")
    scene = Looped(Call("work"), "Done.", tools=[held(gate)])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("urgent", preempt=Preempt(Point.ANY))
        assert await answer(receipt) is PreemptResult.SUBMITTED
        assert not scene.runs[0].ended
        assert not gate.opened
        gate.open()
    assert scene.ends == ["preempted", "completed"]


@virtual
async def test_tp_06_a_second_preempt_joins_and_its_grace_escalates() -> None:
    """MODEL, then ANY with a grace of a moment: MODEL and TOOLS, and then it is cut."""
    scene = Looped([Hang()], "Done.")
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        receipts = [
            *scene.push("second", preempt=Preempt(Point.MODEL)),
            *scene.push("third", preempt=Preempt(Point.ANY, grace=0.001)),
        ]
        assert [await answer(one) for one in receipts] == [PreemptResult.SUBMITTED] * 2
        await scene.over(1)
        stops = await asked_of(scene.runs[0])
        scene.loop.stop()
    assert [stop.points for stop in stops] == [Point.ANY, Point(0)]
    assert stops[-1].immediate
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")
    assert [cause.asked.points for cause in report.causes if cause.asked] == [Point.MODEL, Point.ANY]
    assert scene.ends[0] == "preempted"


@virtual
async def test_tp_07_two_preempts_of_one_turn_are_joined() -> None:
    """MODEL, then TOOLS: whichever point comes first."""
    gate = Gate("tool")
    scene = Looped(Call("work"), "Done.", "Done.", tools=[held(gate)])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        scene.push("second", preempt=Preempt(Point.MODEL))
        await anyio.sleep(1)
        scene.push("third", preempt=Preempt(Point.TOOLS))
        await anyio.sleep(1)
        gate.open()
    stops = await asked_of(scene.runs[0])
    assert [stop.points for stop in stops] == [Point.MODEL, Point.MODEL | Point.TOOLS]
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert report.stopped_at is Where.POINT_TOOLS
    assert scene.batches == [["first"], ["second", "third"], ["third"]]


@virtual
async def test_tp_08_a_delayed_preempt_of_a_turn_that_ended_touches_no_later_one() -> None:
    """The turn that the push saw ends before the delay: the preempt asks for nothing."""
    gate = Gate("model")
    scene = Looped([gate, "One."], [Delay(5), "Two."])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("second", preempt=Preempt(Point.STREAM, delay=0.5))
        gate.open()
        assert await answer(receipt) is PreemptResult.TURN_ENDED
    exit_ = await scene.loop.wait()
    outcomes = [await run.outcome() for run in scene.runs]
    assert [(one.stop_reason, one.text) for one in outcomes] == [("end_turn", "One."), ("end_turn", "Two.")]
    assert [turn.preempted for turn in scene.turns] == [False, False]
    assert exit_.reason is None


@virtual
async def test_tp_10_between_turns_a_preempt_finds_nothing_to_cancel() -> None:
    """It is accepted, answered at once, and the item gets its turn."""
    scene = Looped("One.", "Two.")
    async with scene.loop:
        scene.push("first")
        await scene.over(1)
        receipt = scene.loop.push("second", preempt=Preempt(Point.ANY, grace=1))
        assert receipt.preempt is not None
        assert receipt.preempt.wait(0) is PreemptResult.NO_TURN
        await scene.over(2)
        scene.loop.stop()
    exit_ = await scene.loop.wait()
    assert exit_.reason is None
    assert scene.prompts == ["first", "second"]
    assert [await asked_of(run) for run in scene.runs] == [[], []]


async def test_tp_11_ten_threads_preempt_at_once_and_each_is_answered() -> None:
    """Each accepted push is answered, the running turn is preempted, and the loop lives on to be stopped."""
    hang = Gate("model")
    scene = Looped([hang], *["Done."] * 20)
    barrier = Barrier(10)

    def push(number: int) -> PreemptResult:
        barrier.wait(30)
        receipt = scene.loop.push(f"{number}", preempt=Preempt(Point.ANY, grace=0.01))
        assert receipt.accepted
        assert receipt.preempt is not None
        return receipt.preempt.wait(30)

    with ThreadPoolExecutor(10) as pool:
        async with scene.loop:
            scene.push("first")
            await hang.reached()
            pushes = [pool.submit(push, number) for number in range(10)]
            answers = [await anyio.to_thread.run_sync(one.result, 30) for one in pushes]
            await scene.over(2)
            while scene.loop.busy:
                await scene.over(len(scene.ends) + 1)
            scene.loop.stop(Stop.now())
    exit_ = await scene.loop.wait()
    assert PreemptResult.SUBMITTED in answers
    assert PreemptResult.LOOP_CLOSED not in answers
    assert scene.ends[0] == "preempted"
    assert len(scene.batches) >= 2
    assert exit_.reason is None


@virtual
async def test_tp_12_a_preempt_after_a_preempted_turn_and_its_successor_finds_no_turn() -> None:
    """A makes way for B; B ends; C finds nothing: exactly three turns."""
    gate = Gate("tool")
    scene = Looped(Call("work"), "B.", "C.", tools=[held(gate)])
    async with scene.loop:
        scene.push("A")
        await gate.reached()
        b = scene.loop.push("B", preempt=Preempt(Point.ANY))
        gate.open()
        await scene.over(2)
        c = scene.loop.push("C", preempt=Preempt(Point.ANY))
        assert (await answer(b), await answer(c)) == (PreemptResult.SUBMITTED, PreemptResult.NO_TURN)
        await scene.over(3)
        scene.loop.stop()
    exit_ = await scene.loop.wait()
    assert scene.batches == [["A"], ["B"], ["C"]]
    assert scene.ends == ["preempted", "completed", "completed"]
    assert exit_.reason is None


@pytest.mark.parametrize(
    ("points", "where", "ran"),
    [
        (Point.TOOLS, Where.POINT_TOOLS, ["completed"]),
        (Point.MODEL, Where.POINT_MODEL, ["not_started"]),
        (Point.ANY, Where.POINT_MODEL, ["not_started"]),
    ],
)
def test_tp_16_the_point_that_is_named_is_the_point_that_is_asked(
    points: Point, where: Where, ran: list[str]
) -> None:
    """TOOLS lets the tools end, MODEL stops before them, and ANY is either."""

    @virtual
    async def turn() -> None:
        gate = Gate("model")
        model = ScriptedModel([gate, Call("work")], "Done.")
        scene = Looped(agent=Agent(model, tools=[held(Gate(opened=True))]))
        async with scene.loop:
            scene.push("first")
            await gate.reached()
            scene.loop.push("urgent", preempt=Preempt(points))
            gate.open()
        run = scene.runs[0]
        assert [stop.points for stop in await asked_of(run)] == [points]
        report = (await run.outcome()).cancelled
        assert report is not None
        assert report.stopped_at is where
        assert [one.state async for one in run.events() if isinstance(one, ToolEnded)] == ran

    turn()
