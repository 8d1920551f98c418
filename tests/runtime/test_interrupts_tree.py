"""Interrupts in a tree: a child's question pauses all that wait for it, and the answer goes down again."""

from collections.abc import Sequence

import pytest

from andon import Agent, Call, Outcome, Point, Stop, ToolContext, parallel, sequence, tool
from andon.core.checkpoint import Checkpoint
from andon.core.items import Answered, Interrupted, ModelStarted
from andon.core.stop import Where
from andon.runtime.hooks import Moment
from andon.testing import Gate, ScriptedModel, virtual
from andon.testing.conversation import problems
from tests.answers import answered, ids
from tests.whole import whole


class Deep:
    """Root, middle and leaf, whose tool asks; every agent's model counts what it was asked."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.paid: list[str] = []

        @tool
        async def ask(context: ToolContext, name: str = "leaf") -> str:
            """Ask."""
            self.told.append(await context.interrupt(name))
            return f"{self.told[-1]}"

        @tool
        async def pay(name: str) -> str:
            """Pay, which must never be done twice."""
            self.paid.append(name)
            return "paid"

        self.leaf_model = ScriptedModel(
            [Call("pay", {"name": "leaf"})], Call("ask", id="l1"), "The leaf's answer.", name="leaf"
        )
        self.middle_model = ScriptedModel(
            [Call("pay", {"name": "middle"}), Call("leaf", {"request": "dig"})],
            "The middle's.",
            name="middle",
        )
        self.root_model = ScriptedModel(Call("middle", {"request": "plan"}), "Done.", name="root")
        self.leaf = Agent(self.leaf_model, tools=[ask, pay], name="leaf", instructions="Dig.")
        self.middle = Agent(
            self.middle_model, tools=[self.leaf.as_tool(), pay], name="middle", instructions="Plan."
        )
        self.root = Agent(self.root_model, tools=[self.middle.as_tool(), ask], name="root")

    @property
    def asked(self) -> Sequence[int]:
        """How often each model was asked, from the root down."""
        return [len(model.requests) for model in (self.root_model, self.middle_model, self.leaf_model)]


PATH = ("root", "middle", "middle", "leaf", "leaf", "ask")


@virtual
async def test_a_question_at_depth_three_pauses_the_whole_tree() -> None:
    """It is listed with the agents and tools on the way to it, and every history is whole."""
    scene = Deep()
    async with scene.root.start("go") as run:
        outcome = await whole(run)
        [asked] = [event async for event in run if isinstance(event, Interrupted)]
    assert outcome.stop_reason == "interrupt"
    assert [(one.payload, one.path) for one in outcome.interrupts] == [("leaf", PATH)]
    assert (asked.id, len(asked.path)) == (outcome.interrupts[0].id, 2)
    assert problems(outcome.messages) == []
    assert outcome.messages[2].results[0].state == "unknown"


@virtual
async def test_the_answer_goes_down_and_nothing_on_the_way_is_done_again() -> None:
    """No model is asked what it has answered, and each tool that had ended has run once."""
    scene = Deep()
    outcome = await scene.root.run("go")
    assert scene.asked == [1, 1, 2]
    outcome = await answered(scene.root, outcome, "yes")
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Done.")
    assert scene.asked == [2, 2, 3]
    assert (scene.told, sorted(scene.paid)) == (["yes"], ["leaf", "middle"])
    assert outcome.usage.model_calls == 7


@virtual
async def test_a_child_that_goes_on_with_an_answer_is_not_asked_for_it_again() -> None:
    """The answer is an item of the root alone; the leaf begins with its model call after the tool."""
    scene = Deep()
    outcome = await scene.root.run("go")
    assert outcome.checkpoint is not None
    async with scene.root.start_from(outcome.checkpoint, answers={ids(outcome)[0]: "yes"}) as run:
        await whole(run)
        events = [event async for event in run]
    assert [len(event.path) for event in events if isinstance(event, Answered)] == [0]
    assert [event.model for event in events if isinstance(event, ModelStarted)] == ["leaf", "middle", "root"]


@virtual
async def test_questions_at_several_depths_are_answered_in_any_order() -> None:
    """Root and leaf ask at once; each resume continues what was answered and asks the rest again."""
    for first in (0, 1):
        scene = Deep()
        scene.root_model.script([Call("ask", {"name": "root"}), Call("middle", {"request": "plan"})], "Done.")
        outcome = await scene.root.run("go")
        assert [one.payload for one in outcome.interrupts] == ["root", "leaf"]
        chosen = outcome.interrupts[first]
        assert outcome.checkpoint is not None
        second = await scene.root.resume(outcome.checkpoint.to_json(), answers={chosen.id: "one"})
        assert second.stop_reason == "interrupt"
        [left] = second.interrupts
        assert left.payload != chosen.payload
        assert left.id not in ids(outcome)
        third = await answered(scene.root, second, "two")
        assert (third.text, scene.told) == ("Done.", ["one", "two"])
        assert scene.asked == [2, 2, 3]


@virtual
@pytest.mark.parametrize("kind", ["before_model", "before_tool"])
async def test_a_hook_of_a_child_may_ask_as_well(kind: str) -> None:
    """At depth three; the hook gets its answer, and the leaf goes on."""
    scene, told = Deep(), list[object]()
    scene.leaf_model.script(Call("pay", {"name": "leaf"}), "The leaf's answer.")

    async def guard(moment: Moment) -> None:
        told.append(await moment.interrupt(kind))

    scene.leaf.on(kind, guard)
    outcome = await scene.root.run("go")
    path = PATH[:5] if kind == "before_model" else (*PATH[:5], "pay")
    assert [(one.payload, one.path) for one in outcome.interrupts] == [(kind, path)]
    while outcome.stop_reason == "interrupt":
        outcome = await answered(scene.root, outcome, "yes")
    assert (outcome.text, set(told), scene.paid.count("leaf")) == ("Done.", {"yes"}, 1)


@virtual
@pytest.mark.parametrize("recursive", [False, True])
async def test_a_childs_question_is_absorbed_by_a_stop_of_the_root(*, recursive: bool) -> None:
    """Whether or not the child was told of it: cancelled, with the question listed, which comes again."""
    scene, gate = Deep(), Gate("leaf")
    scene.leaf_model.script([Call("pay", {"name": "leaf"})], [gate, Call("ask", id="l1")], "The leaf's.")
    async with scene.root.start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS, recursive=recursive))
        gate.open()
        outcome = await whole(run)
    assert (outcome.stop_reason, (await ticket).stopped_at) == ("cancelled", Where.PAUSED)
    assert [(one.payload, one.path) for one in outcome.interrupts] == [("leaf", PATH)]
    again = await answered(scene.root, outcome)
    assert [one.payload for one in again.interrupts] == ["leaf"]
    assert (await answered(scene.root, again, "yes")).text == "Done."
    assert (scene.told, sorted(scene.paid)) == (["yes"], ["leaf", "middle"])


@virtual
async def test_an_answer_survives_a_stop_that_comes_before_its_question_is_reached() -> None:
    """Answered, cancelled before anything ran, resumed without answers: the leaf has its answer."""
    scene = Deep()
    outcome = await scene.root.run("go")
    assert outcome.checkpoint is not None
    run = scene.root.start_from(outcome.checkpoint, answers={ids(outcome)[0]: "yes"})
    run.cancel(Stop.now(recursive=True))
    async with run:
        stopped = await whole(run)
    assert (stopped.stop_reason, stopped.interrupts, scene.told) == ("cancelled", (), [])
    assert stopped.messages[2].results[0].state == "unknown"  # it had begun, in the run before
    assert stopped.checkpoint is not None
    resumed = await scene.root.resume(Checkpoint.from_json(stopped.checkpoint.to_json()))
    assert (resumed.text, scene.told) == ("Done.", ["yes"])
    assert sorted(scene.paid) == ["leaf", "middle"]


@virtual
async def test_a_question_before_the_call_of_a_child_that_goes_on_does_not_lose_the_child() -> None:
    """Stopped inside the leaf, then a new hook of the root asks first: the leaf still goes on."""
    scene, gate = Deep(), Gate("leaf")
    scene.leaf_model.script([Call("pay", {"name": "leaf"})], [gate, "never"])
    async with scene.root.start("go") as run:
        await gate.reached()
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)

    async def guard(moment: Moment) -> None:
        await moment.interrupt("go on?")

    scene.root.on("before_tool", guard)
    scene.leaf_model.script("The leaf's answer.")
    paused = await answered(scene.root, outcome)
    assert [one.payload for one in paused.interrupts] == ["go on?"]
    assert paused.messages[2].results[0].state == "unknown"
    outcome = await answered(scene.root, paused, "yes")
    assert outcome.text == "Done."
    assert sorted(scene.paid) == ["leaf", "middle"]
    assert scene.leaf_model.requests[-1].messages[2].results[0].content == "paid"


class Steps:
    """Two agents as steps, each with a tool that asks."""

    def __init__(self) -> None:
        self.models: dict[str, ScriptedModel] = {}
        self.agents = [self._step("a"), self._step("b")]

    def _step(self, name: str) -> Agent:
        @tool
        async def ask(context: ToolContext) -> str:
            """Ask."""
            return f"{await context.interrupt(name)}"

        self.models[name] = ScriptedModel(Call("ask"), f"{name} is done.", name=name)
        return Agent(self.models[name], tools=[ask], name=name)

    def asked(self) -> list[int]:
        """How often each model was asked."""
        return [len(model.requests) for model in self.models.values()]


def told(outcome: Outcome) -> list[tuple[object, tuple[str, ...]]]:
    """The open questions, and the way to each."""
    return [(one.payload, one.path) for one in outcome.interrupts]


@virtual
async def test_the_steps_of_a_sequence_ask_one_after_the_other() -> None:
    """The second begins after the first was answered; no step is done twice."""
    scene = Steps()
    flow = sequence(*scene.agents)
    outcome = await flow.run("go")
    assert told(outcome) == [("a", ("sequence", "a", "a", "ask"))]
    outcome = await answered(flow, outcome, 1)
    assert told(outcome) == [("b", ("sequence", "b", "b", "ask"))]
    outcome = await answered(flow, outcome, 2)
    assert (outcome.text, scene.asked()) == ("b is done.", [2, 2])


@virtual
async def test_the_branches_of_a_parallel_ask_at_once() -> None:
    """Only the one that was answered goes on; then the other."""
    scene = Steps()
    flow = parallel(*scene.agents)
    outcome = await flow.run("go")
    assert [payload for payload, _ in told(outcome)] == ["a", "b"]
    outcome = await answered(flow, outcome, 1)
    assert [payload for payload, _ in told(outcome)] == ["b"]
    assert scene.asked() == [2, 1]
    outcome = await answered(flow, outcome, 2)
    assert (outcome.text, scene.asked()) == ("a: a is done.\n\nb: b is done.", [2, 2])


@virtual
async def test_model_asked_before_a_paused_sequence_is_resumed_lets_its_step_go_on() -> None:
    """A step that had begun is not between two steps: it ends, and the next one is not begun."""
    scene = Steps()
    flow = sequence(*scene.agents)
    outcome = await flow.run("go")
    assert outcome.checkpoint is not None
    run = flow.start_from(outcome.checkpoint, answers={ids(outcome)[0]: 1})
    ticket = run.cancel(Stop.at(Point.MODEL))
    async with run:
        outcome = await whole(run)
    assert (await ticket).stopped_at is Where.POINT_STEP
    assert scene.asked() == [2, 0]
    assert outcome.stop_reason == "cancelled"
