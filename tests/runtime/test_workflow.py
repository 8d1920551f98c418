"""Workflows: sequence, parallel and loop do what they say, also inside each other."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from andon import (
    Agent,
    Call,
    Image,
    Limits,
    Message,
    Outcome,
    TextDelta,
    loop,
    parallel,
    sequence,
    tool,
)
from andon.core.items import Item, RunEnded, RunStarted
from andon.errors import RunStateError, ToolDefinitionError, UserError
from andon.runtime.hooks import Moment
from andon.runtime.prompt import Prompt
from andon.runtime.tools import NAME
from andon.testing import Gate, ScriptedModel, virtual
from tests.flows import Actor, ended
from tests.stores import MemoryStore
from tests.whole import complaints


async def done(flow: Agent, prompt: Prompt = "go") -> Outcome:
    """Run a workflow that gives its answer."""
    async with flow.start(prompt) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.error, outcome.checkpoint) == ("end_turn", None, None)
    return outcome


@virtual
async def test_a_sequence_asks_each_with_the_answer_before_it() -> None:
    """The first is asked what the user asks; the last answer is the workflow's."""
    steps = [Actor("a", "one"), Actor("b", "two"), Actor("c", "three")]
    outcome = await done(sequence(*steps))
    assert [step.heard for step in steps] == [["go"], ["one"], ["two"]]
    assert outcome.text == "three"


@virtual
async def test_a_parallel_asks_all_at_once_the_same() -> None:
    """Its answer tells what each of them said, in the order they were given, whoever ends first."""
    slow, there = Gate("slow"), Gate("fast")
    first, second = Actor("first", [slow, "I am late."]), Actor("second", [there, "I am early."])
    async with parallel(first, second).start("go") as run:
        await slow.reached()
        await there.reached()
        there.open()
        async for event in run.events():
            if isinstance(event, TextDelta):
                break
        slow.open()
        outcome = await ended(run)
    assert (first.heard, second.heard) == (["go"], ["go"])
    assert outcome.text == "first: I am late.\n\nsecond: I am early."


@virtual
async def test_a_loop_goes_on_until_its_last_answer_will_do() -> None:
    """`until` hears the answer at the end of each round, and of nothing between; each asks with the last."""
    heard: list[str] = []
    writer, critic = Actor("writer", "draft 1", "draft 2"), Actor("critic", "again", "good")

    def until(answer: str) -> bool:
        heard.append(answer)
        return answer == "good"

    outcome = await done(loop(writer, critic, until=until))
    assert heard == ["again", "good"]
    assert (writer.heard, critic.heard) == (["again"], ["draft 2"])
    assert outcome.text == "good"


@virtual
@pytest.mark.parametrize(("most", "rounds"), [(None, 10), (3, 3), (1, 1)])
async def test_a_loop_ends_after_the_most_rounds(most: int | None, rounds: int) -> None:
    """Ten, unless it is said; the last answer stands."""
    inner = Actor("inner", *[f"round {n}" for n in range(1, 12)])
    outcome = await done(loop(inner) if most is None else loop(inner, until=lambda _: False, max=most))
    assert (inner.asked, outcome.text) == (rounds, f"round {rounds}")


@virtual
async def test_what_until_gives_counts_as_true_or_false() -> None:
    """A search for a pattern will do."""
    inner = Actor("inner", "not yet", "all DONE", "never")
    assert (await done(loop(inner, until=re.compile("DONE").search))).text == "all DONE"


@virtual
async def test_workflows_go_inside_each_other() -> None:
    """A parallel in a sequence in a loop; each level hands on what its own steps said."""
    left, right = Actor("left", "l1", "l2"), Actor("right", "r1", "r2")
    judge = Actor("judge", "again", "good")
    both = parallel(left, right, name="both")
    flow = loop(sequence(both, judge, name="round"), until=lambda text: text == "good", name="rounds")
    async with flow.start("go") as run:
        outcome = await ended(run)
        events = [event async for event in run]
    assert outcome.text == "good"
    assert (left.heard, right.heard, judge.heard) == (["again"], ["again"], ["left: l2\n\nright: r2"])
    assert (outcome.usage.model_calls, outcome.usage.tool_calls) == (6, 0)
    began = [(len(event.path), event.agent) for event in events if isinstance(event, RunStarted)]
    assert began[:5] == [(0, "rounds"), (1, "round"), (2, "both"), (3, "left"), (3, "right")]


