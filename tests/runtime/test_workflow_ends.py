"""Ends of workflows: stops between steps and inside them, failures, limits, and questions to a human."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Limits, Point, Stop, StopResult, ToolContext, loop, parallel, sequence, tool
from andon.core.draft import Chunk
from andon.core.items import Item, StopRequested, ToolEnded
from andon.core.repair import UNKNOWN
from andon.core.stop import Where
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.tools import Tool
from andon.testing import Delay, Gate, virtual
from tests.flows import Actor, ended, inside, stopped

Flow = Callable[..., Agent]
POINTS = [
    Stop.at(Point.MODEL),
    Stop.at(Point.TOOLS),
    Stop.at(Point.ANY),
    Stop.at(Point.TOOLS, grace=60, recursive=True),
    Stop.graceful(),
]


# Stops


@virtual
@pytest.mark.parametrize("stop", POINTS, ids=repr)
@pytest.mark.parametrize("flow", [sequence, loop])
async def test_between_two_steps_any_pending_stop_takes_effect(flow: Flow, stop: Stop) -> None:
    """Whatever it asks for; the answer of the step before is kept."""
    answer = Gate("model")
    first, second = Actor("a", [answer, "one"]), Actor("b", "never")
    async with flow(first, second).start("go") as run:
        await answer.reached()
        ticket = run.cancel(stop)
        answer.open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_STEP
    assert outcome.messages[2].results[0].content == "one"
    assert (first.asked, second.asked) == (1, 0)


@virtual
@pytest.mark.parametrize("stop", POINTS, ids=repr)
@pytest.mark.parametrize("flow", [sequence, parallel, partial(loop, max=1)])
async def test_after_the_last_step_nothing_is_left_to_stop(flow: Flow, stop: Stop) -> None:
    """Its answer is the workflow's, and a final answer is no safe point."""
    answer = Gate("model")
    first, last = Actor("a", "one"), Actor("b", [answer, "two"])
    async with sequence(flow(first, last)).start("go") as run:
        await answer.reached()
        ticket = run.cancel(stop)
        answer.open()
        outcome = await ended(run)
        report = await ticket
    assert (report.result, ticket.accepted) == (StopResult.FINISHED_FIRST, True)
    assert (outcome.stop_reason, outcome.text[-3:], outcome.checkpoint) == ("end_turn", "two", None)


@virtual
async def test_a_stop_at_a_point_before_the_start_begins_no_step() -> None:
    """The run has begun, so it is a point between steps, and no more."""
    step = Actor("a", "never")
    run = sequence(step).start("go")
    ticket = run.cancel(Stop.at(Point.TOOLS))
    async with run:
        _, report = await stopped(run, ticket)
    assert (report.stopped_at, step.asked) == (Where.POINT_STEP, 0)


@virtual
async def test_a_request_before_the_answer_counts_at_any_depth() -> None:
    """It is known at the step's own point, however many workflows are above."""
    answer, ran = Gate("model"), Gate("tool", opened=True)
    step = Actor("a", [answer, Call("work")], "never", tools=[working(ran)])
    flow: Agent = step
    for depth in range(5):
        flow = sequence(flow, name=f"level_{depth}")
    async with flow.start("go") as run:
        await answer.reached()
        answer.open()
        ticket = run.cancel(Stop.at(Point.MODEL))
        _, report = await stopped(run, ticket)
    assert (report.stopped_at, ran.arrived) == (Where.POINT_MODEL, 0)


def working(gate: Gate) -> Tool[..., Any]:
    """Make a tool that waits at a gate."""

    @tool
    async def work() -> str:
        """Work."""
        await gate
        return "done"

    return work


@virtual
@pytest.mark.parametrize(
    ("first", "second", "where"),
    [("model", "model", Where.MODEL), ("tool", "model", Where.TOOLS), ("model", "tool", Where.TOOLS)],
)
async def test_a_cut_says_where_it_has_hit_inside_the_steps(first: str, second: str, where: Where) -> None:
    """Steps are parts of the run; the gravest is told, which is the tool that is unknown."""
    there = Gate("there")
    steps = [
        Actor(name, [there] if kind == "model" else [Call("work")], tools=[working(there)])
        for name, kind in (("a", first), ("b", second))
    ]
    async with sequence(parallel(*steps)).start("go") as run:
        await there.reached(2)
        outcome, report = await stopped(run, run.cancel())
    assert report.stopped_at is where
    assert sorted(inside(outcome.checkpoint)) == [
        "sequence/parallel", "sequence/parallel/a", "sequence/parallel/b"
    ]  # fmt: skip


