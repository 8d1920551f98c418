"""Hand-over: a model leaves the conversation to another agent, whose answer is the run's."""

import re

import pytest

from andon import Agent, Call, Image, Limits, Point, Stop, ToolContext, sequence, tool
from andon.core.items import Item, RunEnded, RunStarted
from andon.core.stop import Where
from andon.errors import ToolDefinitionError, UserError
from andon.runtime.hooks import Moment
from andon.testing import Gate, ScriptedModel, virtual
from tests.flows import Actor, ended, inside, stopped


def over_to(name: str, request: str = "Please help.") -> Call:
    """Make the call that hands over."""
    return Call(f"hand_over_to_{name}", {"request": request})


@virtual
async def test_the_target_hears_the_conversation_and_its_answer_is_the_runs() -> None:
    """The one that handed over is not asked again; the next turn begins with it, and it knows all."""
    target = Actor("billing", "It is paid.")
    chief = Actor("desk", "Hello.", over_to("billing", "Was it paid?"), "Bye.", hand_over=[target])
    first = await chief.run("Hi")
    async with chief.start("What of my bill?", messages=first.messages) as run:
        outcome = await ended(run)
    assert target.heard == ["Hi", "Hello.", "What of my bill?", "Was it paid?"]
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "It is paid.")
    assert [message.role for message in outcome.messages[-4:]] == ["user", "assistant", "tool", "assistant"]
    assert (chief.asked, target.asked) == (2, 1)
    assert (outcome.usage.model_calls, outcome.usage.tool_calls) == (2, 1)
    await chief.run("Thanks.", messages=outcome.messages)
    assert chief.heard[-2:] == ["It is paid.", "Thanks."]


@virtual
async def test_a_model_is_told_whom_it_may_hand_over_to() -> None:
    """By a tool for each, which says what that agent is for; any name will do."""
    model = ScriptedModel("Hello.")
    targets = [
        Actor("Ms. Müller", instructions="Knows the bills."),
        sequence(Actor("a"), name="trips", description="Plans trips."),
    ]
    await Agent(model, hand_over=targets).run("Hi")
    assert [(spec.name, spec.description) for spec in model.requests[0].tools] == [
        (
            "hand_over_to_Ms__M_ller",
            "Leave the conversation to Ms. Müller, who answers the user. Knows the bills.",
        ),
        ("hand_over_to_trips", "Leave the conversation to trips, who answers the user. Plans trips."),
    ]


@virtual
async def test_a_conversation_may_go_forth_and_back() -> None:
    """Each hears what was said before it; the last answer is the run's."""
    back = Actor("desk", "All settled.")
    billing = Actor("billing", over_to("desk", "Close it."), hand_over=[back])
    chief = Actor("desk", over_to("billing", "Check it."), hand_over=[billing])
    async with chief.start("Hi") as run:
        outcome = await ended(run)
        began = [event.agent async for event in run if isinstance(event, RunStarted)]
    assert began == ["desk", "billing", "desk"]
    assert outcome.text == "All settled."
    assert back.heard == ["Hi", "Check it.", "Close it."]


@virtual
async def test_a_workflow_takes_over_like_any_agent() -> None:
    """Its steps hear what it was asked with."""
    first, second = Actor("a", "one"), Actor("b", "two")
    chief = Actor("desk", over_to("trips", "To Rome."), hand_over=[sequence(first, second, name="trips")])
    outcome = await chief.run("Hi")
    assert (outcome.text, first.heard, second.heard) == ("two", ["To Rome."], ["one"])


@virtual
async def test_a_step_of_a_workflow_may_hand_over() -> None:
    """The answer of the target is the step's."""
    step = Actor("desk", over_to("billing"), hand_over=[Actor("billing", "It is paid.")])
    last = Actor("last", "Noted.")
    outcome = await sequence(step, last).run("Hi")
    assert (outcome.text, last.heard) == ("Noted.", ["It is paid."])


@tool
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} is found"


@virtual
@pytest.mark.parametrize("turned", [False, True])
async def test_what_else_was_asked_for_comes_first_and_the_target_hears_of_it(*, turned: bool) -> None:
    """In whatever order the model named them; the history keeps the model's own order."""
    target = Actor("billing", "It is paid.")
    calls = [Call("look", {"what": "the bill"}, "c1"), over_to("billing", "Was it paid?")]
    calls = calls[::-1] if turned else calls
    chief = Actor("desk", ["One moment.", *calls], tools=[look], hand_over=[target])
    async with chief.start("Hi") as run:
        outcome = await ended(run)
    said = target.script.requests[0].messages
    assert [message.role for message in said] == ["user", "assistant", "tool", "user"]
    assert (said[1].text, [call.name for call in said[1].calls]) == ("One moment.", ["look"])
    assert [result.content for result in said[2].results] == ["the bill is found"]
    assert [call.name for call in outcome.messages[1].calls] == [call.name for call in calls]
    assert outcome.text == "It is paid."


