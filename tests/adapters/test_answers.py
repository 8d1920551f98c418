"""What a provider says comes out whole, and goes back as it was."""

import base64
from collections.abc import Sequence

from msgspec import json

from andon import Agent, Call, Image, Message, Reasoning, Usage, tool
from andon.adapters.models import ProviderModel
from andon.core.draft import Chunk
from andon.core.items import CallDelta
from andon.core.messages import Payload, Result, ResultState, Text
from andon.ports import ModelRequest, ToolSpec
from andon.testing import provider as fake
from andon.testing.provider import FakeProvider

SEARCH = ToolSpec("search", "Search.", {"type": "object", "properties": {"query": {"type": "string"}}})
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool
async def search(query: str) -> str:
    """Search the catalogue."""
    return f"{query}!"


async def ask(model: ProviderModel, *messages: Message, tools: Sequence[ToolSpec] = ()) -> list[Chunk]:
    """Take one answer, chunk by chunk."""
    return [chunk async for chunk in model(ModelRequest(messages or (Message.user("hi"),), tools))]


def body(provider: FakeProvider, n: int = -1) -> str:
    """Give what was sent, as text."""
    return json.encode(provider.exchanges[n].body).decode()


async def test_text_and_reasoning_come_as_they_are_said(provider: FakeProvider, model: ProviderModel) -> None:
    """Each piece is a chunk of its own; the answer itself comes last, for the way back."""
    provider.reply(fake.Reasoning("a"), fake.Reasoning("b"), fake.Text("c"), fake.Text("d"))
    chunks = await ask(model)

    said = [chunk for chunk in chunks if isinstance(chunk, str | Reasoning)]
    assert said == [Reasoning("a"), Reasoning("b"), "c", "d"]
    assert isinstance(chunks[-1], Payload)


