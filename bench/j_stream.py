"""J: what it costs to tell an event to readers over HTTP, beside a bare response of preformatted bytes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from socket import socket
from time import perf_counter

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from andon import Agent
from andon.core.command import Key
from andon.core.items import ModelStarted, RunStarted, TextDelta
from andon.core.journal import SessionCreated, record_to_json
from andon.runtime.flight import Tagger
from andon.runtime.memory import MemorySubstrate
from andon.runtime.office import Office
from andon.serve.app import create_app
from andon.serve.server import config_of, listen
from andon.serve.settings import Settings
from bench.measure import MICROSECONDS, Bench, Claim, Figure, Report, Sample, Size, in_turns, in_unit
from bench.model import short

MANY = 100  # readers
BURST = 64  # events that come at once, where several do
CASES = (
    (1, 1, round(1 / 0.6, 2)),
    (1, BURST, round(1 / 3, 2)),
    (MANY, 1, round(1 / 0.6, 2)),
    (MANY, BURST, round(1 / 3, 2)),
)
DELTA = b'{"type":"text_delta","text":"word "}'
MARK = b"event: "
EVENT = b"id: 1.1.1.1000\nevent: text_delta\ndata: " + DELTA + b"\n\n"
KEY = Key("app", "ann", "s1")
SETTINGS = Settings(port=0, streams_per_user=10 * MANY)


WORD = TextDelta("word ")
MODEL = ModelStarted(n=3, at=1.0, step=1)
BEGUN = (SessionCreated(n=1, at=1.0), RunStarted(n=2, at=1.0, run_id="r", agent="app"), MODEL)


class Reader(asyncio.Protocol):
    """Reads a response to its end, and counts its events."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tail = b""
        self._awaited = 0
        self._reached = asyncio.Event()
        self.events = 0
        self.over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Count, also what comes in two parts."""
        data = self._tail + data
        self.events += data.count(MARK)
        self._tail = data[1 - len(MARK) :]
        if self.events >= self._awaited:
            self._reached.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Be done."""
        assert exc is None
        self.over.set()

    async def have(self, events: int) -> None:
        """Wait for so many events."""
        if self.events < events:
            self._awaited = events
            self._reached.clear()
            await self._reached.wait()


class Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(config_of(app, SETTINGS))
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.ready.set()


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[int]:
    """Serve an app in this loop."""
    server = Server(app)
    with listen(SETTINGS) as listener:
        task = asyncio.create_task(server.serve([listener]))
        await server.ready.wait()
        yield listener.getsockname()[1]
        server.should_exit = True
        await task


class Side:
    """One side: somewhere that readers connect to, and that tells them what comes."""

    path = "/bare"
    first = 1  # events that a reader is told as it comes

    def __init__(self, port: int) -> None:
        self._port = port
        self.lost = 0

    def prepare(self, events: int) -> None:
        """Make ready for so many events."""

    def tell(self, events: int) -> None:
        """Let so many events come at once."""
        raise NotImplementedError

    def end(self) -> None:
        """Let no more come."""
        raise NotImplementedError

    def tells(self, readers: int, count: int, *, at_once: int) -> Sample:
        """Time an event to one reader, of those that come so many at once, and are read before the next."""

        async def sample() -> float:
            loop = asyncio.get_running_loop()
            made = [
                (await loop.create_connection(lambda: Reader(self.path), "127.0.0.1", self._port))[1]
                for _ in range(readers)
            ]
            self.prepare(count)
            for reader in made:
                await reader.have(self.first)
            start = perf_counter()
            for told in range(at_once, count + 1, at_once):
                self.tell(at_once)
                for reader in made:
                    await reader.have(self.first + told)
            spent = perf_counter() - start
            self.end()
            for reader in made:
                await reader.over.wait()
            self.lost += any(reader.events != self.first + count + 1 for reader in made)
            return spent / (count * readers)

        return sample


class Bare(Side):
    """The floor: bytes as they go out, one event a write, from a queue for each reader."""

    def __init__(self, port: int, app: FastAPI) -> None:
        super().__init__(port)
        self._queues: list[asyncio.Queue[bytes | None]] = []
        app.add_api_route(self.path, self._get)

    async def _get(self) -> StreamingResponse:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queues.append(queue)
        queue.put_nowait(EVENT)
        return StreamingResponse(self._events(queue), media_type="text/event-stream")

    async def _events(self, queue: asyncio.Queue[bytes | None]) -> AsyncGenerator[bytes]:
        while (event := await queue.get()) is not None:
            yield event
        yield EVENT

    def tell(self, events: int) -> None:
        """Put them into every queue."""
        for queue in self._queues:
            for _ in range(events):
                queue.put_nowait(EVENT)

    def end(self) -> None:
        """Let every response end."""
        for queue in self._queues:
            queue.put_nowait(None)
        self._queues.clear()


class Ours(Side):
    """A session that is read."""

    path = "/apps/app/users/ann/sessions/s1/events"
    first = len(BEGUN)

    def __init__(self, port: int, office: Office) -> None:
        super().__init__(port)
        self._office = office
        self._said = iter(list[bytes]())

    def prepare(self, events: int) -> None:
        """Write down what a worker says: that is its work, and the floor's events are written already."""
        tagger = Tagger("r")
        tagger.item(MODEL, MODEL.n)
        self._said = iter([tagger.tag(WORD) or b"" for _ in range(events)])

    def tell(self, events: int) -> None:
        """Tell them as a worker does."""
        for said in islice(self._said, events):
            self._office.substrate.tell(KEY, said)

    def end(self) -> None:
        """Let nobody listen any more."""
        feed, _ = self._office._feeds[KEY]  # noqa: SLF001 — as the office does when the server leaves
        feed.close()


async def _measure(size: Size) -> Report:
    figures: list[Figure] = []
    app = FastAPI()
    async with MemorySubstrate() as substrate, serving(app) as floor_port:
        office = Office(substrate)
        await substrate.append(KEY, record_to_json(BEGUN), head=0)
        async with serving(create_app(office, {"app": Agent(short)}, SETTINGS)) as port:
            bare, ours = Bare(floor_port, app), Ours(port, office)
            for readers, at_once, goal in CASES:
                count = max(at_once, size.count // readers // at_once * at_once)
                pairs = await in_turns(
                    bare.tells(readers, count, at_once=at_once),
                    ours.tells(readers, count, at_once=at_once),
                    size.rounds,
                )
                how = "one at a time" if at_once == 1 else f"{at_once} at once"
                name = f"an event to {readers} reader{'s' * (readers > 1)}, {how}"
                figures.append(Figure(name=name, pairs=in_unit(pairs, MICROSECONDS), goal=goal))
    return Report(figures, [Claim("rounds in which a reader missed an event", bare.lost + ours.lost)])


def measure(size: Size) -> Report:
    """Measure streams."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="J",
    title="Events over HTTP",
    floor="a `StreamingResponse` of preformatted events, one a write, from a queue for each reader, by"
    " uvicorn too, to the same readers in the same loop",
    full=Size(9, 12_800),
    tiny=Size(1, BURST),
    measure=measure,
)
