"""Claims of every substrate: exclusive, kept up by beats, redelivered, never lost."""

import asyncio
from contextlib import suppress

from andon.core.command import Key
from andon.ports import Claim
from tests.substrate.conforming import ONE, SHORT, TWO, Clock, Tested, at_once, claim_all, conforms


@conforms()
async def test_a_claim_waits_for_something_to_do(substrate: Tested) -> None:
    """A command is; a record is not."""
    await substrate.append(TWO, b"1", head=0)
    async with asyncio.TaskGroup() as group:
        claiming = group.create_task(substrate.claim("w"))
        await substrate.read(TWO)
        assert not claiming.done()
        await substrate.send(ONE, "c1", b"")
    claim = claiming.result()
    assert (claim.key, claim.deliveries) == (ONE, 1)


@conforms()
async def test_who_has_waited_longest_is_next(substrate: Tested) -> None:
    """Sessions take turns."""
    keys = [Key("app", "ann", f"s{n}") for n in (3, 1, 2)]
    for key in keys:
        await substrate.send(key, "c1", b"")
    await substrate.send(keys[0], "c2", b"")
    claims = [await substrate.claim("w") for _ in keys]
    assert [claim.key for claim in claims] == keys
    for claim in claims:
        await claim.give_back()
    assert (await substrate.claim("w")).key == keys[0]


@conforms()
async def test_a_session_is_given_to_one_worker_only(substrate: Tested) -> None:
    """Twenty workers, fifty sessions, each with two commands that may come in any order."""
    keys = [Key("app", "ann", f"s{n}") for n in range(50)]
    at_work: set[Key] = set()
    done: dict[Key, int] = dict.fromkeys(keys, 0)
    over = asyncio.Event()

    async def serve(claim: Claim) -> None:
        assert claim.key not in at_work
        at_work.add(claim.key)
        cursor = 0
        while True:
            commands = await substrate.commands(claim.key, after=cursor)
            done[claim.key] += len(commands)
            cursor = commands[-1][0] if commands else cursor
            at_work.discard(claim.key)
            if await claim.release(cursor):
                break
            at_work.add(claim.key)
        if all(count == 2 for count in done.values()):
            over.set()

    async def work(name: str) -> None:
        while True:
            await serve(await substrate.claim(name))

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work(f"w{n}")) for n in range(20)]
        for command in ("c1", "c2"):
            for key in keys:
                group.create_task(substrate.send(key, command, b""))
        await over.wait()
        for worker in workers:
            worker.cancel()
    assert await claim_all(substrate) == {}


@conforms()
async def test_a_session_that_somebody_has_is_not_free(substrate: Tested) -> None:
    """Whatever is sent to it, and rung for."""
    await substrate.send(ONE, "c1", b"")
    await substrate.claim("w")
    await substrate.send(ONE, "c2", b"")
    await substrate.ring(ONE)
    assert await claim_all(substrate) == {}


# Release


@conforms()
async def test_a_session_is_released_when_its_mailbox_is_consumed(substrate: Tested) -> None:
    """Not before; and the next claim counts from one again."""
    first = await substrate.send(ONE, "c1", b"")
    claim = await substrate.claim("w")
    second = await substrate.send(ONE, "c2", b"")
    assert not await claim.release(0)
    assert not await claim.release(first)
    assert await claim_all(substrate) == {}
    assert await claim.release(second)
    assert await claim.release(second)
    assert await claim_all(substrate) == {}
    await substrate.send(ONE, "c3", b"")
    assert (await substrate.claim("w")).deliveries == 1


@conforms()
async def test_what_is_sent_while_a_session_is_released_is_not_lost(substrate: Tested) -> None:
    """Either the worker goes on, or the session is claimed again; 100 times."""
    cursor = await substrate.send(ONE, "first", b"")
    claim = await substrate.claim("w")
    for n in range(100):
        release, send = claim.release(cursor), substrate.send(ONE, f"c{n}", b"")
        results = await at_once(*((release, send) if n % 2 else (send, release)))
        released, sent = results if n % 2 else reversed(results)
        assert isinstance(sent, int)
        if released:
            claim = await substrate.claim("w")
            assert claim.key == ONE
        assert [number for number, _ in await substrate.commands(ONE, after=cursor)] == [sent]
        cursor = sent


