"""Places: where an agent is begun decides whose child it is, and what of its parent's stop it is told."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext

import anyio
import pytest

from andon import Agent, Call, Message, Outcome, Point, Run, Stop, ToolContext
from andon.core.draft import Chunk
from andon.core.items import Event, RunStarted
from andon.core.stop import Where
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.testing import Gate, ScriptedModel, virtual
from tests.family import Family, call, inside, stopped
from tests.whole import whole

MOMENTS = (
    "run_started",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "message_added",
    "run_ended",
)


def begun(events: list[Event]) -> list[tuple[str, int]]:
    """The agents of the tree, each with how deep it is."""
    return [(event.agent, len(event.path)) for event in events if isinstance(event, RunStarted)]


async def watched(run: Run) -> tuple[Outcome, list[Event]]:
    """Hold a run to its end, and give that and all its events."""
    async with run:
        return await whole(run), [event async for event in run]


@virtual
async def test_an_agent_called_in_a_plain_tool_is_a_child() -> None:
    """Nothing has to be set up: it is known by where the code runs."""
    family = Family()
    child = family.agent("child", "Child.")

    async def work() -> str:
        """Work."""
        return (await child.run("go")).text

    root = family.agent("root", call("work"), "Root.", tools=[work])
    outcome, events = await watched(root.start("go"))
    assert begun(events) == [("root", 0), ("child", 1)]
    assert outcome.messages[2].results[0].content == "Child."
    assert outcome.usage.model_calls == 3


@virtual
async def test_in_a_streaming_tool_and_in_tasks_of_a_tool_too() -> None:
    """Whatever the tool starts carries its place along."""
    family = Family()
    child = family.agent("child", *["Child."] * 3)

    async def stream() -> AsyncIterator[str]:
        """Stream."""
        yield "first"
        yield (await child.run("go")).text

    async def spread() -> str:
        """Start tasks."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child.run("go")) for _ in range(2)]
        return " ".join(task.result().text for task in tasks)

    root = family.agent("root", [call("stream"), call("spread")], "Root.", tools=[stream, spread])
    outcome, events = await watched(root.start("go"))
    assert begun(events) == [("root", 0), *[("child", 1)] * 3]
    assert [result.content for result in outcome.messages[2].results] == ["Child.", "Child. Child."]


@virtual
async def test_what_is_made_in_a_tool_and_begun_after_it_or_outside_is_no_child() -> None:
    """Where a run begins counts, not where it was made; and no run begins inside another by accident."""
    family = Family()
    other = family.agent("other", "Other.", "Other.")
    made: list[Run] = [other.start("made outside, begun inside")]

    async def make() -> str:
        """Make one run, and begin another."""
        made.append(other.start("made inside, begun outside"))
        return (await made[0].outcome()).text

    root = family.agent("root", call("make"), "Root.", tools=[make])
    _, events = await watched(root.start("go"))
    _, others = await watched(made[1])
    assert begun(events) == [("root", 0), ("other", 1)]
    assert begun(others) == [("other", 0)]
    assert isinstance(others[0], RunStarted)
    assert others[0].parent == ""


@virtual
@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_agent_called_in_a_hook_is_a_child(moment: str) -> None:
    """In each of the seven; it is counted in, and heard with its path."""
    family = Family()
    child = family.agent("child", *["Child."] * 9)

    async def work() -> str:
        """Work."""
        return "done"

    root = family.agent("root", call("work"), "Root.", tools=[work])

    @root.on(moment)
    async def think(_: Moment) -> None:
        await child.run("go")

    outcome, events = await watched(root.start("go"))
    hooked = len(family.models["child"].requests)
    assert hooked == {"run_started": 1, "before_tool": 1, "after_tool": 1, "run_ended": 1}.get(moment, hooked)
    assert begun(events) == [("root", 0), *[("child", 1)] * hooked]
    assert outcome.usage.model_calls == 2 + hooked
    assert (outcome.text, outcome.stop_reason) == ("Root.", "end_turn")


