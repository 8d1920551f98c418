"""The file of SQLite: what it survives, what it refuses in words, and how it is written."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from andon.adapters.sqlite import SqliteSubstrate, schema
from andon.errors import SessionError
from tests.substrate.conforming import ONE, TWO, at_once

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "andon.db"


@pytest.fixture
def plain(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program that has the file open."""
    db = sqlite3.connect(path, isolation_level=None)
    yield db
    db.close()


async def refusal(path: Path) -> SessionError:
    """Give what is said when a file is opened."""
    with pytest.raises(SessionError) as caught:
        async with SqliteSubstrate(path):
            pass
    return caught.value


# What it keeps


async def test_all_is_there_when_the_file_is_opened_again(path: Path) -> None:
    """Records, commands, ids, rows; and what was claimed is free at once, with its deliveries."""
    async with SqliteSubstrate(path) as substrate:
        head = await substrate.append(ONE, b"1", head=0, rows={"r": b"row"})
        numbers = [await substrate.send(ONE, f"c{n}", b"%d" % n) for n in range(3)]
        await substrate.claim("w")
        await substrate.commands(ONE, after=numbers[0])
    assert sorted(one.name for one in path.parent.iterdir()) == ["andon.db", "bells"]
    assert list((path.parent / "bells").iterdir()) == []
    async with SqliteSubstrate(path) as substrate:
        assert list(await substrate.read(ONE)) == [(head, b"1")]
        assert await substrate.row("r") == b"row"
        assert list(await substrate.commands(ONE)) == [(numbers[1], b"1"), (numbers[2], b"2")]
        assert await substrate.send(ONE, "c0", b"0") == numbers[0]
        claim = await substrate.claim("w")
        assert (claim.key, claim.deliveries) == (ONE, 2)


async def test_a_new_file_may_be_opened_by_many_at_once(path: Path) -> None:
    """Its tables are made once."""
    async with asyncio.TaskGroup() as group:
        for n in range(10):
            group.create_task(_send(path, f"c{n}"))
    async with SqliteSubstrate(path) as substrate:
        assert len(await substrate.commands(ONE)) == 10


async def _send(path: Path, command_id: str) -> None:
    async with SqliteSubstrate(path) as substrate:
        await substrate.send(ONE, command_id, b"")


# What it refuses


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """It is not made: it may be a slip of the pen."""
    refused = await refusal(tmp_path / "nowhere" / "andon.db")
    assert refused.kind == "broken"
    assert f"there is no folder {tmp_path / 'nowhere'}; make it" in str(refused)


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """It says so."""
    refused = await refusal(tmp_path)
    assert (refused.kind, "it is a folder" in str(refused)) == ("broken", True)


async def test_what_processes_cannot_share_is_refused() -> None:
    """There is no database in memory here: that is another substrate."""
    refused = await refusal(Path(":memory:"))
    assert (refused.kind, "name a local file" in str(refused)) == ("broken", True)


def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    """It says so."""
    path.write_text("dear diary\n" * 1_000)
    refused = asyncio.run(refusal(path))
    assert (refused.kind, "is no database" in str(refused)) == ("broken", True)
    assert path.read_text() == "dear diary\n" * 1_000


async def test_the_database_of_another_program_is_left_alone(path: Path, plain: sqlite3.Connection) -> None:
    """Whatever its version."""
    plain.execute("CREATE TABLE bookmarks (url TEXT)")
    for version in (0, 7):
        plain.execute(f"PRAGMA user_version = {version}")
        refused = await refusal(path)
        assert (refused.kind, "another program" in str(refused)) == ("broken", True)
    assert plain.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]


async def test_a_file_of_a_newer_version_is_refused(path: Path, plain: sqlite3.Connection) -> None:
    """It says what to do, and writes nothing."""
    await _send(path, "c1")
    plain.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    refused = await refusal(path)
    assert (refused.kind, "use the newer Andon that wrote it" in str(refused)) == ("newer", True)


async def test_a_file_that_must_not_be_written_is_named(path: Path) -> None:
    """With what to do; what is in it can be read."""
    async with SqliteSubstrate(path) as substrate:
        head = await substrate.append(ONE, b"1", head=0)
        await substrate.writer.ask(lambda db: db.execute("PRAGMA query_only = true").rowcount)
        with pytest.raises(SessionError, match=r"cannot be written .*: give this user the right") as caught:
            await substrate.append(ONE, b"2", head=head)
        assert caught.value.kind == "broken"
        assert list(await substrate.read(ONE)) == [(head, b"1")]


