"""Events over SSE: every item once, what is in flight as one partial, and an end that says why."""

import anyio
import msgspec

from andon.core.command import Key
from tests.serve.scene import ANN, FREE, S1, Event, scene, until, whole


def numbers(events: list[Event]) -> list[int]:
    """Give the numbers of the items among them."""
    return [int(event.id) for event in events if event.id and "." not in event.id]


async def test_the_events_of_a_run_begin_and_end_with_it() -> None:
    """Its items with their numbers, its words as they come, an end event, and nothing of other runs."""
    async with scene() as s:
        await s.begin()
        await s.post(f"{S1}/runs", input="hello", wait=30)
        async with s.events(f"{S1}/events") as others:
            run_id = await s.push_and_wait()
            await s.push("hello, next")
            await until(others, "text_delta")
            async with s.events(f"/runs/{run_id}/events") as events:
                first = await until(events, "partial")
                s.gate.open()
                rest = await whole(events)
        read = [*first, *rest]
        assert (read[0].kind, read[0].data["run_id"]) == ("run_started", run_id)
        assert [event.kind for event in read[-2:]] == ["run_ended", "end"]
        assert numbers(read) == list(range(numbers(read)[0], numbers(read)[-1] + 1))
        assert first[-1].data["text"] == "Let me think. "
        assert "".join(str(e.data["text"]) for e in rest if e.kind == "text_delta") == "Here you are. "


async def test_who_comes_again_reads_on_behind_what_was_read_last() -> None:
    """By Last-Event-ID, of an item or of a delta, or by `after`."""
    async with scene() as s:
        await s.begin()
        run_id = (await s.post(f"{S1}/runs", input="hello", wait=30)).json()["run_id"]
        path = f"/runs/{run_id}/events"
        async with s.events(path) as events:
            all_of_it = await whole(events)
        third = numbers(all_of_it)[2]
        for last in (str(third), f"{third}.1.1.7"):
            async with s.events(path, last=last) as events:
                assert await whole(events) == all_of_it[3:]
        async with s.events(f"{path}?after={third}") as events:
            assert await whole(events) == all_of_it[3:]
        async with s.events(f"{path}?after={numbers(all_of_it)[-1]}") as events:
            assert [event.kind for event in await whole(events)] == ["end"]


async def test_the_events_of_a_run_that_waits_come_when_it_begins() -> None:
    """Whoever looks early misses nothing."""
    async with scene() as s:
        await s.begin()
        await s.push_and_wait()
        queued = await s.push("hello")
        async with s.events(f"/runs/{queued}/events") as events:
            s.gate.open()
            read = await whole(events)
        assert (read[0].kind, read[0].data["run_id"]) == ("run_started", queued)
        assert read[-1].kind == "end"


async def test_two_readers_of_a_session_read_the_same() -> None:
    """One from the beginning, one that came when the answer was on its way."""
    async with scene() as s:
        await s.begin()
        async with s.events(f"{S1}/events") as one:
            await s.push_and_wait()
            begun = await until(one, "text_delta")
            async with s.events(f"{S1}/events?after=1") as two:
                head = await until(two, "partial")
                s.gate.open()
                reads = [
                    [*begun, *await until(one, "run_ended")],
                    [*head, *await until(two, "run_ended")],
                ]
        assert numbers(reads[0]) == list(range(1, len(numbers(reads[0])) + 1))
        assert numbers(reads[1]) == numbers(reads[0])[1:]


async def test_a_silent_stream_shows_that_it_lives() -> None:
    """A comment, as often as the settings say."""
    async with scene(msgspec.structs.replace(FREE, keep_alive=0.01)) as s:
        await s.begin()
        async with s.client.stream("GET", f"{S1}/events?after=1") as answer:
            lines = answer.aiter_lines()
            assert [await anext(lines), await anext(lines), await anext(lines)] == [": alive", "", ": alive"]


async def test_a_stream_of_a_deleted_session_ends() -> None:
    """With an end event that says so."""
    async with scene() as s:
        await s.begin()
        async with s.events(f"{S1}/events") as events:
            await until(events, "session_created")
            await s.client.delete(S1)
            (last,) = await whole(events)
        assert (last.kind, last.data["why"]) == ("end", "session trips/ann/s1 was deleted")


async def test_nothing_stays_of_readers_who_leave() -> None:
    """Neither a feed, nor a place among the streams; also if they leave amid a write."""
    async with scene() as s:
        await s.begin()
        await s.push_and_wait()

        async def read() -> None:
            async with s.events(f"{S1}/events") as events:
                await until(events, "model_started")

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(read)
        while "andon_streams 0\n" not in (await s.client.get("/metrics")).text:
            pass
        assert not s.server.office._feeds  # pyright: ignore[reportPrivateUsage]


async def test_a_slow_reader_is_given_the_sum_and_costs_little() -> None:
    """Half a million words that nobody takes: the log stays short, and no item is lost."""
    async with scene() as s:
        await s.begin()
        key = Key("trips", "ann", "s1")
        await s.push_and_wait()
        async with s.events(f"{S1}/events") as events:
            await until(events, "model_started")
            for k in range(500_000):
                delta = b'{"type":"text_delta","text":"word "}'
                s.server.office.substrate.tell(key, b"3.1.1.%d @1.1 " % (k + 2) + delta)
                if not k % 1_000:
                    await anyio.lowlevel.checkpoint()
            feed, _ = s.server.office._feeds[key]  # pyright: ignore[reportPrivateUsage]
            s.gate.open()
            rest = await until(events, "run_ended")
        assert feed.end - feed._first < 20_000  # pyright: ignore[reportPrivateUsage]
        assert numbers(rest) == list(range(numbers(rest)[0], numbers(rest)[-1] + 1))


async def test_a_stream_of_what_is_not_there_is_missing() -> None:
    """404 before anything is streamed."""
    async with scene() as s:
        for path in (f"{ANN}/nope/events", "/runs/nope/events"):
            assert (await s.client.get(path)).status_code == 404


async def test_streams_of_one_user_are_bounded() -> None:
    """429 with Retry-After; whoever closes one may open another."""
    async with scene(msgspec.structs.replace(FREE, streams_per_user=1)) as s:
        await s.begin()
        async with s.events(f"{S1}/events") as events:
            await until(events, "session_created")
            refused = await s.client.get(f"{S1}/events")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        while "andon_streams 0\n" not in (await s.client.get("/metrics")).text:
            pass
        async with s.events(f"{S1}/events") as events:
            await until(events, "session_created")


async def test_streams_and_waits_end_when_the_server_leaves() -> None:
    """An end event, and 202 for whoever waited; the run is handed over, and nobody cancelled it."""
    async with scene() as s:
        await s.begin()
        await s.push_and_wait()
        kinds: list[str] = []
        answers: list[int] = []

        async def wait() -> None:
            answers.append((await s.post(f"{S1}/runs", input="hello", wait=30)).status_code)

        async with s.events(f"{S1}/events") as events, anyio.create_task_group() as group:
            await until(events, "model_started")
            group.start_soon(wait)
            await until(events, "received")
            s.server.leave()
            kinds += [event.kind for event in await whole(events)]
        assert (kinds[-2:], answers) == (["handed_over", "end"], [202])