async def test_parallel_calls_come_in_pieces_and_then_whole(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """The pieces are for those who watch; a call is given when no more of it can come."""
    provider.reply(
        fake.ToolCall("search", {"query": "cord"}, chunks=3), fake.ToolCall("search", {"query": "light"})
    )
    chunks = await ask(model, tools=[SEARCH])

    calls = [chunk for chunk in chunks if isinstance(chunk, Call)]
    pieces = [chunk for chunk in chunks if isinstance(chunk, CallDelta) and chunk.call_id == calls[0].id]
    assert [call.arguments for call in calls] == [{"query": "cord"}, {"query": "light"}]
    assert len({call.id for call in calls}) == 2
    assert "".join(piece.arguments for piece in pieces) == '{"query":"cord"}'
    assert chunks.index(pieces[-1]) < chunks.index(calls[0])


async def test_words_after_a_call_stay_after_it(provider: FakeProvider, claude: ProviderModel) -> None:
    """A call is given before the words that the model said after it."""
    provider.reply(fake.Text("a"), fake.ToolCall("search", {"query": "b"}, id="toolu_x"), fake.Text("c"))
    chunks = await ask(claude, tools=[SEARCH])

    said = [chunk for chunk in chunks if isinstance(chunk, str | Call)]
    assert said == ["a", Call("search", {"query": "b"}, "toolu_x"), "c"]


async def test_usage_is_exact_at_the_end(provider: FakeProvider, model: ProviderModel) -> None:
    """The last word on it is the provider's."""
    provider.reply(fake.Text("a"), usage=(17, 4))
    chunks = await ask(model)

    told = [chunk for chunk in chunks if isinstance(chunk, Usage)]
    assert told[-1] == Usage(input_tokens=17, output_tokens=4)


async def test_anthropic_tells_its_input_before_the_first_word(
    provider: FakeProvider, claude: ProviderModel
) -> None:
    """So that a cut keeps it, even if no word ever comes."""
    provider.reply(fake.Stall(), fake.Text("late"), usage=(17, 4))
    chunks = aiter(claude(ModelRequest((Message.user("hi"),))))
    first = await anext(chunks)
    provider.release()
    rest = [chunk async for chunk in chunks]

    assert isinstance(first, Usage)
    assert first.input_tokens == 17
    assert "late" in rest


async def test_an_agent_takes_a_second_round(provider: FakeProvider, model: ProviderModel) -> None:
    """Reasoning, words, two calls, their results, an answer: the strict provider accepts it all."""
    provider.reply(
        fake.Reasoning("hm", signature="c2lnbmF0dXJl+/=="),
        fake.Text("Let me look."),
        fake.ToolCall("search", {"query": "cord"}, chunks=4),
        fake.ToolCall("search", {"query": "light"}),
        usage=(7, 3),
    )
    provider.reply(fake.Text("Found."), usage=(9, 1))
    outcome = await Agent(model, tools=[search]).run("hi")

    assert outcome.stop_reason == "end_turn"
    assert [result.content for result in outcome.messages[2].results] == ["cord!", "light!"]
    assert outcome.messages[-1].text == "Found."
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (16, 4)
    assert not outcome.usage.estimated
    assert [exchange.status for exchange in provider.exchanges] == [200, 200]


async def test_a_signature_goes_back_byte_for_byte(
    provider: FakeProvider, model: ProviderModel, api: str
) -> None:
    """Through our messages and their JSON, into the next request."""
    signature = "EqRkCmMIARgCIkD/+x=="
    provider.reply(fake.Reasoning("hm", signature=signature), fake.Text("one"))
    provider.reply(fake.Text("two"))
    agent = Agent(model)
    first = await agent.run("hi")
    stored = json.decode(json.encode(first.messages), type=tuple[Message, ...])
    await agent.run("and?", messages=stored)

    sent = body(provider)
    assert "hm" in sent
    assert signature in sent or api == "openai-chat"  # the one without signatures
    assert provider.exchanges[-1].status == 200


async def test_instructions_settings_and_tools_reach_the_wire(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """By the names that the provider knows."""
    agent = Agent(model, tools=[search], instructions="Be brief.", settings={"max_tokens": 77})
    await agent.run("hi")

    sent = provider.exchanges[0].body
    assert sent is not None
    assert 77 in {sent.get("max_tokens"), sent.get("max_output_tokens"), sent.get("max_completion_tokens")}
    assert "Be brief." in body(provider)
    assert "Search the catalogue." in body(provider)
    assert '"query"' in body(provider)


async def test_images_reach_the_wire(provider: FakeProvider, model: ProviderModel) -> None:
    """By their bytes, and by their address."""
    address = "https://pictures.example/cord.png"
    await Agent(model).run(["What is this?", Image(data=PIXEL), Image(url=address)])

    assert base64.b64encode(PIXEL).decode() in body(provider)
    assert address in body(provider)


async def test_a_failed_result_says_so_on_the_wire(provider: FakeProvider, claude: ProviderModel) -> None:
    """Anthropic has a flag for it."""
    call = Call("search", {"query": "cord"}, "toolu_1")
    results = (Result("toolu_1", "search", "Cancelled: was not started", ResultState.NOT_STARTED),)
    await ask(claude, Message.user("hi"), Message.assistant(call), Message("tool", results), tools=[SEARCH])

    assert '"is_error":true' in body(provider)


async def test_another_providers_answer_is_told_in_words(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """Its reasoning has a signature that nobody else takes, so it is left out; words and calls stay."""
    call = Call("search", {"query": "cord"}, "call_1")
    foreign = Message("assistant", (Reasoning("secret thought"), Text("Look:"), call))
    done = Message("tool", (Result("call_1", "search", "found"),))
    await ask(model, Message.user("hi"), foreign, done, Message.user("so?"), tools=[SEARCH])

    assert provider.exchanges[0].status == 200
    assert "secret thought" not in body(provider)
    assert "Look:" in body(provider)


async def test_a_thought_alone_can_be_sent_again(provider: FakeProvider, model: ProviderModel) -> None:
    """Providers refuse an answer that only thinks, so it goes back as words."""
    provider.reply(fake.Reasoning("hm"))
    agent = Agent(model)
    first = await agent.run("hi")
    second = await agent.run("and?", messages=first.messages)

    assert first.stop_reason == second.stop_reason == "end_turn"
    assert [exchange.status for exchange in provider.exchanges] == [200, 200]


async def test_blank_words_are_not_sent_back(provider: FakeProvider, model: ProviderModel) -> None:
    """Providers say them before a call, and refuse to read them."""
    provider.reply(fake.Text("  "), fake.ToolCall("search", {"query": "cord"}))
    provider.reply(fake.Text("Found."))
    outcome = await Agent(model, tools=[search]).run("hi")

    assert outcome.messages[-1].text == "Found."
    assert [exchange.status for exchange in provider.exchanges] == [200, 200]


async def test_an_edited_answer_goes_out_as_edited(provider: FakeProvider, model: ProviderModel) -> None:
    """What the message says counts, not what its provider once sent with other calls."""
    provider.reply(fake.Text("Look:"), fake.ToolCall("search", {"query": "cord"}))
    provider.reply(fake.Text("Found."))
    outcome = await Agent(model, tools=[search]).run("hi")
    answer = outcome.messages[1]
    edited = Message("assistant", (Text("I know."),), payload=answer.payload)
    await ask(model, outcome.messages[0], edited, Message.user("so?"))

    assert "I know." in body(provider)
    assert "cord" not in body(provider)


async def test_settings_that_a_library_adds_to_are_its_own(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """It is given a copy, as it puts its own name among the headers; ours stay as they are."""
    agent = Agent(model, tools=[search], settings={"extra_headers": {"x-cord": "red"}})
    for _ in range(2):
        assert (await agent.run("hi")).error is None

    assert [exchange.headers["x-cord"] for exchange in provider.exchanges] == ["red", "red"]
