"""Events come across connections that break, in order, each item once."""

import pytest

from andon.client import Client, News
from andon.core.command import Key
from andon.core.items import ModelStarted, RunEnded, RunStarted, TextDelta
from andon.core.journal import Partial, Superseded, Unknown
from andon.core.outcome import Outcome
from andon.core.row import Row
from andon.errors import ServerError, SessionError
from tests.client.stub import Stub, end, event, problem, says, tells

KEY = Key("trips", "ann", "s1")
RUN = "0123456789abcdef0123456789abcdef"
PATH = f"/runs/{RUN}/events"
ROW = Row(run_id=RUN, app="trips", user="ann", session="s1", state="finished", n=4)

STARTED = event("1", "run_started", n=1, run_id=RUN, agent="trips")
ASKED = event("2", "model_started", n=2, step=1)
ENDED = event("3", "run_ended", n=3, outcome={"run_id": RUN, "stop_reason": "end_turn"})
HELLO = event("2.1.1.1", "text_delta", text="hel")
THE_START: list[News] = [RunStarted(n=1, run_id=RUN, agent="trips"), ModelStarted(n=2, step=1)]
THE_END: list[News] = [RunEnded(n=3, outcome=Outcome(run_id=RUN, stop_reason="end_turn"))]


async def heard(stub: Stub, where: Key | str = RUN, *, after: int = 0, patience: float = 20.0) -> list[News]:
    """Read to the end."""
    async with Client(stub.url) as client:
        return [news async for news in client.events(where, after=after, patience=patience)]


async def test_what_is_told_comes_as_values_of_the_core() -> None:
    """Items, deltas, and comments that are none of both; the end of the run is the end."""
    alive = b": alive\n\n"
    async with Stub(tells(STARTED, alive, ASKED, HELLO, ENDED, end("it has ended")), says(ROW)) as stub:
        told = await heard(stub)

    assert told == [*THE_START, TextDelta("hel"), *THE_END]
    assert [one.target for one in stub.asked] == [f"{PATH}?after=0", f"/runs/{RUN}"]


async def test_events_are_cut_where_they_end_wherever_the_network_cuts_them() -> None:
    """In the middle of a character, too."""
    whole = event("2.1.1.1", "text_delta", text="cafés   and ☕") + STARTED
    pieces = [whole[n : n + 1] for n in range(len(whole))]
    async with Stub(tells(*pieces, end("it has ended")), says(ROW)) as stub:
        told = await heard(stub)

    assert told == [TextDelta("cafés   and ☕"), THE_START[0]]


@pytest.mark.parametrize("whole", [False, True])
async def test_a_reader_goes_on_where_a_connection_broke(whole: bool) -> None:  # noqa: FBT001 - of a table
    """It names the last that it was told, and what comes again is told once."""
    partial = event("2.1.1.3", "partial", text="hello")
    async with Stub(
        tells(STARTED, ASKED, HELLO, whole=whole),
        tells(ASKED, partial, ENDED, end("it has ended")),
        says(ROW),
    ) as stub:
        told = await heard(stub)

    assert told == [*THE_START, TextDelta("hel"), Partial("hello"), *THE_END]
    assert stub.asked[1].target == PATH
    assert stub.asked[1].headers["last-event-id"] == "2.1.1.1"


async def test_a_server_that_ends_is_waited_for() -> None:
    """Its stream ends, its place is taken, the reader goes on; also if that one is busy at first."""
    async with Stub(
        tells(STARTED, end("the server ends")),
        says(Row(run_id=RUN, app="trips", user="ann", session="s1", state="running")),
        problem(503, "no place: try again"),
        tells(ASKED, ENDED, end("it has ended")),
        says(ROW),
    ) as stub:
        told = await heard(stub)

    assert told == [*THE_START, *THE_END]
    assert stub.asked[3].headers["last-event-id"] == "1"


async def test_a_server_that_stays_away_is_told_after_a_while() -> None:
    """Not at once, and not never."""
    async with Stub(tells(STARTED, whole=False)) as stub:
        with pytest.raises(ServerError, match="broke"):
            await heard(stub, patience=0.2)

    assert len(stub.asked) > 2


async def test_a_server_that_never_was_there_is_told_at_once() -> None:
    """There is nothing to go on from."""
    async with Stub() as stub:
        url = stub.url
    async with Client(url) as client:
        with pytest.raises(ServerError, match="no server answers"):
            await anext(client.events(RUN))


@pytest.mark.parametrize("before", [[], [tells(STARTED, whole=False)]])
async def test_a_session_that_is_not_there_is_told(before: list[object]) -> None:
    """From the beginning, and when it was deleted under the reader."""
    answers = [tells(STARTED, whole=False)] if before else []
    async with Stub(*answers, problem(404, "there is no session trips/ann/s1: create it first")) as stub:
        with pytest.raises(SessionError, match="create it first") as caught:
            await heard(stub, KEY)

    assert caught.value.kind == "missing"
    assert stub.asked[0].target == "/apps/trips/users/ann/sessions/s1/events?after=0"


async def test_one_can_begin_behind_an_item() -> None:
    """What comes before is not told, even if a server tells it."""
    async with Stub(tells(STARTED, ASKED, ENDED, end("it has ended")), says(ROW)) as stub:
        told = await heard(stub, after=2)

    assert told == THE_END
    assert stub.asked[0].target == f"{PATH}?after=2"


async def test_what_a_newer_server_tells_is_passed_on() -> None:
    """And that the worker has died."""
    newer = event("4", "moon_phase", n=4, phase="full")
    gone = event("4.0.0.0", "superseded", run_id=RUN)
    async with Stub(tells(newer, gone, end("it has ended")), says(ROW)) as stub:
        told = await heard(stub)

    assert told == [Unknown(n=4, raw=b'{"type":"moon_phase","n":4,"phase":"full"}'), Superseded(RUN)]


async def test_a_page_is_no_stream() -> None:
    """Some other server answers there."""
    async with Stub(says(b"<html>", 200, "text/html")) as stub:
        with pytest.raises(ServerError, match="that tells no events"):
            await heard(stub)