@virtual
async def test_the_same_agent_may_be_two_steps() -> None:
    """They are told apart by number, in calls and in answers."""
    same, other = Actor("same", "one", "two"), Actor("other", "three")
    outcome = await done(parallel(same, other, same))
    assert outcome.text == "same_1: one\n\nother: three\n\nsame_3: two"


@virtual
@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["Trip planner", "Übersetzer", "2nd"], ["Trip_planner", "_bersetzer", "_2nd"]),
        (["a", "a", "a_1"], ["a_1", "a_2", "a_1_3"]),
        (["旅行", "計画"], ["___1", "___2"]),
        (["x" * 70, "x" * 71], ["x" * 60 + "_1", "x" * 60 + "_2"]),
        ([""], ["unnamed"]),
    ],
)
async def test_any_names_become_steps_that_providers_take(names: list[str], steps: list[str]) -> None:
    """The history is one that can be sent, so its calls are named as providers want."""
    outcome = await done(parallel(*[Actor(name, f"I am {name!r}.") for name in names]))
    assert [call.name for call in outcome.messages[1].calls] == steps
    assert all(NAME.fullmatch(step) for step in steps)


@virtual
async def test_the_history_of_a_workflow_can_be_sent_and_gone_on_with() -> None:
    """A plain agent takes it, and so does the workflow, whose steps see what they are asked alone."""
    first = await done(sequence(Actor("a", "one"), Actor("b", "two")))
    assert [message.role for message in first.messages] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant"
    ]  # fmt: skip
    ids = [call.id for message in first.messages for call in message.calls]
    assert len(set(ids)) == 2
    assert all(0 < len(call_id) <= 40 for call_id in ids)  # what the strictest provider takes
    plain = ScriptedModel("I see.")
    await Agent(plain).run("And now?", messages=first.messages)
    assert complaints(plain.requests[0].messages) == []
    a, b = Actor("a", "three"), Actor("b", "four")
    async with sequence(a, b).start("And now?", messages=first.messages) as run:
        second = await ended(run)
    assert (second.text, a.heard, b.heard) == ("four", ["And now?"], ["three"])
    assert second.messages[: len(first.messages)] == first.messages


@virtual
async def test_a_history_that_ends_with_the_user_is_a_prompt() -> None:
    """As for any agent; one that asks nothing is refused in words."""
    step = Actor("a", "one")
    outcome = await sequence(step).run(messages=[Message.user("go")])
    assert (outcome.text, step.heard) == ("one", ["go"])
    orphans = [Message.assistant(Call("x", id="c1"))]
    outcome = await sequence(step).run(messages=orphans)
    assert (
        outcome.error == "UserError: sequence is a workflow, and its history asks it nothing: give a prompt"
    )


@virtual
@pytest.mark.parametrize("words", [(), ("Look.",)])
async def test_pictures_reach_the_steps_that_hear_the_user(words: tuple[str, ...]) -> None:
    """In a sequence the first, through the workflow inside it; the next hears the answer alone."""
    first, second = Actor("a", "a cat"), Actor("b", "indeed")
    picture = Image(url="https://example.com/cat.png")
    await done(sequence(sequence(first, name="inner"), second), [*words, picture])
    assert first.script.requests[0].messages == (Message.user(*words, picture),)
    assert second.heard == ["a cat"]


@virtual
async def test_a_step_that_says_nothing_is_heard_as_that() -> None:
    """No provider takes an empty prompt, and a step never gives one."""
    second = Actor("b", "fine")
    await done(sequence(Actor("a", ""), second))
    assert second.heard == ["(no answer)"]


