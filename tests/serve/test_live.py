"""A session over one WebSocket: its events out, verbs in, and what is wrong with them."""

# pyright: reportPrivateUsage=false

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import pytest
from anyio.lowlevel import checkpoint
from fastapi import FastAPI
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from andon import Agent
from andon.core.command import Key
from andon.runtime.feed import LONGEST
from andon.runtime.memory import MemorySubstrate
from andon.serve.desk import Desk
from andon.serve.server import serving
from andon.testing import Burst, Gate, ScriptedModel, Yield
from tests.serve.scene import FREE, S1, Scene, guarded, scene

Json = dict[str, Any]


@asynccontextmanager
async def line(s: Scene, *, by: str | None = None, **more: Any) -> AsyncGenerator[ClientConnection]:  # noqa: ANN401
    """Connect to a session of Ann's."""
    options = {name: more.pop(name) for name in ("origin", "subprotocols", "max_queue") if name in more}
    headers = {} if by is None else s.by(by)
    query = urlencode({"app": "trips", "user": "ann", "session": "s1", **more})
    address = s.server.address.replace("http", "ws")
    url = f"{address}/sessions/live?{query}"
    async with connect(url, additional_headers=headers, **options) as socket:
        yield socket


async def status(s: Scene, **more: Any) -> int:  # noqa: ANN401
    """Connect in vain; gives the status."""
    with pytest.raises(InvalidStatus) as refused:
        async with line(s, **more):
            pass
    response = refused.value.response
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code


async def ask(socket: ClientConnection, **verb: object) -> None:
    """Send a verb."""
    await socket.send(json.dumps(verb))


async def answer(socket: ClientConnection, ref: object) -> Json:
    """Read on to the answer to a verb."""
    while True:
        message = json.loads(await socket.recv())
        if "event" not in message and message["ref"] == ref:
            return message


async def event(socket: ClientConnection, kind: str) -> Json:
    """Read on to an event of a kind."""
    while True:
        message = json.loads(await socket.recv())
        if message.get("event") == kind:
            return message


async def test_verbs_are_answered_by_their_refs_among_the_events() -> None:
    """Push, steer, answer and cancel: each does what its route does."""
    async with scene() as s:
        await s.begin()
        async with line(s) as socket:
            await ask(socket, verb="push", ref=1, input="please wait")
            run_id = (await answer(socket, 1))["result"]["run_id"]
            await s.gate.reached()
            assert (await event(socket, "text_delta"))["data"]["text"] == "Let me think. "
            await ask(socket, verb="steer", ref="a", input="faster", run_id=run_id)
            assert (await answer(socket, "a"))["result"]["run_id"] == run_id
            await ask(socket, verb="cancel", ref=2, reason="enough")
            report = (await answer(socket, 2))["result"]
            assert (report["result"], report["causes"][0]["reason"]) == ("STOPPED", "enough")
            await ask(socket, verb="cancel")
            assert (await answer(socket, None))["result"]["result"] == "NOTHING_RUNNING"
            await ask(socket, verb="push", ref=3, input="ask")
            interrupt = (await event(socket, "interrupted"))["data"]["id"]
            await event(socket, "run_ended")
            await ask(socket, verb="answer", ref=4, answers={interrupt: "yes"})
            assert (await answer(socket, 4))["result"]["run_id"]


async def test_the_same_push_twice_is_one_run() -> None:
    """By its idempotency key, and also where the second comes over HTTP."""
    async with scene() as s:
        await s.begin()
        async with line(s) as socket:
            ids: set[str] = set()
            for ref in range(2):
                await ask(socket, verb="push", ref=ref, input="hello", idempotency_key="k")
                ids.add((await answer(socket, ref))["result"]["run_id"])
            ids.add((await s.post(f"{S1}/runs", input="hello", idempotency_key="k")).json()["run_id"])
        assert len(ids) == 1


