"""Nested: a child run as its parent's readers, observers and handles see it."""

from collections.abc import AsyncIterator

import pytest

from andon import Agent, Call, Point, Run, Stop, StopResult
from andon.core.draft import Chunk
from andon.core.items import (
    Event,
    Item,
    ModelStarted,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolProgress,
    from_json,
    to_json,
)
from andon.core.stop import Where
from andon.errors import RunStateError
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.tools import ToolContext
from andon.testing import Gate, Reply, virtual
from tests.family import Family, ask, call, inside, said, stopped
from tests.whole import whole


class Watch:
    """An observer that keeps what it is told, by run."""

    def __init__(self) -> None:
        self.told: dict[str, list[Item]] = {}

    def observe(self, run_id: str, item: Item, /) -> None:
        """Keep it."""
        self.told.setdefault(run_id, []).append(item)


class Scene:
    """A root with a middle behind a tool, a leaf behind a tool of that, and a gate in the leaf's model."""

    def __init__(self, *leaf: Reply, opened: bool = False) -> None:
        self.gate = Gate("leaf", opened=opened)
        self.family = Family()
        self.watch = Watch()
        self.leaf = self.family.agent("leaf", *(leaf or (["Le", self.gate, "af."],)))
        self.middle = self.family.agent("middle", ask("leaf"), "Middle.", below=[self.leaf])
        self.root = self.family.agent(
            "root", ask("middle"), "Root.", below=[self.middle], observers=[self.watch]
        )

    async def held(self, run: Run) -> tuple[Run, Run]:
        """Wait until the leaf is held, and give the runs of middle and leaf."""
        await self.gate.reached()
        (middle,) = run.children
        (leaf,) = middle.children
        return middle, leaf


def of(events: list[Event], *path: str) -> list[Event]:
    """Those of one run of the tree."""
    return [event for event in events if event.path == path]


@virtual
async def test_the_events_of_children_come_with_their_path_and_in_their_order() -> None:
    """What a child's own reader sees, its parent's readers see too, all but its end; also written down."""
    scene = Scene()
    async with scene.root.start("go") as run:
        middle, leaf = await scene.held(run)
        scene.gate.open()
        await whole(run)
        events = [event async for event in run]
    for child, path in ((middle, (middle.id,)), (leaf, (middle.id, leaf.id))):
        own = [event async for event in child if not event.path and not isinstance(event, RunEnded)]
        seen = of(events, *path)
        assert [type(event) for event in seen] == [type(event) for event in own]
        assert [_told(event) for event in seen] == [_told(event) for event in own]
    assert [event.text for event in of(events, middle.id, leaf.id) if isinstance(event, TextDelta)] == [
        "Le",
        "af.",
    ]
    assert sum(isinstance(event, RunEnded) for event in events) == 1
    assert [from_json(to_json(event)) for event in events] == events


def _told(event: Event) -> object:
    return getattr(event, "message", None) or getattr(event, "text", None) or getattr(event, "call_id", None)


@virtual
async def test_the_history_of_a_child_is_its_own() -> None:
    """The parent's history has the child's last words as a result, and nothing else of it."""
    scene = Scene(opened=True)
    outcome = await scene.root.run("go")
    assert said(outcome.messages) == ["go", "middle", "Middle.", "Root."]
    requests = {name: model.requests for name, model in scene.family.models.items()}
    assert [said(request.messages) for request in requests["leaf"]] == [["for leaf"]]
    assert said(requests["middle"][1].messages) == ["for middle", "leaf", "Leaf."]
    assert said(requests["root"][1].messages) == ["go", "middle", "Middle."]


@virtual
async def test_a_child_says_whose_it_is() -> None:
    """Its first item names its parent and the call; readers that come after item n miss nothing."""
    scene = Scene()
    async with scene.root.start("go") as run:
        middle, leaf = await scene.held(run)
        scene.gate.open()
        outcome = await whole(run)
        begun = [event async for event in run if isinstance(event, RunStarted)]
        items = [event async for event in run if isinstance(event, Item)]
        rest = [event async for event in run.events(after=7) if isinstance(event, Item)]
    (calls,) = outcome.messages[1].calls
    assert [(event.agent, event.parent) for event in begun] == [
        ("root", ""),
        ("middle", run.id),
        ("leaf", middle.id),
    ]
    assert [begun[1].run_id, begun[2].run_id] == [middle.id, leaf.id]
    assert begun[1].call_id == calls.id
    assert rest == items[7:]


