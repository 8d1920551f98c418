"""CW: stops of workflows, between their steps and inside them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from andon import Agent, Call, Point, Stop, loop, parallel, sequence, tool
from andon.core.checkpoint import Checkpoint
from andon.core.stop import Where
from andon.runtime.tools import Tool
from andon.testing import Delay, Gate, virtual
from tests.flows import Actor, ended, inside, stopped
from tests.stores import MemoryStore


@virtual
async def test_cw_02_now_cuts_both_branches_of_a_parallel() -> None:
    """They are the root's own steps, so it need not be recursive; it takes far less than their 5 s."""
    there = Gate(opened=True)
    branches = [Actor(name, [there, "Half", Delay(5), " an answer"]) for name in ("p1", "p2")]
    began = asyncio.get_running_loop().time()
    async with parallel(*branches).start("go") as run:
        await there.reached(2)
        outcome, report = await stopped(run, run.cancel(Stop.now()))
    assert asyncio.get_running_loop().time() - began < 1
    assert report.stopped_at is Where.MODEL
    assert [(branch.asked, branch.script.live) for branch in branches] == [(1, 0), (1, 0)]
    assert sorted(inside(outcome.checkpoint)) == ["parallel/p1", "parallel/p2"]


@virtual
async def test_cw_04_now_in_the_first_round_of_a_loop_begins_no_second() -> None:
    """The call in flight is cut; the model was called exactly once."""
    answer = Gate("model")
    inner = Actor("inner", [answer, "again"], "never")
    async with loop(inner).start("go") as run:
        await answer.reached()
        _, report = await stopped(run, run.cancel(Stop.now()))
    assert report.stopped_at is Where.MODEL
    assert (inner.asked, inner.script.live) == (1, 0)


@virtual
async def test_cw_05_the_boundary_between_two_steps_stops_what_asked_for_tools() -> None:
    """The first step has no tools and gives its answer; the second one is never asked."""
    answer = Gate("model")
    first, second = Actor("a1", [answer, "Done."]), Actor("a2", "never")
    async with sequence(first, second).start("go") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        answer.open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_STEP
    assert (first.asked, second.asked) == (1, 0)
    assert outcome.messages[2].results[0].content == "Done."


@virtual
async def test_cw_06_the_end_of_a_round_stops_a_loop_of_agents_without_tools() -> None:
    """What was asked for is told; the second round never begins."""
    answer = Gate("model")
    inner = Actor("inner", [answer, "again"], "never")
    async with loop(inner).start("go") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        answer.open()
        _, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_STEP
    assert [cause.asked for cause in report.causes] == [Stop.at(Point.TOOLS)]
    assert inner.asked == 1


@virtual
async def test_cw_06_after_its_tools_stops_a_loop_of_agents_with_tools() -> None:
    """That point comes before the end of the round."""
    gate = Gate("tool")
    inner = Actor("inner", Call("work"), "never", tools=[working(gate, [])])
    async with loop(inner).start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        gate.open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_TOOLS
    assert [cause.asked for cause in report.causes] == [Stop.at(Point.TOOLS)]
    assert inner.asked == 1
    assert list(inside(outcome.checkpoint)) == ["loop/inner"]


@virtual
async def test_cw_07_now_before_a_parallel_begins_asks_no_model() -> None:
    """Cancelled, STOPPED, and neither branch began."""
    branches = [Actor("p1", "never"), Actor("p2", "never")]
    run = parallel(*branches).start("go")
    ticket = run.cancel(Stop.now())
    async with run:
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.BEFORE_START
    assert [branch.asked for branch in branches] == [0, 0]
    assert (outcome.usage.total_tokens, run.children) == (0, ())


