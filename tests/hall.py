"""Hall: sessions, their workers and an office in one place, and what every session keeps."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from andon import Agent
from andon.core.command import Key
from andon.core.items import RunEnded, RunStarted
from andon.core.journal import Entry, Received, record_from_json
from andon.core.row import Row
from andon.core.session import SessionState, fold_session
from andon.ports import Substrate
from andon.runtime.isolate import turn
from andon.runtime.memory import MemorySubstrate
from andon.runtime.office import Office
from andon.runtime.worker import Worker
from tests.whole import complaints

KEY = Key("app", "ann", "s1")
SETTLED = 50  # steps in which everything that can happen at once has happened


class Hall:
    """Workers over one substrate, and an office that asks."""

    def __init__(self, group: TaskGroup, substrate: MemorySubstrate, agents: Mapping[str, Agent]) -> None:
        self.group = group
        self.substrate = substrate
        self.agents = agents
        self.office = Office(substrate)
        self.workers: list[Worker] = []

    def hire(self, **options: Any) -> Worker:  # noqa: ANN401 — as Worker has them
        """Let one more worker work."""
        worker = self.worker(**options)
        self.group.start_soon(worker.run)
        return worker

    def worker(self, substrate: Substrate | None = None, **options: Any) -> Worker:  # noqa: ANN401 — as Worker has them
        """Make one more worker, which does not work yet."""
        name = f"w{len(self.workers) + 1}"
        worker = Worker(self.agents, substrate=substrate or self.substrate, name=name, **options)
        self.workers.append(worker)
        return worker

    async def entries(self, key: Key = KEY) -> list[Entry]:
        """Read the journal, as it is stored."""
        records = await self.substrate.read(key)
        return [entry for _, record in records for entry in record_from_json(record)]

    async def until(self, key: Key, ready: Callable[[SessionState], bool]) -> SessionState:
        """Wait until the journal of a session says something."""

        def look(state: SessionState) -> SessionState | None:
            return state if ready(state) else None

        found = await self.office._look_until(key, None, look)  # pyright: ignore[reportPrivateUsage]
        assert found is not None
        return found

    async def run(self, prompt: str, key: Key = KEY, **options: Any) -> Row:  # noqa: ANN401 — as push has them
        """Push, and wait for the end."""
        row = await self.office.ended(key, await self.office.push(key, prompt, **options), 10_000)
        assert row is not None
        return row

    async def live(self, run_id: str, step: str = "", key: Key = KEY) -> None:
        """Wait until a run is under way, and at a step."""

        def ready(state: SessionState) -> bool:
            live = state.live
            return live is not None and live.run_id == run_id and step in live.step()

        await self.until(key, ready)
        await settle()


@asynccontextmanager
async def hall(
    *agents: Agent,
    substrate: MemorySubstrate | None = None,
    workers: int = 1,
    **options: Any,  # noqa: ANN401 — as Worker has them
) -> AsyncGenerator[Hall]:
    """Open a hall with a session; all of its tasks are gone when it is left."""
    before = asyncio.all_tasks()
    named = {"app" if number == 0 else agent.name: agent for number, agent in enumerate(agents)}
    staff: list[Worker] = []
    async with substrate or MemorySubstrate() as opened, anyio.create_task_group() as group:
        here = Hall(group, opened, named)
        staff = here.workers
        await here.office.create(KEY)
        for _ in range(workers):
            here.hire(**options)
        yield here
        for worker in staff:
            worker.drain()
    for worker in staff:
        assert worker.busy == 0
        assert worker._places.borrowed_tokens == 0  # pyright: ignore[reportPrivateUsage]
    await settle()
    left = asyncio.all_tasks() - before
    assert not left, left


async def settle() -> None:
    """Let all happen that can happen now."""
    for _ in range(SETTLED):
        await turn()


async def sound(hall: Hall, key: Key = KEY) -> list[Entry]:
    """Hold a session to what all of them keep; gives its journal."""
    entries = await hall.entries(key)
    assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))
    commands = Counter(entry.command.id for entry in entries if isinstance(entry, Received))
    assert set(commands.values()) <= {1}
    roots = [entry for entry in entries if not entry.path]
    begun = {entry.run_id for entry in roots if isinstance(entry, RunStarted)}
    ended = Counter(entry.outcome.run_id for entry in roots if isinstance(entry, RunEnded))
    assert set(ended.values()) <= {1}
    state = fold_session(key, entries)
    assert begun - set(ended) == ({state.live.run_id} if state.live else set())
    assert complaints(state.messages if state.live is None else ()) == []
    for run_id in begun:
        row = state.row(run_id)
        assert row is not None
        assert await hall.office.run(run_id) == row
    return entries
