"""The providers' own clients, asked the same way: one prompt in, pieces of the answer out."""

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cached_property
from typing import TypeAlias

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from andon.testing.provider import FakeProvider

Ask: TypeAlias = Callable[[str], AsyncGenerator[str, None]]

PATHS: Mapping[str, str] = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}


class Clients:
    """Both SDKs, without their retries, pointed at a provider."""

    def __init__(self, provider: FakeProvider) -> None:
        self._provider = provider
        self._made: list[AsyncOpenAI | AsyncAnthropic] = []

    # Made when asked for: a client reads all certificates of the machine.
    @cached_property
    def openai(self) -> AsyncOpenAI:
        """OpenAI's."""
        client = AsyncOpenAI(base_url=self._provider.openai_url, api_key="sk-fake", max_retries=0)
        self._made.append(client)
        return client

    @cached_property
    def anthropic(self) -> AsyncAnthropic:
        """Anthropic's."""
        client = AsyncAnthropic(base_url=self._provider.anthropic_url, api_key="sk-ant-fake", max_retries=0)
        self._made.append(client)
        return client

    async def close(self) -> None:
        """Close their connections."""
        for client in self._made:
            await client.close()

    def ask(self, api: str, prompt: str) -> AsyncGenerator[str, None]:
        """Stream an answer; every delta of any kind is a piece."""
        ways: dict[str, Ask] = {
            "openai-chat": self._chat,
            "openai-responses": self._responses,
            "anthropic": self._messages,
        }
        return ways[api](prompt)

    async def _chat(self, prompt: str) -> AsyncGenerator[str, None]:
        stream = await self.openai.chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}], stream=True
        )
        async with stream:
            async for chunk in stream:
                for choice in chunk.choices:
                    calls = choice.delta.tool_calls or []
                    yield choice.delta.content or "".join(
                        call.function.arguments or "" for call in calls if call.function
                    )

    async def _responses(self, prompt: str) -> AsyncGenerator[str, None]:
        stream = await self.openai.responses.create(model="m", input=prompt, stream=True)
        async with stream:
            async for event in stream:
                is_delta = event.type in {
                    "response.output_text.delta",
                    "response.function_call_arguments.delta",
                }
                yield str(getattr(event, "delta", "")) if is_delta else ""

    async def _messages(self, prompt: str) -> AsyncGenerator[str, None]:
        stream = await self.anthropic.messages.create(
            model="m", max_tokens=100, messages=[{"role": "user", "content": prompt}], stream=True
        )
        async with stream:
            async for event in stream:
                delta = getattr(event, "delta", None)
                yield str(getattr(delta, "text", "") or getattr(delta, "partial_json", ""))
