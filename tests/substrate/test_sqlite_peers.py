"""Several substrates share one file: they wake each other, with doorbells and without."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from andon.adapters.sqlite import SqliteSubstrate, store
from andon.adapters.sqlite.bells import GROWN
from andon.core.command import Key
from tests.substrate.conforming import ONE, SHORT, TWO, at_once, problem_of

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["beside the file", "in a folder of its own", "none"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where the file is; its bells are beside it, or that is too long a path for them, or not to be had."""
    folder = tmp_path / ("x" * 120) if request.param == "in a folder of its own" else tmp_path
    folder.mkdir(exist_ok=True)
    if request.param == "none":
        (folder / "bells").write_text("no folder")
    return folder / "andon.db"


@asynccontextmanager
async def two(path: Path) -> AsyncGenerator[tuple[SqliteSubstrate, SqliteSubstrate]]:
    """Open a file twice."""
    async with SqliteSubstrate(path) as here, SqliteSubstrate(path) as there:
        yield here, there


async def test_what_is_sent_here_is_claimed_there(path: Path) -> None:
    """By one worker, whichever way it goes."""
    async with two(path) as (here, there), asyncio.TaskGroup() as group:
        for n, (one, other) in enumerate([(here, there), (there, here)] * 5):
            claiming = group.create_task(other.claim("w"))
            sent = await one.send(ONE, f"c{n}", b"%d" % n)
            claim = await claiming
            assert list(await other.commands(ONE, after=sent - 1)) == [(sent, b"%d" % n)]
            assert await claim.release(sent)


async def test_a_ring_here_is_heard_there(path: Path) -> None:
    """And answered with whether anybody has the session."""
    async with two(path) as (here, there):
        assert not await here.ring(ONE)
        sent = await here.send(ONE, "c0", b"")
        claim = await there.claim("w")
        for n in range(5):
            async with asyncio.TaskGroup() as group:
                group.create_task(claim.rung())
                sent = await here.send(ONE, f"c{n + 1}", b"")
                assert await here.ring(ONE)
        assert await claim.release(sent)
        assert not await here.ring(ONE)


async def test_a_record_that_is_written_here_is_heard_of_there(path: Path) -> None:
    """As in one process: whoever is woken finds it."""
    async with two(path) as (here, there), there.watch(ONE) as heard:
        head = 0
        for n in range(5):
            head = await here.append(ONE, b"%d" % n, head=head)
            while not (found := await there.read(ONE, after=n)) or found[-1][0] < head:
                assert await anext(heard) is None
        assert await problem_of(there.append(ONE, b"late", head=head - 1)) == "fenced"


async def test_a_session_that_is_deleted_here_is_lost_there(path: Path) -> None:
    """Its worker is woken, and fenced."""
    async with two(path) as (here, there):
        head = await here.append(ONE, b"1", head=0)
        await here.send(ONE, "c1", b"")
        claim = await there.claim("w")
        async with asyncio.TaskGroup() as group:
            group.create_task(claim.rung())
            await here.delete(ONE)
        assert not await claim.beat()
        assert await problem_of(there.append(ONE, b"2", head=head)) == "fenced"


async def test_a_lease_that_ends_there_is_taken_here(path: Path) -> None:
    """Also if whoever had it is gone without a word."""
    async with SqliteSubstrate(path, lease=SHORT) as here, SqliteSubstrate(path, lease=SHORT) as there:
        await there.send(ONE, "c1", b"")
        lost = await there.claim("w")
        claim = await here.claim("w")
        assert (claim.key, claim.deliveries) == (ONE, 2)
        assert not await lost.beat()


async def test_what_is_given_back_there_is_claimed_here(path: Path) -> None:
    """At once, or after its delay."""
    async with two(path) as (here, there), asyncio.TaskGroup() as group:
        await there.send(ONE, "c1", b"")
        for delay in (0.0, SHORT):
            claim = await there.claim("w")
            claiming = group.create_task(here.claim("w"))
            await claim.give_back(delay)
            await (await claiming).give_back()


