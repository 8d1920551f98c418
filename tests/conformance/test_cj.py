"""CJ: repeated cancels join, escalate and time out."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import anyio
import pytest

from andon import Agent, Call, Outcome, Point, Stop, StopReport, StopResult, ToolContext, tool
from andon.core.draft import Chunk
from andon.core.items import RunEnded, StopRequested, ToolProgress
from andon.core.stop import Where
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.ticket import Ticket
from andon.testing import Gate, Hang, ScriptedModel, virtual
from tests.whole import whole


def clock() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()


class CountingModel:
    """A model that never answers, and counts how often it is cancelled."""

    def __init__(self) -> None:
        self.asked = Gate("model", opened=True)
        self.cancelled = 0

    async def __call__(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Hang."""
        yield f"{len(request.messages)}"
        await self.asked
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def cancelled_by(*requests: tuple[float, Stop]) -> tuple[Outcome, list[StopReport], float, int]:
    """Cancel a run that hangs in its model, at some seconds each; say how it ended, when, and by what."""
    model = CountingModel()
    async with Agent(model).start("go") as run:
        await model.asked.reached()
        began = clock()
        tickets: list[Ticket] = []
        for at, stop in requests:
            await anyio.sleep(began + at - clock())
            tickets.append(run.cancel(stop))
        outcome = await whole(run)
        took = clock() - began
    return outcome, [await ticket for ticket in tickets], took, model.cancelled


@virtual
async def test_cj_01_now_after_model_cuts_once() -> None:
    """The cut comes exactly once; escalated by request, not by time; both tickets say STOPPED."""
    outcome, reports, _, cuts = await cancelled_by((0, Stop.at(Point.MODEL)), (0, Stop.now()))
    assert cuts == 1
    assert [report.result for report in reports] == [StopResult.STOPPED] * 2
    assert reports[0] == reports[1] == outcome.cancelled
    assert (reports[0].escalated_by, reports[0].stopped_at) == ("request", Where.MODEL)
    assert [cause.asked for cause in reports[0].causes] == [Stop.at(Point.MODEL), Stop.now()]


@virtual
@pytest.mark.parametrize("points", [(Point.MODEL, Point.TOOLS), (Point.TOOLS, Point.MODEL)])
@pytest.mark.parametrize("place", [Where.POINT_MODEL, Where.POINT_TOOLS])
async def test_cj_02_two_points_join_and_the_first_that_comes_counts(
    points: Sequence[Point], place: Where
) -> None:
    """MODEL and TOOLS join to both; the run stops at whichever comes first, for both tickets."""
    gate = Gate("model" if place is Where.POINT_MODEL else "tool")

    @tool
    async def work() -> str:
        """Work."""
        if place is Where.POINT_TOOLS:
            await gate
        return "done"

    first = [gate, Call("work")] if place is Where.POINT_MODEL else [Call("work")]
    async with Agent(ScriptedModel(first, "never"), tools=[work]).start("go") as run:
        await gate.reached()
        tickets = [run.cancel(Stop.at(point)) for point in points]
        gate.open()
        await whole(run)
        reports = [await ticket for ticket in tickets]
        asked = [event.stop.points async for event in run if isinstance(event, StopRequested)]
    assert asked[-1] == Point.MODEL | Point.TOOLS
    assert [report.result for report in reports] == [StopResult.STOPPED] * 2
    assert reports[0] == reports[1]
    assert reports[0].stopped_at is place


@virtual
@pytest.mark.parametrize("later", [None, Stop.at(Point.ANY, grace=60)])
async def test_cj_03_the_earliest_deadline_holds(later: Stop | None) -> None:
    """200 ms at 0, 60 ms at 50 ms: cut at 110 ms, and a longer one that comes later extends nothing."""
    more = [] if later is None else [(0.06, later)]
    _, reports, took, _ = await cancelled_by(
        (0, Stop.at(Point.MODEL, grace=0.2)), (0.05, Stop.at(Point.TOOLS, grace=0.06)), *more
    )
    assert took == pytest.approx(0.11)
    assert {report.result for report in reports} == {StopResult.ESCALATED}


