"""A server as ADK's clients meet it, its agent's model at a provider, and ADK's own reading of it all."""

import json
from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
from websockets.asyncio.client import ClientConnection, connect

from andon import Agent, ToolContext, tool
from andon.adapters.models import ProviderModel, resolve
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from andon.runtime.memory import MemorySubstrate
from andon.serve.server import Server, serving
from andon.serve.settings import Settings
from andon.testing import FakeProvider, Gate

Json = dict[str, Any]

S1 = "/apps/trips/users/ann/sessions/s1"
LIVE = "/run_live?app_name=trips&user_id=ann&session_id=s1&modalities=TEXT"
FREE = Settings(port=0)

READ = """
import sys, json
from google.adk.events.event import Event
from google.adk.sessions.session import Session
kind = {"event": Event, "session": Session}[sys.argv[1]]
read = [kind.model_validate_json(json.dumps(one)) for one in json.load(sys.stdin)]
print(json.dumps([json.loads(one.model_dump_json(exclude_none=True, by_alias=True)) for one in read]))
"""


class AdkScene:
    """A server of one app, its provider, and what its agent has seen."""

    def __init__(self, provider: FakeProvider, model: ProviderModel) -> None:
        self.provider = provider
        self._model = model
        self.cuts: list[str] = []
        self.gate = Gate("tool")
        self.server: Server
        self.client: httpx.AsyncClient

    async def model(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Ask the provider, and write down that a cancellation came."""
        try:
            async with aclosing(self._model(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except CancelledError:
            self.cuts.append("model")
            raise

    def agent(self) -> Agent:
        """Make the agent."""

        @tool
        async def look(place: str) -> str:
            """Look somewhere."""
            return f"{place} is empty"

        @tool
        async def dig(place: str) -> str:
            """Dig somewhere, for as long as the gate is closed."""
            try:
                await self.gate
            except CancelledError:
                self.cuts.append("dig")
                raise
            return f"nothing in {place}"

        @tool
        async def confirm(context: ToolContext, question: str) -> str:
            """Ask a human."""
            return str(await context.interrupt({"question": question}))

        return Agent(self.model, tools=[look, dig, confirm], name="trips")

    async def begin(self) -> None:
        """Begin a session of Ann's, as ADK's front end does."""
        answer = await self.client.post(S1)
        assert answer.status_code == 200, answer.text

    async def events(self, body: Json) -> list[Json]:
        """Run by SSE, and read it all."""
        async with self.streaming(body) as events:
            return [event async for event in events]

    @asynccontextmanager
    async def streaming(self, body: Json) -> AsyncGenerator[AsyncIterator[Json]]:
        """Run by SSE."""
        async with self.client.stream("POST", "/run_sse", json=body) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield read_events(answer)

    @asynccontextmanager
    async def live(self, path: str = LIVE, **more: Any) -> AsyncGenerator[ClientConnection]:  # noqa: ANN401 — as websockets has it
        """Connect by WebSocket."""
        async with connect(self.server.address.replace("http", "ws") + path, **more) as socket:
            yield socket

    async def cancel(self, **body: object) -> Json:
        """Cancel what is live in the session; gives the report."""
        answer = await self.client.post(f"{S1}:cancel", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def read_events(answer: httpx.Response) -> AsyncIterator[Json]:
    """Read events as ADK's clients do: only lines of data count."""
    async for line in answer.aiter_lines():
        if line.startswith("data:"):
            yield json.loads(line[5:])


def asking(words: str, *, streaming: bool = True, **more: object) -> Json:
    """Give the very body that the send button of ADK's front end sends."""
    return {
        "appName": "trips",
        "userId": "ann",
        "sessionId": "s1",
        "newMessage": {"role": "user", "parts": [{"text": words}]},
        "streaming": streaming,
        "stateDelta": None,
        **more,
    }


async def as_adk_reads(python: Path, kind: str, found: Sequence[Json]) -> list[Json]:
    """Let ADK's own model read it, and write it down again; nothing of it may be lost or changed by that."""
    ran = await anyio.run_process([str(python), "-c", READ, kind], input=json.dumps(found).encode())
    read: list[Json] = json.loads(ran.stdout)
    for ours, theirs in zip(found, read, strict=True):
        assert kept(ours, theirs), f"ADK reads {ours} as {theirs}"
    return read


def kept(ours: object, theirs: object) -> bool:
    """Whether all of ours is in theirs, which may have more."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        mine, other = cast("Json", ours), cast("Json", theirs)
        return all(name in other and kept(value, other[name]) for name, value in mine.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        one, two = cast("list[object]", ours), cast("list[object]", theirs)
        return len(one) == len(two) and all(map(kept, one, two))
    return ours == theirs


def words(events: Sequence[Json], *, partial: bool = False) -> str:
    """Give what was said, without thoughts."""
    return "".join(
        part.get("text", "")
        for event in events
        if bool(event.get("partial")) is partial
        for part in event.get("content", {"parts": []})["parts"]
        if not part.get("thought")
    )


@asynccontextmanager
async def adk_scene(provider: FakeProvider, settings: Settings = FREE) -> AsyncGenerator[AdkScene]:
    """Serve on this machine, to anybody."""
    model = resolve("openai-chat:gpt-4o")
    made = AdkScene(provider, model)
    try:
        async with serving({"trips": made.agent()}, MemorySubstrate(), settings) as server:
            made.server = server
            async with httpx.AsyncClient(base_url=server.address, timeout=30) as client:
                made.client = client
                yield made
                assert server.presence.is_empty
    finally:
        await model.aclose()
