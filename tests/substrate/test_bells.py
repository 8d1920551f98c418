"""Doorbells and watchers of every substrate, and what its end means for those who wait."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from andon.errors import SessionError
from tests.substrate.conforming import ONE, TWO, Clock, Tested, conforms, problem_of


@conforms()
async def test_a_ring_says_whether_anybody_has_the_session(substrate: Tested) -> None:
    """Not while nobody does: before a claim, after a release, once the lease has ended."""
    clock = Clock().rule(substrate)
    assert not await substrate.ring(ONE)
    number = await substrate.send(ONE, "c1", b"")
    assert not await substrate.ring(ONE)
    claim = await substrate.claim("w")
    assert await substrate.ring(ONE)
    assert not await substrate.ring(TWO)
    assert await claim.release(number)
    assert not await substrate.ring(ONE)
    await substrate.send(ONE, "c2", b"")
    claim = await substrate.claim("w")
    await claim.give_back(60.0)
    assert not await substrate.ring(ONE)
    clock.time += 60.0
    await substrate.claim("w")
    assert await substrate.ring(ONE)
    clock.time += 15.0
    assert not await substrate.ring(ONE)


@conforms()
async def test_a_worker_hears_the_bell(substrate: Tested) -> None:
    """Before it listens, and while it does."""
    await substrate.send(ONE, "c1", b"")
    claim = await substrate.claim("w")
    for _ in range(20):
        await substrate.ring(ONE)
        await claim.rung()
        async with asyncio.TaskGroup() as group:
            group.create_task(claim.rung())
            group.create_task(substrate.ring(ONE))


@conforms()
async def test_a_worker_of_a_deleted_session_is_woken(substrate: Tested) -> None:
    """Its next beat or append tells it why."""
    await substrate.send(ONE, "c1", b"")
    claim = await substrate.claim("w")
    async with asyncio.TaskGroup() as group:
        group.create_task(claim.rung())
        group.create_task(substrate.delete(ONE))
    assert not await claim.beat()


@conforms()
async def test_a_watcher_hears_that_the_journal_has_grown(substrate: Tested) -> None:
    """When it reads then, it finds every record; what was before is not told."""
    head = await substrate.append(ONE, b"old", head=0)
    last, found = head, list[bytes]()
    async with substrate.watch(ONE) as heard, asyncio.TaskGroup() as group:
        group.create_task(_write(substrate, head, 50))
        async for what in heard:
            assert what is None
            for at, record in await substrate.read(ONE, after=last):
                last = at
                found.append(record)
            if len(found) == 50:
                break
    assert found == [b"%d" % n for n in range(50)]


async def _write(substrate: Tested, head: int, count: int) -> None:
    for n in range(count):
        head = await substrate.append(ONE, b"%d" % n, head=head)


@conforms()
async def test_a_watcher_hears_what_passes_by(substrate: Tested) -> None:
    """In order with the records; of its own session only, and from here on."""
    substrate.tell(ONE, b"before")
    async with substrate.watch(ONE) as heard, substrate.watch(ONE) as also, substrate.watch(TWO) as other:
        substrate.tell(ONE, b"a")
        substrate.tell(ONE, b"")
        await substrate.append(ONE, b"1", head=0)
        substrate.tell(ONE, b"b")
        substrate.tell(TWO, b"c")
        for one in (heard, also):
            told = await _until(one, b"b")
            assert [what for what in told if what is not None] == [b"a", b"", b"b"]
            assert None in told[told.index(b"") :]
        assert [what for what in await _until(other, b"c") if what is not None] == [b"c"]


async def _until(heard: AsyncIterator[bytes | None], last: bytes) -> list[bytes | None]:
    """Take what is heard; there may be a None at any time."""
    told: list[bytes | None] = []
    while last not in told:
        told.append(await anext(heard))
    return told


@conforms()
async def test_a_slow_watcher_loses_what_passes_by_and_no_record(substrate: Tested) -> None:
    """That the journal has grown is told once for all, and before what came after it."""
    async with substrate.watch(ONE) as heard:
        head = await substrate.append(ONE, b"1", head=0)
        await substrate.append(ONE, b"2", head=head)
        for n in range(20_000):
            substrate.tell(ONE, b"%d" % n)
        await substrate.append(TWO, b"1", head=0)
        assert await anext(heard) is None
        assert await anext(heard) == b"0"


@conforms()
async def test_a_watcher_hears_of_the_end_and_of_the_new_beginning(substrate: Tested) -> None:
    """A deleted session is one whose journal has changed."""
    await substrate.append(ONE, b"1", head=0)
    async with substrate.watch(ONE) as heard:
        await substrate.delete(ONE)
        assert await anext(heard) is None
        await substrate.append(ONE, b"new", head=0)
        assert await anext(heard) is None


# The end


@conforms()
async def test_a_closed_substrate_says_so(substrate: Tested) -> None:
    """Whatever it is asked, and whoever waits."""
    await substrate.send(ONE, "c1", b"")
    claim = await substrate.claim("w")

    async def listen() -> None:
        async with substrate.watch(ONE) as heard:
            await anext(heard)

    waits: list[Callable[[], Coroutine[Any, Any, object]]] = [
        listen,
        claim.rung,
        lambda: substrate.claim("w"),
    ]
    waiters = [asyncio.ensure_future(wait()) for wait in waits]  # noqa: TID251 — all are awaited below
    await substrate.read(ONE)
    await substrate.__aexit__(None, None, None)
    assert [await problem_of(_result(waiter)) for waiter in waiters] == ["closed"] * 3
    assert [await problem_of(wait()) for wait in waits] == ["closed"] * 3
    asked = [
        substrate.append(ONE, b"", head=0),
        substrate.read(ONE),
        substrate.send(ONE, "c2", b""),
        substrate.commands(ONE),
        substrate.ring(ONE),
        substrate.sessions(),
        substrate.row("r"),
        substrate.rows(),
        substrate.delete(ONE),
        claim.beat(),
        claim.release(1),
        claim.give_back(),
    ]
    assert [await problem_of(one) for one in asked] == ["closed"] * len(asked)
    substrate.tell(ONE, b"nobody")
    assert "closed" in (await substrate.trouble() or "")


async def _result(waiter: "asyncio.Future[object]") -> object:
    return await waiter


@conforms()
async def test_a_watcher_that_leaves_hears_nothing_more(substrate: Tested) -> None:
    """Others go on."""
    async with substrate.watch(ONE) as heard:
        async with substrate.watch(ONE):
            pass
        substrate.tell(ONE, b"a")
        assert await anext(heard) == b"a"
    with pytest.raises(SessionError):
        await substrate.append(ONE, b"", head=1)
