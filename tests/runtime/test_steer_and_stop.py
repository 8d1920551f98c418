"""Steers and stops together: a stop that takes effect comes first, and what was not heard is told so."""

from itertools import permutations

import anyio
import pytest

from andon import Agent, Call, Limits, ModelError, Point, Run, Stop, StopResult, tool
from andon.core.limits import Usage
from andon.core.steer import When
from andon.core.stop import Where
from andon.runtime.steering import SteerReceipt
from andon.runtime.ticket import Ticket
from andon.testing import Gate, Reply, ScriptedModel, Step, virtual
from tests.steered import said, steered

POINTS = [Stop.at(Point.MODEL), Stop.at(Point.TOOLS), Stop.graceful(), Stop.graceful(grace=60)]


@virtual
@pytest.mark.parametrize("stop", POINTS)
@pytest.mark.parametrize("when", ["next", "idle"])
@pytest.mark.parametrize("first", ["stop", "steer"])
async def test_a_stop_that_is_pending_when_the_final_answer_comes_lets_the_run_finish(
    stop: Stop, when: When, first: str
) -> None:
    """FINISHED_FIRST, no model is asked any more, and the steer is told undelivered; in either order."""
    answer = Gate("model")
    model = ScriptedModel(["Done.", answer], "never")
    async with Agent(model).start("go") as run:
        await answer.reached()
        early = run.cancel(stop) if first == "stop" else None
        receipt = run.steer("and?", when=when)
        ticket = early or run.cancel(stop)
        answer.open()
        outcome = await steered(run, [receipt])
        report = await ticket
    assert (report.result, report.stopped_at, ticket.accepted) == (StopResult.FINISHED_FIRST, None, True)
    assert (await receipt).delivered is False
    assert (outcome.stop_reason, said(outcome)) == ("end_turn", ["user: go", "assistant: Done."])
    assert len(model.requests) == 1


@virtual
@pytest.mark.parametrize("when", ["next", "idle", "now"])
@pytest.mark.parametrize("first", ["stop", "steer"])
@pytest.mark.parametrize("stop", [Stop.now(), Stop.at(Point.STREAM), Stop.gently()])
async def test_a_stop_that_cuts_the_same_call_ends_the_run(when: When, first: str, stop: Stop) -> None:
    """Asked in the same moment, in either order: stopped in the model, the partial kept, nothing heard."""
    answer = Gate("model")
    model = ScriptedModel(["Half", answer], "never")
    async with Agent(model).start("go") as run:
        await answer.reached()
        early = run.cancel(stop) if first == "stop" else None
        receipt = run.steer("and?", when=when)
        report = await (early or run.cancel(stop))
        outcome = await steered(run, [receipt])
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert (await receipt).delivered is False
    assert said(outcome) == ["user: go", "assistant: Half"]
    assert len(model.requests) == 1


@virtual
async def test_a_stop_at_a_point_lets_a_steer_cut_and_takes_effect_at_the_next_point() -> None:
    """Nothing takes the stop back: the answer to the message has tool calls, and there the run stops."""

    @tool
    async def work() -> None:
        """Work."""

    answer = Gate("model")
    model = ScriptedModel(["Half", answer], Call("work"), "never")
    async with Agent(model, tools=[work]).start("go") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.MODEL))
        receipt = run.steer("hm", when="now")
        report = await ticket
        outcome = await steered(run, [receipt])
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.POINT_MODEL)
    assert (await receipt).delivered
    assert said(outcome) == ["user: go", "assistant: Half", "user: hm", "assistant: Cancelled by user"]
    assert outcome.messages[4].results[0].state == "not_started"


@virtual
async def test_a_grace_that_began_before_a_steer_still_ends() -> None:
    """The call that answers the message is cut at the deadline."""
    first, second = Gate("first"), Gate("second")
    model = ScriptedModel(["Half", first], ["More", second])
    async with Agent(model).start("go") as run:
        await first.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS, grace=5))
        receipt = run.steer("hm", when="now")
        await second.reached()
        report = await ticket
        outcome = await steered(run, [receipt])
    assert (report.result, report.stopped_at) == (StopResult.ESCALATED, Where.MODEL)
    assert report.latency == pytest.approx(5, abs=1e-3)
    assert said(outcome) == ["user: go", "assistant: Half", "user: hm", "assistant: More"]


@virtual
@pytest.mark.parametrize("when", ["next", "idle", "now"])
@pytest.mark.parametrize("stop", [Stop.now(), Stop.at(Point.TOOLS), Stop.graceful(), Stop.gently()])
async def test_a_stop_in_a_round_of_tools_comes_before_the_message(when: When, stop: Stop) -> None:
    """Now, or where all have ended: the message was for the model call that is not made."""
    gate = Gate("tool")

    @tool
    async def work() -> str:
        """Work."""
        await gate
        return "done"

    model = ScriptedModel(Call("work"), "never")
    async with Agent(model, tools=[work]).start("go") as run:
        await gate.reached()
        receipt = run.steer("hm", when=when)
        ticket = run.cancel(stop)
        await anyio.wait_all_tasks_blocked()
        gate.open()
        report = await ticket
        await steered(run, [receipt])
    assert report.stopped_at is (Where.TOOLS if stop.immediate else Where.POINT_TOOLS)
    assert (await receipt).delivered is False
    assert len(model.requests) == 1


@virtual
@pytest.mark.parametrize("when", ["next", "idle", "now"])
async def test_a_run_that_is_stopped_before_it_starts_hears_nothing(when: When) -> None:
    """Neither message nor model call."""
    model = ScriptedModel("never")
    run = Agent(model).start("go")
    receipt = run.steer("hm", when=when)
    run.cancel()
    async with run:
        outcome = await steered(run, [receipt])
    assert said(outcome) == ["user: go", "assistant: Cancelled by user"]


