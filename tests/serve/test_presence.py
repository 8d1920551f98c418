"""When a client goes away, what it has started ends or goes on, as it was told; and nothing is left of it."""

# pyright: reportPrivateUsage=false

from collections import Counter
from functools import partial
from itertools import product

import anyio
import pytest
from anyio.lowlevel import checkpoint

from andon.core.command import Cancel, Command, command_from_json
from andon.core.journal import Received, record_from_json
from tests.serve.leaving import Leaving, leaving, until

WAYS = ("sse", "live", "plain", "native")
PLACES = ("before the first word", "in the middle", "in a tool")


async def test_what_a_client_leaves_behind_is_cancelled() -> None:
    """However it had asked, and wherever the run was: the report says that its client went away."""
    for way, place in product(WAYS, PLACES):
        async with leaving() as s:
            await s.begin()
            async with s.client_of(way, place, onDisconnect="cancel") as vanish:
                vanish()
                row = await s.ended()
            assert row.state == "cancelled", (way, place)
            assert row.cancelled is not None
            assert [cause.source for cause in row.cancelled.causes] == ["disconnect"], (way, place)
            assert s.cuts == 1, (way, place)


async def test_to_cancel_is_what_adks_routes_do_unless_they_are_told() -> None:
    """A plain run of our own goes on."""
    for way in WAYS:
        async with leaving() as s:
            await s.begin()
            async with s.client_of(way, "in the middle") as vanish:
                vanish()
                if way == "native":
                    await until(lambda s=s: not s.server.office._waits)
                    s.gate.open()
                row = await s.ended()
            assert row.state == ("finished" if way == "native" else "cancelled"), way


async def test_what_is_to_continue_does() -> None:
    """The run finishes though nobody is there."""
    for way, place in product(WAYS, PLACES):
        async with leaving() as s:
            await s.begin()
            async with s.client_of(way, place, onDisconnect="continue") as vanish:
                vanish()
                assert s.desk.presence.is_empty
                await until(lambda s=s: not s.server.office._waits and not s.server.office._feeds)
                s.gate.open()
                row = await s.ended()
            assert (row.state, s.cuts) == ("finished", 0), (way, place)


@pytest.mark.parametrize("way", WAYS)
async def test_a_client_that_does_not_come_back_in_time_is_not_waited_for(way: str) -> None:
    """The run is cancelled once the grace is over."""
    async with leaving() as s:
        await s.begin()
        async with s.client_of(way, "in a tool", onDisconnect="cancel", disconnectGrace=0.05) as vanish:
            vanish()
            row = await s.ended()
        assert row.state == "cancelled"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", ["/runs/{run}/events", "/apps/trips/users/ann/sessions/s1/events"])
async def test_a_client_that_comes_back_keeps_its_run_alive(way: str, path: str) -> None:
    """It reads on from what it was told last; when it goes again, the grace begins again."""
    async with leaving(disconnect_grace=3_000.0) as s:
        await s.begin()
        presence = s.desk.presence
        async with s.client_of(way, "in the middle", onDisconnect="cancel") as vanish:
            vanish()
            await until(lambda: len(presence._jobs) == 1)
            run_id = (await s.only_row()).run_id
            events = path.format(run=run_id)
            for _ in range(2):
                async with s.client.stream("GET", events, headers={"Last-Event-ID": "1"}) as answer:
                    await anext(answer.aiter_lines())
                    assert not presence._jobs
                    assert presence.held == 1
                await until(lambda: len(presence._jobs) == 1)
            async with s.client.stream("GET", events, params={"after": 1}) as answer:
                s.gate.open()
                async for line in answer.aiter_lines():
                    if line == "event: run_ended":
                        break
        assert (await s.ended()).state == "finished"


