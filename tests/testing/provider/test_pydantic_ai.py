"""The adapter's own library against the provider: streams, a second round, and a cut."""

from collections.abc import Sequence

import anyio
import pytest
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

from andon.testing.provider import FakeProvider, Part, Reasoning, Request, Stall, Text, ToolCall
from tests.testing.provider.clients import Clients

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "additionalProperties": True}
TOOLS = ModelRequestParameters(
    function_tools=[ToolDefinition(name="search", parameters_json_schema=SCHEMA)], allow_text_output=True
)


@pytest.fixture
def model(clients: Clients, api: str) -> Model:
    """Give the library's model of that API, on clients that are closed in the end."""
    if api == "anthropic":
        return AnthropicModel("claude-fake", provider=AnthropicProvider(anthropic_client=clients.anthropic))
    provider = OpenAIProvider(openai_client=clients.openai)
    kind = OpenAIChatModel if api == "openai-chat" else OpenAIResponsesModel
    return kind("gpt-5", provider=provider)


async def ask(model: Model, messages: Sequence[ModelMessage]) -> ModelResponse:
    """Read one answer to its end."""
    async with model_request_stream(model, messages, model_request_parameters=TOOLS) as stream:
        async for _ in stream:
            pass
        return stream.get()


async def test_an_agent_of_two_rounds_sends_what_strict_accepts(provider: FakeProvider, model: Model) -> None:
    """Reasoning, text, two calls; their results; an answer. Nothing is refused on the way."""
    provider.reply(
        Reasoning("hm"),
        Text("Let me look."),
        ToolCall("search", {"query": "cord"}, chunks=4),
        ToolCall("search", {"query": "light"}),
        usage=(7, 3),
    )
    provider.reply(Text("Found."))
    history: list[ModelMessage] = [ModelRequest.user_text_prompt("hi")]
    history.append(first := await ask(model, history))
    calls = [part for part in first.parts if isinstance(part, ToolCallPart)]
    results = [
        ToolReturnPart(call.tool_name, f"{call.args_as_dict()['query']}!", call.tool_call_id)
        for call in calls
    ]
    second = await ask(model, [*history, ModelRequest(parts=results)])

    assert [part.content for part in first.parts if isinstance(part, ThinkingPart)] == ["hm"]
    assert [part.content for part in first.parts if isinstance(part, TextPart)] == ["Let me look."]
    assert [call.args_as_dict() for call in calls] == [{"query": "cord"}, {"query": "light"}]
    assert (first.usage.input_tokens, first.usage.output_tokens) == (7, 3)
    assert second.text == "Found."
    assert [exchange.status for exchange in provider.exchanges] == [200, 200]


async def test_a_scripted_agent_sees_prompt_tools_and_results(provider: FakeProvider, model: Model) -> None:
    """One script plays the model of every API."""
    seen: list[Request] = []

    def script(request: Request) -> tuple[Part, ...]:
        seen.append(request)
        if request.results:
            return (Text(f"{request.prompt}: {', '.join(request.results.values())}"),)
        return (ToolCall("search", {"query": "cord"}),)

    provider.respond(script)
    history: list[ModelMessage] = [ModelRequest.user_text_prompt("What stops the line?")]
    history.append(first := await ask(model, history))
    call = first.tool_calls[0]
    answer = await ask(
        model, [*history, ModelRequest(parts=[ToolReturnPart("search", "the cord", call.tool_call_id)])]
    )

    assert answer.text == "What stops the line?: the cord"
    assert seen[0].tools == ("search",)
    assert seen[0].model == model.model_name
    assert list(seen[1].results) == [call.tool_call_id]


@pytest.mark.parametrize(
    "parts", [(Stall(before="headers"),), (Text("a"), Stall()), (Reasoning("a"), Stall())]
)
async def test_a_cancelled_stream_closes_its_connection(
    provider: FakeProvider, model: Model, parts: tuple[Part, ...]
) -> None:
    """No provider of ours holds on to a stream that nobody reads."""
    provider.reply(*parts)
    async with anyio.create_task_group() as group:
        group.start_soon(ask, model, [ModelRequest.user_text_prompt("hi")])
        await provider.stalled(1)
        group.cancel_scope.cancel()

    assert (await provider.closed(1)).closed_by_client