@virtual
async def test_an_agent_called_in_a_model_is_a_child() -> None:
    """A model function that asks another agent: it is cut with it, and not kept."""
    family, gate = Family(), Gate("child")
    child = family.agent("child", "Child.", ["Half", gate])

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield (await child.run("go")).text

    agent = Agent(model, name="root")
    outcome, events = await watched(agent.start("go"))
    assert begun(events) == [("root", 0), ("child", 1)]
    assert (outcome.text, outcome.usage.model_calls) == ("Child.", 2)
    async with agent.start("go") as run:
        await gate.reached()
        (inner,) = run.children
        outcome, report = await stopped(run, run.cancel(Stop.now(recursive=True)))
    assert report.stopped_at is Where.MODEL
    assert (await inner.outcome()).stop_reason == "cancelled"
    assert family.live == []
    assert inside(outcome.checkpoint) == ["root"]


@virtual
@pytest.mark.parametrize("point", [Point.STREAM, Point.ANY])
async def test_points_that_are_recursive_leave_an_agent_in_a_model_to_its_model(point: Point) -> None:
    """STREAM cuts the model call, and with it what that has started; a point after it waits for it."""
    family, gate = Family(), Gate("child")
    child = family.agent("child", ["Half", gate, " and whole."])

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield (await child.run("go")).text

    async with Agent(model, name="root").start("go") as run:
        await gate.reached()
        (inner,) = run.children
        ticket = run.cancel(Stop.at(point, recursive=True))
        await anyio.sleep(1)
        assert inner.ended is (point is Point.STREAM)
        gate.open()
        outcome = await whole(run)
        await ticket
    assert (outcome.stop_reason, outcome.text) == (
        ("cancelled", "Cancelled by user") if point is Point.STREAM else ("end_turn", "Half and whole.")
    )


def in_a_thread(child: Agent, _: ToolContext) -> str:
    """Ask the child, as a tool in a thread of ours."""
    return child.run_sync("go").text


async def by_to_thread(child: Agent, _: ToolContext) -> str:
    """Ask the child in a thread of asyncio's, which carries the context."""
    return (await asyncio.to_thread(child.run_sync, "go")).text


async def by_anyio(child: Agent, _: ToolContext) -> str:
    """Ask the child in a thread of anyio's, which carries the context."""
    return (await anyio.to_thread.run_sync(child.run_sync, "go")).text


async def by_executor(child: Agent, _: ToolContext) -> str:
    """Ask an agent in a foreign executor, which carries nothing."""
    return await in_executor(child, None)


async def linked(child: Agent, context: ToolContext) -> str:
    """Ask the child in a foreign executor, with a link."""
    return await in_executor(child, context)


async def in_executor(child: Agent, context: ToolContext | None) -> str:
    """Do that."""

    def work() -> str:
        with nullcontext() if context is None else context.child():
            return child.run_sync("go").text

    return await asyncio.get_running_loop().run_in_executor(None, work)


Way = Callable[[Agent, ToolContext], str | Awaitable[str]]


def asking(way: Way, child: Agent) -> Callable[..., object]:
    """Make a tool that asks the child in one way or another."""
    if not inspect.iscoroutinefunction(way):

        def work(context: ToolContext) -> object:
            """Ask."""
            return way(child, context)

        return work

    async def ask(context: ToolContext) -> object:
        """Ask."""
        answer = way(child, context)
        assert not isinstance(answer, str)
        return await answer

    ask.__name__ = "work"
    return ask


WAYS = pytest.mark.parametrize("way", [in_a_thread, by_to_thread, by_anyio, linked])


@WAYS
async def test_an_agent_in_another_thread_and_loop_is_a_child(way: Way) -> None:
    """Its events come over to its parent's readers, all of them before its tool call ends."""
    child = Agent(ScriptedModel(["Chi", "ld."]), name="child")
    root = Agent(ScriptedModel(Call("work"), "Root."), tools=[asking(way, child)], name="root")
    outcome, events = await watched(root.start("go"))
    assert begun(events) == [("root", 0), ("child", 1)]
    assert [type(event).__name__ for event in events if event.path] == [
        "RunStarted",
        "MessageAdded",
        "ModelStarted",
        "TextDelta",
        "TextDelta",
        "ModelEnded",
        "MessageAdded",
    ]
    assert (outcome.messages[2].results[0].content, outcome.usage.model_calls) == ("Child.", 3)


