"""CN: agents behind tools, cut and stopped at points, and resumed inside."""

import asyncio

import pytest

from andon import Agent, Outcome, Point, Stop, StopResult, parallel, sequence
from andon.core.checkpoint import Checkpoint
from andon.core.items import RunStarted, StopRequested
from andon.core.messages import Call
from andon.core.stop import Where
from andon.testing import Delay, Gate, Reply, virtual
from tests.family import Family, ask, inside, said, stopped
from tests.stores import MemoryStore

BOTH = pytest.mark.parametrize("recursive", [True, False])


class Scene:
    """A family whose leaf is held in its model, and the same family anew, to resume with."""

    def __init__(self) -> None:
        self.gate = Gate("leaf")
        self.store = MemoryStore()
        self.family = Family()

    def anew(self) -> Family:
        """Forget the old agents."""
        self.family = Family()
        return self.family

    async def stop(self, root: Agent, stop: Stop, *, release: bool = False) -> Outcome:
        """Stop the root once the leaf is in its model; the ticket is accepted and says STOPPED."""
        async with root.start("go", checkpoint_id="tree") as run:
            await self.gate.reached()
            ticket = run.cancel(stop)
            if release:
                self.gate.open()
            outcome, report = await stopped(run, ticket)
            asked = [event.stop async for event in run if isinstance(event, StopRequested) and not event.path]
        assert report.result is StopResult.STOPPED
        assert report.checkpoint == "tree"
        assert asked[-1].points == stop.points
        assert self.family.live == []
        return outcome

    async def stored(self) -> Checkpoint:
        """Read the checkpoint back, as another process would."""
        data = await self.store.get("tree")
        assert data is not None
        return Checkpoint.from_json(data)

    def behind_a_sequence(self, root: list[Reply], leaf: list[Reply]) -> Agent:
        """Give a root that has a sequence of one leaf behind a tool."""
        steps = sequence(self.family.agent("leaf", *leaf, tools=[pick]), name="steps")
        return self.family.agent("root", *root, below=[steps], store=self.store)

    def three_levels(self, root: list[Reply], middle: list[Reply], leaf: list[Reply]) -> Agent:
        """Give a root with a middle behind a tool, and a leaf behind a tool of that."""
        below = self.family.agent("leaf", *leaf)
        between = self.family.agent("middle", *middle, below=[below])
        return self.family.agent("root", *root, below=[between], store=self.store)


async def pick(name: str) -> str:
    """Pick something."""
    return f"picked {name}"


def clock() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()


@virtual
async def test_cn_01_now_recursive_keeps_the_state_of_every_level() -> None:
    """Root, sequence and leaf are in the checkpoint, and agents made anew go on from it without errors."""
    scene = Scene()
    root = scene.behind_a_sequence([ask("steps")], [["Half", scene.gate]])
    outcome = await scene.stop(root, Stop.now(recursive=True))
    assert inside(outcome.checkpoint) == ["root", "steps", "leaf"]
    assert await scene.stored() == outcome.checkpoint
    family = scene.anew()
    root = scene.behind_a_sequence(["Done."], ["Leaf."])
    again = await root.resume(await scene.stored())
    assert (again.stop_reason, again.error, again.text) == ("end_turn", None, "Done.")
    assert said(again.messages) == ["go", "steps", "Leaf.", "Done."]
    assert family.asked == ["leaf", "root"]


@virtual
async def test_cn_02_now_cuts_every_level_and_every_branch() -> None:
    """A parallel of an agent with an agent behind it, and a plain one: all cut, long before their 2 s."""
    family, waits = Family(), Gate("models", opened=True)
    leaf = family.agent("leaf", ["Half", waits, Delay(2), "never"])
    outer = family.agent("outer", ask("leaf"), below=[leaf])
    simple = family.agent("simple", ["Half", waits, Delay(2), "never"])
    async with parallel(outer, simple).start("go") as run:
        await waits.reached(2)
        began = clock()
        outcome, report = await stopped(run, run.cancel(Stop.now(recursive=True)))
    assert clock() - began < 0.1
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.TOOLS)
    assert family.live == []
    assert outcome.checkpoint is not None
    assert sorted(inside(outcome.checkpoint)) == ["leaf", "outer", "parallel", "simple"]
    (simple_at_cut,) = outcome.checkpoint.children[call_of(outcome, "simple")]
    assert simple_at_cut.partial is not None
    assert simple_at_cut.partial.text == "Half"


def call_of(outcome: Outcome, name: str) -> str:
    """Find the id of the call of a tool."""
    return next(call.id for message in outcome.messages for call in message.calls if call.name == name)


