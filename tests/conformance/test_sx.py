"""SX-10 to SX-13: an agent as a tool: its schema, its answer, its events, and that it steers nobody."""

from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest

from andon import Agent, Call, Message, Reasoning, Usage
from andon.core.draft import Chunk
from andon.core.items import MessageAdded, RunEnded, RunStarted, TextDelta
from andon.errors import ToolDefinitionError
from andon.ports import ModelRequest
from andon.testing import Reply, ScriptedModel, virtual
from tests.family import Family, ask, call, said
from tests.whole import whole

WHO: ContextVar[str] = ContextVar("who")


def test_sx_10_name_and_description_come_from_the_agent() -> None:
    """The schema is one required text, `request`."""
    spec = Agent(ScriptedModel(), name="trips", instructions="Plan trips.").as_tool().spec
    assert (spec.name, spec.description) == ("trips", "Plan trips.")
    assert spec.parameters == {
        "type": "object",
        "properties": {"request": {"type": "string"}},
        "required": ["request"],
        "additionalProperties": False,
    }


def test_sx_10_given_names_win_and_empty_ones_are_refused_when_the_tool_is_made() -> None:
    """What has no name or no description cannot be chosen by a model: the error says what to give."""
    agent = Agent(ScriptedModel(), name="trips", instructions="Plan trips.")
    spec = agent.as_tool(name="plan", description="Plans.").spec
    assert (spec.name, spec.description) == ("plan", "Plans.")
    for name, description in (("", None), ("  ", None), (None, ""), (None, " \n")):
        with pytest.raises(ToolDefinitionError, match="give both"):
            agent.as_tool(name=name, description=description)
    with pytest.raises(ToolDefinitionError, match="give both"):
        Agent(ScriptedModel(), name="trips").as_tool()


async def answered(*replies: Reply) -> tuple[str, str]:
    """Give the state and the content of the result of an agent with these replies."""
    family = Family()

    async def work() -> str:
        """Work."""
        return "worked"

    child = family.agent("child", *replies, tools=[work])
    outcome = await family.agent("root", ask("child"), "Root.", below=[child]).run("go")
    assert outcome.text == "Root."
    (result,) = outcome.messages[2].results
    return result.state.value, result.content


@virtual
async def test_sx_11_the_result_is_the_text_of_the_last_message_its_chunks_joined() -> None:
    """What was said before, with tool calls, and what was only thought, is no part of it."""
    last = ["The ", Reasoning("hm"), "last ", Usage(output_tokens=1), "words."]
    assert await answered(["First words.", call("work")], last) == ("completed", "The last words.")


@virtual
@pytest.mark.parametrize("silent", [[], [Usage(output_tokens=1)], [Reasoning("hm")]])
async def test_sx_11_an_agent_that_says_nothing_says_so(silent: list[Chunk]) -> None:
    """Its run always has a last message: its parent's model is never given an empty result."""
    assert await answered(silent) == ("completed", "(no answer)")


@virtual
@pytest.mark.parametrize("broken", [ValueError("broken"), ["Half an ans", ValueError("broken")]])
async def test_sx_11_an_agent_without_a_last_message_of_its_own_is_an_error(broken: Reply) -> None:
    """Half an answer is none."""
    assert await answered(broken) == ("failed", "The agent child failed: ValueError: broken")


@virtual
async def test_sx_12_events_come_with_the_way_to_them_and_not_into_the_history() -> None:
    """Every event of the inner run has the parent's path before its own; its end is its own."""
    family = Family()
    inner = family.agent("inner", ["In", "ner."])
    outer = family.agent("outer", ask("inner"), "Outer.", below=[inner])
    root = family.agent("root", ask("outer"), "Root.", below=[outer])
    async with root.start("go") as run:
        outcome = await whole(run)
        events = [event async for event in run]
    ids = [event.run_id for event in events if isinstance(event, RunStarted)]
    assert [event.path for event in events if isinstance(event, RunStarted)] == [
        (),
        (ids[1],),
        (ids[1], ids[2]),
    ]
    assert [event.path for event in events if isinstance(event, TextDelta) and event.text == "ner."] == [
        (ids[1], ids[2])
    ]
    own = [event.message for event in events if isinstance(event, MessageAdded) and not event.path]
    assert tuple(own) == outcome.messages
    assert said(outcome.messages) == ["go", "outer", "Outer.", "Root."]
    assert [event.path for event in events if isinstance(event, RunEnded)] == [()]


@virtual
async def test_sx_13_an_inner_agent_that_ends_or_hands_over_does_not_steer_its_parent() -> None:
    """It hands its own conversation over; its parent goes on with the answer as with any other."""
    family = Family()
    other = family.agent("other", "Other.")
    inner = family.agent("inner", Call("hand_over_to_other", {"request": "yours"}), hand_over=[other])
    root = family.agent("root", ask("inner"), ask("inner"), "Root.", below=[inner])
    family.models["inner"].script(*[Call("hand_over_to_other", {"request": "yours"})] * 2)
    family.models["other"].script("Other.", "Another.")
    outcome = await root.run("go")
    assert said(outcome.messages) == ["go", "inner", "Other.", "inner", "Another.", "Root."]
    assert family.asked == ["root", "inner", "other", "root", "inner", "other", "root"]


@virtual
async def test_sx_12_what_an_inner_agent_shares_it_shares_by_context() -> None:
    """There are no session values: a context variable set around the parent's run is seen inside."""

    async def inner(request: ModelRequest) -> AsyncIterator[Chunk]:
        yield f"{WHO.get()} asks {request.messages[0].text}"

    family = Family()
    root = family.agent("root", ask("inner"), "Root.", below=[Agent(inner, name="inner")])
    WHO.set("ann")
    outcome = await root.run(Message.user("go"))
    assert said(outcome.messages)[2] == "ann asks for inner"
