"""The client asks as the specification says, and gives values of the core."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from andon import Limits, Point, Stop, StopResult
from andon.client import Client
from andon.core.command import Key
from andon.core.messages import Image, Text
from andon.core.outcome import Interrupt
from andon.core.row import Row
from andon.core.stop import Cause, StopReport, Where
from andon.errors import ServerError, SessionError, UserError
from tests.client.stub import Answer, Stub, problem, says

T = TypeVar("T")

KEY = Key("trips", "ann", "s1")
TOKEN = "abc"  # noqa: S105 - of nobody
HERE = "/apps/trips/users/ann/sessions/s1"
RUN = "0123456789abcdef0123456789abcdef"
ROW = Row(run_id=RUN, app="trips", user="ann", session="s1", state="running", n=4)
REPORT = StopReport(
    result=StopResult.ESCALATED,
    accepted=True,
    stopped_at=Where.TOOLS,
    escalated_by="timeout",
    causes=(Cause("user", "ann", "enough", "c1", 1.0, Stop.at(Point.TOOLS, grace=5.0)),),
    latency=5.0,
    run_id=RUN,
)
SESSION: dict[str, object] = {
    "id": "s1",
    "appName": "trips",
    "userId": "ann",
    "state": {},
    "events": [],
    "held": True,
    "n": 3,
}


async def asked(
    act: Callable[[Client], Awaitable[T]], *answers: Answer, token: str | None = None
) -> tuple[T, Stub]:
    """Let a client ask a server that answers so."""
    async with Stub(*answers) as stub, Client(stub.url, token=token) as client:
        return await act(client), stub


async def test_a_session_is_begun_and_told_of() -> None:
    """Its id is made up by the server unless it is given."""
    session, stub = await asked(
        lambda client: client.create("trips", "ann", "s1", state={"lang": "en"}), says(SESSION)
    )

    assert session.key == KEY
    assert session.held
    assert stub.asked[0].method == "POST"
    assert stub.asked[0].target == "/apps/trips/users/ann/sessions"
    assert stub.asked[0].body == {"session_id": "s1", "state": {"lang": "en"}}


async def test_sessions_are_listed_read_and_deleted() -> None:
    """Each by the path of its user."""

    async def act(client: Client) -> list[object]:
        listed = [session.key for session in await client.sessions("trips", "ann")]
        return [*listed, (await client.session(KEY)).n, await client.delete(KEY)]

    told, stub = await asked(act, says([SESSION]), says(SESSION), says({}))

    assert told == [KEY, 3, None]
    assert [(one.method, one.target) for one in stub.asked] == [
        ("GET", "/apps/trips/users/ann/sessions"),
        ("GET", HERE),
        ("DELETE", HERE),
    ]


async def test_a_push_says_all_that_was_given() -> None:
    """The answer is the run."""
    told, stub = await asked(
        lambda client: client.push(
            KEY, "hi", on_busy="preempt", limits=Limits(model_calls=3), idempotency_key="k", wait=5
        ),
        says({**to_dict(ROW), "state": "finished", "text": "hello"}),
    )

    assert told.text == "hello"
    assert not told.is_live
    assert stub.asked[0].target == f"{HERE}/runs"
    assert stub.asked[0].body == {
        "input": "hi",
        "on_busy": "preempt",
        "limits": {"model_calls": 3},
        "idempotency_key": "k",
        "wait": 5,
    }


def to_dict(row: Row) -> dict[str, object]:
    """Give a row as it is sent."""
    return {name: getattr(row, name) for name in ("run_id", "app", "user", "session", "state", "n")}


async def test_a_picture_goes_by_its_address() -> None:
    """Its bytes are refused before anything is sent."""
    picture = Image(url="https://example.org/tram.png")
    _, stub = await asked(lambda client: client.push(KEY, [Text("see"), picture]), says(ROW))

    assert stub.asked[0].body == {
        "input": [{"type": "text", "text": "see"}, {"type": "image", "url": "https://example.org/tram.png"}],
        "on_busy": "enqueue",
        "wait": 0.0,
    }
    with pytest.raises(UserError, match="by its address"):
        await asked(lambda client: client.push(KEY, [Image(data=b"x")]))


@pytest.mark.parametrize(
    ("stop", "body"),
    [
        (None, {}),
        (Stop.now(), {}),
        (Stop.now(recursive=True), {"recursive": True}),
        (Stop.at(Point.TOOLS, grace=5), {"at": ["tools"], "grace": 5}),
        (Stop.graceful(grace=2), {"at": ["model", "tools"], "grace": 2, "recursive": True}),
        (Stop.gently(), {"at": ["stream", "model", "tools"]}),
    ],
)
async def test_a_stop_is_written_as_servers_read_it(stop: Stop | None, body: dict[str, object]) -> None:
    """The same values as in the library; the report comes back whole."""
    report, stub = await asked(
        lambda client: client.cancel(KEY, stop, run_id=RUN, queued=True, reason="enough"), says(REPORT)
    )

    assert report == REPORT
    assert stub.asked[0].target == f"{HERE}:cancel"
    assert stub.asked[0].body == {**body, "run_id": RUN, "queued": True, "reason": "enough", "wait": 10.0}


async def test_a_stop_that_has_not_ended_yet_gives_no_report() -> None:
    """The request stands."""
    report, stub = await asked(lambda client: client.cancel(RUN, wait=0), says({"result": "ACCEPTED"}, 202))

    assert report is None
    assert stub.asked[0].target == f"/runs/{RUN}:cancel"
    assert stub.asked[0].body == {"wait": 0}


async def test_a_stop_of_elsewhere_is_refused() -> None:
    """One with a deadline has been told to a run already."""
    bound = Stop.at(Point.TOOLS, grace=5).bind(100.0, Cause("user"))
    with pytest.raises(UserError, match="with a grace"):
        await asked(lambda client: client.cancel(KEY, bound))


async def test_every_verb_has_its_path_and_body() -> None:
    """The names are those of the library."""

    async def act(client: Client) -> list[object]:
        return [
            await client.stop(KEY),
            await client.stop(KEY, Stop.now(), reason="deploy"),
            await client.stop(KEY, Stop.at(Point.TOOLS)),
            await client.pause(KEY, grace=2),
            await client.resume(KEY),
            await client.answer(KEY, {"q1": True}),
            await client.steer(KEY, "by train", when="now", run_id=RUN, steer_id="x"),
            await client.steer(RUN, "by train"),
            await client.release(KEY),
        ]

    taken = says({"run_id": RUN})
    told, stub = await asked(act, *[says(REPORT)] * 4, *[taken] * 4, says({}))

    assert told == [REPORT] * 4 + [RUN] * 4 + [None]
    assert [(one.target, one.body) for one in stub.asked] == [
        (f"{HERE}:stop", {"wait": 10.0}),
        (f"{HERE}:stop", {"now": True, "reason": "deploy", "wait": 10.0}),
        (f"{HERE}:stop", {"at": ["tools"], "wait": 10.0}),
        (f"{HERE}:pause", {"grace": 2, "wait": 10.0}),
        (f"{HERE}:resume", {}),
        (f"{HERE}:answer", {"answers": {"q1": True}}),
        (f"{HERE}:steer", {"input": "by train", "when": "now", "run_id": RUN, "steer_id": "x"}),
        (f"/runs/{RUN}:steer", {"input": "by train", "when": "next"}),
        (f"{HERE}:release", {}),
    ]


async def test_runs_are_listed_across_pages() -> None:
    """By state, app and user; what a newer server says besides is passed over."""
    first = {"runs": [{**to_dict(ROW), "colour": "blue"}], "next": "1.5_x"}
    second = {"runs": [to_dict(replace(ROW, state="queued"))], "next": None}
    rows, stub = await asked(
        lambda client: client.runs(state=["queued", "running"], app="trips", user="ann"),
        says(first),
        says(second),
    )

    assert rows == [ROW, replace(ROW, state="queued")]
    target = "/runs?state=queued&state=running&app=trips&user=ann&limit=1000"
    assert [one.target for one in stub.asked] == [target, f"{target}&cursor=1.5_x"]


async def test_a_run_tells_what_it_asks() -> None:
    """As the core says it."""
    asks = replace(ROW, state="interrupted", interrupts=(Interrupt("q1", "sure?"),))
    row, _ = await asked(lambda client: client.run(RUN), says(asks))

    assert row == asks


async def test_the_token_goes_along() -> None:
    """As a bearer's."""
    _, stub = await asked(lambda client: client.run(RUN), says(ROW), token=TOKEN)

    assert stub.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("status", "kind"), [(404, "missing"), (409, "conflict"), (429, "full"), (503, "busy")]
)
async def test_problems_of_a_session_are_raised_in_the_words_of_the_server(status: int, kind: str) -> None:
    """With the kind that tells what to do."""
    with pytest.raises(SessionError, match=r"^no: do that instead$") as caught:
        await asked(lambda client: client.run(RUN), problem(status, "no: do that instead"))

    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("status", "kind"), [(401, UserError), (403, UserError), (422, UserError), (500, ServerError)]
)
async def test_other_problems_tell_whose_fault_they_are(status: int, kind: type[Exception]) -> None:
    """The caller's, or the server's."""
    with pytest.raises(kind, match=r"^words$"):
        await asked(lambda client: client.run(RUN), problem(status, "words"))


