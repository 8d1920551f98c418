"""Journals of every substrate: appended with compare-and-set, read in order, listed, deleted."""

from andon.core.command import Key
from andon.ports import SessionInfo
from tests.substrate.conforming import ONE, TWO, Clock, Tested, at_once, conforms, problem_of


@conforms()
async def test_records_are_read_in_the_order_in_which_they_were_appended(substrate: Tested) -> None:
    """Heads grow, and reading begins behind any of them."""
    heads = [0]
    for n in range(5):
        heads.append(await substrate.append(ONE, b"%d" % n, head=heads[-1]))
    assert heads == sorted(set(heads))
    assert await substrate.head(ONE) == heads[-1]
    records = await substrate.read(ONE)
    assert list(records) == [(heads[n + 1], b"%d" % n) for n in range(5)]
    assert list(await substrate.read(ONE, after=heads[3])) == list(records[3:])
    assert list(await substrate.read(ONE, after=heads[-1])) == []


@conforms()
async def test_a_session_that_nobody_wrote_to_is_empty(substrate: Tested) -> None:
    """Nothing is read, and it is not on the list."""
    assert await substrate.head(ONE) == 0
    assert list(await substrate.read(ONE)) == []
    assert list(await substrate.commands(ONE)) == []
    assert list(await substrate.sessions()) == []
    assert list(await substrate.rows()) == []
    assert await substrate.row("nobody") is None
    assert await substrate.trouble() is None
    assert await substrate.head(ONE) == 0
    await substrate.delete(ONE)


@conforms()
async def test_the_head_is_that_of_the_last_record(substrate: Tested) -> None:
    """And 0 of a session that only has a mailbox, or that was deleted."""
    await substrate.send(ONE, "c1", b"")
    assert await substrate.head(ONE) == 0
    head = 0
    for _ in range(3):
        head = await substrate.append(ONE, b"", head=head)
        assert await substrate.head(ONE) == head
    await substrate.append(TWO, b"", head=0)
    assert await substrate.head(ONE) == head
    await substrate.delete(ONE)
    assert await substrate.head(ONE) == 0


@conforms()
async def test_a_record_may_hold_any_bytes(substrate: Tested) -> None:
    """Large ones, empty ones, zeros."""
    head = 0
    for record in (b"", b"\0\xff\n", b"x" * 3_000_000):
        head = await substrate.append(ONE, record, head=head)
    assert [record for _, record in await substrate.read(ONE)] == [b"", b"\0\xff\n", b"x" * 3_000_000]


@conforms()
async def test_an_append_behind_an_old_head_is_fenced(substrate: Tested) -> None:
    """Whoever does not know the last record writes nothing."""
    first = await substrate.append(ONE, b"1", head=0)
    await substrate.append(ONE, b"2", head=first)
    for head in (0, first, first + 1_000):
        late = substrate.append(ONE, b"late", head=head, rows={"late": b"late"})
        assert await problem_of(late) == "fenced"
    assert [record for _, record in await substrate.read(ONE)] == [b"1", b"2"]
    assert await substrate.row("late") is None


@conforms()
async def test_an_append_behind_a_head_of_another_session_is_fenced(substrate: Tested) -> None:
    """A head means something for one journal only."""
    head = await substrate.append(ONE, b"1", head=0)
    assert await problem_of(substrate.append(TWO, b"1", head=head)) == "fenced"


@conforms()
async def test_of_two_appends_at_once_one_wins(substrate: Tested) -> None:
    """200 times, and the journal holds what the winners wrote."""
    head, won = 0, list[bytes]()
    for n in range(200):
        records = [b"a%d" % n, b"b%d" % n]
        results = await at_once(*(substrate.append(ONE, record, head=head) for record in records))
        (winner,) = [i for i, result in enumerate(results) if isinstance(result, int)]
        assert results[1 - winner] == "fenced"
        won.append(records[winner])
        head = (await substrate.read(ONE, after=head))[-1][0]
    assert [record for _, record in await substrate.read(ONE)] == won


