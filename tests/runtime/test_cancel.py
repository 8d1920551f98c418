"""Cancel: from anywhere, at any time, any number of times; it stops what was asked, where it was asked."""

import asyncio
from collections.abc import AsyncIterator
from threading import Thread

import anyio
import pytest

from andon import Agent, Call, Limits, Point, Run, Stop, StopReport, StopResult, ToolContext, tool
from andon.core.draft import Chunk
from andon.core.items import StopRequested
from andon.core.stop import Where
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.ticket import Ticket
from andon.testing import Burst, Gate, Hang, Reply, ScriptedModel, Yield, virtual
from tests.whole import whole


def in_thread(run: Run, stop: Stop | None = None) -> Ticket:
    """Cancel from a thread of its own."""
    tickets: list[Ticket] = []
    thread = Thread(target=lambda: tickets.append(run.cancel(stop, by="thread")))
    thread.start()
    thread.join()
    return tickets[0]


async def test_a_thread_cancels_before_the_run() -> None:
    """The request waits for the run, and the run does nothing."""
    model = ScriptedModel("never")
    run = Agent(model).start("go")
    ticket = in_thread(run)
    assert (ticket.accepted, ticket.report) == (None, None)
    async with run:
        outcome = await whole(run)
    report = await ticket
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.BEFORE_START)
    assert ticket.accepted
    assert model.requests == []
    assert outcome.usage.model_calls == 0


async def test_a_thread_cancels_while_the_run_hangs() -> None:
    """The loop sleeps, and is woken."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer)).start("go") as run:
        await answer.reached()
        report = await in_thread(run)
        await whole(run)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert report.cause is not None
    assert (report.cause.source, report.cause.by) == ("user", "thread")


async def test_a_thread_cancels_after_the_end() -> None:
    """At once FINISHED_FIRST; also when the loop is long gone."""
    async with Agent(ScriptedModel("Done.")).start("go") as run:
        await whole(run)
        ticket = in_thread(run)
    assert ticket.wait(0).result is StopResult.FINISHED_FIRST
    assert ticket.accepted is False


def test_a_cancel_after_the_loop_is_closed_is_answered() -> None:
    """A handle that is kept answers for ever."""
    agent = Agent(ScriptedModel("Done."))
    run = agent.start("go")
    assert asyncio.run(run.outcome()).text == "Done."
    assert run.cancel().wait(0).result is StopResult.FINISHED_FIRST


@virtual
async def test_cancelled_twice_it_is_cut_once() -> None:
    """The second request does not disturb the model's clean-up, and both get the same report."""
    asked, cleaning = Gate("asked", opened=True), Gate("cleaning")
    cuts: list[str] = []

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            yield "Half"
            await asked
            await anyio.sleep_forever()
        finally:
            cuts.append("cut")
            await cleaning
            cuts.append("clean")

    async with Agent(model).start("go") as run:
        await asked.reached()
        first = run.cancel()
        await cleaning.reached()
        second = run.cancel()
        await anyio.lowlevel.checkpoint()
        cleaning.open()
        outcome = await whole(run)
    assert cuts == ["cut", "clean"]
    assert await first == await second == outcome.cancelled
    assert len((await first).causes) == 2
    assert (await first).escalated_by is None


@virtual
async def test_a_cut_leaves_the_task_of_the_run_as_if_nothing_had_been() -> None:
    """What comes after it may wait: the cancellation was taken back, however often it was asked for."""
    asked, cleaning, told = Gate("asked", opened=True), Gate("cleaning"), list[str]()

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            yield "Half"
            await asked
            await anyio.sleep_forever()
        finally:
            await cleaning

    agent = Agent(model)

    def after(moment: Moment) -> None:
        task = asyncio.current_task()  # a plain function is called in the task of the run itself
        assert task is not None
        told.append(f"{moment.cut} {task.cancelling()}")

    agent.on("after_model", after)
    async with agent.start("go") as run:
        await asked.reached()
        run.cancel()
        await cleaning.reached()
        run.cancel()
        await anyio.lowlevel.checkpoint()
        cleaning.open()
        await whole(run)
    assert told == ["True 0"]