@virtual
async def test_a_cut_tells_of_the_tool_that_is_unknown_also_where_a_model_ends_last() -> None:
    """What comes last is not what counts."""
    there = Gate("there")

    async def slow(_request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            await there
            yield "never"
        finally:
            for _ in range(50):
                await anyio.lowlevel.checkpoint()

    steps = Actor("a", [Call("work")], tools=[working(there)]), Agent(slow, name="b")
    async with parallel(*steps).start("go") as run:
        await there.reached(2)
        _, report = await stopped(run, run.cancel())
        ends = [event.name async for event in run if isinstance(event, ToolEnded) and not event.path]
    assert (ends, report.stopped_at) == (["a", "b"], Where.TOOLS)


@virtual
async def test_a_step_that_would_not_end_is_abandoned_and_cannot_be_gone_on_with() -> None:
    """A hook of it hangs: where it was is not known, and it is never asked twice in silence."""
    there = Gate("there")
    step = Actor("a", there, "never")

    @step.on("run_ended")
    async def hang(_: Moment) -> None:  # pyright: ignore[reportUnusedFunction]
        await Gate("never")

    flow = sequence(step, Actor("b", "never"))
    async with flow.start("go") as run:
        await there.reached()
        outcome, report = await stopped(run, run.cancel())
    assert (report.stopped_at, [one.name for one in report.abandoned]) == (Where.TOOLS, ["a"])
    assert outcome.checkpoint is not None
    outcome = await flow.resume(outcome.checkpoint)
    assert outcome.error == f"ToolError: step a of sequence did not complete: {UNKNOWN}"
    assert step.asked == 1


@virtual
async def test_all_runs_of_a_tree_go_by_one_clock() -> None:
    """What happened later is told as later, also where the clock is a virtual one."""
    flow = sequence(Actor("a", [Delay(1), "one"]), sequence(Actor("b", [Delay(1), "two"])))
    async with flow.start("go") as run:
        times = [event.at async for event in run if isinstance(event, Item)]
    assert times == sorted(times)
    assert times[-1] - times[0] == pytest.approx(2)


@virtual
async def test_a_cut_that_comes_before_a_step_has_begun_is_between_steps() -> None:
    """It is not before the start: the workflow had begun."""
    first, second = Actor("a", "one"), Actor("b", "never")
    flow = sequence(first, sequence(second, name="inner"))
    async with flow.start("go") as run:
        async for event in run.events():
            if isinstance(event, ToolEnded) and not event.path:
                break
        _, report = await stopped(run, run.cancel())
    assert report.stopped_at is Where.POINT_STEP
    assert second.asked == 0


@virtual
@pytest.mark.parametrize("early", [0.0, 0.0005])
async def test_the_grace_of_a_stop_bounds_its_steps(early: float) -> None:
    """What has not come to a point by then is cut; a step whose timer is early by an instant tells no lie."""
    there = Gate("there")
    step = Actor("a", ["Half", there])

    @step.on("run_started")
    def skew(moment: Moment) -> None:  # pyright: ignore[reportUnusedFunction]
        scope = moment.run._record.scope  # pyright: ignore[reportPrivateUsage]
        now = scope.now
        scope.now = lambda: now() + early

    async with sequence(step, Actor("b", "never")).start("go") as run:
        await there.reached()
        ticket = run.cancel(Stop.graceful(grace=10))
        outcome = await ended(run)
        report = await ticket
    assert (report.result, report.stopped_at) == (StopResult.ESCALATED, Where.MODEL)
    assert outcome.cancelled == report


@virtual
async def test_a_step_that_is_cancelled_alone_ends_the_workflow_and_resume_goes_on_in_it() -> None:
    """There is nothing to go on with; those beside it give their answers first, and give them once."""
    gates = [Gate("a"), Gate("b")]
    steps = [Actor(gate.name, ["Half", gate, " done"], "whole") for gate in gates]
    flow = parallel(*steps)
    async with flow.start("go") as run:
        for gate in gates:
            await gate.reached()
        ticket = run.child(run.children[0].id).cancel(reason="enough of it", by="Ada")
        assert (await ticket).result is StopResult.STOPPED
        assert not run.ended
        gates[1].open()
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.cancelled) == ("error", None)
    assert outcome.error == (
        "ToolError: step a of parallel did not complete: The agent a was cancelled by Ada: enough of it"
    )
    assert outcome.checkpoint is not None
    async with flow.start_from(outcome.checkpoint) as run:
        outcome = await ended(run)
    assert outcome.text == "a: whole\n\nb: Half done"
    assert [step.asked for step in steps] == [2, 1]


