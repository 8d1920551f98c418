"""Two processes share a file, and one of them is killed at any moment: what was acknowledged is there."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from andon.adapters.sqlite import SqliteSubstrate
from andon.core.command import Key
from tests.substrate.conforming import ONE, TWO

pytestmark = pytest.mark.anyio

NEIGHBOUR = Path(__file__).parent / "neighbour.py"
KILLS = 20


@asynccontextmanager
async def neighbour(part: str, path: Path) -> AsyncGenerator[Process]:
    """Start a process that shares the file; it is ready when this is entered, and dead afterwards."""
    process = await asyncio.create_subprocess_exec(sys.executable, NEIGHBOUR, part, path, stdout=PIPE)
    try:
        assert await line(process) == ["ready"]
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: Process) -> list[str]:
    """Read what it says next."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().split()


@pytest.mark.parametrize("bells", [True, False], ids=["bells", "no bells"])
async def test_another_process_serves_what_is_sent_here(tmp_path: Path, bells: bool) -> None:  # noqa: FBT001
    """It claims, hears the bell, and is watched; without bells as well, but for what passes by."""
    if not bells:
        (tmp_path / "bells").write_text("no folder")
    path = tmp_path / "andon.db"
    async with SqliteSubstrate(path) as here, neighbour("worker", path) as there, here.watch(ONE) as heard:
        await here.send(ONE, "c1", b"hello")
        assert await line(there) == ["claimed", "app/ann/one", "1", "hello"]
        await here.send(ONE, "c2", b"again")
        assert await here.ring(ONE)
        assert await line(there) == ["heard", "again"]
        told: set[bytes | None] = set()
        while not (records := await here.read(ONE)) or (bells and b"token" not in told):
            told.add(await anext(heard))
        assert [record for _, record in records] == [b"record"]
        assert await line(there) == ["released", str(records[0][0]), "True"]
        assert not await here.ring(ONE)
        assert await there.wait() == 0


async def _killed_with_a_session(path: Path) -> None:
    async with neighbour("worker", path) as there:
        assert (await line(there))[0] == "claimed"
        there.kill()
        await there.wait()


async def test_a_session_of_a_killed_process_is_taken_at_once(tmp_path: Path) -> None:
    """By whoever notices first: who rings for it, or who writes."""
    path = tmp_path / "andon.db"
    async with SqliteSubstrate(path, lease=3_600.0) as here:
        await here.send(ONE, "c1", b"hello")
        for deliveries, notice in [(2, here.ring(ONE)), (4, here.append(TWO, b"", head=0))]:
            await _killed_with_a_session(path)
            await notice
            claim = await here.claim("w")
            assert (claim.key, claim.deliveries) == (ONE, deliveries)
            assert await here.ring(ONE)
            await claim.give_back(0.001)


async def test_a_session_of_a_killed_process_is_taken_when_the_file_is_opened_again(tmp_path: Path) -> None:
    """As a server does that is started again."""
    path = tmp_path / "andon.db"
    async with SqliteSubstrate(path, lease=3_600.0) as here:
        await here.send(ONE, "c1", b"hello")
    await _killed_with_a_session(path)
    async with SqliteSubstrate(path, lease=3_600.0) as here:
        claim = await here.claim("w")
        assert (claim.key, claim.deliveries) == (ONE, 2)


async def test_a_session_of_a_killed_process_without_a_bell_is_taken_when_its_lease_ends(
    tmp_path: Path,
) -> None:
    """Nobody can tell whether it lives."""
    (tmp_path / "bells").write_text("no folder")
    path = tmp_path / "andon.db"
    async with SqliteSubstrate(path) as here:
        await here.send(ONE, "c1", b"hello")
        async with neighbour("worker", path) as there:
            assert (await line(there))[0] == "claimed"
            there.kill()
            await there.wait()
        assert await here.ring(ONE)
        wall = here.wall
        here.wall = lambda: wall() + 15.0
        claim = await here.claim("w")
        assert (claim.key, claim.deliveries) == (ONE, 2)


@pytest.mark.timeout(180)
async def test_what_was_acknowledged_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    """Twenty times in one file: nothing is lost, nothing is there twice, and the order is kept."""
    path = tmp_path / "andon.db"
    told: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for n in range(KILLS):
        async with neighbour("writer", path) as there:
            for _ in range(7 * n % 40):
                _note(told, await line(there))
            there.kill()
            rest, _ = await there.communicate()
        for said in rest.decode().splitlines():
            _note(told, said.split())
        await _look(path, told)
    assert sum(map(len, told.values())) >= KILLS


def _note(told: dict[tuple[str, str], list[tuple[int, int]]], said: list[str]) -> None:
    if len(said) == 4:  # else it was killed in the midst of a line
        told[said[0], said[1]].append((int(said[2]), int(said[3])))


async def _look(path: Path, told: dict[tuple[str, str], list[tuple[int, int]]]) -> None:
    async with SqliteSubstrate(path) as here:
        for n in range(3):
            records = await here.read(Key("app", "ann", f"log{n}"))
            commands = await here.commands(Key("app", "ann", f"box{n}"))
            for found, acknowledged in [
                (records, told["appended", f"log{n}"]),
                (commands, told["sent", f"box{n}"]),
            ]:
                assert [int(text) for _, text in found] == list(range(len(found)))
                assert [at for at, _ in found] == sorted({at for at, _ in found})
                assert set(acknowledged) <= {(at, int(text)) for at, text in found}
            row = await here.row(f"log{n}")
            assert (None if row is None else int(row)) == (len(records) - 1 if records else None)