@virtual
async def test_the_causes_say_who_asked_what_in_order() -> None:
    """Each with its time, its source and its own request."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer)).start("go") as run:
        await answer.reached()
        run.cancel(Stop.at(Point.MODEL, grace=60), reason="deploy", by="ops", source="shutdown")
        await anyio.sleep(5)
        run.cancel(Stop.at(Point.TOOLS), reason="first", by="ann")
        await anyio.sleep(5)
        report = await run.cancel(reason="enough", by="bob")
        asked = [event.stop async for event in run if isinstance(event, StopRequested)]
    assert [(c.source, c.by, c.reason, c.asked) for c in report.causes] == [
        ("shutdown", "ops", "deploy", Stop.at(Point.MODEL, grace=60)),
        ("user", "ann", "first", Stop.at(Point.TOOLS)),
        ("user", "bob", "enough", Stop.now()),
    ]
    assert report.causes[1].at - report.causes[0].at == pytest.approx(5, abs=1e-3)
    assert len({cause.id for cause in report.causes}) == 3
    assert asked[-1].causes == report.causes
    assert report.latency == pytest.approx(10, abs=1e-3)
    assert report.escalated_by == "request"


@virtual
async def test_a_request_of_a_deadline_that_has_passed_is_now() -> None:
    """TM-07: it reached the run too late, and says so."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer)).start("go") as run:
        await answer.reached()
        past = run._record.scope.now() - 1  # pyright: ignore[reportPrivateUsage]
        report = await run.cancel(Stop(points=Point.MODEL, deadline=past))
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")


@virtual
async def test_a_deadline_that_has_passed_before_the_run_is_now_before_the_run() -> None:
    """It does not wait for a timer: no model is asked."""
    model = ScriptedModel("never")
    run = Agent(model).start("go")
    ticket = run.cancel(Stop(points=Point.TOOLS, deadline=1.0))
    async with run:
        report = await ticket
    assert (report.result, report.stopped_at) == (StopResult.ESCALATED, Where.BEFORE_START)
    assert model.requests == []


@virtual
async def test_a_grace_that_began_before_the_run_still_ends() -> None:
    """Asked at a point, run entered later: the deadline counts from the request."""
    run = Agent(ScriptedModel([Hang()])).start("go")
    ticket = run.cancel(Stop.at(Point.MODEL, grace=0.01))
    async with run:
        with anyio.fail_after(0.02):
            report = await ticket
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")


@virtual
async def test_a_point_that_comes_before_the_deadline_is_no_escalation() -> None:
    """And the timer does nothing afterwards."""
    gate = Gate("tool")

    @tool
    async def work() -> str:
        """Work."""
        await gate
        return "done"

    async with Agent(ScriptedModel(Call("work"), "never"), tools=[work]).start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS, grace=10))
        gate.open()
        report = await ticket
        await anyio.sleep(20)
        outcome = await whole(run)
    assert (report.result, report.escalated_by) == (StopResult.STOPPED, None)
    assert outcome.cancelled == report


@virtual
@pytest.mark.parametrize("stop", [Stop.at(Point.STREAM), Stop.gently(), Stop.now()])
async def test_a_burst_that_never_waits_is_left_within_one_chunk(stop: Stop) -> None:
    """No wait, no cancellation: the flag is what is seen."""
    model = ScriptedModel([Yield(), Burst(1_000), "end"])
    agent = Agent(model)
    made: list[int] = []

    class Reader:
        """Cancels from inside the burst."""

        def __init__(self, run: Run) -> None:
            self.run = run

        def look(self, what: str) -> None:
            """Cancel when the fifth chunk was made."""
            if what == "pull" and model.made == 5:
                self.run.cancel(stop)
                made.append(model.made)

    run = agent.start("go")
    model.on_step = Reader(run).look
    async with run:
        outcome = await whole(run)
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is Where.MODEL
    assert model.made <= 6
    assert model.live == 0
    assert outcome.message.cut


@virtual
@pytest.mark.parametrize("stop", [Stop.at(Point.STREAM), Stop.gently()])
async def test_stream_and_gently_are_good_at_the_other_points_too(stop: Stop) -> None:
    """Asked in a tool: the tool ends whole, and the model is not asked again."""
    gate = Gate("tool")

    @tool
    async def work() -> str:
        """Work."""
        await gate
        return "done"

    model = ScriptedModel(Call("work"), "never")
    async with Agent(model, tools=[work]).start("go") as run:
        await gate.reached()
        ticket = run.cancel(stop)
        gate.open()
        report = await ticket
        outcome = await whole(run)
    assert report.stopped_at is Where.POINT_TOOLS
    assert outcome.messages[2].results[0].content == "done"
    assert len(model.requests) == 1