# Failures


@virtual
async def test_a_step_that_fails_ends_the_workflow_and_resume_tries_it_again() -> None:
    """What was answered, and what its tools did, is not done again; the error tells the way to it."""
    ran = Gate("tool", opened=True)
    first = Actor("a", "one", "never")
    second = Actor("b", Call("work"), OSError("the line is down"), "two", tools=[working(ran)])
    flow = sequence(first, loop(second, max=1), Actor("c", "three"))
    failed = await flow.run("go")
    assert failed.stop_reason == "error"
    assert failed.error == (
        "ToolError: step loop of sequence did not complete: The agent loop failed: "
        "ToolError: step b of loop did not complete: The agent b failed: OSError: the line is down"
    )
    assert list(inside(failed.checkpoint)) == ["sequence/loop", "sequence/loop/b"]
    assert failed.checkpoint is not None
    async with flow.start_from(failed.checkpoint.to_json()) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "three")
    assert (first.asked, second.asked, ran.arrived) == (1, 3, 1)
    assert outcome.usage.model_calls == 5


@virtual
async def test_a_step_that_fails_while_a_stop_is_pending_is_told() -> None:
    """It ended by itself, before the stop took effect."""
    there = Gate("there")
    async with sequence(Actor("a", [there, OSError("down")]), Actor("b")).start("go") as run:
        await there.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        there.open()
        outcome = await ended(run)
    assert (await ticket).result is StopResult.FINISHED_FIRST
    assert (
        outcome.error == "ToolError: step a of sequence did not complete: The agent a failed: OSError: down"
    )


@virtual
async def test_a_step_that_is_gone_from_the_code_is_told_by_name() -> None:
    """Where the workflow has changed between checkpoint and resume."""
    failed = await sequence(Actor("a", "one"), Actor("b", OSError("down"))).run("go")
    assert failed.checkpoint is not None
    outcome = await sequence(Actor("a"), Actor("c")).resume(failed.checkpoint)
    assert outcome.error == (
        "ToolError: step b of sequence did not complete: There is no tool 'b'. The tools are: a, c."
    )


# Limits


@virtual
@pytest.mark.parametrize(("calls", "asked"), [(0, [0, 0, 0]), (1, [1, 0, 0]), (2, [1, 1, 0]), (4, [1, 1, 2])])
async def test_the_limits_of_a_workflow_count_its_steps_and_not_its_plan(
    calls: int, asked: list[int]
) -> None:
    """The step that may not ask any more is left, and goes on when the run is resumed with more."""
    ran = Gate("tool", opened=True)
    last = Actor("c", Call("work"), Call("work"), "three", tools=[working(ran)])
    steps = [Actor("a", "one"), Actor("b", "two"), last]
    flow = sequence(steps[0], sequence(*steps[1:], name="inner"))
    async with flow.start("go", limits=Limits(model_calls=calls)) as run:
        outcome = await ended(run)
        stops = [event.stop async for event in run if isinstance(event, StopRequested) and not event.path]
        report = await run.cancel()
    assert (outcome.stop_reason, outcome.limit) == ("limit", f"model_calls {calls}")
    assert [cause.source for stop in stops for cause in stop.causes] == ["limit"]
    assert [step.asked for step in steps] == asked
    assert outcome.usage.model_calls == calls
    where = Where.POINT_TOOLS if calls == 4 else Where.POINT_STEP
    assert (report.result, report.stopped_at) == (StopResult.FINISHED_FIRST, where)
    assert outcome.checkpoint is not None
    outcome = await flow.resume(outcome.checkpoint, limits=Limits(model_calls=5))
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "three")
    assert ([step.asked for step in steps], ran.arrived) == ([1, 1, 3], 2)


@virtual
async def test_a_limit_that_the_last_answer_reaches_ends_nothing() -> None:
    """There is no further model call to be forbidden."""
    outcome = await loop(Actor("a", "one", "two"), max=2, limits=Limits(model_calls=2)).run("go")
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "two")