@pytest.mark.parametrize(
    "answer", [says(b"<html>", 200, "text/html"), says(b"gone", 404, "text/plain"), says([])]
)
async def test_a_server_of_another_kind_is_told_from_ours(answer: Answer) -> None:
    """Nothing that it says is taken for an answer."""
    with pytest.raises(ServerError, match=r"perhaps no Andon server.*look at the url"):
        await asked(lambda client: client.run(RUN), answer)


async def test_without_a_server_the_error_says_how_to_start_one() -> None:
    """A connection that is refused is no traceback of a library."""
    async with Stub() as stub:
        url = stub.url
    async with Client(url) as client:
        with pytest.raises(ServerError, match=f"no server answers at {url}: start one with `andon serve"):
            await client.run(RUN)


async def test_a_connection_that_breaks_is_told() -> None:
    """Whether what was asked stands is not known."""
    with pytest.raises(ServerError, match=r"the connection to .* broke"):
        await asked(lambda client: client.run(RUN))


@pytest.mark.parametrize("url", ["127.0.0.1:8484", "ftp://127.0.0.1", "http://", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """Before anything is asked."""
    with pytest.raises(UserError, match="write http://127"):
        Client(url)


async def test_ids_that_would_be_other_paths_are_refused() -> None:
    """A colon would be a verb."""
    with pytest.raises(ValueError, match="run is 'x:cancel'"):
        await asked(lambda client: client.run("x:cancel"))
    with pytest.raises(ValueError, match="user is 'a/b'"):
        await asked(lambda client: client.sessions("trips", "a/b"))