@virtual
@pytest.mark.parametrize("stop", [Stop.now(), Stop.at(Point.MODEL)])
async def test_cw_09_a_step_that_answers_after_the_request_is_the_last_one(stop: Stop) -> None:
    """Asked and let go in one breath, the first step ends; the next one is never asked."""
    answer, store = Gate("model"), MemoryStore()
    first, second = Actor("a1", [answer, "Done."]), Actor("a2", "never")
    async with sequence(first, second, store=store).start("go") as run:
        await answer.reached()
        ticket = run.cancel(stop)
        answer.open()
        _, report = await stopped(run, ticket)
    assert report.stopped_at is (Where.MODEL if stop.immediate else Where.POINT_STEP)
    assert [cause.asked for cause in report.causes] == [stop]
    assert (first.asked, second.asked) == (1, 0)
    assert list(store.data) == [report.checkpoint]


@virtual
async def test_cw_10_resumed_by_fresh_agents_the_steps_that_are_left_run_once() -> None:
    """Stopped after the first of three steps: that one does not run again."""
    answer, store = Gate("model"), MemoryStore()
    before = [Actor("a1", [answer, "One."]), Actor("a2", "never"), Actor("a3", "never")]
    async with sequence(*before, store=store).start("go", checkpoint_id="mine") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.MODEL))
        answer.open()
        await stopped(run, ticket)
    fresh = [Actor("a1", "never"), Actor("a2", "Two."), Actor("a3", "Three.")]
    saved = await store.get("mine")
    assert saved is not None
    async with sequence(*fresh).start_from(saved) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.text, outcome.error) == ("end_turn", "Three.", None)
    assert [actor.asked for actor in fresh] == [0, 1, 1]
    assert (fresh[1].heard, fresh[2].heard) == (["One."], ["Two."])


def working(gate: Gate, log: list[str]) -> Tool[..., Any]:
    """Make a tool that notes its name and waits at a gate."""

    @tool
    async def work(name: str = "work") -> str:
        """Work."""
        log.append(name)
        await gate
        return f"{name} is done"

    return work


FLOWS: dict[str, Callable[..., Agent]] = {
    "sequence": sequence,
    "parallel": parallel,
    "loop": lambda *steps, **options: loop(*steps, max=1, **options),
}


@virtual
@pytest.mark.parametrize("kind", FLOWS)
async def test_cw_11_model_stops_a_workflow_at_the_point_of_its_step(kind: str) -> None:
    """A step's model is in flight: its calls do not run; resumed, they do, and nobody is asked again."""
    answer, store, log = Gate("model"), MemoryStore(), list[str]()
    tools = [working(Gate(opened=True), log)]
    before = [Actor(name, [answer, Call("work", {"name": name})], tools=tools) for name in ("s1", "s2")]
    async with FLOWS[kind](*before, store=store).start("go") as run:
        live = 2 if kind == "parallel" else 1
        await answer.reached(live)
        ticket = run.cancel(Stop.at(Point.MODEL))
        answer.open()
        _, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_MODEL
    assert log == []
    saved = Checkpoint.from_json(store.data[report.checkpoint or ""])
    assert len(list(inside(saved))) == live
    first = [["s1 said"], ["s2 said"]] if live == 2 else [["s1 said"], [Call("work", {"name": "s2"})]]
    fresh = [Actor("s1", *first[0], tools=tools), Actor("s2", *first[1], "s2 said", tools=tools)]
    async with FLOWS[kind](*fresh).start_from(saved) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.error) == ("end_turn", None)
    assert sorted(log) == ["s1", "s2"]
    assert [actor.asked for actor in fresh] == [1, 1 if live == 2 else 2]
    assert outcome.text.endswith("s2 said")


@virtual
async def test_cw_12_tools_lets_the_tool_of_a_step_end() -> None:
    """Not recursive, as a step is no descendant; resumed, the tool does not run again."""
    gate, log = Gate("tool"), list[str]()
    step = Actor("step", Call("work"), "never", tools=[working(gate, log)])
    async with sequence(step).start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        gate.open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_TOOLS
    assert outcome.checkpoint is not None
    fresh = Actor("step", "All done.", tools=[working(gate, log)])
    async with sequence(fresh).start_from(outcome.checkpoint) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "All done.")
    assert (log, step.asked, fresh.asked) == (["work"], 1, 1)
    assert fresh.script.requests[0].messages[2].results[0].content == "work is done"
