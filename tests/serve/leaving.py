"""Clients that come, ask for a run and go away: by SSE, by WebSocket and by plain requests, at any place."""

# pyright: reportPrivateUsage=false

import asyncio
import json
import re
import threading
from asyncio import CancelledError
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast
from urllib.parse import urlencode

import anyio
import httpx
from anyio.lowlevel import checkpoint
from fastapi import FastAPI
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from andon import Agent, Call, tool
from andon.core.command import Key
from andon.core.draft import Chunk
from andon.core.row import Row
from andon.ports import ModelRequest
from andon.runtime.memory import MemorySubstrate
from andon.serve.desk import Desk
from andon.serve.server import Server, serving
from andon.serve.settings import Settings
from andon.testing import Gate

Json = dict[str, object]

OPEN_FILES = Path("/dev/fd")


class Leaving:
    """A server whose runs wait at the gate, at the place that their prompt names."""

    def __init__(self) -> None:
        self.gate = Gate("run")
        self.cuts = 0
        self.came: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)
        self.substrate = MemorySubstrate()
        self.server: Server
        self.desk: Desk
        self.client: httpx.AsyncClient
        self._before: tuple[int, int, int] = (0, 0, 0)

    async def _wait(self, asked: str) -> None:
        self.came[asked].set()
        try:
            await self.gate
        except CancelledError:
            self.cuts += 1
            raise

    async def model(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Wait before the first word, in the middle, in a tool, or not at all."""
        asked = next(message.text for message in reversed(request.messages) if message.role == "user")
        if "first" in asked:
            await self._wait(asked)
        yield "Let me see. "
        if "middle" in asked:
            await self._wait(asked)
        if "tool" in asked and request.messages[-1].role == "user":
            yield Call("look", {"said": asked})
            return
        yield "Done."

    def agent(self) -> Agent:
        """Make the agent."""

        @tool
        async def look(said: str) -> str:
            """Look."""
            await self._wait(said)
            return "nothing"

        return Agent(self.model, tools=[look], name="trips")

    def key(self, session: str = "s1") -> Key:
        """Name a session."""
        return Key("trips", "ann", session)

    async def begin(self, session: str = "s1") -> None:
        """Begin a session."""
        await self.server.office.create(self.key(session))

    async def ask(self, way: str, place: str, session: str = "s1", **more: object) -> object:
        """Ask for a run, and stay until it has ended; gives the status, the text, or how it was closed."""
        said = {"parts": [{"text": place}]}
        body = {"appName": "trips", "userId": "ann", "sessionId": session, "newMessage": said, **more}
        match way:
            case "live":
                query = {"app_name": "trips", "user_id": "ann", "session_id": session}
                return await self._talk({**query, **_snake(more)}, json.dumps({"content": said}))
            case "native":
                path = f"/apps/trips/users/ann/sessions/{session}/runs"
                body = {"input": place, "wait": 60, **_snake(more)}
                return (await self.client.post(path, json=body)).status_code
            case "plain":
                return (await self.client.post("/run", json=body)).status_code
            case _:
                return (await self.client.post("/run_sse", json={**body, "streaming": True})).text

    async def _talk(self, query: Json, message: str) -> object:
        address = self.server.address.replace("http", "ws")
        async with connect(f"{address}/run_live?{urlencode(query)}") as socket:
            await socket.send(message)
            try:
                while not json.loads(await socket.recv()).get("turnComplete"):
                    pass
            except ConnectionClosed:
                return socket.close_code
            except CancelledError:
                socket.transport.abort()  # no good-bye
                raise
        return socket.close_code

    @asynccontextmanager
    async def client_of(self, way: str, place: str, **more: object) -> AsyncGenerator[Callable[[], None]]:
        """Be a client whose run waits at the gate; gives what it calls to vanish."""
        before = self.gate.arrived
        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()

            async def stay() -> None:
                with scope:
                    await self.ask(way, place, "s1", **more)

            group.start_soon(stay)
            await self.gate.reached(before + 1)
            yield scope.cancel

    async def only_row(self) -> Row:
        """Tell of the one run that there is."""
        (row,) = await self.server.office.runs()
        return row

    async def ended(self) -> Row:
        """Wait until the one run that there is has ended."""
        row = await self.only_row()
        found = await self.server.office.ended(row.key, row.run_id, 30)
        assert found is not None
        return found

    def remember(self) -> None:
        """Count what there is before anybody comes."""
        self._before = _counts()

    async def nothing_is_left(self) -> None:
        """Wait until all is as it was: whatever is still there, is there for good, and time runs out."""
        office, desk = self.server.office, self.desk
        await until(lambda: desk.presence.is_empty and not desk.streams)
        await until(lambda: not office._feeds and not office._waits and not self.server.worker.busy)
        boxes, watchers = self.substrate._boxes.values(), self.substrate._watchers
        await until(lambda: not any(watchers.values()) and not any(box.holder for box in boxes))
        await until(lambda: all(now <= before for now, before in zip(_counts(), self._before, strict=True)))


def _counts() -> tuple[int, int, int]:
    return len(asyncio.all_tasks()), threading.active_count(), len(list(OPEN_FILES.iterdir()))


def _snake(named: Json) -> Json:
    """Name things as our own routes do."""
    return {
        re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name): value for name, value in named.items()
    }


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Let the loop turn until something is so."""
    while True:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return
        await checkpoint()


@asynccontextmanager
async def leaving(**settings: object) -> AsyncGenerator[Leaving]:
    """Serve, and see that nothing is left when all clients have gone."""
    made = Leaving()
    given = Settings(port=0, **settings)  # pyright: ignore[reportArgumentType]
    async with serving({"trips": made.agent()}, made.substrate, given) as server:
        made.server, made.desk = server, cast("FastAPI", server.config.app).state.desk
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        made.remember()
        async with httpx.AsyncClient(base_url=server.address, timeout=60, limits=limits) as client:
            made.client = client
            yield made
        if not server.should_exit:
            await made.nothing_is_left()
