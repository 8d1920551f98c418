"""The guard: what is too large, too deep or from a foreign page stays out, and says why."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from andon.runtime.memory import MemorySubstrate
from andon.serve.guard import DEEPEST
from tests.serve.scene import ANN, FREE, S1, scene, until

MOST = 10_000
SMALL = msgspec.structs.replace(FREE, max_body=MOST)


async def pieces(size: int) -> AsyncIterator[bytes]:
    """Send a body whose length is not told."""
    for _ in range(size // 100):
        yield b" " * 100


async def test_a_body_at_the_bound_is_taken_and_one_beyond_is_not() -> None:
    """413, whether its length is told or not; and the connection still works."""
    async with scene(SMALL) as s:
        await s.begin()
        start = '{"input":"'
        longest = start + "x" * (MOST - len(start) - 2) + '"}'
        assert (await s.client.post(f"{S1}/runs", content=longest)).status_code == 422
        headers = {"Content-Type": "application/json"}
        fits = await s.client.post(f"{S1}/runs", content=longest, headers=headers)
        assert fits.status_code == 202
        for content in (longest + " ", pieces(2 * MOST)):
            answer = await s.client.post(f"{S1}/runs", content=content, headers=headers)
            assert answer.status_code == 413
            assert answer.json()["detail"].startswith(f"the body has more than the {MOST} bytes")


@pytest.mark.parametrize(("deep", "status"), [(DEEPEST, 200), (DEEPEST + 1, 422), (100_000, 422)])
async def test_json_nests_as_deep_as_the_bound(deep: int, status: int) -> None:
    """Brackets in words do not count."""
    async with scene() as s:
        lists = deep - 2
        nested = '{"state":{"a":' + "[" * lists + '"[[[{{{\\""' + "]" * lists + "}}"
        answer = await s.client.post(ANN, content=nested, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"nonsense",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b'{"state":{"a":"\\ud800"}}',
        b'{"state":{"\\udfff":1}}',
        b'{"session_id":"a b"}',
        b'{"unknown":1}',
        b'{"state":[]}',
    ],
)
async def test_what_is_no_such_body_is_not_understood(content: bytes) -> None:
    """422, which says where, and never a failure of the server."""
    async with scene() as s:
        answer = await s.client.post(ANN, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"]


async def test_a_number_of_any_length_is_no_failure() -> None:
    """It is kept, or refused."""
    async with scene() as s:
        for digits, status in ((400, 200), (5_000, 400)):
            content = b'{"state":{"a":' + b"9" * digits + b"}}"
            answer = await s.client.post(ANN, content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code == status
            assert status == 400 or answer.json()["state"] == {"a": 10**400 - 1}


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "x" * 1_001},
        {"wait": 60.5},
        {"wait": -1},
        {"wait": "5"},
        {"grace": 0},
        {"at": ["nowhere"]},
        {"recursive": "no"},
        {"run_id": "a:b"},
    ],
)
async def test_what_cancel_is_told_is_bounded(body: dict[str, object]) -> None:
    """Nothing is guessed, and nothing was asked."""
    async with scene() as s:
        await s.begin()
        await s.push_and_wait()
        assert (await s.client.post(f"{S1}:cancel", json=body)).status_code == 422
        assert s.cuts == 0


async def test_a_reason_at_the_bound_is_told() -> None:
    """A thousand characters, of any kind."""
    async with scene() as s:
        await s.begin()
        await s.push_and_wait()
        report = (await s.post(f"{S1}:cancel", reason="ö" * 1_000)).json()
        assert report["causes"][0]["reason"] == "ö" * 1_000


async def test_headers_are_bounded() -> None:
    """431 beyond."""
    async with scene() as s:
        answer = await s.client.get("/healthz", headers={"X-Long": "x" * 40_000})
        assert answer.status_code == 431


@pytest.mark.parametrize("last", ["x", "-1", "1" * 100, "1.2.3;"])
async def test_last_event_ids_are_checked(last: str) -> None:
    """422 for what no event ever had."""
    async with scene() as s:
        await s.begin()
        answer = await s.client.get(f"{S1}/events", headers={"Last-Event-ID": last})
        assert answer.status_code == 422


async def test_a_page_from_elsewhere_may_not_ask() -> None:
    """A browser says where a page is from: 403 for all but our own and those of the settings."""
    settings = msgspec.structs.replace(FREE, origins=("https://console.example",))
    async with scene(settings) as s:
        await s.begin()
        for origin, status in (
            ("https://evil.example", 403),
            ("null", 403),
            (s.server.address, 200),
            ("https://console.example", 200),
        ):
            answer = await s.client.post(f"{S1}:cancel", headers={"Origin": origin})
            assert answer.status_code == status, origin
        told = await s.client.get(S1, headers={"Origin": "https://console.example"})
        assert told.headers["access-control-allow-origin"] == "https://console.example"
        silent = await s.client.get(S1, headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in silent.headers


async def test_other_origins_are_told_nothing_by_default() -> None:
    """CORS is off."""
    async with scene() as s:
        asked = await s.client.options(
            ANN, headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        )
        assert asked.status_code == 405
        assert not [name for name in asked.headers if name.startswith("access-control")]


async def test_a_foreign_name_for_this_machine_is_refused() -> None:
    """A page of elsewhere whose name was made to lead here would pass for ours: 421."""
    async with scene() as s:
        answer = await s.client.get("/runs", headers={"Host": "evil.example:8484"})
        assert (answer.status_code, "'evil.example'" in answer.json()["detail"]) == (421, True)
        assert (await s.client.get("/runs", headers={"Host": "localhost:1"})).status_code == 200
    async with scene(msgspec.structs.replace(FREE, hosts=("box.lan",))) as s:
        assert (await s.client.get("/runs", headers={"Host": "box.lan"})).status_code == 200


async def test_a_full_mailbox_is_told_with_when_to_try_again() -> None:
    """429 with Retry-After; what is in it stands."""
    async with scene(substrate=MemorySubstrate(mailbox=2)) as s:
        await s.begin()
        s.server.worker.drain()
        async with s.events(f"{S1}/events") as events:
            await until(events, "session_created")
            answers = [await s.post(f"{S1}/runs", input="hello") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [202, 202, 429]
        assert answers[-1].headers["retry-after"] == "1"
