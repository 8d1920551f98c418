"""Google's API, which the fake provider does not speak: one answer that stalls, over real TCP."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import json

from andon import Agent, StopResult, TextDelta, Usage
from andon.adapters.models import resolve

pytest.importorskip("google.genai", reason="the extra `google` is not installed")

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Gemini:
    """Says one thing, and then nothing more until the client leaves."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.asked = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self.asked = await reader.readuntil(b"\r\n\r\n")
        said = {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "Once"}]}}],
            "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 1, "totalTokenCount": 8},
        }
        event = b"data: %s\r\n\r\n" % json.encode(said)
        writer.write(HEAD + b"%x\r\n%s\r\n" % (len(event), event))
        while await reader.read(65536):
            pass
        writer.close()
        self.left.set()


@pytest.fixture
async def gemini(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gemini]:
    """Point the environment to it."""
    running = Gemini()
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("GOOGLE_API_KEY", "a-fake-key")
    yield running
    server.close()


async def test_google_is_cut_too(gemini: Gemini) -> None:
    """Its words and the usage it tells with every piece are kept; its connection is closed."""
    model = resolve("google:gemini-2.5-flash")
    async with Agent(model).start("hi") as run:
        async for event in run:
            if event == TextDelta("Once"):
                report = await run.cancel()
                assert report.result is StopResult.STOPPED
        outcome = await run.outcome()
    async with asyncio.timeout(5):
        await gemini.left.wait()
    await model.aclose()

    assert b"streamGenerateContent" in gemini.asked
    assert outcome.messages[-1].text == "Once"
    assert outcome.usage == Usage(input_tokens=7, output_tokens=1, model_calls=1, cost=outcome.usage.cost)