async def test_a_foreign_executor_does_not_carry_the_place() -> None:
    """An agent that is run there is a root of its own, unless `ctx.child()` links it."""
    model = ScriptedModel("Child.", name="other")
    child = Agent(model, name="child")
    root = Agent(ScriptedModel(Call("work"), "Root."), tools=[asking(by_executor, child)], name="root")
    outcome, events = await watched(root.start("go"))
    assert begun(events) == [("root", 0)]
    assert (outcome.usage.model_calls, len(model.requests)) == (2, 1)


@WAYS
@pytest.mark.parametrize("recursive", [True, False])
async def test_now_cuts_an_agent_in_another_thread_and_waits_for_what_is_kept(
    way: Way, *, recursive: bool
) -> None:
    """It is cut at once; where it is to go on after a resume, its state is there."""
    gate = Gate("child")
    model = ScriptedModel(["Half", gate])
    child = Agent(model, name="child")
    root = Agent(ScriptedModel(Call("work")), tools=[asking(way, child)], name="root")
    async with root.start("go") as run:
        await gate.reached()
        (inner,) = run.children
        with anyio.fail_after(20):
            outcome, report = await stopped(run, run.cancel(Stop.now(recursive=recursive)))
    assert inner.ended
    assert model.live == 0
    assert report.abandoned == ()
    assert inside(outcome.checkpoint) == (["root", "child"] if recursive else ["root"])
    assert outcome.usage.model_calls == 2
    assert outcome.usage.output_tokens > 0


@WAYS
async def test_recursive_points_stop_an_agent_in_another_thread_and_it_goes_on_there(way: Way) -> None:
    """Its own point counts; resumed, the tool runs again, and the child goes on where it was."""
    gate, worked = Gate("child"), list[str]()

    async def step() -> str:
        """Step."""
        worked.append("step")
        return "stepped"

    model = ScriptedModel([gate, Call("step")])
    child = Agent(model, tools=[step], name="child")
    outer = ScriptedModel(Call("work"))
    root = Agent(outer, tools=[asking(way, child)], name="root")
    async with root.start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.MODEL, recursive=True))
        gate.open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_MODEL
    assert worked == []
    assert inside(outcome.checkpoint) == ["root", "child"]
    model.script("Child.")
    outer.script("Root.")
    again = await root.resume(outcome.checkpoint or b"")
    assert (again.stop_reason, again.text, worked) == ("end_turn", "Root.", ["step"])
    assert again.messages[2].results[0].content == "Child."


async def test_points_that_are_not_recursive_leave_an_agent_in_a_thread_alone() -> None:
    """It ends its tool call undisturbed."""
    gate = Gate("child")
    child = Agent(ScriptedModel(["Half ", gate, "whole."]), name="child")
    root = Agent(ScriptedModel(Call("work"), "never"), tools=[asking(in_a_thread, child)], name="root")
    async with root.start("go") as run:
        await gate.reached()
        (inner,) = run.children
        ticket = run.cancel(Stop.at(Point.TOOLS))
        gate.open()
        outcome, _ = await stopped(run, ticket)
    assert (await inner.outcome()).cancelled is None
    assert outcome.messages[2].results[0].content == "Half whole."


@virtual
async def test_a_child_given_a_history_keeps_it_for_itself() -> None:
    """`messages` of a child are its own; the parent's are not touched."""
    family = Family()
    child = family.agent("child", "Child.")

    async def work() -> str:
        """Work."""
        return (await child.run("go", messages=[Message.user("hi"), Message.assistant("ho")])).text

    root = family.agent("root", call("work"), "Root.", tools=[work])
    outcome, _ = await watched(root.start("go"))
    assert [message.role for message in family.models["child"].requests[0].messages] == [
        "user",
        "assistant",
        "user",
    ]
    assert [message.role for message in outcome.messages] == ["user", "assistant", "tool", "assistant"]
