"""CB: agents that hooks and models run: torn down by every NOW, and never part of a checkpoint."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from andon import Agent, Point, Run, Stop, StopResult, tool
from andon.core.draft import Chunk
from andon.core.items import RunEnded, RunStarted
from andon.core.stop import Where
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.testing import Gate, Reply, virtual
from tests.family import Family, call, inside, stopped
from tests.whole import whole

NOW_BELOW = Stop.now(recursive=True)


class Scene:
    """An outer agent with a tool that counts, and an inner one that a hook of it runs."""

    def __init__(self, moment: str, outer: list[Reply], inner: list[Reply]) -> None:
        self.gate = Gate("inner")
        self.family = Family()
        self.worked: list[str] = []
        self.told: list[str] = []
        self.inner = self.family.agent("inner", *inner, tools=[self.tool("inner")])
        self.outer = self.family.agent("outer", *outer, tools=[self.tool("outer")])
        self.outer.on(moment, self.run_inner)

    def tool(self, whose: str) -> Callable[..., Any]:
        """Make a tool that notes who has used it."""

        @tool
        async def work() -> str:
            """Work."""
            self.worked.append(whose)
            return "worked"

        return work

    async def run_inner(self, _: Moment) -> None:
        """Run the inner agent, and note how it ended."""
        self.told.append((await self.inner.run("for inner")).stop_reason)


async def child_of(run: Run) -> Run:
    """Give the one live child."""
    (child,) = run.children
    return child


@virtual
@pytest.mark.parametrize("stop", [Stop.now(), NOW_BELOW])
@pytest.mark.parametrize("first", [None, Stop.graceful()])
async def test_cb_03_now_reaches_an_agent_in_a_hook_recursive_or_not(stop: Stop, first: Stop | None) -> None:
    """Stop.md mends the case: every NOW cuts it, also where recursive is never set; points never do."""
    scene = Scene("before_model", ["never"], [])
    scene.family.models["inner"].script(["Half", scene.gate])
    async with scene.outer.start("go") as run:
        await scene.gate.reached()
        child = await child_of(run)
        if first is not None:
            run.cancel(first)
            await anyio.sleep(1)
            assert repr(child).endswith("<Scope open>>")
        await stopped(run, run.cancel(stop))
    report = (await child.outcome()).cancelled
    assert report is not None
    assert (report.stopped_at, report.causes[0].source) == (Where.MODEL, "parent")
    assert scene.told == ["cancelled"]


@virtual
async def test_cb_09_an_agent_run_by_code_of_an_agent_has_a_scope_of_its_own() -> None:
    """It is a child with its parent's id, may be cancelled alone, and takes its parent's NOW."""
    family, gate = Family(), Gate("inner")
    inner = family.agent("inner", ["Half", gate], ["Half", gate])

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield (await inner.run("first")).stop_reason + " "
        yield (await inner.run("second")).stop_reason

    async with Agent(model).start("go") as run:
        await gate.reached()
        child = await child_of(run)
        assert (await child.cancel(reason="alone")).result is StopResult.STOPPED
        await gate.reached(2)
        assert repr(run).endswith("<Scope open>>")
        other = await child_of(run)
        outcome, report = await stopped(run, run.cancel(NOW_BELOW))
        begun = [event async for event in run if isinstance(event, RunStarted) and event.path]
    assert [(event.parent, event.call_id, event.path) for event in begun] == [
        (run.id, "", (child.id,)),
        (run.id, "", (other.id,)),
    ]
    cut = (await other.outcome()).cancelled
    assert cut is not None
    assert cut.causes == (replace(report.causes[0], source="parent"),)
    assert outcome.text.startswith("cancelled ")
    assert inside(outcome.checkpoint) == ["agent"]


@virtual
async def test_cb_10_a_point_leaves_the_agent_in_a_hook_alone() -> None:
    """MODEL, recursive, while it runs after the model: it ends; the outer one stops at its own point."""
    scene = Scene("after_model", [call("work")], [])
    scene.family.models["inner"].script([scene.gate, call("work")], "Inner.")
    async with scene.outer.start("go") as run:
        await scene.gate.reached()
        ticket = run.cancel(Stop.at(Point.MODEL, recursive=True))
        scene.gate.open()
        outcome, report = await stopped(run, ticket)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.POINT_MODEL)
    assert (scene.told, scene.worked) == (["end_turn"], ["inner"])
    assert scene.family.asked == ["outer", "inner", "inner"]
    assert inside(outcome.checkpoint) == ["outer"]


@virtual
@pytest.mark.parametrize(
    ("moment", "at"), [("before_model", Where.MODEL), ("run_started", Where.BEFORE_START)], ids=["11", "13"]
)
async def test_cb_11_and_cb_13_the_agent_in_a_hook_is_cut_and_begins_afresh(moment: str, at: Where) -> None:
    """Its model is cut within a second, one terminal event, nothing of it kept; resumed, it runs anew."""
    scene = Scene(moment, ["Outer."], [])
    scene.family.models["inner"].script(["Half", scene.gate])
    async with scene.outer.start("go") as run:
        await scene.gate.reached()
        outcome, report = await stopped(run, run.cancel(NOW_BELOW))
        ends = [event async for event in run if isinstance(event, RunEnded)]
    assert (report.result, report.stopped_at, len(ends)) == (StopResult.STOPPED, at, 1)
    assert report.latency < 1
    assert scene.family.live == []
    assert scene.family.asked == ["inner"]
    assert inside(outcome.checkpoint) == ["outer"]
    assert outcome.checkpoint is not None
    scene.family.models["inner"].script("Inner.")
    async with scene.outer.start_from(outcome.checkpoint) as resumed:
        again = await whole(resumed)
        begun = [event async for event in resumed if isinstance(event, RunStarted)]
    assert (again.stop_reason, again.cancelled, again.text) == ("end_turn", None, "Outer.")
    assert scene.family.asked == ["inner", "inner", "outer"]
    assert scene.told == ["cancelled", "end_turn"]
    assert [(event.agent, event.checkpoint is None) for event in begun] == [("outer", False), ("inner", True)]


@virtual
async def test_cb_14_now_goes_through_hooks_of_agents_in_hooks() -> None:
    """Outer, a hook of it runs B, a hook of that runs C: both are cut, and neither is kept."""
    family, gate = Family(), Gate("C")
    c = family.agent("C", ["Half", gate])
    b = family.agent("B", "never")
    outer = family.agent("outer", "never")
    told: list[str] = []

    async def run_b(_: Moment) -> None:
        told.append("B " + (await b.run("for B")).stop_reason)

    async def run_c(_: Moment) -> None:
        told.append("C " + (await c.run("for C")).stop_reason)

    outer.on("before_model", run_b)
    b.on("before_model", run_c)
    async with outer.start("go") as run:
        await gate.reached()
        outcome, report = await stopped(run, run.cancel(NOW_BELOW))
    assert told == ["C cancelled", "B cancelled"]
    assert report.latency < 1
    assert family.asked == ["C"]
    assert inside(outcome.checkpoint) == ["outer"]