@virtual
async def test_cn_04_now_that_is_not_recursive_reaches_every_level_too() -> None:
    """Nothing of the children is kept: resumed, the root's call is made again, without errors."""
    scene = Scene()
    root = scene.three_levels([ask("middle")], [ask("leaf")], [["Half", scene.gate]])
    began = clock()
    outcome = await scene.stop(root, Stop.now())
    assert clock() - began < 5
    assert inside(outcome.checkpoint) == ["root"]
    family = scene.anew()
    root = scene.three_levels(["Done."], [ask("leaf"), "Middle."], ["Leaf."])
    again = await root.resume(await scene.stored())
    assert (again.stop_reason, again.error) == ("end_turn", None)
    assert said(again.messages) == ["go", "middle", "Middle.", "Done."]
    assert family.asked == ["middle", "leaf", "middle", "root"]


@virtual
async def test_cn_05_model_recursive_stops_the_tree_where_the_leaf_has_its_calls() -> None:
    """The leaf stops before its tools; resumed, its stored call runs before any model is asked."""
    scene = Scene()
    call = Call("pick", {"name": "cord"})
    root = scene.behind_a_sequence([ask("steps")], [[scene.gate, call]])
    outcome = await scene.stop(root, Stop.at(Point.MODEL, recursive=True), release=True)
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is Where.POINT_MODEL
    assert inside(outcome.checkpoint) == ["root", "steps", "leaf"]
    family = scene.anew()
    root = scene.behind_a_sequence(["Done."], ["Leaf."])
    again = await root.resume(await scene.stored())
    assert (again.stop_reason, again.error, again.text) == ("end_turn", None, "Done.")
    assert family.asked == ["leaf", "root"]
    assert said(family.models["leaf"].requests[0].messages) == ["for steps", "pick", "picked cord"]


@virtual
@BOTH
async def test_cn_06_resumed_by_id_the_outer_model_is_asked_once_for_the_answer(*, recursive: bool) -> None:
    """The inner model comes first; the outer one never starts from the user's message again."""
    scene = Scene()

    def tree(outer: list[Reply], inner: Reply) -> Agent:
        below = scene.family.agent("inner", inner)
        return scene.family.agent("outer", *outer, below=[below], store=scene.store)

    await scene.stop(tree([ask("inner")], ["Half", scene.gate]), Stop.now(recursive=recursive))
    assert scene.family.asked == ["outer", "inner"]
    family = scene.anew()
    again = await tree(["Done."], "Inner.").resume(await scene.stored())
    assert (again.stop_reason, again.error, again.text) == ("end_turn", None, "Done.")
    assert family.asked == ["inner", "outer"]
    assert said(family.models["outer"].requests[0].messages) == ["go", "inner", "Inner."]


@virtual
async def test_cn_07_resumed_the_leaf_comes_first_and_every_model_is_asked_once() -> None:
    """From the deepest up: leaf, middle, root; nobody says cancelled."""
    scene = Scene()
    root = scene.three_levels([ask("middle")], [ask("leaf")], [["Half", scene.gate]])
    outcome = await scene.stop(root, Stop.now(recursive=True))
    assert inside(outcome.checkpoint) == ["root", "middle", "leaf"]
    family = scene.anew()
    root = scene.three_levels(["Root."], ["Middle."], ["Leaf."])
    async with root.start_from(await scene.stored()) as run:
        again = await run.outcome()
        events = [event async for event in run]
    assert (again.stop_reason, again.cancelled, again.text) == ("end_turn", None, "Root.")
    assert family.asked == ["leaf", "middle", "root"]
    assert not any(isinstance(event, StopRequested) for event in events)
    assert [event.agent for event in events if isinstance(event, RunStarted)] == ["root", "middle", "leaf"]


@virtual
async def test_cn_08_two_agents_side_by_side_both_go_on_inside() -> None:
    """Each is asked once more, and then the outer one, once."""
    scene = Scene()

    def tree(outer: list[Reply], a: Reply, b: Reply) -> Agent:
        below = [scene.family.agent("a", a), scene.family.agent("b", b)]
        return scene.family.agent("outer", *outer, below=below, store=scene.store)

    root = tree([[ask("a"), ask("b")]], ["Half", scene.gate], ["Half", scene.gate])
    async with root.start("go", checkpoint_id="tree") as run:
        await scene.gate.reached(2)
        outcome, _ = await stopped(run, run.cancel(Stop.now(recursive=True)))
    assert sorted(inside(outcome.checkpoint)) == ["a", "b", "outer"]
    family = scene.anew()
    again = await tree(["Done."], "A.", "B.").resume(await scene.stored())
    assert (again.stop_reason, again.cancelled, again.text) == ("end_turn", None, "Done.")
    assert sorted(family.asked[:2]) == ["a", "b"]
    assert family.asked[2:] == ["outer"]
    assert [result.content for result in again.messages[2].results] == ["A.", "B."]