@virtual
async def test_cj_04_a_deadline_that_passes_cuts_once() -> None:
    """MODEL, 30 ms, no point: cut exactly once, the cause keeps MODEL, escalated by timeout."""
    outcome, reports, took, cuts = await cancelled_by((0, Stop.at(Point.MODEL, grace=0.03)))
    assert (cuts, took) == (1, pytest.approx(0.03))
    assert reports[0].result is StopResult.ESCALATED
    assert reports[0].escalated_by == "timeout"
    assert [cause.asked for cause in reports[0].causes] == [Stop.at(Point.MODEL, grace=0.03)]
    assert outcome.cancelled == reports[0]


@virtual
async def test_cj_05_escalation_comes_not_before_its_time_and_soon_after() -> None:
    """A stream that never returns, MODEL, 300 ms."""
    outcome, reports, took, _ = await cancelled_by((0, Stop.at(Point.MODEL, grace=0.3)))
    assert took == pytest.approx(0.3)
    assert (reports[0].result, reports[0].escalated_by) == (StopResult.ESCALATED, "timeout")
    assert reports[0].latency == pytest.approx(0.3)
    assert (outcome.text, outcome.message.cut) == ("1", True)


@virtual
async def test_cj_06_escalation_ends_the_run_while_the_tool_still_runs() -> None:
    """What the orphaned tool does later crashes nothing and is not heard, before the end or after."""
    gate, over, ending = Gate("tool"), Gate("over", opened=True), Gate("the hook at the end")
    told: list[ToolContext] = []

    @tool
    async def stubborn(context: ToolContext) -> str:
        """Hear nothing."""
        told.append(context)
        while not gate.opened:
            try:
                await gate
            except asyncio.CancelledError:
                context.progress("not now")
        context.progress("late")
        await over
        return "late"

    agent = Agent(ScriptedModel(Call("stubborn"), "never"), tools=[stubborn], tool_grace=0.5)

    @agent.on("run_ended")
    async def hold(_: Moment) -> None:
        await ending

    async with agent.start("go") as run:
        await gate.reached()
        began = clock()
        ticket = run.cancel(Stop.at(Point.MODEL, grace=0.05))
        await ending.reached()
        assert clock() - began == pytest.approx(0.55)
        gate.open()
        await over.reached()
        ending.open()
        report = await ticket
        outcome = await whole(run)
        told[0].progress("later still")
        seen = [event async for event in run]
    assert report.result is StopResult.ESCALATED
    assert [gone.name for gone in report.abandoned] == ["stubborn"]
    assert isinstance(seen[-1], RunEnded)
    assert [event.value for event in seen if isinstance(event, ToolProgress)] == ["not now"]
    assert outcome.messages[2].results[0].state == "unknown"


@virtual
async def test_cj_07_a_straggler_emits_nothing_after_the_end() -> None:
    """After the terminal event, whoever still speaks is not heard, and not told off."""
    kept: list[ToolContext] = []

    @tool
    async def leaky(context: ToolContext) -> str:
        """Keep the context."""
        kept.append(context)
        context.progress("in time")
        return "done"

    async with Agent(ScriptedModel(Call("leaky"), "Done."), tools=[leaky]).start("go") as run:
        await whole(run)
        before = [event async for event in run]
        kept[0].progress("late")
        run._record.add(before[0])  # pyright: ignore[reportPrivateUsage, reportArgumentType]
        run._record.progress("c", "late")  # pyright: ignore[reportPrivateUsage]
        assert [event async for event in run] == before
        assert run._record.events == before  # pyright: ignore[reportPrivateUsage]
    assert [event.value for event in before if isinstance(event, ToolProgress)] == ["in time"]


@virtual
async def test_cj_04_a_tool_that_must_wait_for_the_point_is_cut_at_the_deadline() -> None:
    """A tool that hears its cancellation, TOOLS, 30 ms: its call ends as unknown."""
    gate = Gate("tool")

    @tool
    async def slow() -> str:
        """Wait."""
        await gate
        return "done"

    async with Agent(ScriptedModel([Call("slow")], [Hang()]), tools=[slow]).start("go") as run:
        await gate.reached()
        report = await run.cancel(Stop.at(Point.TOOLS, grace=0.03))
        outcome = await whole(run)
    assert (report.result, report.stopped_at) == (StopResult.ESCALATED, Where.TOOLS)
    assert outcome.messages[2].results[0].state == "unknown"