@conforms()
async def test_many_sessions_are_written_to_at_once(substrate: Tested) -> None:
    """Each is in order, and none knows of the others."""

    async def write(key: Key) -> None:
        head = 0
        for n in range(20):
            head = await substrate.append(key, b"%s %d" % (key.session.encode(), n), head=head)

    keys = [Key("app", "ann", f"s{n}") for n in range(20)]
    await at_once(*map(write, keys))
    for key in keys:
        expected = [b"%s %d" % (key.session.encode(), n) for n in range(20)]
        assert [record for _, record in await substrate.read(key)] == expected


# The index


@conforms()
async def test_rows_are_written_with_the_record(substrate: Tested) -> None:
    """A run's newest row is what the index says."""
    head = await substrate.append(ONE, b"1", head=0, rows={"r1": b"old", "r2": b"two"})
    await substrate.append(TWO, b"1", head=0, rows={"r3": b"three"})
    await substrate.append(ONE, b"2", head=head, rows={"r1": b"new"})
    assert await substrate.row("r1") == b"new"
    assert await substrate.row("r4") is None
    assert sorted(await substrate.rows()) == [b"new", b"three", b"two"]


@conforms()
async def test_sessions_are_listed_by_app_and_user(substrate: Tested) -> None:
    """With the times of their first and last record; one that has none is not on the list."""
    clock = Clock().rule(substrate)
    await substrate.send(ONE, "c1", b"")
    clock.time = 5_001.0
    head = await substrate.append(ONE, b"1", head=0)
    clock.time = 5_002.0
    await substrate.append(TWO, b"1", head=0)
    await substrate.send(Key("app", "cid", "three"), "c1", b"")
    clock.time = 5_003.0
    await substrate.append(ONE, b"2", head=head)
    one, two = SessionInfo(ONE, 5_001.0, 5_003.0), SessionInfo(TWO, 5_002.0, 5_002.0)
    assert list(await substrate.sessions()) == [one, two]
    assert list(await substrate.sessions("app", "bob")) == [two]
    assert list(await substrate.sessions(user="ann")) == [one]
    assert list(await substrate.sessions("another")) == []


# The end


@conforms()
async def test_a_deleted_session_is_forgotten(substrate: Tested) -> None:
    """Its journal, its mailbox and its rows; those of others stay."""
    for key in (ONE, TWO):
        await substrate.append(key, b"1", head=0, rows={key.session: b"row of " + key.session.encode()})
        await substrate.send(key, "c1", b"command")
    await substrate.delete(ONE)
    assert list(await substrate.read(ONE)) == []
    assert list(await substrate.commands(ONE)) == []
    assert await substrate.row("one") is None
    assert list(await substrate.rows()) == [b"row of two"]
    assert [info.key for info in await substrate.sessions()] == [TWO]
    assert (await substrate.claim("w")).key == TWO
    assert [command for _, command in await substrate.commands(TWO)] == [b"command"]


@conforms()
async def test_whoever_has_a_deleted_session_is_fenced(substrate: Tested) -> None:
    """Also after it was made anew: its heads and its commands' numbers go on from the old ones."""
    old = await substrate.append(ONE, b"1", head=0)
    number = await substrate.send(ONE, "c1", b"old")
    claim = await substrate.claim("w")
    await substrate.delete(ONE)
    assert not await claim.beat()
    assert await problem_of(substrate.append(ONE, b"2", head=old)) == "fenced"

    assert await substrate.append(ONE, b"new", head=0) > old
    assert await substrate.send(ONE, "c1", b"new") > number
    assert await problem_of(substrate.append(ONE, b"2", head=old)) == "fenced"
    assert [command for _, command in await substrate.commands(ONE, after=number)] == [b"new"]
    assert not await claim.beat()
    assert await claim.release(number)
    await claim.give_back()
    assert (await substrate.claim("w")).key == ONE