@virtual
async def test_who_observes_the_parent_observes_the_children_under_their_own_ids() -> None:
    """Each with numbers of its own from 1, to its end; under the parent's id they come with their path."""
    scene = Scene()
    async with scene.root.start("go") as run:
        middle, leaf = await scene.held(run)
        scene.gate.open()
        await whole(run)
    assert list(scene.watch.told) == [run.id, middle.id, leaf.id]
    for one in (run, middle, leaf):
        told = scene.watch.told[one.id]
        assert told == [event async for event in one if isinstance(event, Item)]
        assert [item.n for item in told] == list(range(1, len(told) + 1))
        assert isinstance(told[-1], RunEnded)
    assert {item.path for item in scene.watch.told[run.id]} == {(), (middle.id,), (middle.id, leaf.id)}


@virtual
async def test_an_observer_of_both_is_told_once_and_one_of_the_child_only_of_it() -> None:
    """An agent's own observers see its runs, wherever they are begun."""
    family, both, own = Family(), Watch(), Watch()
    child = family.agent("child", "Child.", observers=[both, own])
    root = family.agent("root", ask("child"), "Root.", below=[child], observers=[both])
    async with root.start("go") as run:
        await whole(run)
    ended = [sum(isinstance(item, RunEnded) for item in items) for items in both.told.values()]
    assert ended == [1, 1]
    assert list(own.told) == [key for key in both.told if key != run.id]
    assert [item.n for item in own.told[next(iter(own.told))]] == [1, 2, 3, 4, 5, 6]


@virtual
async def test_children_are_live_ones_and_unknown_ids_are_refused() -> None:
    """`run.children` are one level down; `run.child` finds by id, and says which there are."""
    scene = Scene()
    async with scene.root.start("go") as run:
        middle, leaf = await scene.held(run)
        assert run.child(middle.id) is middle
        with pytest.raises(RunStateError, match=middle.id):
            run.child(leaf.id)
        scene.gate.open()
        await whole(run)
        assert (run.children, middle.children) == ((), ())
        with pytest.raises(RunStateError, match="live are: none"):
            run.child(middle.id)


@virtual
@pytest.mark.parametrize("stop", [Stop.now(), Stop.gently(), Stop.now(recursive=True)])
async def test_one_child_is_cancelled_and_its_parent_goes_on(stop: Stop) -> None:
    """Its tool call ends with its report, which its parent's model reads; nobody else is told."""
    scene = Scene()
    async with scene.root.start("go") as run:
        middle, leaf = await scene.held(run)
        report = await middle.child(leaf.id).cancel(stop, reason="too slow", by="ann")
        outcome = await whole(run)
        events = [event async for event in run if isinstance(event, ToolEnded)]
    assert (report.result, report.stopped_at, report.run_id) == (StopResult.STOPPED, Where.MODEL, leaf.id)
    assert (outcome.stop_reason, outcome.text, outcome.cancelled) == ("end_turn", "Root.", None)
    assert (await middle.outcome()).stop_reason == "end_turn"
    (result,) = scene.family.models["middle"].requests[1].messages[2].results
    assert (result.state, result.content) == ("failed", "The agent leaf was cancelled by ann: too slow")
    assert [(event.state, event.again, event.children) for event in events] == [
        ("failed", False, ()),
        ("completed", False, ()),
    ]


@virtual
async def test_a_child_cancelled_from_the_middle_takes_its_own_children_along() -> None:
    """The leaf is told by its parent; the root goes on with what the middle's report says."""
    scene = Scene()
    async with scene.root.start("go") as run:
        middle, leaf = await scene.held(run)
        await run.child(middle.id).cancel()
        outcome = await whole(run)
    cut = (await leaf.outcome()).cancelled
    assert cut is not None
    assert (cut.stopped_at, cut.causes[0].source) == (Where.MODEL, "parent")
    assert scene.family.live == []
    assert (outcome.text, outcome.messages[2].results[0].content) == (
        "Root.",
        "The agent middle was cancelled by user",
    )


