"""Feed: every item once and in order, and of what is in flight exactly what was said, whenever one comes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import anyio
import msgspec
import pytest
from typing_extensions import override

from andon import Agent, tool
from andon.core.command import Key
from andon.core.draft import Chunk
from andon.core.items import ModelEnded, ModelStarted, ReasoningDelta, TextDelta
from andon.core.journal import Partial
from andon.core.messages import Call, Reasoning
from andon.core.session import SessionState
from andon.errors import SessionError
from andon.ports import ModelRequest
from andon.runtime.feed import FAR_BEHIND, LONGEST, Feed, Told
from andon.runtime.flight import Tagger
from andon.runtime.memory import MemorySubstrate
from andon.runtime.office import Office
from andon.testing import run_virtual, virtual
from tests.deeds import Deeds
from tests.hall import KEY, Hall, hall, settle
from tests.mortal import Mortal

STEP = 0.25
SAID = [f"word{number} " for number in range(8)]
TEXT = "".join(SAID)
LAST = 4 * len(SAID)  # the moment, in quarters of a step, in which the model has ended


async def speaks(_: ModelRequest) -> AsyncIterator[Chunk]:
    """Think, and say one word after the other."""
    yield Reasoning("Hm. ")
    for word in SAID:
        yield word
        await anyio.sleep(STEP)


class Reader:
    """One that puts together what it is told, and holds it to what readers are promised."""

    def __init__(self, after: int = 0) -> None:
        self.n = after
        self.all: list[Told] = []
        self.text = ""
        self.flying = after > 0
        self.partials = 0
        self.answers: list[str] = []
        self.complete: list[bool] = []  # whether it had been told all of an answer before that came whole

    def take(self, one: Told) -> None:
        """Take one thing."""
        self.all.append(one)
        data = msgspec.json.decode(one.data)
        if one.n:
            assert one.n == self.n + 1
            assert (one.id, data["n"], data["type"]) == (str(one.n), one.n, one.kind)
            self.n = one.n
        match one.kind:
            case "partial":
                self.text = data.get("text", "")
                self.partials += 1
            case "text_delta":
                assert self.flying
                assert int(one.id.split(".")[0]) == self.n
                self.text += data["text"]
            case "model_started" | "superseded":
                self.text, self.flying = "", one.kind == "model_started"
            case "model_ended":
                self.flying = False
            case "message_added" if data["message"]["role"] == "assistant":
                said = data["message"]["parts"][-1].get("text", self.text)
                assert said.startswith(self.text)
                self.complete.append(said == self.text)
                self.answers.append(said)
            case _:
                pass

    @property
    def kinds(self) -> list[str]:
        """What came, in order."""
        return [one.kind for one in self.all]

    async def until(self, news: AsyncIterator[Sequence[Told]], kind: str = "run_ended") -> None:
        """Read until something comes."""
        async for batch in news:
            assert batch
            for one in batch:
                self.take(one)
            if any(one.kind == kind for one in batch):
                return


async def read(office: Office, after: int = 0, kind: str = "run_ended", key: Key = KEY) -> Reader:
    """Follow a session until something comes."""
    reader = Reader(after)
    async with office.follow(key, after=after) as news:
        await reader.until(news, kind)
    return reader


@virtual
async def test_a_reader_that_reads_on_from_a_delta_gets_no_item_twice() -> None:
    """The id of a delta is behind all items that were told before it, also those that no run has written."""
    async with hall(Agent(speaks)) as here:
        await here.office.push(KEY, "hello")
        reader = Reader()
        async with here.office.follow(KEY) as news:
            await reader.until(news, "text_delta")
            await here.office.push(KEY, "and more")
            await reader.until(news, "received")
            await reader.until(news, "text_delta")
        after = int(reader.all[-1].id.split(".")[0])
        assert after == reader.n
        assert (await read(here.office, after)).all[0].n in {0, after + 1}


@virtual
async def test_a_reader_is_told_all_from_the_beginning() -> None:
    """Items with their numbers, between them the deltas."""
    async with hall(Agent(speaks)) as here:
        await here.office.push(KEY, "hello")
        reader = await read(here.office)
        assert (reader.answers, reader.complete) == ([TEXT], [True])
        assert reader.kinds == [
            "session_created",
            "received",
            "run_started",
            "message_added",
            "model_started",
            "reasoning_delta",
            *["text_delta"] * len(SAID),
            "model_ended",
            "message_added",
            "run_ended",
        ]
        started = next(one.n for one in reader.all if one.kind == "model_started")
        ids = [one.id for one in reader.all if one.kind.endswith("delta")]
        assert ids == [f"{started}.1.1.{k}" for k in range(1, len(SAID) + 2)]


@pytest.mark.parametrize("after", [0, 1, 5, 7, 8])
@virtual
async def test_a_reader_may_begin_anywhere(after: int) -> None:
    """What it has already is not told again."""
    async with hall(Agent(speaks)) as here:
        await here.run("hello")
        async with here.office.follow(KEY, after=after) as news:
            reader = Reader(after)
            with anyio.move_on_after(1):
                async for batch in news:
                    reader.all += batch
            assert [one.n for one in reader.all] == list(range(after + 1, 9))


@virtual
async def test_a_reader_behind_the_end_is_told_what_comes() -> None:
    """A number that was never given is that of the end."""
    async with hall(Agent(speaks)) as here:
        await here.run("hello")
        async with here.office.follow(KEY, after=1_000) as news, anyio.create_task_group() as group:
            group.start_soon(here.run, "again")
            reader = Reader(8)
            await reader.until(news)
            assert reader.answers == [TEXT]


async def _joins(late: float, *, early: bool, elsewhere: bool) -> Reader:
    async with hall(Agent(speaks)) as here:
        run_id = await here.office.push(KEY, "hello")
        await here.live(run_id, "model")
        if early:
            here.group.start_soon(read, here.office)
        await anyio.sleep(late)
        return await read(Office(here.substrate) if elsewhere else here.office)
    raise AssertionError


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_whenever_a_reader_joins_it_has_the_whole_text(early: bool, elsewhere: bool) -> None:  # noqa: FBT001
    """In the process of others that read, alone, or in another: one partial, and deltas that continue it."""
    for moment in (*range(LAST), LAST + 1, LAST + 2):
        reader = run_virtual(lambda m=moment: _joins(m * STEP / 4, early=early, elsewhere=elsewhere))
        in_flight = moment < LAST
        assert (reader.answers, reader.complete, reader.partials) == ([TEXT], [in_flight], in_flight), moment
        assert reader.kinds.count("text_delta") <= max(0, LAST - moment) / 4


@virtual
async def test_a_reader_that_comes_back_goes_on() -> None:
    """With the number of the last item or delta it had; a partial takes the place of what it has."""
    async with hall(Agent(speaks)) as here:
        await here.office.push(KEY, "hello")
        first = Reader()
        async with here.office.follow(KEY) as news:
            async for batch in news:
                for one in batch:
                    first.take(one)
                if first.text.count("word") >= 3:
                    break
        after = int(first.all[-1].id.split(".")[0])
        assert after == first.n
        await anyio.sleep(STEP * 2)
        second = await read(here.office, after)
        assert (second.answers, second.complete, second.partials) == ([TEXT], [True], 1)


class Lossy(MemorySubstrate):
    """A substrate on whose way some of what passes by is lost."""

    def __init__(self, *lost: int) -> None:
        super().__init__()
        self.told = 0
        self.lost = lost

    @override
    def tell(self, key: Key, delta: bytes) -> None:
        self.told += 1
        if self.told not in self.lost:
            super().tell(key, delta)


@pytest.mark.parametrize(
    "lost", [(n,) for n in range(1, 9)] + [(1, 2, 3), (2, 4, 6), (3, 5, 9), (4, 5, 6, 7)]
)
def test_what_was_lost_on_the_way_is_said_again(lost: tuple[int, ...]) -> None:
    """No reader puts a text together that was never said."""

    async def main() -> Reader:
        async with hall(Agent(speaks), substrate=Lossy(*lost)) as here:
            await here.office.push(KEY, "hello")
            return await read(here.office)

    reader = run_virtual(main)
    assert (reader.answers, reader.complete) == ([TEXT], [True])
    assert reader.partials >= 1


@virtual
async def test_a_reader_that_is_too_slow_has_all_items_and_merged_text() -> None:
    """The log is bounded, and so is what waits for the reader."""
    many = 3 * LONGEST

    async def floods(_: ModelRequest) -> AsyncIterator[Chunk]:
        for number in range(many):
            yield f"{number} "
            if number % 50 == 0:
                await anyio.sleep(0.01)

    async with hall(Agent(floods)) as here:
        slow, sizes = Reader(), list[int]()
        async with here.office.follow(KEY) as news:
            for _ in range(2):
                await here.office.push(KEY, "hello")
            async for batch in news:
                for one in batch:
                    slow.take(one)
                sizes.append(max(len(feed._log) for feed, _ in here.office._feeds.values()))  # pyright: ignore[reportPrivateUsage]
                await anyio.sleep(0.5)
                if slow.kinds.count("run_ended") == 2:
                    break
        expected = "".join(f"{number} " for number in range(many))
        assert slow.answers == [expected] * 2
        assert slow.n == 15
        assert slow.partials >= 1
        assert slow.kinds.count("text_delta") < LONGEST
        assert max(sizes) <= LONGEST + FAR_BEHIND


@virtual
async def test_a_long_answer_does_not_fill_the_memory() -> None:
    """Also where no item comes for a long time."""
    substrate = MemorySubstrate()

    async def floods(_: ModelRequest) -> AsyncIterator[Chunk]:
        for _number in range(3 * LONGEST):
            yield "x"
            await anyio.sleep(0.001)
        await anyio.sleep_forever()

    async with hall(Agent(floods), substrate=substrate) as here:
        run_id = await here.office.push(KEY, "hello")
        await here.live(run_id)
        async with here.office.follow(KEY) as news:
            taken = 0
            async for batch in news:
                taken += sum(one.kind == "text_delta" for one in batch)
                assert len(next(iter(here.office._feeds.values()))[0]._log) <= LONGEST + FAR_BEHIND  # pyright: ignore[reportPrivateUsage]
                if taken >= 3 * LONGEST - 1:
                    break
        await here.office.cancel(KEY)


async def _dies(at: float) -> tuple[Reader, Reader]:
    async with hall(Agent(speaks), workers=0, substrate=MemorySubstrate(lease=5)) as here:
        mortal = Mortal(here.substrate)
        live, later = Reader(), Reader()
        async with anyio.create_task_group() as deadly:
            deadly.start_soon(here.worker(mortal).run)
            async with here.office.follow(KEY) as news, anyio.create_task_group() as group:
                group.start_soon(live.until, news)
                run_id = await here.office.push(KEY, "hello")
                await here.live(run_id, "model")
                await anyio.sleep(at)
                mortal.die()
                here.hire()
            deadly.cancel_scope.cancel()
        async with Office(here.substrate).follow(KEY) as news:
            await later.until(news)
    return live, later


@pytest.mark.parametrize("moment", range(6))
def test_after_a_death_what_was_said_is_superseded_before_it_is_said_anew(moment: int) -> None:
    """For those who were there, and for those who read it later."""
    live, later = run_virtual(lambda: _dies(moment * STEP))
    assert (live.answers, live.complete) == ([TEXT], [True])
    for reader in (live, later):
        assert reader.kinds.count("superseded") == 1
        where = reader.kinds.index("superseded")
        assert (reader.kinds[where + 1], reader.kinds[:where].count("model_started")) == ("run_started", 1)
        assert reader.all[where].n == 0


@virtual
async def test_what_a_dead_worker_still_says_is_not_heard() -> None:
    """A zombie that streams on is no part of the answer."""
    async with hall(Agent(speaks), workers=0, substrate=MemorySubstrate(lease=0.5)) as here:
        here.hire(beat=1_000.0, concurrency=1)
        reader = Reader()
        async with here.office.follow(KEY) as news, anyio.create_task_group() as group:
            group.start_soon(reader.until, news)
            run_id = await here.office.push(KEY, "hello")
            await here.live(run_id, "model")
            here.hire(beat=0.1)
        assert (reader.answers, reader.complete) == ([TEXT], [True])
        assert reader.kinds.count("superseded") == 1


@virtual
async def test_a_session_that_is_deleted_ends_its_readers() -> None:
    """Also if one of the same name begins at once."""
    for again in (False, True):
        async with hall(Agent(speaks)) as here:
            async with here.office.follow(KEY) as news:
                assert [one.kind for one in await anext(news)] == ["session_created"]
                await here.office.delete(KEY)
                if again:
                    await here.office.create(KEY)
                with pytest.raises(SessionError, match="was deleted"):
                    await anext(news)
            if again:
                async with here.office.follow(KEY) as news:
                    assert len(await anext(news)) == 1


@virtual
async def test_readers_share_a_feed_that_ends_with_the_last() -> None:
    """One listens for all; when nobody reads, nobody listens."""
    async with hall(Agent(speaks)) as here:
        feeds = here.office._feeds  # pyright: ignore[reportPrivateUsage]
        async with here.office.follow(KEY) as one:
            async with here.office.follow(KEY) as other:
                assert (len(await anext(one)), len(await anext(other)), len(feeds)) == (1, 1, 1)
                assert _watchers(here) == 1
            await here.office.push(KEY, "hello")
            assert len(await anext(one)) >= 1
        await settle()
        assert (len(feeds), _watchers(here)) == (0, 0)


class Closing(Office):
    """An office that is closed while it looks at a session."""

    @override
    async def state(self, key: Key) -> SessionState:
        found = await super().state(key)
        self.close()
        return found


@virtual
async def test_a_reader_that_comes_as_the_office_closes_does_not_wait_for_ever() -> None:
    """It is told to read on elsewhere."""
    async with hall(Agent(speaks)) as here:
        with pytest.raises(SessionError, match="the server ends"):
            async with Closing(here.substrate).follow(KEY) as news:
                await anext(news)


def _watchers(here: Hall) -> int:
    return len(here.substrate._watchers.get(KEY, ()))  # pyright: ignore[reportPrivateUsage]


@virtual
async def test_a_reader_hears_that_the_substrate_is_closed_or_broken() -> None:
    """It does not wait for ever."""
    async with MemorySubstrate() as substrate:
        office = Office(substrate)
        await office.create(KEY)
        for what in ("broken", "closed"):
            async with office.follow(KEY) as news:
                await anext(news)
                if what == "closed":
                    await substrate.__aexit__(None, None, None)
                else:
                    substrate.tell(KEY, b"nonsense")
                with pytest.raises((SessionError, ValueError)):
                    await anext(news)


@virtual
async def test_a_feed_that_is_closed_ends_its_readers() -> None:
    """Whoever reads is told to read on elsewhere."""
    async with MemorySubstrate() as substrate:
        office = Office(substrate)
        await office.create(KEY)
        feed = Feed(substrate, KEY)
        async with aclosing(feed.read(0)) as news:
            await anext(news)
            feed.close()
            with pytest.raises(SessionError, match="the server ends: read on at another"):
                await anext(news)


@virtual
async def test_progress_of_a_tool_and_words_of_an_agent_inside_are_told() -> None:
    """Each with the way to it; no call id confuses them."""

    @tool(name="work")
    async def work() -> AsyncIterator[object]:
        """Work."""
        yield {"done": 1}
        await anyio.sleep(1)
        yield {"done": 2}
        yield "done"

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        if request.messages[-1].role == "user":
            yield Call("work", {}, id="a b#c@1.1")
            yield Call("inner", {"request": "hello"}, id="i")
        else:
            yield "Done."

    inner = Agent(speaks, name="inner").as_tool(description="Ask inside.")
    async with hall(Agent(model, tools=[work, inner])) as here:
        await here.office.push(KEY, "hello")
        async with here.office.follow(KEY) as news:
            told: list[Told] = []
            async for batch in news:
                told += batch
                if batch[-1].kind == "run_ended":
                    break
        progress = [msgspec.json.decode(one.data)["value"] for one in told if one.kind == "tool_progress"]
        assert progress == [{"done": 1}, {"done": 2}, "done"]
        words = [msgspec.json.decode(one.data) for one in told if one.kind == "text_delta"]
        assert "".join(one["text"] for one in words if one.get("path")) == TEXT
        assert "".join(one["text"] for one in words if not one.get("path")) == "Done."


def test_a_partial_says_both_words_and_thoughts() -> None:
    """Of each call in flight, and of none that has ended."""
    tagger = Tagger("r 1")
    tagger.item(ModelStarted(step=1), 5)
    assert tagger.partials() == []
    tags = [tagger.tag(delta) for delta in (ReasoningDelta("Hm."), TextDelta("a"), TextDelta("b"))]
    assert [tag.split(b" ")[:2] for tag in tags if tag] == [
        [f"5.1.1.{k}".encode(), b"r%201@1.1"] for k in (1, 2, 3)
    ]
    [said] = tagger.partials()
    assert msgspec.json.decode(said.split(b" ", 2)[2], type=Partial) == Partial("ab", "Hm.")
    tagger.item(ModelEnded(step=1), None)
    assert (tagger.partials(), tagger.tag(TextDelta("late"))) == ([], None)


@virtual
async def test_a_tool_of_the_session_is_counted_as_told() -> None:
    """A worker with many tools in one round tells each of them."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        await here.office.push(KEY, "tools")
        reader = await read(here.office)
        assert reader.kinds.count("tool_started") == reader.kinds.count("tool_ended") == 4
