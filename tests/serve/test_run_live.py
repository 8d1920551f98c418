"""ADK's WebSocket: each content becomes a run, told one after the other; then somebody closes."""

import json
from asyncio import CancelledError
from contextlib import suppress
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.serve.leaving import Leaving, leaving, until

LIVE = "/run_live?app_name=trips&user_id=ann&session_id={session}&modalities=TEXT"

Json = dict[str, Any]


def dial(s: Leaving, session: str = "s1", **more: Any) -> connect:  # noqa: ANN401 — as websockets has it
    """Connect."""
    return connect(s.server.address.replace("http", "ws") + LIVE.format(session=session), **more)


async def say(socket: ClientConnection, words: str) -> None:
    """Say something."""
    await socket.send(json.dumps({"content": {"role": "user", "parts": [{"text": words}]}}))


async def turn(socket: ClientConnection) -> list[Json]:
    """Read to the end of a turn."""
    events: list[Json] = []
    while not events or not events[-1].get("turnComplete"):
        events.append(json.loads(await socket.recv()))
    return events


def spoken(events: list[Json]) -> str:
    """Give the words of the whole messages: an answer that is there at once may have no partial ones."""
    whole = [one for one in events if "content" in one and not one.get("partial")]
    return "".join(one["content"]["parts"][0]["text"] for one in whole)


async def closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    """Read on to the end; gives how it was closed."""
    with suppress(ConnectionClosed):
        while True:
            await socket.recv()
    return socket.close_code, socket.close_reason


async def test_several_contents_are_answered_in_turn() -> None:
    """Also those that come while one is answered; what was said and the end of each turn are told."""
    async with leaving() as s:
        await s.begin()
        async with dial(s) as socket:
            await say(socket, "in the middle")
            await s.gate.reached()
            for _ in range(3):
                await say(socket, "at once")
            await until(lambda: s.desk.presence.held == 4)
            s.gate.open()
            turns = [await turn(socket) for _ in range(4)]
            assert s.desk.presence.held == 0
        assert [spoken(events) for events in turns] == ["Let me see. Done."] * 4
        assert len({events[0]["invocationId"] for events in turns}) == 4
        rows = await s.server.office.runs()
        assert [row.state for row in rows] == ["finished"] * 4


async def test_a_client_that_says_good_bye_is_answered_first() -> None:
    """`close` ends the talk when all runs have ended: 1000."""
    async with leaving() as s:
        await s.begin()
        async with dial(s) as socket:
            await say(socket, "in the middle")
            await s.gate.reached()
            await socket.send('{"close": true}')
            s.gate.open()
            assert spoken(await turn(socket)) == "Let me see. Done."
            assert await closed(socket) == (1000, "")
        async with dial(s) as socket:
            await socket.send('{"close": true}')
            assert await closed(socket) == (1000, "")


async def test_a_cancelled_run_is_the_last_of_its_connection() -> None:
    """Those that wait behind it end, too, as their client is gone; the next connection works."""
    async with leaving() as s:
        await s.begin()
        async with dial(s) as socket:
            await say(socket, "in the middle")
            await s.gate.reached()
            await say(socket, "in the middle, too")
            await until(lambda: s.desk.presence.held == 2)
            await s.server.office.cancel(s.key(), reason="enough")
            last = (await turn(socket))[-1]
            assert last["errorCode"] == "CANCELLED"
            assert (await closed(socket))[0] == 1000
        await until(lambda: s.desk.presence.is_empty)
        await until(lambda: not s.server.worker.busy)
        assert {row.state for row in await s.server.office.runs()} == {"cancelled"}
        async with dial(s) as socket:
            await say(socket, "at once")
            assert spoken(await turn(socket)) == "Let me see. Done."


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("no JSON", 1007),
        ("{}", 1007),
        (json.dumps({"blob": {"mimeType": "audio/pcm", "data": "AAAA"}}), 1007),
        (b"\x00\x01", 1007),
        (json.dumps({"content": {"parts": []}}), 1007),
        (json.dumps({"content": {"parts": [{"inlineData": {"data": "?"}}]}}), 1007),
        (json.dumps({"content": {"parts": [{"functionResponse": {"id": "x"}}]}}), 1008),
        ("[" * 100, 1008),
        ('"' + "x" * 2_000_000 + '"', 1009),
    ],
)
async def test_what_cannot_be_understood_closes_it(message: str | bytes, code: int) -> None:
    """With a reason; what ran for it ends."""
    async with leaving() as s:
        await s.begin()
        async with dial(s) as socket:
            await socket.send(message)
            found, why = await closed(socket)
        assert found == code
        assert why


async def test_more_runs_than_can_be_told_of_are_refused() -> None:
    """A client that only speaks is closed, and its runs end."""
    async with leaving() as s:
        await s.begin()
        async with dial(s) as socket:
            for _ in range(101):
                await say(socket, "in the middle")
            code, why = await closed(socket)
        assert (code, "100 runs" in (why or "")) == (1008, True)
        await until(lambda: s.desk.presence.is_empty)
        await until(lambda: not s.server.worker.busy)
        assert {row.state for row in await s.server.office.runs()} == {"cancelled"}


async def test_a_session_that_is_deleted_closes_it() -> None:
    """After the event that says that its run was cancelled, or with the reason."""
    async with leaving() as s:
        await s.begin()
        async with dial(s) as socket:
            await s.server.office.delete(s.key())
            assert await closed(socket) == (1001, "session trips/ann/s1 was deleted")


@pytest.mark.parametrize(
    ("session", "query", "status"),
    [
        ("nowhere", "", 404),
        ("a:b", "", 422),
        ("", "", 422),
        ("s1", "&on_disconnect=perhaps", 422),
        ("s1", "&disconnect_grace=-1", 422),
        ("s1", "&disconnect_grace=nan", 422),
    ],
)
async def test_who_may_not_talk_is_told_as_over_http(session: str, query: str, status: int) -> None:
    """Before the connection is open, by the status that HTTP has for it."""
    async with leaving() as s:
        await s.begin()
        with pytest.raises(InvalidStatus) as refused:
            await dial(s, f"{session}{query}")
        response = refused.value.response
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"
        assert b"detail" in response.body


async def test_a_client_that_does_not_read_holds_no_more_than_it_must() -> None:
    """Its run goes on; whoever does read is told all."""
    async with leaving() as s:
        await s.begin()
        async with dial(s) as socket:
            await say(socket, "in the middle")
            await s.gate.reached()
            async with anyio.create_task_group() as group:
                group.start_soon(_stay_silent, socket)
                s.gate.open()
                assert (await s.ended()).state == "finished"
                group.cancel_scope.cancel()


async def _stay_silent(socket: ClientConnection) -> None:
    try:
        await socket.wait_closed()
    except (CancelledError, ConnectionClosed):
        socket.transport.abort()
        raise