@virtual
async def test_only_one_agent_takes_over() -> None:
    """Of two that are called at once the first does; the other is never asked."""
    targets = [Actor("billing", "It is paid."), Actor("sales", "never")]
    chief = Actor("desk", [over_to("billing"), over_to("sales")], hand_over=targets)
    async with chief.start("Hi") as run:
        outcome = await ended(run)
    assert (outcome.text, [target.asked for target in targets]) == ("It is paid.", [1, 0])
    assert [(result.state.value, result.content) for result in outcome.messages[2].results] == [
        ("completed", "It is paid."),
        ("failed", "The conversation was handed over to another agent already"),
    ]


@virtual
async def test_a_target_that_fails_leaves_the_conversation_where_it_was() -> None:
    """The model reads why, and goes on by itself; it may try another."""
    targets = [Actor("billing", OSError("the line is down")), Actor("sales", "I can help.")]
    chief = Actor("desk", over_to("billing"), over_to("sales"), hand_over=targets)
    outcome = await chief.run("Hi")
    told = chief.script.requests[1].messages[2].results[0]
    assert (told.state.value, told.content) == (
        "failed",
        "The agent billing failed: OSError: the line is down",
    )
    assert outcome.text == "I can help."


@virtual
async def test_a_target_that_is_cancelled_alone_leaves_the_conversation_as_well() -> None:
    """The report of the child is the result of the call, and the run goes on."""
    answer = Gate("model")
    chief = Actor("desk", over_to("billing"), "Never mind.", hand_over=[Actor("billing", ["Half", answer])])
    async with chief.start("Hi") as run:
        await answer.reached()
        await run.child(run.children[0].id).cancel(reason="wrong person", by="Ada")
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Never mind.")
    assert outcome.messages[2].results[0].content == ("The agent billing was cancelled by Ada: wrong person")


@virtual
async def test_the_limits_of_the_one_that_handed_over_hold_for_the_target() -> None:
    """It is a part of the run; with more of them it goes on in there."""
    target = Actor("billing", Call("look", {"what": "it"}), "It is paid.", tools=[look])
    chief = Actor("desk", over_to("billing"), hand_over=[target])
    outcome = await chief.run("Hi", limits=Limits(model_calls=2))
    assert (outcome.stop_reason, outcome.limit, target.asked) == ("limit", "model_calls 2", 1)
    assert outcome.checkpoint is not None
    outcome = await chief.resume(outcome.checkpoint, limits=Limits(model_calls=3))
    assert (outcome.text, chief.asked, target.asked) == ("It is paid.", 1, 2)


@virtual
async def test_a_target_that_asks_a_human_goes_on_with_the_answer() -> None:
    """And with what it heard of the conversation; nobody is asked twice."""

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask."""
        return str(await context.interrupt("Really?"))

    target = Actor("billing", Call("ask"), "It is paid.", tools=[ask])
    chief = Actor("desk", ["One moment.", over_to("billing", "Pay it.")], hand_over=[target])
    paused = await chief.run("Hi")
    (question,) = paused.interrupts
    assert question.path == ("desk", "hand_over_to_billing", "billing", "ask")
    assert paused.checkpoint is not None
    outcome = await chief.resume(paused.checkpoint.to_json(), answers={question.id: "Yes."})
    assert outcome.text == "It is paid."
    assert target.heard[:3] == ["Hi", "One moment.", "Pay it."]
    assert target.script.requests[1].messages[-1].results[0].content == "Yes."
    assert (chief.asked, target.asked) == (1, 2)


@virtual
async def test_a_stop_before_the_target_begins_leaves_the_call_to_do() -> None:
    """At the point after the model's answer; resumed, the target is asked, and its answer is the run's."""
    answer = Gate("model")
    target = Actor("billing", "It is paid.")
    chief = Actor("desk", [answer, over_to("billing")], hand_over=[target])
    async with chief.start("Hi") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.MODEL))
        answer.open()
        outcome, report = await stopped(run, ticket)
    assert (report.stopped_at, target.asked) == (Where.POINT_MODEL, 0)
    assert outcome.checkpoint is not None
    outcome = await chief.resume(outcome.checkpoint)
    assert (outcome.text, chief.asked, target.asked) == ("It is paid.", 1, 1)


@virtual
async def test_a_stop_that_comes_while_the_target_gives_its_answer_comes_too_late() -> None:
    """Its answer is the run's final one, which is no safe point."""
    answer = Gate("model")
    chief = Actor("desk", over_to("billing"), hand_over=[Actor("billing", [answer, "It is paid."])])
    async with chief.start("Hi") as run:
        await answer.reached()
        ticket = run.cancel(Stop.graceful())
        answer.open()
        outcome = await ended(run)
    assert (outcome.text, (await ticket).result.value) == ("It is paid.", "FINISHED_FIRST")


