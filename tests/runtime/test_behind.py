"""Behind: an agent as a tool: what it is given, what it is shown, and what its parent's model reads of it."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from andon import Agent, Call, Limits, Message, ModelError, Outcome, Stop, sequence
from andon.core.items import ToolStarted
from andon.errors import ToolDefinitionError
from andon.runtime.tools import Tool, ToolContext
from andon.testing import Gate, Hang, Reply, ScriptedModel, virtual
from tests.family import Family, ask, call, said
from tests.whole import whole


class Trip(BaseModel):
    """Plan a trip."""

    to: str = Field(description="Where to.")
    days: int = Field(default=3, ge=1)


class Scene:
    """A root with one agent behind a tool."""

    def __init__(self, *replies: Reply, **options: Any) -> None:  # noqa: ANN401 — Agent's own
        self.family = Family()
        self.child = self.family.agent("child", *replies, **options)

    def root(self, made: Tool[..., Any], *replies: Reply) -> Agent:
        """Give the root, with this tool."""
        return self.family.agent("root", *replies, "Root.", tools=[made])

    @property
    def asked(self) -> list[list[str]]:
        """What the child's model was shown, call by call."""
        return [said(request.messages) for request in self.family.models["child"].requests]


def result(outcome: Outcome) -> tuple[str, str]:
    """Give the state and the content of the first result."""
    (one,) = outcome.messages[2].results
    return one.state.value, one.content


def test_an_input_model_is_the_schema_of_the_tool() -> None:
    """Its fields are the arguments, with their descriptions, defaults and bounds."""
    made = Agent(ScriptedModel(), name="trips").as_tool(description="Plans trips.", input_model=Trip)
    assert made.spec.parameters["properties"] == {
        "to": {"type": "string", "title": "To", "description": "Where to."},
        "days": {"type": "integer", "title": "Days", "default": 3, "minimum": 1},
    }
    assert made.spec.parameters["required"] == ["to"]
    assert "title" not in made.spec.parameters


@virtual
async def test_an_agent_with_an_input_model_is_asked_with_its_json() -> None:
    """Defaults are filled in."""
    scene = Scene("Child.")
    made = scene.child.as_tool(description="Plans.", input_model=Trip)
    outcome = await scene.root(made, Call("child", {"to": "Rome"})).run("go")
    assert scene.asked == [['{"to":"Rome","days":3}']]
    assert result(outcome) == ("completed", "Child.")


@virtual
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "to: Field required"),
        ({"to": 3}, "to: Input should be a valid string"),
        ({"to": "Rome", "days": 0}, "days: Input should be greater than or equal to 1"),
        ({"to": "Rome", "days": "3"}, "days: Input should be a valid integer"),
    ],
)
async def test_arguments_that_do_not_fit_never_reach_the_agent(
    arguments: dict[str, object], problem: str
) -> None:
    """The parent's model is told what is wrong, and may try again."""
    scene = Scene("Child.")
    made = scene.child.as_tool(description="Plans.", input_model=Trip)
    root = scene.root(made, Call("child", arguments), Call("child", {"to": "Rome"}))
    async with root.start("go") as run:
        outcome = await whole(run)
        begun = [event async for event in run if isinstance(event, ToolStarted)]
    state, content = result(outcome)
    assert (state, content.startswith("Invalid arguments for child: ")) == ("failed", True)
    assert problem in content
    assert (len(begun), len(scene.asked), outcome.messages[4].results[0].content) == (1, 1, "Child.")


@virtual
@pytest.mark.parametrize("arguments", [{}, {"request": 3}, {"request": "x", "more": 1}, {"reqest": "x"}])
async def test_without_an_input_model_it_is_one_text(arguments: dict[str, object]) -> None:
    """Everything else is refused in words."""
    scene = Scene("never")
    outcome = await scene.root(scene.child.as_tool(description="Asks."), Call("child", arguments)).run("go")
    assert result(outcome)[0] == "failed"
    assert "Invalid arguments for child" in result(outcome)[1]
    assert scene.asked == []


@pytest.mark.parametrize("given", [dict, Trip(to="Rome"), "Trip", int])
def test_what_is_no_pydantic_model_is_refused(given: type[BaseModel]) -> None:
    """When the tool is made."""
    with pytest.raises(ToolDefinitionError, match="give a pydantic BaseModel class"):
        Agent(ScriptedModel(), name="trips").as_tool(description="Plans.", input_model=given)


@pytest.mark.parametrize("name", ["my trips", "trips!", "a" * 65, "1trip"])
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    """Given, or the agent's own, in words that say what to write."""
    with pytest.raises(ToolDefinitionError, match="no provider takes this name"):
        Agent(ScriptedModel(), name=name).as_tool(description="Plans.")
    with pytest.raises(ToolDefinitionError, match="no provider takes this name"):
        Agent(ScriptedModel(), name="trips").as_tool(name=name, description="Plans.")


def test_two_agents_of_one_name_are_refused_where_they_meet() -> None:
    """In the agent that has both as tools."""
    made = [Agent(ScriptedModel(), name="trips").as_tool(description="Plans.") for _ in range(2)]
    with pytest.raises(ToolDefinitionError, match="two tools of this name"):
        Agent(ScriptedModel(), tools=made)


@virtual
@pytest.mark.parametrize("history", [False, True])
async def test_with_history_it_is_shown_the_conversation_so_far(*, history: bool) -> None:
    """Without the round that it is called in; and it never writes into it."""
    scene = Scene("Child.")
    root = scene.root(scene.child.as_tool(description="Asks.", history=history), ask("child"))
    before = [Message.user("hi"), Message.assistant("ho")]
    outcome = await root.run("go", messages=before)
    assert scene.asked == [["hi", "ho", "go", "for child"] if history else ["for child"]]
    assert said(outcome.messages) == ["hi", "ho", "go", "child", "Child.", "Root."]


