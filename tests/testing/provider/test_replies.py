"""What the real clients read out of each API's wire format."""

import anthropic
import openai
import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from openai.types.chat import ChatCompletionMessageFunctionToolCall
from openai.types.responses import ResponseFunctionToolCall, ResponseReasoningItem

from andon.testing.provider import FakeProvider, Part, Reasoning, Text, ToolCall
from tests.testing.provider.clients import Clients

PARTS: tuple[Part, ...] = (
    Reasoning("hm"),
    Text("Let me "),
    Text("look."),
    ToolCall("search", {"query": "cord"}, chunks=5),
    ToolCall("close", "{}", id="mine"),
)


async def test_chat_completions_stream_and_whole_agree(provider: FakeProvider, clients: Clients) -> None:
    """Text, reasoning, parallel calls and usage, either way."""
    provider.reply(*PARTS, usage=(7, 3))
    provider.reply(*PARTS, usage=(7, 3))
    async with clients.openai.chat.completions.stream(
        model="m", messages=[{"role": "user", "content": "hi"}], stream_options={"include_usage": True}
    ) as stream:
        streamed = await stream.get_final_completion()
    whole = await clients.openai.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}]
    )

    for completion in (streamed, whole):
        message = completion.choices[0].message
        assert completion.choices[0].finish_reason == "tool_calls"
        assert message.content == "Let me look."
        assert getattr(message, "reasoning_content", None) == "hm"
        calls = message.tool_calls or []
        functions = [
            call.function for call in calls if isinstance(call, ChatCompletionMessageFunctionToolCall)
        ]
        assert [function.arguments for function in functions] == ['{"query":"cord"}', "{}"]
        assert calls[1].id == "mine"
        assert completion.usage is not None
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (7, 3)


async def test_chat_usage_comes_only_when_asked_for(provider: FakeProvider, clients: Clients) -> None:
    """As OpenAI's does."""
    provider.reply(Text("a"))
    stream = await clients.openai.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    async with stream:
        assert [chunk.usage async for chunk in stream] == [None, None, None]


async def test_responses_stream_and_whole_agree(provider: FakeProvider, clients: Clients) -> None:
    """Items are added, grow and are done; the last event has them all."""
    provider.reply(*PARTS, usage=(7, 3))
    provider.reply(*PARTS, usage=(7, 3))
    async with clients.openai.responses.stream(model="m", input="hi") as stream:
        streamed = await stream.get_final_response()
    whole = await clients.openai.responses.create(model="m", input="hi")

    for response in (streamed, whole):
        assert response.output_text == "Let me look."
        reasoning, _, *calls = response.output
        assert isinstance(reasoning, ResponseReasoningItem)
        assert reasoning.summary[0].text == "hm"
        assert reasoning.encrypted_content
        arguments = [call.arguments for call in calls if isinstance(call, ResponseFunctionToolCall)]
        assert arguments == ['{"query":"cord"}', "{}"]
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.output_tokens) == (7, 3)


async def test_messages_stream_and_whole_agree(provider: FakeProvider, clients: Clients) -> None:
    """Blocks start, grow and stop; thinking is signed."""
    provider.reply(*PARTS, usage=(7, 3))
    provider.reply(*PARTS, usage=(7, 3))
    async with clients.anthropic.messages.stream(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        streamed = await stream.get_final_message()
    whole = await clients.anthropic.messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
    )

    for message in (streamed, whole):
        thinking, text, *calls = message.content
        assert isinstance(thinking, ThinkingBlock)
        assert thinking.thinking == "hm"
        assert thinking.signature
        assert isinstance(text, TextBlock)
        assert text.text == "Let me look."
        assert [call.input for call in calls if isinstance(call, ToolUseBlock)] == [{"query": "cord"}, {}]
        assert message.stop_reason == "tool_use"
        assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 3)


async def test_a_signature_of_the_script_is_kept(provider: FakeProvider, clients: Clients) -> None:
    """It ends its block, so that another piece of reasoning is another block."""
    for _ in range(2):
        provider.reply(Reasoning("a"), Reasoning("b", signature="s1"), Reasoning("c", signature="s2"))
    message = await clients.anthropic.messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
    )
    response = await clients.openai.responses.create(model="m", input="hi")

    blocks = [
        (block.thinking, block.signature) for block in message.content if isinstance(block, ThinkingBlock)
    ]
    items = [
        (item.summary[0].text, item.encrypted_content)
        for item in response.output
        if isinstance(item, ResponseReasoningItem)
    ]
    assert blocks == items == [("ab", "s1"), ("c", "s2")]


async def test_arguments_that_are_no_json_are_sent_as_they_are(
    provider: FakeProvider, clients: Clients
) -> None:
    """A model that writes nonsense can be scripted, whole or streamed."""
    for _ in range(2):
        provider.reply(ToolCall("f", '{"q": '))
    completion = await clients.openai.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}]
    )
    pieces = [piece async for piece in clients.ask("anthropic", "hi")]

    assert completion.choices[0].message.tool_calls is not None
    assert '{"q": ' in completion.choices[0].message.tool_calls[0].model_dump_json().replace('\\"', '"')
    assert "".join(pieces) == '{"q": '


async def test_without_a_script_the_prompt_comes_back(
    provider: FakeProvider, clients: Clients, api: str
) -> None:
    """Simple things need no script."""
    assert "".join([piece async for piece in clients.ask(api, "hello there")]) == "hello there"
    assert provider.exchanges[0].chunks_sent == 1


async def test_every_answer_carries_its_request_id(provider: FakeProvider, clients: Clients) -> None:
    """The SDKs show it, also with an error, and the script may add headers of its own."""
    provider.reply(Text("a"), headers={"x-ratelimit-remaining-requests": "9"})
    raw = await clients.openai.chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": "hi"}]
    )
    message = await clients.anthropic.messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
    )

    assert raw.request_id == "req_1"
    assert raw.headers["x-ratelimit-remaining-requests"] == "9"
    assert message.to_dict()["id"] == "msg_2"


def test_the_environment_points_the_blocking_clients_here(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else has to be told to them."""
    for name, value in provider.environment.items():
        monkeypatch.setenv(name, value)
    provider.reply(Text("a"))
    with openai.OpenAI() as client, anthropic.Anthropic() as other:
        answer = client.responses.create(model="m", input="hi")
        message = other.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "b"}])

    assert answer.output_text == "a"
    assert message.content[0].to_dict()["text"] == "b"