@conforms()
async def test_a_session_that_was_handed_over_is_free_at_once(substrate: Tested) -> None:
    """It counts as never having failed."""
    await substrate.send(ONE, "c1", b"")
    for _ in range(3):
        claim = await substrate.claim("w")
        assert claim.deliveries == 1
        await claim.give_back()


@conforms()
async def test_a_session_that_was_given_back_with_a_delay_is_free_after_it(substrate: Tested) -> None:
    """It counts how often, and others are served meanwhile."""
    clock = Clock().rule(substrate)
    await substrate.send(ONE, "c1", b"")
    for deliveries in (1, 2, 3):
        (claim,) = (await claim_all(substrate)).values()
        assert claim.deliveries == deliveries
        await claim.give_back(30.0)
        clock.time += 29.0
        await substrate.send(ONE, f"c{deliveries + 1}", b"")
        assert await claim_all(substrate) == {}
        clock.time += 1.0


@conforms()
async def test_a_delay_ends_by_itself(substrate: Tested) -> None:
    """Whoever waits for work need not be called."""
    await substrate.send(ONE, "c1", b"")
    claim = await substrate.claim("w")
    async with asyncio.TaskGroup() as group:
        claiming = group.create_task(substrate.claim("w"))
        await claim.give_back(SHORT)
    assert (claiming.result().key, claiming.result().deliveries) == (ONE, 2)


# Leases


@conforms(lease=SHORT)
async def test_a_silent_worker_loses_its_session(substrate: Tested) -> None:
    """To whoever waits; it is told so, and can change nothing any more."""
    await substrate.send(ONE, "c1", b"")
    silent = await substrate.claim("silent")
    claim = await substrate.claim("w")
    assert (claim.key, claim.deliveries) == (ONE, 2)
    assert not await silent.beat()


@conforms()
async def test_a_worker_that_lost_its_session_changes_nothing(substrate: Tested) -> None:
    """Neither by leaving it, nor by giving it back."""
    clock = Clock().rule(substrate)
    number = await substrate.send(ONE, "c1", b"")
    lost = await substrate.claim("lost")
    clock.time += 15.0
    claim = await substrate.claim("w")
    assert (claim.key, claim.deliveries) == (ONE, 2)
    assert not await lost.beat()
    assert await lost.release(number)
    await lost.give_back()
    await lost.give_back(60.0)
    assert await claim_all(substrate) == {}
    assert await substrate.ring(ONE)
    assert await claim.beat()
    assert await claim.release(number)


@conforms()
async def test_beats_keep_a_session(substrate: Tested) -> None:
    """For a lease each."""
    clock = Clock().rule(substrate)
    await substrate.send(ONE, "c1", b"")
    claim = await substrate.claim("w")
    for _ in range(3):
        clock.time += 14.0
        assert await claim_all(substrate) == {}
        assert await claim.beat()
    clock.time += 15.0
    (again,) = (await claim_all(substrate)).values()
    assert again.deliveries == 2


@conforms()
async def test_a_worker_that_wakes_late_keeps_what_nobody_took(substrate: Tested) -> None:
    """A computer that slept for a night goes on."""
    clock = Clock().rule(substrate)
    await substrate.send(ONE, "c1", b"")
    claim = await substrate.claim("w")
    clock.time += 30_000.0
    assert await claim.beat()
    assert await claim_all(substrate) == {}


@conforms()
async def test_who_waits_no_longer_is_given_nothing(substrate: Tested) -> None:
    """A claim that is cancelled at any moment leaves the session to the next; 50 times."""
    for n in range(50):
        claiming = asyncio.ensure_future(substrate.claim("gone"))  # noqa: TID251 — it is cancelled below
        sent = await substrate.send(ONE, f"c{n}", b"")
        claiming.cancel()
        with suppress(asyncio.CancelledError):
            await (await claiming).give_back()
        claim = await substrate.claim("w")
        assert (claim.key, claim.deliveries) == (ONE, 1)
        await substrate.commands(ONE, after=sent)
        assert await claim.release(sent)