async def test_who_only_looks_on_does_not_count() -> None:
    """Neither does a run end with them, nor does it go on for them."""
    async with leaving() as s:
        await s.begin()
        async with s.client_of("sse", "in the middle") as vanish:
            row = await s.only_row()
            async with s.client.stream("GET", f"/runs/{row.run_id}/events") as answer:
                await anext(answer.aiter_lines())
            await until(lambda: not s.desk.streams or s.desk.streams.total() == 1)
            assert (await s.only_row()).state == "running"
            async with s.client.stream("GET", f"/runs/{row.run_id}/events") as answer:
                vanish()
                await answer.aread()
            assert (await s.ended()).state == "cancelled"


async def test_a_run_that_waits_in_the_queue_ends_with_its_client() -> None:
    """Before it has begun; the one before it goes on."""
    async with leaving() as s:
        await s.begin()
        async with s.client_of("sse", "in the middle", onDisconnect="continue"):
            async with anyio.create_task_group() as group:
                group.start_soon(s.ask, "sse", "in the middle")
                await until(lambda: s.desk.presence.held == 1)
                group.cancel_scope.cancel()
            (queued,) = [row for row in await s.server.office.runs() if row.state != "running"] or [None]
            await until(lambda: s.desk.presence.is_empty)
            s.gate.open()
        states = sorted(row.state for row in await s.server.office.runs())
        assert states == ["cancelled", "finished"], queued


async def test_a_client_that_goes_when_all_was_said_changes_nothing() -> None:
    """The run has finished, and stays so; no request to cancel it is written down."""
    for way in WAYS:
        async with leaving() as s:
            await s.begin()
            await s.ask(way, "at once")
            assert (await s.ended()).state == "finished"
            await s.nothing_is_left()
            assert not await cancels(s)


async def test_nobody_is_cancelled_because_the_server_ends() -> None:
    """Streams say that it does and end; the runs are left to the next worker."""
    found: dict[str, object] = {}
    async with leaving(drain_grace=0.05) as s:

        async def ask(way: str) -> None:
            found[way] = await s.ask(way, "in the middle", way, onDisconnect="cancel")

        async with anyio.create_task_group() as group:
            for way in WAYS:
                await s.begin(way)
                group.start_soon(ask, way)
            await s.gate.reached(len(WAYS))
            s.server.leave()
        assert s.desk.presence.is_empty
        assert not await cancels(s)
        assert {row.state for row in await s.server.office.runs()} == {"running"}
    assert '{"error":"the server ends' in str(found["sse"])
    assert found["live"] in {1001, 1012}  # ours, or that of the server below
    assert (found["plain"], found["native"]) == (503, 202)


async def cancels(s: Leaving) -> list[Cancel]:
    """Give the requests to cancel that anybody has sent, taken or not."""
    asked: list[Command] = []
    for key, box in s.substrate._boxes.items():
        asked += [command_from_json(data) for _, data in box.mail.values()]
        records = [record_from_json(record) for _, record in await s.substrate.read(key)]
        asked += [entry.command for record in records for entry in record if isinstance(entry, Received)]
    return [command for command in asked if isinstance(command, Cancel)]


@pytest.mark.timeout(120)
async def test_five_hundred_clients_that_come_and_go_leave_nothing() -> None:
    """Each by one of the ways, some before their run has begun, the others at one of its places."""
    async with leaving(streams_per_user=1_000, concurrency=1_000) as s:
        limiter = anyio.CapacityLimiter(50)
        kinds = list(product(WAYS, (*PLACES, "at once"), ("cancel", "continue")))

        async def come_and_go(number: int) -> None:
            way, place, policy = kinds[number % len(kinds)]
            name = f"s{number}"
            async with limiter, anyio.create_task_group() as group:
                await s.begin(name)
                said = f"{place} {name}"
                group.start_soon(partial(s.ask, way, said, name, onDisconnect=policy))
                if place == "at once":
                    return
                if number % 5:
                    await s.came[said].wait()
                for _ in range(number % 40):
                    await checkpoint()
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for number in range(500):
                group.start_soon(come_and_go, number)
        await until(lambda: s.desk.presence.is_empty)
        s.gate.open()
        await s.nothing_is_left()
        states = Counter(row.state for row in await s.server.office.runs())
        print(f"\nof 500 clients: {dict(states)}")  # noqa: T201
        assert set(states) == {"cancelled", "finished"}
