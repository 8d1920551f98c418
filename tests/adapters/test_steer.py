"""Steered over real connections: now closes the call in flight, and the provider is asked again with it."""

import pytest

from andon import Agent, Call, Message, Run, TextDelta, tool
from andon.adapters.models import ProviderModel
from andon.core.items import CallDelta, ModelEnded, ModelStarted, ReasoningDelta
from andon.core.steer import When
from andon.runtime.carrier import STEERED
from andon.testing.provider import Fail, FakeProvider, Part, Reasoning, Stall, Text, ToolCall

PLACES: dict[str, tuple[tuple[Part, ...], type | None, str | None]] = {
    "before headers": ((Stall(before="headers"),), None, None),
    "after headers": ((Stall(before="events"),), None, None),
    "mid reasoning": ((Reasoning("thinking hard"), Stall()), ReasoningDelta, STEERED),
    "mid text": ((Text("Once upon "), Text("a time"), Stall()), TextDelta, "Once upon a time"),
    "mid arguments": (
        (Text("Looking"), ToolCall("search", {"query": "cord"}, chunks=4, midway=(2, Stall()))),
        CallDelta,
        "Looking",
    ),
    "mid arguments, without a word": (
        (ToolCall("search", {"query": "cord"}, chunks=4, midway=(2, Stall())),),
        CallDelta,
        None,
    ),
}


@tool
async def search(query: str) -> str:
    """Search the catalogue."""
    return f"{query}!"


async def seen(run: Run, kind: type) -> None:
    """Read along until there was an event of a kind."""
    async for event in run.events():
        if isinstance(event, kind):
            return


@pytest.mark.parametrize("place", PLACES)
async def test_the_call_in_flight_is_closed_and_the_message_answered(
    provider: FakeProvider, model: ProviderModel, place: str
) -> None:
    """The provider has seen the close; what had come is kept, and it takes the history with the message."""
    parts, kind, kept = PLACES[place]
    provider.reply(*parts)
    provider.reply(Text("Dogs, then."))
    async with Agent(model, tools=[search]).start("a tale of cats") as run:
        await provider.stalled(1)
        if kind is not None:
            await seen(run, kind)
        if place == "mid text":
            await words(run, "Once upon a time")
        receipt = run.steer("of dogs", when="now")
        assert (await receipt).delivered
        outcome = await run.outcome()
    closed = await provider.closed(1)
    assert closed.closed_by_client
    assert [exchange.status for exchange in provider.exchanges[1:]] == [200]
    partial = [] if kept is None else [("assistant", kept, True)]
    assert [(message.role, message.text, message.cut) for message in outcome.messages] == [
        ("user", "a tale of cats", False),
        *partial,
        ("user", "of dogs", False),
        ("assistant", "Dogs, then.", False),
    ]
    assert not any(message.calls for message in outcome.messages)
    assert (outcome.stop_reason, outcome.cancelled) == ("end_turn", None)
    assert outcome.usage.model_calls == 2
    assert outcome.usage.input_tokens > 10  # those of the call that was cut, and of the one that answered


async def words(run: Run, text: str) -> None:
    """Read along until these words have come."""
    came = ""
    async for event in run.events():
        if isinstance(event, TextDelta):
            came += event.text
        if came == text:
            return


async def test_the_provider_is_shown_the_partial_answer_and_the_message(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """In its own words, in order; nothing else of the cut call goes back."""
    provider.reply(Text("Once"), Stall())
    provider.reply(Text("Yes."))
    async with Agent(model).start("hi") as run:
        await seen(run, TextDelta)
        run.steer("of dogs", when="now")
        await run.outcome()
    sent = repr(provider.exchanges[1].body)
    assert 0 < sent.index("'hi'") < sent.index("'Once'") < sent.index("'of dogs'")


async def test_it_may_be_steered_again_and_again(provider: FakeProvider, model: ProviderModel) -> None:
    """Each call is closed, one after the other; none is open twice."""
    for n in range(4):
        provider.reply(Text(f"Answer {n}"), Stall())
    provider.reply(Text("Done."))
    async with Agent(model).start("hi") as run:
        for n in range(1, 5):
            await provider.stalled(n)
            await words(run, "".join(f"Answer {k}" for k in range(n)))
            assert (await run.steer(f"more {n}", when="now")).delivered
            assert (await provider.closed(n)).closed_by_client
        outcome = await run.outcome()
    assert len(provider.exchanges) == 5
    assert provider.exchanges[-1].status == 200
    assert [message.text for message in outcome.messages[-3:]] == ["Answer 3", "more 4", "Done."]


async def test_it_ends_a_back_off(provider: FakeProvider, claude: ProviderModel) -> None:
    """The provider had said to wait for ten minutes; whoever speaks now need not."""
    provider.reply(Fail(429, retry_after=600))
    provider.reply(Text("Yes."))
    async with Agent(claude).start("hi") as run:
        await seen(run, ModelEnded)
        receipt = run.steer("now, please", when="now")
        outcome = await run.outcome()
        starts = [event.step async for event in run if isinstance(event, ModelStarted)]
    assert (await receipt).delivered
    assert outcome.messages == (
        Message.user("hi"),
        Message.user("now, please"),
        outcome.message,
    )
    assert (outcome.text, starts) == ("Yes.", [1, 2])


@pytest.mark.parametrize("when", ["next", "idle", "now"])
async def test_said_while_a_tool_runs_it_goes_along_with_the_results(
    provider: FakeProvider, model: ProviderModel, when: When
) -> None:
    """The provider takes results and words in one request; *idle* comes after its answer."""

    @tool
    async def look() -> str:
        """Look."""
        run.steer("and dogs?", when=when)
        return "cats"

    provider.reply(ToolCall("look", {}))
    provider.reply(Text("Cats."))
    provider.reply(Text("Dogs."))
    run = Agent(model, tools=[look]).start("hi")
    async with run:
        outcome = await run.outcome()
    assert [exchange.status for exchange in provider.exchanges] == [200] * (3 if when == "idle" else 2)
    assert isinstance(outcome.messages[1].parts[-1], Call)
    place = 4 if when == "idle" else 3
    assert outcome.messages[place].text == "and dogs?"