async def test_a_reader_comes_again_where_it_was() -> None:
    """Behind the item that it names; an id of an event does it, too, up to its first dot."""
    async with scene() as s:
        await s.begin()
        await s.post(f"{S1}/runs", input="hello", wait=30)
        async with line(s) as socket:
            items: list[Json] = []
            while not items or items[-1]["event"] != "run_ended":
                items.append(json.loads(await socket.recv()))
        assert [int(one["id"]) for one in items] == list(range(1, len(items) + 1))
        async with line(s, after=items[2]["id"]) as socket:
            assert [json.loads(await socket.recv()) for _ in items[3:]] == items[3:]


@pytest.mark.parametrize(
    ("message", "ref", "code"),
    [
        ("no JSON", None, 422),
        ('{"verb": "dance", "ref": "r"}', "r", 422),
        ('{"ref": 7}', 7, 422),
        ('{"verb": "push", "ref": 7}', 7, 422),
        ('{"verb": "push", "ref": 7, "input": ""}', 7, 422),
        ('{"verb": "push", "ref": 7, "input": "hi", "wait": 1}', 7, 422),
        ('{"verb": "steer", "ref": 7, "input": "hi"}', 7, 409),
        ('{"verb": "answer", "ref": 7, "answers": {"x": 1}}', 7, 409),
        ('{"verb": "cancel", "ref": 7, "run_id": "none"}', 7, 404),
        ('{"verb": "cancel", "ref": 7, "wait": 61}', 7, 422),
        ('{"verb": "push", "ref": {"a": 1}, "input": "hi"}', None, 422),
        (b"{}", None, 422),
        ("[" * 1_000, None, 422),
    ],
)
async def test_what_is_wrong_is_told_and_the_line_stays_open(
    message: str | bytes, ref: object, code: int
) -> None:
    """As a problem, with the client's name for it where that can be read."""
    async with scene() as s:
        await s.begin()
        async with line(s) as socket:
            await socket.send(message)
            problem = (await answer(socket, ref))["problem"]
            assert (problem["status"], bool(problem["detail"])) == (code, True)
            await ask(socket, verb="cancel", ref="still")
            assert (await answer(socket, "still"))["result"]["result"] == "NOTHING_RUNNING"


async def test_a_frame_that_is_too_large_closes_the_line() -> None:
    """1009, before it was read whole."""
    async with scene(replace(FREE, max_body=1_000)) as s:
        await s.begin()
        async with line(s) as socket:
            await socket.send("x" * 1_001)
            with pytest.raises(ConnectionClosedError):
                await answer(socket, None)
            assert socket.close_code == 1009


async def test_too_many_verbs_at_once_are_refused() -> None:
    """The twenty-first is told to wait; the others are done."""
    async with scene() as s:
        await s.begin()
        async with line(s) as socket:
            run_id = await s.push_and_wait()
            for ref in range(21):
                await ask(socket, verb="cancel", ref=ref, run_id=run_id, at=["model"], wait=60)
            assert (await answer(socket, 20))["problem"]["status"] == 429
            s.gate.open()
            results = {(await answer(socket, ref))["result"]["run_id"] for ref in range(1)}
            assert results == {run_id}


async def test_who_may_only_read_reads(tmp_path: Path) -> None:
    """Each verb needs its scope; without that of reading there is no line at all."""
    async with guarded(tmp_path) as s:
        await s.begin(by="ann-laptop")
        async with line(s, by="eve-dashboard") as socket:
            assert (await event(socket, "session_created"))["id"] == "1"
            for verb in ("push", "steer", "cancel"):
                more = {} if verb == "cancel" else {"input": "hi"}
                await ask(socket, verb=verb, ref=verb, **more)
                assert (await answer(socket, verb))["problem"]["status"] == 403