@virtual
async def test_a_hand_over_that_goes_on_is_no_new_tool_call() -> None:
    """Resumed under the same limits, it ends as it would have."""
    answer = Gate("model")
    chief = Actor("desk", over_to("billing"), hand_over=[Actor("billing", answer, "It is paid.")])
    async with chief.start("Hi") as run:
        await answer.reached()
        outcome, _ = await stopped(run, run.cancel())
    assert outcome.checkpoint is not None
    outcome = await chief.resume(outcome.checkpoint, limits=Limits(tool_calls=1))
    assert (outcome.text, outcome.usage.tool_calls) == ("It is paid.", 1)


@virtual
async def test_a_cut_in_the_middle_of_a_chain_goes_on_at_its_end() -> None:
    """Two hand-overs deep; resumed, the last one alone is asked again."""
    answer = Gate("model")
    last = Actor("last", ["Half", answer], "Whole.")
    middle = Actor("middle", over_to("last", "two"), hand_over=[last])
    chief = Actor("first", over_to("middle", "one"), hand_over=[middle])
    async with chief.start("Hi") as run:
        await answer.reached()
        outcome, report = await stopped(run, run.cancel())
    assert report.stopped_at is Where.MODEL
    assert list(inside(outcome.checkpoint)) == ["first/middle", "first/middle/last"]
    assert outcome.checkpoint is not None
    outcome = await chief.resume(outcome.checkpoint.to_json())
    assert (outcome.text, last.heard) == ("Whole.", ["Hi", "one", "two"])
    assert (chief.asked, middle.asked, last.asked) == (1, 1, 2)


@virtual
async def test_hooks_and_observers_see_the_answer_as_a_message_of_the_run() -> None:
    """It is the last one that joins the history."""
    seen: list[str] = []
    items: list[Item] = []
    chief = Actor("desk", over_to("billing"), hand_over=[Actor("billing", "It is paid.")])

    @chief.on("message_added")
    def added(moment: Moment) -> None:  # pyright: ignore[reportUnusedFunction]
        assert moment.message is not None
        seen.append(moment.message.text)

    class Watching:
        def observe(self, _run_id: str, item: Item) -> None:
            items.append(item)

    watched = Actor("desk", over_to("billing"), hand_over=[Actor("billing", "Paid.")], observers=[Watching()])
    await chief.run("Hi")
    await watched.run("Hi")
    assert seen == ["Hi", "", "", "It is paid."]
    assert isinstance(items[-1], RunEnded)
    assert items[-1].outcome.text == "Paid."


@virtual
async def test_pictures_of_the_conversation_reach_the_target() -> None:
    """They are in what the user said."""
    target = Actor("billing", "A cat.")
    chief = Actor("desk", over_to("billing"), hand_over=[target])
    picture = Image(url="https://example.com/cat.png")
    await chief.run(["Look.", picture])
    assert picture in target.script.requests[0].messages[0].parts


A = Actor("a")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (A, UserError, "hand_over is <Agent a, 0 live>: give a list, such as hand_over=[…]"),
        (["a"], UserError, "hand_over holds 'a', which is no Agent: give Agents, or make a tool of it"),
        ([look], UserError, "which is no Agent: give Agents, or make a tool of it"),
        (
            [A, Actor("a")],
            UserError,
            "hand_over holds two agents named 'a': a model tells them apart by name",
        ),
        ([Actor("a b"), Actor("a_b")], ToolDefinitionError, "there are two tools of this name"),
    ],
)
def test_what_cannot_be_handed_over_to_is_refused_in_words(
    given: list[Agent], error: type[Exception], words: str
) -> None:
    """At once, and the words say what to give."""
    with pytest.raises(error, match=re.escape(words)):
        Agent(ScriptedModel(), hand_over=given)