async def test_of_two_that_append_in_one_file_one_wins(path: Path) -> None:
    """50 times."""
    async with two(path) as (here, there):
        head = 0
        for n in range(50):
            results = await at_once(
                here.append(ONE, b"here %d" % n, head=head), there.append(ONE, b"there %d" % n, head=head)
            )
            (head,) = [result for result in results if isinstance(result, int)]
            assert results.count("fenced") == 1
        assert len(await here.read(ONE)) == 50


# Bells


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A file with its bells beside it."""
    return tmp_path / "andon.db"


@pytest.mark.parametrize("depth", [1, 120])
async def test_what_passes_by_here_is_heard_there(tmp_path: Path, depth: int) -> None:
    """Of its session only; what is too large for a datagram may be lost."""
    folder = tmp_path / ("x" * depth)
    folder.mkdir()
    async with two(folder / "andon.db") as (here, there), there.watch(ONE) as heard:
        here.tell(Key("app", "ann", "another"), b"no")
        here.tell(ONE, b"x" * 1_000_000)
        here.tell(ONE, b"token\n\xff")
        here.tell(ONE, b"")
        assert [await anext(heard), await anext(heard)] == [b"token\n\xff", b""]


async def test_two_files_in_a_folder_do_not_hear_each_other(tmp_path: Path) -> None:
    """Sessions may have the same names in both."""
    async with (
        SqliteSubstrate(tmp_path / "a.db") as a,
        two(tmp_path / "b.db") as (b, also),
        also.watch(ONE) as heard,
    ):
        a.tell(ONE, b"of a")
        b.tell(ONE, b"of b")
        assert await anext(heard) == b"of b"


async def test_a_bell_that_is_lost_among_many_is_made_up_for(beside: Path) -> None:
    """A peer whose queue was full looks at the file when it has heard the rest."""
    async with two(beside) as (here, there), there.watch(ONE) as heard:
        there.writer.idle = 1_000.0  # it does not look by itself
        await there.append(TWO, b"1", head=0)
        for _ in range(1_000):
            here.tell(ONE, b"token")
        appending = here.writer.post(_append, [(GROWN, ONE)])
        for _ in range(2):  # the second is done when the first has been told of
            done = Event()
            here.writer.post(lambda _, done=done: done.set())
            assert done.wait(30)  # in which this loop hears nothing
        while await anext(heard) is not None:
            pass
        assert [at for at, _ in await there.read(ONE)] == [await appending]


def _append(db: sqlite3.Connection) -> int:
    return store.append(db, ONE, b"1", head=0, rows={}, wall=1.0)


async def test_what_the_dead_left_is_cleared_away(beside: Path) -> None:
    """A ring for a session of theirs is not answered, and nothing is kept for them."""
    async with SqliteSubstrate(beside) as here:
        (own,) = (beside.parent / "bells").iterdir()
        dead = own.with_name(own.name.replace(here.hub.bells.id, "dead"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
            left.bind(str(dead))
        await here.send(ONE, "c1", b"")
        await here.claim("w")
        await here.writer.ask(lambda db: db.execute("UPDATE claims SET bell = 'dead'").rowcount)
        assert not await here.ring(ONE)
        assert not dead.exists()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
            left.bind(str(dead))
        async with SqliteSubstrate(beside) as there:
            assert sorted(there.hub.bells.peers) == [here.hub.bells.id]
        assert not dead.exists()


async def test_a_peer_that_does_not_listen_holds_nobody_up(beside: Path) -> None:
    """It is passed over for as long as it is there."""
    async with SqliteSubstrate(beside) as here:
        (own,) = (beside.parent / "bells").iterdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
            deaf.bind(str(own.with_name(own.name.replace(here.hub.bells.id, "deaf"))))
            async with two(beside) as (one, other), other.watch(ONE) as heard:
                head = 0
                for n in range(100):
                    one.tell(ONE, b"%d" % n)
                    head = await one.append(ONE, b"%d" % n, head=head)
                assert "deaf" in one.hub.bells.peers
                assert await anext(heard) in {None, b"0"}
