"""Scene: servers that share a file, clients at work on it, and somebody who kills the servers at random."""

import multiprocessing
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from time import monotonic

import anyio
import httpx
from anyio import to_thread
from anyio.abc import TaskGroup

from tests.chaos import program, verdict
from tests.chaos.client import AGAIN, Client, Told

HASTY = 0.1  # how often a server is killed that may not even listen
WHOLE = 0.6  # how often one that is told to leave may do so
LONGEST_DRAIN = 0.3  # seconds that it has else
LONGEST_LIFE = 1.0  # seconds from where a server listens until it is killed
SETTLED_WITHIN = 60.0

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.chaos.program"])


class Chaos:
    """What is done, by a seed.

    Args:
        folder: Where the file and the ledger are.
        seed: Leads all that is done by chance.
        sessions: How many sessions there are.
        servers: How many servers share the file.
        drains: How often, of 1, a server is told to leave instead.
        full: Whether the disk is full soon after each start, but the last.
        lease: Seconds after which the session of a silent server is another's.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        sessions: int = 8,
        servers: int = 1,
        drains: float = 0.0,
        full: bool = False,
        lease: float = 15.0,
    ) -> None:
        self.file, self.ledger = folder / "andon.db", folder / "ledger"
        self._random = Random(seed)  # noqa: S311 — it is to be the same again
        self._ports = [_free_port() for _ in range(servers)]
        self._drains = drains
        self._full = full
        self._http = httpx.AsyncClient(timeout=30)
        self._lease = lease
        addresses = [f"http://127.0.0.1:{port}" for port in self._ports]
        self.told = [Told(f"s{n}") for n in range(sessions)]
        self.clients = [Client(one, Random(f"{seed}-{one.session}"), addresses) for one in self.told]  # noqa: S311
        self.kills = 0
        self.left = 0
        self.gaps: list[float] = []
        self.odd: list[str] = []
        self._over = False
        self._most = 0

    async def play(self, kills: int) -> list[str]:
        """Kill until it is enough, let all come to an end, and say what is wrong."""
        self._most = kills
        async with anyio.create_task_group() as group:
            stop = anyio.Event()
            for port in self._ports:
                group.start_soon(self._keep, port, stop)
            async with anyio.create_task_group() as clients:
                for client in self.clients:
                    clients.start_soon(self._work, client, group)
            await self._settle()
            stop.set()
            group.cancel_scope.cancel()
        for client in self.clients:
            await client.close()
        await self._http.aclose()
        found = await to_thread.run_sync(lambda: list(verdict.wrong(self.file, self.ledger, self.told)))
        return [*self.odd, *found]

    async def _work(self, client: Client, readers: TaskGroup) -> None:
        await client.begin()
        readers.start_soon(client.follow)
        await client.work(lambda: self._over)

    # The end

    async def _settle(self) -> None:
        """Wait until all sessions are at rest, and have been read to the end."""
        with anyio.move_on_after(SETTLED_WITHIN) as scope:
            for client in self.clients:
                await until(partial(self._is_settled, client))
        if scope.cancelled_caught:
            self.odd.append(f"the sessions did not come to rest within {SETTLED_WITHIN:g} s")

    async def _is_settled(self, client: Client) -> bool:
        await client.release()
        if await to_thread.run_sync(verdict.waiting, self.file):
            return False
        session = await client.ask("GET", client.path, expect={200})
        return bool(client.told.read) and client.told.read[-1][0] >= session["n"]

    # Servers

    async def _keep(self, port: int, stop: anyio.Event) -> None:
        """Let a server live, and die, again and again, and leave in order in the end."""
        died = 0.0
        while True:
            server = await self._start(port)
            hasty = self.kills < self._most and self._random.random() < HASTY
            if not hasty:
                await until(partial(self._answers, port))
                self.gaps += [await self._gap(died)] if died else []
            if self.kills >= self._most:
                self._over = True
                break
            await anyio.sleep(self._random.random() * LONGEST_LIFE)
            died = monotonic()
            drains = not hasty and self._random.random() < self._drains
            if drains and self._random.random() < WHOLE:
                await self._leave(server)
            else:
                await self._kill(server, drains=drains)
        try:
            await stop.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave(server)

    async def _kill(self, server: ForkServerProcess, *, drains: bool) -> None:
        """Kill it, in the midst of leaving if it `drains`."""
        self.kills += 1
        if drains:
            server.terminate()
            await anyio.sleep(self._random.random() * LONGEST_DRAIN)
        server.kill()
        await to_thread.run_sync(server.join)

    async def _answers(self, port: int) -> bool:
        try:
            answer = await self._http.get(f"http://127.0.0.1:{port}/healthz")
        except httpx.TransportError:
            return False
        return answer.is_success

    async def _start(self, port: int) -> ForkServerProcess:
        room = self._random.randint(0, 60) if self._full and self.kills < self._most else None
        plan = program.Plan(str(self.file), str(self.ledger), port, self._lease, room)
        server = processes.Process(target=program.run, args=(plan,))
        await to_thread.run_sync(server.start)
        return server

    async def _leave(self, server: ForkServerProcess) -> None:
        self.left += 1
        server.terminate()
        await to_thread.run_sync(server.join, 30)
        if server.exitcode != 0:
            self.odd.append(f"a server that was told to leave ended with {server.exitcode}")
            server.kill()

    async def _gap(self, died: float) -> float:
        """Measure until something is told again, if there is anything to do."""
        seen = self._read()

        async def grown() -> bool:
            return self._read() > seen

        with anyio.move_on_after(LONGEST_LIFE):
            await until(grown)
        return monotonic() - died

    def _read(self) -> int:
        return sum(len(one.read) for one in self.told)


async def until(looks: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again, at what nobody can tell of, as it lives in other processes."""
    while not await looks():  # noqa: ASYNC110 — see above
        await anyio.sleep(AGAIN)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