@virtual
async def test_options_are_those_of_an_agent() -> None:
    """Limits, a store and observers hold for the workflow; its name is what it is called."""
    seen: list[tuple[str, Item]] = []

    class Watching:
        def observe(self, run_id: str, item: Item) -> None:
            seen.append((run_id, item))

    store = MemoryStore()
    steps = Actor("a", "one"), Actor("b", "two")
    flow = sequence(*steps, name="both", limits=Limits(model_calls=1), store=store, observers=[Watching()])
    assert (flow.name, repr(flow)) == ("both", "<Agent both, 0 live>")
    outcome = await flow.run("go", checkpoint_id="mine")
    assert (outcome.stop_reason, outcome.limit, list(store.data)) == ("limit", "model_calls 1", ["mine"])
    ends = [(run_id, item.outcome.stop_reason) for run_id, item in seen if isinstance(item, RunEnded)]
    assert ends[-1] == (outcome.run_id, "limit")


@virtual
async def test_of_a_parallel_only_some_may_run_at_once() -> None:
    """`tool_concurrency` bounds the steps."""
    gates = [Gate("one"), Gate("two")]
    flow = parallel(*[Actor(gate.name, [gate, "done"]) for gate in gates], tool_concurrency=1)
    async with flow.start("go") as run:
        await gates[0].reached()
        assert len(run.children) == 1
        gates[0].open()
        await gates[1].reached()
        gates[1].open()
        assert (await ended(run)).text == "one: done\n\ntwo: done"


@virtual
async def test_a_workflow_may_be_the_tool_of_an_agent() -> None:
    """It needs a description for that, which may be its own; its answer is the call's result."""
    step = Actor("a", "one")
    flow = sequence(step, Actor("b", "two"), name="trips", description="Plans trips.")
    model = ScriptedModel(Call("trips", {"request": "to Rome"}), "Planned.")
    async with Agent(model, tools=[flow.as_tool()]).start("go") as run:
        outcome = await ended(run)
    assert model.requests[0].tools[0].description == "Plans trips."
    assert (step.heard, outcome.messages[2].results[0].content) == (["to Rome"], "two")
    assert (outcome.usage.model_calls, outcome.usage.tool_calls) == (4, 1)
    with pytest.raises(ToolDefinitionError, match=re.escape("agent.as_tool(name=…, description=…)")):
        sequence(step).as_tool()


@virtual
async def test_hooks_of_a_workflow_hear_of_its_steps() -> None:
    """Each is a call with its request; one that is refused ends the workflow, in words."""
    flow = sequence(Actor("a", "one"), Actor("b", "two"))
    heard: list[str] = []

    @flow.on("before_tool")
    def before(moment: Moment) -> str | None:  # pyright: ignore[reportUnusedFunction]
        assert moment.call is not None
        heard.append(f"{moment.call.name} {moment.call.arguments['request']}")
        return "not today" if moment.call.name == "b" else None

    outcome = await flow.run("go")
    assert heard == ["a go", "b one"]
    assert outcome.error == "ToolError: step b of sequence did not complete: not today"


@virtual
async def test_a_workflow_cannot_be_steered_and_names_who_can() -> None:
    """The step that is live has a model, and hears it."""
    answer = Gate("model")
    step = Actor("a", [answer, "one"], "two")
    flow = sequence(step)
    with pytest.raises(RunStateError, match="their ids are: none is live"):
        flow.start("go").steer("Listen.")
    async with flow.start("go") as run:
        await answer.reached()
        (child,) = run.children
        with pytest.raises(RunStateError) as refused:
            run.steer("Listen.")
        assert str(refused.value) == (
            "sequence is a workflow, which has no model that could hear it: "
            f"steer one of its steps, run.child(id).steer(…); their ids are: {child.id}"
        )
        receipt = run.child(child.id).steer("Listen.")
        answer.open()
        outcome = await ended(run)
    assert (await receipt).delivered
    assert (outcome.text, step.heard) == ("two", ["go", "one", "Listen."])


# What cannot be


async def later(_: str) -> bool:
    """Judge later."""
    return True


class Judge:
    """Judges, and later."""

    async def __call__(self, _: str) -> bool:
        """Judge later."""
        return True


