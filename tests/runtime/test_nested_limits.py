"""Limits of a tree: what children spend is spent by every run above them, in whatever thread."""

import pytest

from andon import Agent, Call, Limits, ModelError, Outcome, Run, Usage, sequence, tool
from andon.core.items import StopRequested
from andon.testing import ScriptedModel, virtual
from tests.family import Family, ask, call, inside, said
from tests.whole import whole

TOKENS = Usage(input_tokens=10, output_tokens=5, cost=0.5)


@tool
async def work() -> str:
    """Work."""
    return "done"


class Scene:
    """A root, a middle and a leaf that works three times before it answers."""

    def __init__(
        self, root: Limits | None = None, middle: Limits | None = None, leaf: Limits | None = None
    ) -> None:
        self.family = Family()
        works = [[TOKENS, call("work")]] * 3
        below = self.family.agent("leaf", *works, [TOKENS, "Leaf."], tools=[work], limits=leaf)
        between = self.family.agent(
            "middle", [TOKENS, ask("leaf")], [TOKENS, "Middle."], below=[below], limits=middle
        )
        self.root = self.family.agent(
            "root", [TOKENS, ask("middle")], [TOKENS, "Root."], below=[between], limits=root
        )

    @property
    def asked(self) -> int:
        """How often models were asked."""
        return len(self.family.asked)


async def ended(run: Run) -> Outcome:
    """Hold a run to its end."""
    async with run:
        return await whole(run)


@virtual
async def test_usage_counts_children_in() -> None:
    """Model calls, tool calls, tokens and cost of all levels; the agents' calls are tool calls, too."""
    scene = Scene()
    outcome = await ended(scene.root.start("go"))
    assert outcome.text == "Root."
    assert outcome.usage == Usage(
        input_tokens=80, output_tokens=40, cost=4.0, model_calls=8, tool_calls=2 + 3
    )


@virtual
async def test_the_usage_of_a_child_is_its_own_and_that_of_those_below() -> None:
    """The run of each level tells its own sum."""
    scene, runs = Scene(), list[Run]()
    async with scene.root.start("go") as run:
        runs.append(run)
        async for event in run:
            if event.path and len(runs) == len(event.path):
                runs += runs[-1].children
        await whole(run)
    assert [(one.usage.model_calls, one.usage.tool_calls) for one in runs] == [(8, 5), (6, 4), (4, 3)]


@virtual
@pytest.mark.parametrize(
    ("limits", "named", "asked"),
    [
        (Limits(model_calls=4), "model_calls 4", 4),
        (Limits(input_tokens=40), "input_tokens 40", 4),
        (Limits(output_tokens=17), "output_tokens 17", 4),
        (Limits(cost=2), "cost 2", 4),
        (Limits(tool_calls=3), "tool_calls 3", 4),
    ],
)
async def test_a_limit_of_the_root_stops_a_child_before_it_asks(
    limits: Limits, named: str, asked: int
) -> None:
    """At the leaf's own point; the state of every level is kept, and the root says which limit it was."""
    scene = Scene(limits)
    async with scene.root.start("go") as run:
        outcome = await whole(run)
        stops = [event async for event in run if isinstance(event, StopRequested)]
    assert (outcome.stop_reason, outcome.limit, outcome.cancelled) == ("limit", named, None)
    assert scene.asked == asked
    assert outcome.usage.model_calls == asked
    assert inside(outcome.checkpoint) == ["root", "middle", "leaf"]
    own = [event.stop.causes for event in stops if not event.path]
    assert [(cause.source, cause.reason) for causes in own for cause in causes] == [
        ("limit", f"the limit {named} was reached")
    ]


@virtual
async def test_with_a_higher_limit_it_goes_on_inside_and_counts_what_was_spent_before() -> None:
    """Nothing is asked twice; the resumed root's limit is for the whole."""
    scene = Scene(Limits(model_calls=4))
    first = await scene.root.run("go")
    assert first.checkpoint is not None
    second = await scene.root.resume(first.checkpoint, limits=Limits(model_calls=6))
    assert (second.limit, scene.asked) == ("model_calls 6", 6)
    assert second.checkpoint is not None
    third = await scene.root.resume(second.checkpoint, limits=Limits(model_calls=8))
    assert (third.text, scene.asked, third.usage.model_calls) == ("Root.", 8, 8)
    assert third.usage.input_tokens == 80


@virtual
async def test_a_retry_inside_is_no_further_model_call() -> None:
    """Neither in the usage nor for the limit of the root."""
    scene = Scene(Limits(model_calls=8))
    failing = ModelError("overloaded", transient=True)
    works = [[TOKENS, call("work")]] * 2
    scene.family.models["leaf"].script(failing, failing, *works, failing, works[0], [TOKENS, "Leaf."])
    outcome = await ended(scene.root.start("go"))
    assert (outcome.text, outcome.usage.model_calls, scene.asked) == ("Root.", 8, 11)


@virtual
async def test_a_limit_of_the_middle_stops_what_is_below_and_the_root_goes_on() -> None:
    """The middle ends at its limit, and the root's model reads that."""
    scene = Scene(middle=Limits(model_calls=3))
    outcome = await ended(scene.root.start("go"))
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Root.")
    assert said(outcome.messages)[2] == "The agent middle reached its limit model_calls 3"
    assert scene.family.asked == ["root", "middle", "leaf", "leaf", "root"]


@virtual
async def test_a_limit_of_a_child_is_the_childs_alone() -> None:
    """What the others spend does not count there."""
    scene = Scene(leaf=Limits(model_calls=4))
    assert (await scene.root.run("go")).text == "Root."
    scene = Scene(leaf=Limits(model_calls=2))
    outcome = await scene.root.run("go")
    assert outcome.text == "Root."
    asked = scene.family.models["middle"].requests[1]
    assert said(asked.messages)[2] == "The agent leaf reached its limit model_calls 2"


@virtual
async def test_the_plan_of_a_workflow_costs_no_model_call() -> None:
    """Neither is it counted, nor does a limit that is just enough for the steps stop it."""
    family = Family()
    steps = [family.agent(name, *[[TOKENS, f"{name}."]] * 2) for name in "abc"]
    workflow = sequence(*steps, limits=Limits(model_calls=3))
    outcome = await ended(workflow.start("go"))
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "c.")
    assert (outcome.usage.model_calls, outcome.usage.input_tokens) == (3, 30)
    outcome = await ended(workflow.start("go", limits=Limits(model_calls=2)))
    assert (outcome.limit, family.asked) == ("model_calls 2", ["a", "b", "c", "a", "b"])


async def test_a_limit_of_the_root_holds_to_the_call_in_a_thread() -> None:
    """The loop of the root need not have heard of what a child in another thread has spent."""
    model, outer = ScriptedModel(), ScriptedModel()
    inner = Agent(model, tools=[work], name="inner")

    def think() -> str:
        """Ask the inner agent in this thread."""
        return inner.run_sync("go").text

    root = Agent(outer, tools=[think], limits=Limits(model_calls=4), name="root")
    for _ in range(25):
        model.script(*[Call("work")] * 9)
        outer.script(Call("think"), "never")
        outcome = await ended(root.start("go"))
        assert (outcome.limit, outcome.usage.model_calls) == ("model_calls 4", 4)
        assert (outer.left, model.left) == (1, 6)
        assert inside(outcome.checkpoint) == ["root", "inner"]