async def stopped_in_a_tool(stop: Stop) -> tuple[StopReport, str, str, list[str]]:
    """Cancel while a tool runs and say what became of it."""
    gate, heard = Gate("tool"), list[str]()

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.on_cancel(lambda: heard.append("on_cancel"))
        await gate
        return "done"

    async with Agent(ScriptedModel(Call("work"), "never"), tools=[work]).start("go") as run:
        await gate.reached()
        ticket = run.cancel(stop)
        await anyio.lowlevel.checkpoint()
        gate.open()
        report = await ticket
        outcome = await whole(run)
    return report, outcome.messages[2].results[0].state, outcome.messages[2].results[0].content, heard


@virtual
async def test_gently_and_now_side_by_side_in_a_tool() -> None:
    """Now cuts the tool; gently lets it end."""
    report, state, content, heard = await stopped_in_a_tool(Stop.now())
    assert (report.stopped_at, state, heard) == (Where.TOOLS, "unknown", ["on_cancel"])
    assert content == "Cancelled: was stopped; whether it took effect is not known"
    report, state, content, heard = await stopped_in_a_tool(Stop.gently())
    assert (report.stopped_at, state, content, heard) == (Where.POINT_TOOLS, "completed", "done", [])


@virtual
@pytest.mark.parametrize("stop", [Stop.gently(), Stop.now()])
async def test_gently_and_now_side_by_side_in_a_model_call(stop: Stop) -> None:
    """Both cut it, and keep the partial answer."""
    answer = Gate("model")
    async with Agent(ScriptedModel(["Half", answer])).start("go") as run:
        await answer.reached()
        report = await run.cancel(stop)
        outcome = await whole(run)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert (outcome.text, outcome.message.cut) == ("Half", True)


@virtual
@pytest.mark.parametrize(
    ("reply", "reason"), [("Done.", "end_turn"), (OSError("broken"), "error"), (7, "error")]
)
async def test_a_run_that_ended_by_itself_finished_first(reply: Reply, reason: str) -> None:
    """Answer, error, rubbish: the request was accepted and did not take effect."""
    run = Agent(ScriptedModel(reply)).start("go")
    ticket = run.cancel(Stop.graceful(grace=60))
    async with run:
        outcome = await whole(run)
        report = await ticket
    assert (report.result, report.stopped_at, ticket.accepted) == (StopResult.FINISHED_FIRST, None, True)
    assert [cause.asked for cause in report.causes] == [Stop.graceful(grace=60)]
    assert (outcome.stop_reason, outcome.cancelled) == (reason, None)


@virtual
async def test_a_limit_that_is_reached_first_finished_first() -> None:
    """The run was at its limit before the point that was asked for came."""

    @tool
    async def work() -> str:
        """Work."""
        nonlocal ticket
        ticket = run.cancel(Stop.at(Point.MODEL, grace=60))
        return "done"

    ticket: Ticket | None = None
    model = ScriptedModel(Call("work"), "never")
    run = Agent(model, tools=[work], limits=Limits(model_calls=1)).start("go")
    async with run:
        outcome = await whole(run)
    assert ticket is not None
    report = await ticket
    assert (outcome.stop_reason, outcome.limit) == ("limit", "model_calls 1")
    assert (report.result, report.stopped_at) == (StopResult.FINISHED_FIRST, Where.POINT_TOOLS)
    assert [cause.source for cause in report.causes] == ["user", "limit"]


@virtual
async def test_a_late_cancel_never_hits_the_next_run() -> None:
    """No flag outlives a run."""
    agent = Agent(ScriptedModel("One.", "Two.", "Three."))
    async with agent.start("go") as first:
        await whole(first)
    late = first.cancel()
    async with agent.start("go") as second:
        first.cancel()
        assert (await whole(second)).text == "Two."
    assert (await late).result is StopResult.FINISHED_FIRST
    assert (await agent.run("go")).stop_reason == "end_turn"


@virtual
async def test_a_cancelled_agent_runs_again_on_the_same_history() -> None:
    """At once, and beside others."""
    answer = Gate("model")
    agent = Agent(ScriptedModel(["Half", answer], "Whole.", "Other."))
    async with agent.start("go") as run:
        await answer.reached()
        run.cancel()
        outcome = await whole(run)
    again = await agent.run("go on", messages=outcome.messages)
    assert again.text == "Whole."
    assert again.messages[: len(outcome.messages)] == outcome.messages
    assert (await agent.run("other")).text == "Other."
