"""Odd calls of a model do not poison the conversation: providers take it again."""

import pytest
from msgspec import json
from pydantic_ai.messages import ModelResponse, ToolCallPart

from andon import Agent, Message, Outcome, tool
from andon.adapters.models import ProviderModel
from andon.adapters.models.history import pack
from andon.core.messages import Call, Result
from andon.testing.provider import FakeProvider, Reasoning, Text, ToolCall

SIGNATURE = "EqRkCmMIARgCIkD/+x=="


@tool
async def search(query: str) -> str:
    """Search the catalogue."""
    return f"{query}!"


async def twice(provider: FakeProvider, model: ProviderModel, call: ToolCall) -> Outcome:
    """Let the model make the same call in two rounds, and go on with what has become of it."""
    for _ in range(2):
        provider.reply(Reasoning("hm", signature=SIGNATURE), Text("Look:"), call)
    provider.reply(Text("Done."))
    agent = Agent(model, tools=[search], retries=0)
    outcome = await agent.run("hi")
    provider.reply(Text("Yes."))
    stored = json.decode(json.encode(outcome.messages), type=tuple[Message, ...])
    again = await agent.run("and?", messages=stored)
    assert (outcome.error, again.error) == (None, None)
    assert [exchange.status for exchange in provider.exchanges] == [200] * 4
    return outcome


@pytest.mark.parametrize("name", ["functions.search", "", "9 lives", "s" * 100])
async def test_a_name_that_no_provider_takes_is_answered_and_forgotten(
    provider: FakeProvider, model: ProviderModel, api: str, name: str
) -> None:
    """The model is told of its own word, and the thought before it goes back with its signature."""
    outcome = await twice(provider, model, ToolCall(name, {"query": "cord"}))

    (told, _) = [result.content for message in outcome.messages for result in message.results]
    assert told == f"There is no tool {name!r}. The tools are: search."
    sent = json.encode(provider.exchanges[-1].body).decode()
    assert sent.count(SIGNATURE) == (0 if api == "openai-chat" else 2)


async def test_an_id_that_comes_again_is_replaced(
    provider: FakeProvider, model: ProviderModel, api: str
) -> None:
    """Also in what the provider had sent itself."""
    outcome = await twice(provider, model, ToolCall("search", {"query": "cord"}, id="call_0"))

    ids = [call.id for message in outcome.messages for call in message.calls]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 2
    assert [result.content for message in outcome.messages for result in message.results] == ["cord!"] * 2
    sent = json.encode(provider.exchanges[-1].body).decode()
    assert sent.count(SIGNATURE) == (0 if api == "openai-chat" else 2)


async def test_a_history_with_odd_calls_is_taken(provider: FakeProvider, model: ProviderModel) -> None:
    """Wherever it comes from."""
    odd = [Message.assistant(Call("a.b", {}, "x")), Message("tool", (Result("x", "a.b", "no"),))]
    provider.reply(Text("Yes."))
    outcome = await Agent(model, tools=[search]).run("and?", messages=[Message.user("hi"), *odd, *odd])

    assert outcome.text == "Yes."


async def test_a_payload_that_nobody_can_read_is_not_sent(
    provider: FakeProvider, model: ProviderModel, api: str
) -> None:
    """What the message says is."""
    payload = pack(ModelResponse(parts=[ToolCallPart("search", "{broken", "c1")]), api)
    asked = Message("assistant", (Call("search", {"query": "rope"}, "c1"),), payload=payload)
    provider.reply(Text("Yes."))
    done = Message("tool", (Result("c1", "search", "rope!"),))
    outcome = await Agent(model, tools=[search]).run("so?", messages=[Message.user("hi"), asked, done])

    assert outcome.text == "Yes."
    assert "broken" not in json.encode(provider.exchanges[0].body).decode()


async def test_edited_arguments_go_out_as_edited(provider: FakeProvider, model: ProviderModel) -> None:
    """What the message says counts, not what its provider once sent."""
    provider.reply(ToolCall("search", {"query": "cord"}))
    provider.reply(Text("Found."))
    agent = Agent(model, tools=[search])
    outcome = await agent.run("hi")
    asked = outcome.messages[1]
    edited = Message(
        "assistant", (Call("search", {"query": "rope"}, asked.calls[0].id),), payload=asked.payload
    )
    await agent.run("so?", messages=[outcome.messages[0], edited, *outcome.messages[2:]])

    sent = json.encode(provider.exchanges[-1].body).decode()
    assert "rope" in sent
    assert "cord" not in sent.replace("cord!", "")