A = Actor("a")

ASYNC = "until is async, and is called between two steps, where nothing is awaited: give a plain function"


@pytest.mark.parametrize(
    ("kind", "steps", "options", "error", "words"),
    [
        (
            sequence,
            [],
            {},
            UserError,
            "this sequence has no agents: give its steps, as in sequence(first, sec",
        ),
        (parallel, [], {}, UserError, "this parallel has no agents"),
        (loop, [], {}, UserError, "this loop has no agents"),
        (
            sequence,
            [[A, A]],
            {},
            UserError,
            "sequence was given a list: give the agents one by one, as in seq",
        ),
        (parallel, [A, "a"], {}, UserError, "parallel was given 'a', which is no Agent: make one of it"),
        (loop, [A, later], {}, UserError, "loop was given <function later"),
        (loop, [A], {"max": 0}, ValueError, "max is 0: give a number from 1 up"),
        (
            loop,
            [A],
            {"max": "3"},
            TypeError,
            "max is '3': give a number from 1 up",
        ),
        (loop, [A], {"max": True}, TypeError, "max is True"),
        (loop, [A], {"until": "DONE"}, UserError, "until is 'DONE': give a function of the last answer"),
        (loop, [A], {"until": later}, UserError, ASYNC),
        (loop, [A], {"until": Judge()}, UserError, ASYNC),
        (sequence, [A], {"tools": []}, UserError, "sequence takes no tools: it has no model of its own"),
        (
            loop,
            [A],
            {"name": "x", "instructions": "Go."},
            UserError,
            "x takes no instructions: it has no model",
        ),
        (
            parallel,
            [A],
            {"stores": 1},
            UserError,
            "a workflow takes name, description, limits, store, observ",
        ),
        (Agent, [A.script], {"tools": [A]}, ToolDefinitionError, "write agent.as_tool(description=…)"),
    ],
)
def test_what_cannot_be_a_workflow_is_refused_in_words(
    kind: Callable[..., Agent],
    steps: list[object],
    options: dict[str, object],
    error: type[Exception],
    words: str,
) -> None:
    """At once, and the words say what to write instead."""
    with pytest.raises(error, match=re.escape(words)):
        kind(*steps, **options)


@virtual
async def test_an_until_that_fails_ends_the_workflow_and_is_asked_again_on_resume() -> None:
    """The error names it; no step runs again."""
    answers: list[Any] = [KeyError("DONE"), True]
    inner = Actor("inner", "one", "never")

    def until(_: str) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    flow = loop(inner, until=until, name="rounds")
    outcome = await flow.run("go")
    assert (outcome.stop_reason, outcome.error) == (
        "error",
        "UserError: until of rounds failed with KeyError: 'DONE'",
    )
    assert outcome.checkpoint is not None
    outcome = await flow.resume(outcome.checkpoint)
    assert (outcome.stop_reason, outcome.text, inner.asked) == ("end_turn", "one", 1)


@virtual
async def test_an_until_that_turns_out_to_be_async_ends_the_workflow() -> None:
    """A plain function can hide it; nothing is left that was never awaited."""

    def until(text: str) -> object:
        return later(text)

    outcome = await loop(Actor("inner", "one", "never"), until=until).run("go")
    assert outcome.error is not None
    assert outcome.error.startswith(f"UserError: {ASYNC}")


@virtual
async def test_a_plan_is_no_model_for_others() -> None:
    """Whoever takes it out of a workflow is told so."""
    plan = sequence(A)._config.models[0]  # pyright: ignore[reportPrivateUsage]
    outcome = await Agent(plan.__call__).run("go")
    assert outcome.error == "UserError: sequence is the plan of a workflow: run the workflow"


@tool
async def work() -> str:
    """Work."""
    return "done"


@virtual
async def test_a_step_may_have_tools_of_its_own() -> None:
    """They count as tool calls, the step itself does not."""
    outcome = await done(sequence(Actor("a", Call("work"), "one", tools=[work])))
    assert (outcome.usage.model_calls, outcome.usage.tool_calls) == (2, 1)
