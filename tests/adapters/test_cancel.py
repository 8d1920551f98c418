"""A cancel closes the provider's connection, whatever it was doing, and leaves a history it accepts."""

import asyncio
import time

import pytest

from andon import Agent, Call, Message, Outcome, Run, StopResult, TextDelta, tool
from andon.adapters.models import ProviderModel
from andon.core.items import CallDelta, ModelEnded, ModelStarted, ReasoningDelta
from andon.ports import ModelRequest
from andon.testing.provider import Drop, Fail, FakeProvider, Part, Reasoning, Stall, Text, ToolCall

AT_MOST = 0.1  # seconds until the provider has seen the close: the one time that is promised

STALLS: dict[str, tuple[tuple[Part, ...], type | None]] = {
    "before headers": ((Stall(before="headers"),), None),
    "after headers": ((Stall(before="events"),), None),
    "mid reasoning": ((Reasoning("thinking hard"), Stall()), ReasoningDelta),
    "mid text": ((Text("Once upon "), Text("a time"), Stall()), TextDelta),
    "mid arguments": (
        (Text("Looking"), ToolCall("search", {"query": "cord"}, chunks=4, midway=(2, Stall()))),
        CallDelta,
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


def connections(model: ProviderModel) -> str:
    """Show the connections of the running loop's client, as its library does."""
    session = model.sessions.opened[asyncio.get_running_loop()]
    transport: object = vars(session.client)["_transport"]
    pool: object = vars(transport)["_pool"]
    return repr(pool)


@pytest.mark.parametrize("place", STALLS)
async def test_a_stalled_model_is_cut(provider: FakeProvider, model: ProviderModel, place: str) -> None:
    """The connection is closed before the run says stopped, and the provider sees it at once."""
    parts, kind = STALLS[place]
    provider.reply(*parts)
    agent = Agent(model, tools=[search])
    async with agent.start("hi") as run:
        await provider.stalled(1)
        if kind is not None:
            await seen(run, kind)
        asked = time.monotonic()
        report = await run.cancel()
        held = connections(model)
        outcome = await run.outcome()
    closed = await provider.closed(1)

    assert report.result is StopResult.STOPPED
    assert report.abandoned == ()
    assert "Connections: 0 active, 0 idle" in held
    assert closed.closed_by_client
    assert closed.closed_at is not None
    assert closed.closed_at - asked < AT_MOST
    assert outcome.messages[-1].cut
    assert outcome.messages[-1].calls == ()
    assert outcome.usage.input_tokens > 0
    await the_next_message_is_accepted(provider, agent, outcome)


async def the_next_message_is_accepted(provider: FakeProvider, agent: Agent, outcome: Outcome) -> None:
    """Go on with the history of a cut run."""
    provider.reply(Text("Yes."))
    after = await agent.run("Are you there?", messages=outcome.messages)
    assert after.messages[-1].text == "Yes."
    assert provider.exchanges[-1].status == 200


async def test_partial_words_are_kept(provider: FakeProvider, model: ProviderModel) -> None:
    """What had come is in the history, and what it cost is counted if the provider had not said."""
    provider.reply(Text("Once upon "), Text("a time"), Stall(), usage=(9, 9))
    async with Agent(model).start("hi") as run:
        async for event in run:
            if event == TextDelta("a time"):
                await run.cancel()
        outcome = await run.outcome()

    assert outcome.messages[-1].text == "Once upon a time"
    assert outcome.messages[-1].payload is None
    assert outcome.usage.output_tokens == 4
    assert outcome.usage.estimated


async def test_anthropics_exact_input_survives_the_cut(provider: FakeProvider, claude: ProviderModel) -> None:
    """It was told before the first word."""
    provider.reply(Text("Once"), Stall(), usage=(1234, 9))
    async with Agent(claude).start("hi") as run:
        await seen(run, TextDelta)
        await run.cancel()
        outcome = await run.outcome()

    assert outcome.usage.input_tokens == 1234


async def test_a_half_received_call_is_dropped(provider: FakeProvider, model: ProviderModel) -> None:
    """It is shown while it comes, but it never runs and is in no message."""
    provider.reply(ToolCall("search", {"query": "cord"}, chunks=2, midway=(2, Stall())))
    async with Agent(model, tools=[search]).start("hi") as run:
        await seen(run, CallDelta)
        await run.cancel()
        outcome = await run.outcome()

    assert not any(isinstance(part, Call) for message in outcome.messages for part in message.parts)
    assert outcome.messages[-1].text == "Cancelled by user"


async def test_a_request_not_yet_sent_is_never_sent(provider: FakeProvider, claude: ProviderModel) -> None:
    """A cancel as the model is being asked comes first."""
    async with Agent(claude).start("hi") as run:
        run.cancel()
        outcome = await run.outcome()

    assert outcome.stop_reason == "cancelled"
    assert provider.exchanges == ()


async def test_a_cancel_from_outside_closes_too(provider: FakeProvider, model: ProviderModel) -> None:
    """A time-out around the run propagates as it is, after the same clean-up."""
    provider.reply(Text("Once"), Stall())

    async def run_under_a_timeout() -> None:
        async with asyncio.timeout(None) as timeout:
            agent = Agent(model)
            run = agent.start("hi")
            async with run:
                await seen(run, TextDelta)
                timeout.reschedule(asyncio.get_running_loop().time())
                await run.outcome()

    with pytest.raises(TimeoutError):
        await run_under_a_timeout()

    assert "Connections: 0 active, 0 idle" in connections(model)
    assert (await provider.closed(1)).closed_by_client


async def test_a_cancel_ends_the_back_off(provider: FakeProvider, claude: ProviderModel) -> None:
    """No further request is made."""
    provider.reply(Fail(429, retry_after=600))
    async with Agent(claude).start("hi") as run:
        await seen(run, ModelEnded)
        report = await run.cancel()

    assert report.result is StopResult.STOPPED
    assert len(provider.exchanges) == 1


async def test_a_cut_is_never_retried_or_failed_over(provider: FakeProvider, model: ProviderModel) -> None:
    """Even if the connection breaks at that moment."""
    provider.reply(Text("Once"), Stall(), Drop())
    async with Agent(model, fallback=[model]).start("hi") as run:
        await seen(run, TextDelta)
        ticket = run.cancel()
        provider.release()
        await ticket
        starts = [event async for event in run if isinstance(event, ModelStarted)]

    assert len(starts) == 1
    assert len(provider.exchanges) == 1


async def test_a_generator_that_is_left_closes(provider: FakeProvider, claude: ProviderModel) -> None:
    """Whoever uses the model alone gets the same: `aclose` returns when the connection is closed."""
    provider.reply(Text("Once"), Stall())
    chunks = claude(ModelRequest((Message.user("hi"),)))
    await anext(aiter(chunks))
    await chunks.aclose()

    assert "Connections: 0 active, 0 idle" in connections(claude)
    assert (await provider.closed(1)).closed_by_client