@virtual
@pytest.mark.parametrize("stop", [Stop.at(Point.STREAM), Stop.gently()])
async def test_what_is_heard_takes_back_no_stop(stop: Stop) -> None:
    """A stop in the model call, asked for before the start, keeps it from being made."""
    model = ScriptedModel("never")
    run = Agent(model).start("go")
    receipt = run.steer("hm", when="now")
    ticket = run.cancel(stop)
    async with run:
        outcome = await steered(run, [receipt])
    assert ((await ticket).stopped_at, model.requests) == (Where.MODEL, [])
    assert said(outcome) == ["user: go", "user: hm", "assistant: Cancelled by user"]


@virtual
@pytest.mark.parametrize("when", ["next", "idle", "now"])
async def test_a_run_whose_block_is_left_hears_nothing_more(when: When) -> None:
    """Leaving it is a stop."""
    answer = Gate("model")
    async with Agent(ScriptedModel([answer])).start("go") as run:
        await answer.reached()
        receipt = run.steer("hm", when=when)
    assert (await receipt).delivered is False
    await steered(run, [receipt])


@virtual
@pytest.mark.parametrize("broken", [OSError("broken"), ModelError("refused")])
async def test_a_run_that_fails_first_tells_so(broken: Step) -> None:
    """An error is an end as well."""
    answer = Gate("model")
    model = ScriptedModel([answer, broken])
    async with Agent(model).start("go") as run:
        await answer.reached()
        receipts = [run.steer("hm"), run.steer("later", when="idle")]
        answer.open()
        outcome = await steered(run, receipts)
    assert outcome.stop_reason == "error"
    assert [(await receipt).delivered for receipt in receipts] == [False, False]


@virtual
async def test_no_model_call_is_made_for_it_that_a_limit_forbids() -> None:
    """The run has its answer, and ends with it: that is no end by the limit."""
    model = ScriptedModel("Done.", "never")
    run = Agent(model, limits=Limits(model_calls=1)).start("go")
    receipt = run.steer("and?", when="idle")
    async with run:
        outcome = await steered(run, [receipt])
    assert (outcome.stop_reason, outcome.limit, outcome.text) == ("end_turn", None, "Done.")
    assert (await receipt).delivered is False


@virtual
async def test_a_limit_that_the_cut_call_reached_ends_the_run_before_the_message_is_answered() -> None:
    """It is in the history, where a resumed run answers it."""
    answer = Gate("model")
    model = ScriptedModel([Usage(output_tokens=9, input_tokens=1), "Half", answer], "Yes.")
    agent = Agent(model, limits=Limits(output_tokens=5))
    async with agent.start("go") as run:
        await answer.reached()
        receipt = run.steer("hm", when="now")
        outcome = await steered(run, [receipt])
    assert (outcome.stop_reason, outcome.limit) == ("limit", "output_tokens 5")
    assert said(outcome)[1:3] == ["assistant: Half", "user: hm"]
    assert (await receipt).delivered
    assert outcome.checkpoint is not None
    again = await agent.resume(outcome.checkpoint, limits=Limits())
    assert said(again) == ["user: go", "assistant: Half", "user: hm", "assistant: Yes."]


@virtual
@pytest.mark.parametrize("stop", [Stop.now(), Stop.at(Point.MODEL)])
async def test_what_was_heard_before_a_stop_is_there_after_a_resume(stop: Stop) -> None:
    """Once; the model that was cut is asked again with it."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    first, second = Gate("first"), Gate("second")
    model = ScriptedModel(["Half", first], [second, Call("work")], *["Yes."] * 2)
    agent = Agent(model, tools=[work])
    async with agent.start("go") as run:
        await first.reached()
        receipt = run.steer("hm", when="now")
        await second.reached()
        ticket = run.cancel(stop)
        await anyio.wait_all_tasks_blocked()
        second.open()
        await ticket
        outcome = await steered(run, [receipt])
    assert outcome.checkpoint is not None
    again = await agent.resume(outcome.checkpoint.to_json())
    assert said(again) == ["user: go", "assistant: Half", "user: hm", "assistant: Yes."]


def ask(run: Run, what: Stop | When) -> Ticket | SteerReceipt:
    """Stop or steer a run."""
    return run.cancel(what) if isinstance(what, Stop) else run.steer(what, when=what)


REQUESTS: tuple[Stop | When, ...] = ("next", "idle", "now", Stop.at(Point.TOOLS), Stop.now())


@virtual
@pytest.mark.parametrize("order", list(permutations(REQUESTS, 3)), ids=repr)
async def test_in_every_order_each_is_answered(order: tuple[Stop | When, ...]) -> None:
    """One in each model call of a run: tickets agree, receipts are true, and no request is lost."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    gates = [Gate(str(n)) for n in range(3)]
    replies: list[Reply] = [[f"Say {n}", gate, Call("work")] for n, gate in enumerate(gates)]
    model = ScriptedModel(*replies, *["Done."] * 3)
    run = Agent(model, tools=[work]).start("go")
    given: list[Ticket | SteerReceipt] = []
    async with run:
        for what, gate in zip(order, gates, strict=True):
            await anyio.wait_all_tasks_blocked()
            given.append(ask(run, what))
            await anyio.wait_all_tasks_blocked()
            gate.open()
        outcome = await steered(run, [one for one in given if isinstance(one, SteerReceipt)])
    reports = [one.report for one in given if isinstance(one, Ticket)]
    assert all(report == reports[0] and report is not None for report in reports)
    stopped = any(report is not None and report.result is StopResult.STOPPED for report in reports)
    assert outcome.stop_reason == ("cancelled" if stopped else "end_turn")
    assert stopped is any(isinstance(what, Stop) for what in order)