async def test_a_file_that_another_program_keeps_locked(
    path: Path, plain: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written is refused after a while; reads go on; once it is free, all does."""
    monkeypatch.setattr(schema, "PATIENCE", 0.02)
    async with SqliteSubstrate(path) as substrate:
        head = await substrate.append(ONE, b"1", head=0)
        plain.execute("BEGIN IMMEDIATE")
        refused = await at_once(substrate.append(ONE, b"2", head=head), substrate.send(ONE, "c1", b""))
        assert refused == ["full", "full"]
        assert "locked" in (await substrate.trouble() or "")
        assert len(await substrate.read(ONE)) == 1
        plain.execute("ROLLBACK")
        assert await substrate.trouble() is None
        assert await substrate.append(ONE, b"2", head=head) > head


async def test_a_full_disk(path: Path) -> None:
    """What has no room is refused whole, what has is kept; with room again all goes on."""
    async with SqliteSubstrate(path) as substrate:
        head = await substrate.append(ONE, b"1", head=0)
        (pages,) = await substrate.writer.ask(lambda db: db.execute("PRAGMA page_count").fetchone())
        await substrate.writer.ask(lambda db: _bound(db, pages + 3))
        large = substrate.append(ONE, b"2" * 100_000, head=head, rows={"r": b"row"})
        small = substrate.send(TWO, "c1", b"small")
        refused, sent = await at_once(large, small)
        assert refused == "full"
        assert isinstance(sent, int)
        assert [record for _, record in await substrate.read(ONE)] == [b"1"]
        assert await substrate.row("r") is None
        with pytest.raises(SessionError, match="there is no room for"):
            await _fill(substrate)
        assert "make room" in (await substrate.trouble() or "")
        assert [command for _, command in await substrate.commands(TWO)] == [b"small"]

        await substrate.writer.ask(lambda db: _bound(db, pages + 1_000))
        assert await substrate.trouble() is None
        assert await substrate.append(ONE, b"2" * 100_000, head=head, rows={"r": b"row"}) > head
        assert await substrate.row("r") == b"row"


def _bound(db: sqlite3.Connection, pages: int) -> None:
    db.execute(f"PRAGMA max_page_count = {pages}")


async def _fill(substrate: SqliteSubstrate) -> None:
    head = 0
    while True:
        head = await substrate.append(TWO, b"x" * 2_000, head=head)


# How it is written


class Gate:
    """Holds the writer in the midst of a transaction, and counts them."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), Event()
        self.commits = 0
        self._loop = asyncio.get_running_loop()

    def __call__(self, db: sqlite3.Connection) -> None:
        """Wait until it is opened."""
        db.execute("INSERT INTO about VALUES ('gate', '')")
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self.opened.wait(30)
        db.set_trace_callback(self._count)

    def _count(self, statement: str) -> None:
        self.commits += statement == "COMMIT"


async def test_many_sessions_share_a_transaction(path: Path) -> None:
    """What comes while the disk is busy is written at once."""
    async with SqliteSubstrate(path) as substrate:
        gate = Gate()
        substrate.writer.post(gate)
        await gate.reached.wait()
        async with asyncio.TaskGroup() as group:
            for n in range(50):
                group.create_task(substrate.send(ONE, f"c{n}", b""))
            await substrate.read(ONE)
            gate.opened.set()
        assert gate.commits == 2  # of the gate, and of the rest


async def test_one_that_fails_is_no_harm_to_those_beside_it(path: Path) -> None:
    """A fenced append, and one that SQLite cannot take."""
    async with SqliteSubstrate(path) as substrate:
        results = await at_once(
            substrate.append(ONE, b"1", head=0),
            substrate.append(ONE, b"2", head=0),
            substrate.append(TWO, None, head=0),  # type: ignore[arg-type]  # what is tested
            substrate.send(TWO, "c1", b""),
        )
        assert [None if isinstance(one, int) else one for one in results] == [None, "fenced", "broken", None]
        assert [info.key for info in await substrate.sessions()] == [ONE]


async def test_reads_do_not_wait_behind_writes(path: Path) -> None:
    """They see what was durable when they began."""
    async with SqliteSubstrate(path) as substrate:
        await substrate.append(ONE, b"1", head=0)
        gate = Gate()
        writing = substrate.writer.post(gate)
        await gate.reached.wait()
        assert [record for _, record in await substrate.read(ONE)] == [b"1"]
        assert not await substrate.ring(ONE)
        assert not writing.done()
        gate.opened.set()
        await writing


async def test_commands_are_forgotten_with_what_is_written_next(path: Path) -> None:
    """Forgetting costs no wait for the disk of its own."""
    async with SqliteSubstrate(path) as substrate:
        number = await substrate.send(ONE, "c1", b"")
        gate = Gate()
        gate.opened.set()
        await substrate.writer.ask(gate)
        before = gate.commits
        assert list(await substrate.commands(ONE, after=number)) == []
        assert list(await substrate.commands(ONE)) == []
        await substrate.send(TWO, "c1", b"")
        assert gate.commits == before + 1
        assert await substrate.reader.ask(lambda db: db.execute("SELECT count(*) FROM mail").fetchone()) == (
            1,
        )