async def test_nobody_opens_anothers_session(tmp_path: Path) -> None:
    """It is not there: 404, for both WebSockets; and nobody without a token opens any."""
    async with guarded(tmp_path) as s:
        await s.begin(by="ann-laptop")
        assert await status(s, by="bob-phone") == 404
        assert await status(s) == 401
        address = (
            f"{s.server.address.replace('http', 'ws')}/run_live?app_name=trips&user_id=ann&session_id=s1"
        )
        for by, code in (("bob-phone", 404), ("eve-dashboard", 403)):
            with pytest.raises(InvalidStatus) as refused:
                await connect(address, additional_headers=s.by(by))
            assert refused.value.response.status_code == code
        token = s.tokens["ann-laptop"]
        async with line(s, subprotocols=["andon", f"bearer.{token}"]) as socket:
            assert socket.subprotocol == "andon"
            assert (await event(socket, "session_created"))["id"] == "1"
        async with line(s, by="root") as socket:
            assert (await event(socket, "session_created"))["id"] == "1"


async def test_pages_of_elsewhere_open_nothing() -> None:
    """The origin is checked before anything else, unless the settings name it."""
    async with scene(replace(FREE, origins=("https://desk.example",))) as s:
        await s.begin()
        assert await status(s, origin="https://evil.example") == 403
        for origin in ("https://desk.example", s.server.address):
            async with line(s, origin=origin) as socket:
                await event(socket, "session_created")


@pytest.mark.parametrize(
    ("more", "code"), [({"session": "s2"}, 404), ({"session": "a/b"}, 422), ({"after": "x"}, 422)]
)
async def test_what_is_not_there_is_not_opened(more: Json, code: int) -> None:
    """By the status that HTTP has for it."""
    async with scene() as s:
        await s.begin()
        assert await status(s, **more) == code


async def test_too_many_lines_of_one_user_are_refused() -> None:
    """429, until one of them is closed."""
    async with scene(replace(FREE, streams_per_user=1)) as s:
        await s.begin()
        async with line(s):
            assert await status(s) == 429
        desk: Desk = cast("FastAPI", s.server.config.app).state.desk
        while desk.streams:
            await checkpoint()
        async with line(s) as socket:
            await event(socket, "session_created")


async def test_a_session_that_is_deleted_closes_the_line() -> None:
    """It says which, and that it is gone."""
    async with scene() as s:
        await s.begin()
        async with line(s) as socket:
            await event(socket, "session_created")
            assert (await s.client.delete(S1)).status_code == 200
            async for _ in socket:
                pass
            assert (socket.close_code, socket.close_reason) == (1001, "session trips/ann/s1 was deleted")


async def test_a_slow_reader_gets_every_item_and_the_sum_of_the_words() -> None:
    """What it did not take in time comes as one partial, and the server has kept none of it for it."""
    many, word, gate = 20_000, "word " * 100, Gate("said")
    model = ScriptedModel([*[Burst(many // 20, word), Yield()] * 20, gate, "Done."])
    async with serving({"trips": Agent(model, name="trips")}, MemorySubstrate(), FREE) as server:
        key = Key("trips", "ann", "s1")
        await server.office.create(key)
        url = f"{server.address.replace('http', 'ws')}/sessions/live?app=trips&user=ann&session=s1"
        async with connect(url, max_queue=1, max_size=None) as socket:
            await server.office.push(key, "Talk.")
            await gate.reached()
            (feed, _) = server.office._feeds[key]
            assert len(feed._log) <= 2 * LONGEST
            heard: list[Json] = []
            said = ""
            while said != word * many:
                heard.append(json.loads(await socket.recv()))
                match heard[-1]["event"]:
                    case "text_delta":
                        said += heard[-1]["data"]["text"]
                    case "partial":
                        said = heard[-1]["data"]["text"]
                    case _:
                        pass
            gate.open()
            while heard[-1]["event"] != "run_ended":
                heard.append(json.loads(await socket.recv()))
    assert len(heard) < many
    numbers = [int(one["id"]) for one in heard if "." not in one["id"]]
    assert numbers == list(range(1, len(numbers) + 1))