@virtual
async def test_a_second_call_is_shown_what_the_first_has_given() -> None:
    """The conversation so far is that of the moment of the call."""
    scene = Scene("One.", "Two.")
    root = scene.root(scene.child.as_tool(description="Asks.", history=True), ask("child"), ask("child"))
    await root.run("go")
    assert scene.asked == [["go", "for child"], ["go", "child", "One.", "for child"]]


@virtual
async def test_with_history_and_resumed_it_is_not_shown_it_twice() -> None:
    """The checkpoint of the child does without what it shares with its parent, and has it again later."""
    scene, gate = Scene(["Half", Gate("never")], "Child."), Gate("asked", opened=True)
    made = scene.child.as_tool(description="Asks.", history=True)
    root = scene.root(made, ask("child"))
    scene.family.models["child"].script(["Half", gate, Hang()])
    async with root.start("go") as run:
        await gate.reached()
        run.cancel(Stop.now(recursive=True))
        saved = (await whole(run)).checkpoint
    assert saved is not None
    ((kept,),) = saved.children.values()
    assert (kept.shared, said(kept.messages)) == (1, ["for child"])
    scene.family.models["child"].script("Child.")
    outcome = await root.resume(saved.to_json())
    assert scene.asked[1:] == [["go", "for child"]]
    assert said(outcome.messages) == ["go", "child", "Child.", "Root."]


@virtual
@pytest.mark.parametrize(
    ("replies", "options", "told"),
    [
        ([ValueError("broken")], {}, "The agent child failed: ValueError: broken"),
        (
            [ModelError("overloaded", transient=True)] * 3,
            {},
            "The agent child failed: ModelError: overloaded",
        ),
        (
            [call("work")] * 3,
            {"limits": Limits(model_calls=2)},
            "The agent child reached its limit model_calls 2",
        ),
        (
            [call("fail")] * 3,
            {"limits": Limits(repeated_failures=2)},
            "The agent child reached its limit repeated_failures 2",
        ),
        ([call("cancel")], {}, "The agent child was cancelled by code: enough"),
    ],
)
async def test_what_goes_wrong_inside_is_words_for_the_parents_model(
    replies: list[Reply], options: dict[str, Any], told: str
) -> None:
    """The call failed, the parent's run goes on, and nothing of the inside leaks into its history."""

    async def work() -> str:
        """Work."""
        return "done"

    async def fail() -> str:
        """Fail."""
        raise OSError

    async def cancel(context: ToolContext) -> str:
        """Cancel the run of this tool."""
        (run,) = runs
        assert run.child(context.run_id).cancel(Stop.graceful(), source="code", reason="enough")
        return "done"

    scene = Scene(*replies, tools=[work, fail, cancel], **options)
    root = scene.root(scene.child.as_tool(description="Asks."), ask("child"))
    async with root.start("go") as run:
        runs = [run]
        outcome = await whole(run)
    assert result(outcome) == ("failed", told)
    assert (outcome.stop_reason, outcome.text, outcome.error) == ("end_turn", "Root.", None)


@virtual
async def test_a_hook_that_fails_inside_fails_the_call_only() -> None:
    """The child's run ends as an error; its parent's does not."""
    scene = Scene("never")

    @scene.child.on("before_model")
    def fail(_: object) -> None:
        raise OSError("no disk")

    outcome = await scene.root(scene.child.as_tool(description="Asks."), ask("child")).run("go")
    assert result(outcome) == (
        "failed",
        "The agent child failed: HookError: hook 'before_model' failed with OSError: no disk",
    )
    assert outcome.text == "Root."


@virtual
async def test_a_child_that_asks_a_human_pauses_its_parent_and_is_no_failure() -> None:
    """With an answer it goes on inside; the parent's model never reads of a failure."""

    async def sure(context: ToolContext) -> str:
        """Ask."""
        return f"said {await context.interrupt('sure?')}"

    scene = Scene(call("sure"), "Child.", tools=[sure])
    root = scene.root(scene.child.as_tool(description="Asks."), ask("child"))
    paused = await root.run("go")
    assert (paused.stop_reason, [one.path for one in paused.interrupts]) == (
        "interrupt",
        [("root", "child", "child", "sure")],
    )
    assert paused.checkpoint is not None
    outcome = await root.resume(paused.checkpoint, answers={paused.interrupts[0].id: "yes"})
    assert result(outcome) == ("completed", "Child.")
    assert scene.asked[1] == ["for child", "sure", "said yes"]


@virtual
async def test_a_workflow_is_an_agent_like_any_other_behind_a_tool() -> None:
    """Its last answer is the result; it has no instructions, so that it needs a description."""
    family = Family()
    steps = sequence(family.agent("one", "One."), family.agent("two", "Two."), name="steps")
    with pytest.raises(ToolDefinitionError, match="give both"):
        steps.as_tool()
    root = family.agent("root", ask("steps"), "Root.", below=[steps])
    assert result(await root.run("go")) == ("completed", "Two.")


@virtual
async def test_a_tool_of_an_agent_can_be_used_by_many_parents_at_once() -> None:
    """The agent is a value: each call is a run of its own."""
    family = Family()
    child = family.agent("child", *["Child."] * 4)
    made = child.as_tool(description="Asks.")
    roots = [family.agent(f"root{n}", [ask("child"), ask("child")], "Root.", tools=[made]) for n in range(2)]
    runs = [root.start("go") for root in roots]
    outcomes = [await run.outcome() for run in runs]
    assert [outcome.usage.model_calls for outcome in outcomes] == [4, 4]
    assert len(child.tools) == 0
