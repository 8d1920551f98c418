"""A server over real sockets in the test's own loop, and what the tests say to it."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
from msgspec import Struct

from andon import Agent, Call, ToolContext, tool
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from andon.runtime.memory import MemorySubstrate
from andon.serve.auth import Scope
from andon.serve.keys import new_key
from andon.serve.server import Server, serving
from andon.serve.settings import Settings
from andon.testing import Gate

ANN = "/apps/trips/users/ann/sessions"
S1 = f"{ANN}/s1"
FREE = Settings(port=0, drain_grace=0.05)
PEOPLE: tuple[tuple[str, str | None, tuple[Scope, ...]], ...] = (
    ("ann-laptop", "ann", ("run", "cancel", "read")),
    ("bob-phone", "bob", ("run", "cancel", "read")),
    ("eve-dashboard", "ann", ("read",)),
    ("root", None, ("admin",)),
)


class Event(Struct):
    """One server-sent event, as a client reads it."""

    id: str
    kind: str
    data: dict[str, object]


class Scene:
    """A server of one app, its gate, and clients who talk to it."""

    def __init__(self) -> None:
        self.gate = Gate("model")
        self.cuts = 0
        self.tokens: dict[str, str] = {}
        self.server: Server
        self.client: httpx.AsyncClient

    async def model(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Do what the last message says: wait at the gate, ask a human, or just talk."""
        said = request.messages[-1].text
        if "wait" in said:
            yield "Let me think. "
            try:
                await self.gate
            finally:
                self.cuts += not self.gate.opened
        if "ask" in said:
            yield Call("confirm", {"question": "Sure?"})
            return
        for word in ("Here", "you", "are."):
            yield f"{word} "

    def agent(self) -> Agent:
        """Make the agent."""
        return Agent(self.model, tools=[confirm], name="trips")

    def by(self, name: str) -> dict[str, str]:
        """Give the headers of somebody who has a key."""
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    async def post(self, path: str, *, by: str | None = None, **body: object) -> httpx.Response:
        """Send a body, or none."""
        headers = {} if by is None else self.by(by)
        return await self.client.post(path, json=body or None, headers=headers)

    async def begin(self, session: str = "s1", *, by: str | None = None) -> None:
        """Begin a session of Ann's."""
        answer = await self.post(ANN, by=by, session_id=session)
        assert answer.status_code == 200, answer.text

    async def push(self, words: str, *, by: str | None = None, path: str = S1, **more: object) -> str:
        """Say something in a session of Ann's; gives the id of the run."""
        answer = await self.post(f"{path}/runs", by=by, input=words, **more)
        assert answer.status_code == 202, answer.text
        return answer.json()["run_id"]

    async def push_and_wait(self, words: str = "please wait", *, by: str | None = None) -> str:
        """Say something that comes to the gate, and be there with it."""
        before = self.gate.arrived
        run_id = await self.push(words, by=by)
        await self.gate.reached(before + 1)
        return run_id

    @asynccontextmanager
    async def events(
        self, path: str, *, by: str | None = None, last: str | None = None
    ) -> AsyncGenerator[AsyncIterator[Event]]:
        """Read events."""
        headers = {} if by is None else self.by(by)
        if last is not None:
            headers["Last-Event-ID"] = last
        async with self.client.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield read_events(answer)


async def read_events(answer: httpx.Response) -> AsyncIterator[Event]:
    """Parse a stream of events; comments are passed over."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            data = msgspec.json.decode(fields["data"], type=dict[str, object])
            yield Event(fields.get("id", ""), fields["event"], data)
            fields = {}


async def whole(events: AsyncIterator[Event]) -> list[Event]:
    """Read to the end."""
    return [event async for event in events]


async def until(events: AsyncIterator[Event], kind: str) -> list[Event]:
    """Read up to the first event of a kind."""
    read: list[Event] = []
    async for event in events:
        read.append(event)
        if event.kind == kind:
            return read
    raise AssertionError(f"the stream ended without {kind}: {[event.kind for event in read]}")


@tool
async def confirm(context: ToolContext, question: str) -> str:
    """Ask a human."""
    return str(await context.interrupt({"question": question}))


@asynccontextmanager
async def scene(
    settings: Settings = FREE, *, substrate: MemorySubstrate | None = None
) -> AsyncGenerator[Scene]:
    """Serve on this machine, to anybody."""
    made = Scene()
    kept = substrate or MemorySubstrate()
    async with serving({"trips": made.agent()}, kept, settings) as server:
        made.server = server
        async with httpx.AsyncClient(base_url=server.address, timeout=30) as client:
            made.client = client
            yield made


@asynccontextmanager
async def guarded(folder: Path, **more: object) -> AsyncGenerator[Scene]:
    """Serve to those of `PEOPLE`, who have keys."""
    keys = {name: new_key(name, scopes, user) for name, user, scopes in PEOPLE}
    path = folder / "keys"
    path.write_text("# who may\n\n" + "\n".join(line for _, line in keys.values()) + "\n")
    async with scene(msgspec.structs.replace(FREE, keys=path, **more)) as made:
        made.tokens = {name: token for name, (token, _) in keys.items()}
        yield made