@virtual
async def test_steps_are_no_tool_calls() -> None:
    """Only the tools of the steps count against a limit of them."""
    ran = Gate("tool", opened=True)
    steps = [Actor(name, Call("work"), "done", tools=[working(ran)]) for name in ("a", "b", "c")]
    outcome = await sequence(*steps, limits=Limits(tool_calls=2)).run("go")
    assert (outcome.stop_reason, outcome.limit, ran.arrived) == ("limit", "tool_calls 2", 2)
    assert outcome.usage.tool_calls == 2
    outcome = await sequence(Actor("a", "one"), Actor("b", "two"), limits=Limits(tool_calls=0)).run("go")
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "two")


@virtual
async def test_a_step_that_reaches_a_limit_of_its_own_ends_the_workflow() -> None:
    """With a larger one it goes on from there."""
    ran = Gate("tool", opened=True)

    def flow(calls: int) -> Agent:
        step = Actor(
            "a", *[Call("work")] * calls, "done", tools=[working(ran)], limits=Limits(model_calls=calls)
        )
        return sequence(step, Actor("b", "fine"))

    failed = await flow(2).run("go")
    assert (failed.stop_reason, failed.error) == (
        "error",
        "ToolError: step a of sequence did not complete: The agent a reached its limit model_calls 2",
    )
    assert failed.checkpoint is not None
    step = Actor("a", "done", limits=Limits(model_calls=3))
    outcome = await sequence(step, Actor("b", "fine")).resume(failed.checkpoint)
    assert (outcome.text, ran.arrived, step.asked) == ("fine", 2, 1)


# Questions


def asking() -> Tool[..., Any]:
    """Make a tool that asks a human."""

    @tool
    async def ask(what: str, context: ToolContext) -> str:
        """Ask."""
        return f"{what}: {await context.interrupt(what)}"

    return ask


@virtual
async def test_a_step_that_asks_pauses_the_workflow_and_goes_on_with_the_answer() -> None:
    """The question tells the way to it; no step runs twice."""
    first, last = Actor("a", "one"), Actor("c", "three")
    asks = Actor("b", Call("ask", {"what": "colour"}), "two", tools=[asking()])
    flow = sequence(first, loop(asks, max=1), last)
    async with flow.start("go") as run:
        paused = await ended(run)
    assert paused.stop_reason == "interrupt"
    (question,) = paused.interrupts
    assert (question.payload, question.path) == ("colour", ("sequence", "loop", "loop", "b", "b", "ask"))
    assert paused.checkpoint is not None
    async with flow.start_from(paused.checkpoint.to_json(), answers={question.id: "red"}) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "three")
    assert asks.script.requests[1].messages[2].results[0].content == "colour: red"
    assert (first.asked, asks.asked, last.asked) == (1, 2, 1)


@virtual
async def test_branches_that_ask_may_be_answered_one_by_one() -> None:
    """Those that ask nothing give their answers meanwhile; a question without an answer is asked again."""
    steps = [
        Actor(name, Call("ask", {"what": name}), f"{name} knows", tools=[asking()]) for name in ("a", "b")
    ]
    third = Actor("c", "never asked")
    flow = parallel(*steps, third)
    paused = await flow.run("go")
    ids = {interrupt.payload: interrupt.id for interrupt in paused.interrupts}
    assert sorted(map(str, ids)) == ["a", "b"]
    assert paused.checkpoint is not None
    again = await flow.resume(paused.checkpoint, answers={ids["b"]: "yes"})
    assert [interrupt.payload for interrupt in again.interrupts] == ["a"]
    assert again.checkpoint is not None
    outcome = await flow.resume(again.checkpoint, answers={again.interrupts[0].id: "no"})
    assert outcome.text == "a: a knows\n\nb: b knows\n\nc: never asked"
    assert [step.asked for step in (*steps, third)] == [2, 2, 1]


@virtual
async def test_a_branch_that_fails_beside_one_that_asks_is_tried_again_with_the_answer() -> None:
    """The question comes first; what failed had not been given up."""
    asks = Actor("a", Call("ask", {"what": "a"}), "a knows", tools=[asking()])
    fails = Actor("b", OSError("down"), "b is up again")
    flow = parallel(asks, fails)
    paused = await flow.run("go")
    assert (paused.stop_reason, len(paused.interrupts)) == ("interrupt", 1)
    assert paused.checkpoint is not None
    outcome = await flow.resume(paused.checkpoint, answers={paused.interrupts[0].id: "yes"})
    assert outcome.text == "a: a knows\n\nb: b is up again"
    assert (asks.asked, fails.asked) == (2, 2)