@virtual
async def test_a_child_cancelled_alone_at_a_point_stops_there() -> None:
    """Its verbs are those of any run; a stop of it is not one of its parent."""
    scene = Scene(["Le", call("nothing")], opened=True)

    @scene.leaf.on("before_model")
    def stop(moment: Moment) -> None:
        moment.run.cancel(Stop.at(Point.MODEL))

    async with scene.root.start("go") as run:
        outcome = await whole(run)
    assert outcome.text == "Root."
    assert scene.family.asked == ["root", "middle", "leaf", "middle", "root"]
    assert "leaf was cancelled" in scene.family.models["middle"].requests[1].messages[2].results[0].content


@virtual
async def test_a_child_cancelled_alone_first_does_not_weaken_the_stop_of_its_parent() -> None:
    """Both are asked in the same moment: the tree stops, the child's state is kept."""
    scene = Scene()
    async with scene.root.start("go") as run:
        _, leaf = await scene.held(run)
        alone = leaf.cancel(reason="alone")
        outcome, _ = await stopped(run, run.cancel(Stop.now(recursive=True)))
    assert inside(outcome.checkpoint) == ["root", "middle", "leaf"]
    assert {cause.source for cause in (await alone).causes} >= {"user", "parent"}


@virtual
async def test_tools_of_a_child_show_their_progress_and_their_calls() -> None:
    """Items and deltas of a child's tools carry the path, and calls of the same id are told apart by it."""
    family = Family()

    async def work(context: ToolContext) -> str:
        """Work."""
        context.progress("half")
        return "done"

    child = family.agent("child", call("work", "c1"), "Child.", tools=[work])
    root = family.agent(
        "root", [ask("child", "c1"), call("work", "c2")], "Root.", below=[child], tools=[work]
    )
    async with root.start("go") as run:
        outcome = await whole(run)
        shown = [event async for event in run if isinstance(event, ToolProgress)]
    assert sorted((event.call_id, len(event.path)) for event in shown) == [("c1", 1), ("c2", 0)]
    assert [result.content for result in outcome.messages[2].results] == ["Child.", "done"]
    assert outcome.usage.tool_calls == 3


@virtual
async def test_many_readers_come_and_go_while_children_speak() -> None:
    """A reader that leaves early, one that comes late, and one of the child: each sees its own order."""
    scene = Scene()
    async with scene.root.start("go") as run:
        async for event in run:
            if isinstance(event, ModelStarted) and len(event.path) == 2:
                break
        middle, _ = await scene.held(run)
        seen = [event async for event in _until_held(middle)]
        scene.gate.open()
        await whole(run)
    assert isinstance(seen[-1], TextDelta)
    assert not any(isinstance(event, RunEnded) for event in seen)


async def _until_held(run: Run) -> AsyncIterator[Event]:
    async for event in run:
        yield event
        if isinstance(event, TextDelta):
            return


@virtual
async def test_the_same_agent_inside_itself_is_another_run() -> None:
    """A recursion of three: each has its own history; `agent.cancel()` reaches all of them."""
    gate = Gate("deepest")

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        depth = int(request.messages[0].text)
        if request.messages[-1].role == "tool":
            yield f"{depth} has {request.messages[-1].results[0].content}"
        elif depth == 3:
            yield "the bottom"
            await gate
        else:
            yield Call("deeper", {"depth": depth + 1})

    async def deeper(depth: int) -> str:
        """Ask the same agent."""
        return (await agent.run(str(depth))).text

    agent = Agent(model, tools=[deeper])
    gate.open()
    assert (await agent.run("1")).text == "1 has 2 has the bottom"
    gate = Gate("deepest")
    async with agent.start("1") as run:
        await gate.reached()
        report = await agent.cancel()
        await whole(run)
    assert len(report.reports) == 3
    assert {part.result for part in report.reports} == {StopResult.STOPPED}
