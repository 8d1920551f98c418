"""agent.cancel: the short form, for all live runs of an agent, or for its next one."""

from threading import Thread

import anyio
import pytest

from andon import Agent, Call, Point, Stop, StopResult, tool
from andon.core.items import MessageAdded
from andon.core.stop import Where
from andon.runtime.ticket import Ticket
from andon.testing import Gate, ScriptedModel, virtual
from tests.whole import whole


@virtual
async def test_with_none_live_and_none_ever_the_next_run_is_stopped() -> None:
    """A stop cannot be late when nothing ever ran; prompt and cancellation are in the history."""
    model = ScriptedModel("One.", "Two.")
    agent = Agent(model)
    ticket = agent.cancel(reason="not today")
    assert ticket.report is None
    async with agent.start("go") as run:
        outcome = await whole(run)
        kinds = [event.message.role async for event in run if isinstance(event, MessageAdded)]
    report = await ticket
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.BEFORE_START)
    assert ticket.accepted
    assert (model.requests, outcome.usage.model_calls, outcome.usage.total_tokens) == ([], 0, 0)
    assert [message.text for message in outcome.messages] == ["go", "Cancelled by user"]
    assert kinds == ["user", "assistant"]
    assert (await agent.run("again")).text == "One."


@virtual
async def test_once_a_run_has_been_nothing_is_armed() -> None:
    """The stop would be late: NOTHING_RUNNING, and the next run goes on."""
    agent = Agent(ScriptedModel("One.", "Two."))
    await agent.run("go")
    ticket = agent.cancel()
    report = await ticket
    assert (report.result, ticket.accepted) == (StopResult.NOTHING_RUNNING, False)
    assert report.reports == ()
    assert (await agent.run("go")).text == "Two."


@virtual
async def test_arm_true_arms_always() -> None:
    """Also after runs."""
    agent = Agent(ScriptedModel("One.", "Two."))
    await agent.run("go")
    ticket = agent.cancel(arm=True)
    assert (await agent.run("go")).stop_reason == "cancelled"
    assert (await ticket).result is StopResult.STOPPED
    assert (await agent.run("go")).text == "Two."


@virtual
async def test_arm_false_arms_never() -> None:
    """Also before any run."""
    agent = Agent(ScriptedModel("One."))
    assert (await agent.cancel(arm=False)).result is StopResult.NOTHING_RUNNING
    assert (await agent.run("go")).text == "One."


@virtual
@pytest.mark.parametrize("stop", [Stop.at(Point.TOOLS), Stop.graceful(grace=5), Stop.gently(), Stop.now()])
async def test_an_armed_stop_of_any_kind_stops_before_the_model(stop: Stop) -> None:
    """Points and grace do not matter there: nothing is in flight."""
    model = ScriptedModel("never")
    agent = Agent(model)
    ticket = agent.cancel(stop)
    outcome = await agent.run("go")
    assert (outcome.stop_reason, model.requests) == ("cancelled", [])
    assert (await ticket).stopped_at is Where.BEFORE_START


@virtual
async def test_two_that_were_armed_join() -> None:
    """Both tickets get the one report, with both causes."""
    agent = Agent(ScriptedModel("never"))
    tickets = [agent.cancel(by="ann"), agent.cancel(Stop.graceful(), by="bob")]
    outcome = await agent.run("go")
    reports = [await ticket for ticket in tickets]
    assert reports[0] == reports[1] == outcome.cancelled
    assert {cause.by for cause in reports[0].causes} == {"ann", "bob"}


@virtual
async def test_what_was_armed_is_consumed_however_the_run_ends() -> None:
    """The run fails in its first hook; the one after it is not touched."""
    agent = Agent(ScriptedModel("One."))
    fail = [True]

    @agent.on("run_started")
    def failing(_: object) -> None:
        if fail.pop() if fail else False:
            msg = "no"
            raise OSError(msg)

    ticket = agent.cancel()
    first = await agent.run("go")
    assert first.stop_reason == "error"
    assert (await ticket).result is StopResult.FINISHED_FIRST
    assert (await agent.run("go")).text == "One."


@virtual
async def test_all_live_runs_are_cancelled_and_each_is_reported() -> None:
    """Three runs, one ticket; the whole says the gravest, the parts are in `reports`."""
    answer, agents_tool = Gate("model"), Gate("tool")

    @tool
    async def work() -> str:
        """Work."""
        await agents_tool
        return "done"

    model = ScriptedModel(["Half", answer], Call("work"), Call("work"))
    agent = Agent(model, tools=[work])
    runs = [agent.start(prompt) for prompt in ("a", "b", "c")]
    async with runs[0], runs[1], runs[2]:
        await answer.reached()
        await agents_tool.reached(2)
        assert repr(agent) == "<Agent agent, 3 live>"
        ticket = agent.cancel(Stop.at(Point.STREAM | Point.TOOLS, grace=1), reason="deploy", by="ops")
        agents_tool.open()
        report = await ticket
        outcomes = [await whole(run) for run in runs]
    assert ticket.accepted
    assert report.result is StopResult.STOPPED
    assert {part.run_id for part in report.reports} == {run.id for run in runs}
    assert set(report.reports) == {outcome.cancelled for outcome in outcomes}
    assert [outcome.cancelled.stopped_at for outcome in outcomes if outcome.cancelled] == [
        Where.MODEL,
        Where.POINT_TOOLS,
        Where.POINT_TOOLS,
    ]
    assert {(cause.by, cause.reason) for cause in report.causes} == {("ops", "deploy")}
    assert repr(agent) == "<Agent agent, 0 live>"


@virtual
async def test_the_ticket_of_one_live_run_is_as_good_as_its_own() -> None:
    """With itself as the only part; waited for in the loop or not."""
    answer = Gate("model")
    agent = Agent(ScriptedModel(answer))
    async with agent.start("go") as run:
        await answer.reached()
        report = await agent.cancel()
        outcome = await whole(run)
    assert outcome.cancelled is not None
    assert report.reports == (outcome.cancelled,)
    assert (report.run_id, report.stopped_at) == (run.id, Where.MODEL)


@virtual
async def test_a_run_that_waits_to_be_entered_is_not_live() -> None:
    """With another one live nothing is armed, and the waiting one goes on untouched."""
    answer = Gate("model")
    agent = Agent(ScriptedModel(answer, "Two."))
    waiting = agent.start("later")
    async with agent.start("go") as run:
        await answer.reached()
        ticket = agent.cancel(arm=True)
        await whole(run)
    assert len((await ticket).reports) == 1
    assert (await waiting.outcome()).text == "Two."


async def test_a_thread_arms_and_waits() -> None:
    """The canceller is another thread altogether."""
    agent = Agent(ScriptedModel("never"))
    results: list[StopResult] = []
    armed = Gate("armed", opened=True)

    def arm() -> None:
        ticket: Ticket = agent.cancel()
        armed.wait()
        results.append(ticket.wait(timeout=20).result)

    thread = Thread(target=arm)
    thread.start()
    await armed.reached()
    outcome = await agent.run("go")
    await anyio.to_thread.run_sync(thread.join)
    assert outcome.stop_reason == "cancelled"
    assert results == [StopResult.STOPPED]
