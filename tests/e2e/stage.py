"""Stage: a server in a thread of the tests' process, whose agents wait at gates that the tests open."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec.structs import replace

from andon import Agent
from andon.core.command import Key
from andon.core.row import Row
from andon.ports import Model
from andon.runtime.memory import MemorySubstrate
from andon.runtime.tools import Tool
from andon.serve.server import Server, serving
from andon.serve.settings import Settings
from andon.testing import Gate

ANYWHERE = Settings(port=0, drain_grace=0.05, concurrency=2_000)


class Kept(MemorySubstrate):
    """Outlives its server, as a file would, and can hold back the end of a run before it is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.end = Gate("end", opened=True)

    async def __aenter__(self) -> Self:
        self._closed = False
        return await super().__aenter__()

    async def append(
        self, key: Key, record: bytes, *, head: int, rows: Mapping[str, bytes] | None = None
    ) -> int:
        """Append a record; one that ends a run once the gate is open."""
        if b'"run_ended"' in record:
            await self.end
        return await super().append(key, record, head=head, rows=rows)


class Stage:
    """A server that can be ended and begun again at the same address."""

    def __init__(self, portal: BlockingPortal, agents: Mapping[str, Agent], settings: Settings) -> None:
        self._portal = portal
        self._agents = agents
        self._settings = settings
        self.substrate = Kept()
        self._served: AbstractContextManager[Server]
        self.server: Server
        self.url = ""

    def begin(self) -> None:
        """Serve; at the same address as before, if it did before."""
        served = serving(self._agents, self.substrate, self._settings)
        self._served = self._portal.wrap_async_context_manager(served)
        self.server = self._served.__enter__()
        self.url = f"{self.server.address}/"
        self._settings = replace(self._settings, port=int(self.server.address.rpartition(":")[2]))

    def end(self) -> None:
        """Leave as at a signal; nobody who waits at a gate holds that up."""
        self.substrate.end.open()
        self._served.__exit__(None, None, None)

    def push(self, words: str, *, session: str = "s1", user: str = "ann", app: str | None = None) -> str:
        """Say something in a session that begins with it; gives the id of the run."""
        key = Key(app or next(iter(self._agents)), user, session)
        return self._portal.call(self._push, key, words)

    async def _push(self, key: Key, words: str) -> str:
        await self.server.office.create(key)
        return await self.server.office.push(key, words, by=key.user)

    def push_many(self, number: int) -> None:
        """Begin so many sessions, and say something in each."""
        self._portal.call(self._push_many, number)

    async def _push_many(self, number: int) -> None:
        app = next(iter(self._agents))
        for one in range(number):
            await self._push(Key(app, f"user{one % 10}", f"s{one}"), f"job number {one}")

    def row(self, run_id: str) -> Row:
        """Tell of a run what the journal has."""
        return self._portal.call(self._row, run_id)

    async def _row(self, run_id: str) -> Row:
        found = await self.substrate.row(run_id)
        assert found is not None
        return Row.from_json(found)


@contextmanager
def staged(agents: Mapping[str, Agent], settings: Settings = ANYWHERE) -> Generator[Stage]:
    """Serve some agents by their names."""
    with start_blocking_portal() as portal:
        stage = Stage(portal, agents, settings)
        stage.begin()
        try:
            yield stage
        finally:
            stage.end()


def acting(model: Model, tools: Sequence[Tool[..., Any]] = (), name: str = "trips") -> dict[str, Agent]:
    """Make an agent, by its name."""
    return {name: Agent(model, tools=list(tools), name=name)}
