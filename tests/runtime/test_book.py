"""Book: one record per step of the loop, numbered without a gap, and nothing behind a failure."""

from collections.abc import Mapping

import anyio
import pytest
from typing_extensions import override

from andon.core.command import Key, Pause
from andon.core.items import MessageAdded, RunStarted, StopRequested, ToolStarted
from andon.core.journal import Entry, Received, SessionCreated, record_from_json
from andon.core.messages import Message
from andon.core.session import SessionState, fold_session
from andon.core.stop import Cause, Stop
from andon.errors import SessionError
from andon.runtime.book import Book, RunJournal
from andon.runtime.isolate import turn
from andon.runtime.memory import MemorySubstrate
from andon.testing import Gate, virtual

KEY = Key("app", "ann", "s1")


class Slow(MemorySubstrate):
    """A substrate whose appends wait at a gate, and fail as they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate("append", opened=True)
        self.appends = 0
        self.failures: list[BaseException] = []

    @override
    async def append(
        self, key: Key, record: bytes, *, head: int, rows: Mapping[str, bytes] | None = None
    ) -> int:
        self.appends += 1
        await self.gate
        if self.failures:
            raise self.failures.pop(0)
        return await super().append(key, record, head=head, rows=rows)


async def begun(substrate: MemorySubstrate) -> Book:
    """Open the book of a session that has just begun."""
    book = Book(substrate, SessionState(KEY), 0)
    book.write(SessionCreated())
    await book.sync()
    return book


def says(text: str) -> MessageAdded:
    """Make an item."""
    return MessageAdded(message=Message.user(text))


async def records(substrate: MemorySubstrate) -> list[list[Entry]]:
    """Read what is durable."""
    return [record_from_json(record) for _, record in await substrate.read(KEY)]


@virtual
async def test_what_happens_in_one_step_of_the_loop_is_one_record() -> None:
    """The group is appended at once, and numbered without a gap."""
    async with Slow() as substrate:
        book = await begun(substrate)
        for text in "abc":
            book.write(says(text))
        await book.sync()
        book.write(says("d"))
        await book.sync()
        assert [[entry.n for entry in record] for record in await records(substrate)] == [[1], [2, 3, 4], [5]]
        assert substrate.appends == 3


@virtual
async def test_what_comes_while_a_record_is_written_is_the_next_one() -> None:
    """One append at a time, in order; each waits for what was written until it asked, and not for more."""
    async with Slow() as substrate:
        book = await begun(substrate)
        substrate.gate = first = Gate()
        book.write(says("a"))
        await first.reached()
        substrate.gate = second = Gate()
        synced: list[str] = []

        async def sync(name: str) -> None:
            await book.sync()
            synced.append(name)

        async with anyio.create_task_group() as group:
            group.start_soon(sync, "a")
            await turn()
            book.write(says("b"))
            book.write(says("c"))
            group.start_soon(sync, "c")
            await turn()
            assert book.state.n == 4
            first.open()
            await second.reached()
            assert synced == ["a"]
            second.open()
        assert synced == ["a", "c"]
        assert [[entry.n for entry in record] for record in await records(substrate)] == [[1], [2], [3, 4]]


@virtual
async def test_what_is_durable_adds_up_to_the_state() -> None:
    """The state that the book keeps is the fold of what it has written."""
    async with Slow() as substrate:
        book = await begun(substrate)
        pause = Pause(id="p", at=1.0, stop=Stop.graceful().bind(1.0, Cause("pause")))
        book.write(Received(seq=1, command=pause))
        await book.sync()
        again = fold_session(KEY, [entry for record in await records(substrate) for entry in record])
        assert (again.n, again.cursor, again.held) == (book.state.n, 1, True)


@virtual
async def test_a_full_substrate_is_waited_for() -> None:
    """What has happened stays true, in order, and is durable once there is room."""
    async with Slow() as substrate:
        book = await begun(substrate)
        substrate.failures = [SessionError("the disk is full", "full") for _ in range(3)]
        began = anyio.current_time()
        book.write(says("a"))
        await turn()
        book.write(says("b"))
        await book.sync()
        assert anyio.current_time() - began == pytest.approx(1.5)
        assert [[entry.n for entry in record] for record in await records(substrate)] == [[1], [2], [3]]


@pytest.mark.parametrize("error", [SessionError("gone", "fenced"), OSError("no such device")])
@virtual
async def test_after_a_failure_nothing_is_written_and_nothing_is_true(error: Exception) -> None:
    """Whoever waits hears why, now and later; the state stays as it was."""
    async with Slow() as substrate:
        book = await begun(substrate)
        told: list[str] = []
        book.on_failure = lambda: told.append("failed")
        substrate.failures = [error]
        book.write(says("a"))
        await turn()
        book.write(says("b"))
        with pytest.raises(type(error)):
            await book.sync()
        n = book.state.n
        book.write(says("c"))
        with pytest.raises(type(error)):
            await book.sync()
        assert (book.state.n, len(await records(substrate)), told) == (n, 1, ["failed"])
        book.fence()
        assert book.failure is error


@virtual
async def test_a_fence_wakes_whoever_waits() -> None:
    """Also where the substrate hangs."""
    async with Slow() as substrate:
        book = await begun(substrate)
        substrate.gate = Gate()
        book.write(says("a"))
        async with anyio.create_task_group() as group:

            async def fence() -> None:
                await substrate.gate.reached()
                book.fence("this worker was too slow")

            group.start_soon(fence)
            with pytest.raises(SessionError, match="too slow: app/ann/s1"):
                await book.sync()
        substrate.gate.open()


@virtual
async def test_an_item_that_cannot_be_applied_ends_the_book() -> None:
    """A bug: what came after it would leave a gap in the numbers."""
    async with Slow() as substrate:
        book = await begun(substrate)
        book.write(RunStarted(run_id="r1", agent="a"))
        with pytest.raises(AttributeError):
            book.write(MessageAdded(message=None))  # type: ignore[arg-type]
        assert isinstance(book.failure, AttributeError)


@virtual
async def test_another_writer_fences_the_book() -> None:
    """The head is compared with each append."""
    async with Slow() as substrate:
        one, other = await begun(substrate), Book(substrate, SessionState(KEY), 0)
        await turn()
        head = await substrate.head(KEY)
        other = Book(substrate, fold_session(KEY, (await records(substrate))[0]), head)
        other.write(says("other"))
        await other.sync()
        one.write(says("one"))
        with pytest.raises(SessionError):
            await one.sync()
        assert isinstance(one.failure, SessionError)
        assert one.failure.kind == "fenced"


@virtual
async def test_a_run_has_the_numbers_of_its_session() -> None:
    """Each once; what is not written has none."""
    async with Slow() as substrate:
        book = await begun(substrate)
        journal = RunJournal(book, "r1")
        journal.draining = True
        started = RunStarted(n=1, run_id="r1", agent="a")
        stop = Stop.graceful().bind(1.0, Cause("shutdown", id="s"))
        requested = StopRequested(n=2, stop=stop)
        tool = ToolStarted(n=3, call_id="c", name="look")
        for item in (started, requested, tool):
            journal.take(item)
        assert [journal.number(item) for item in (started, requested, tool, tool)] == [2, None, 3, None]


@virtual
async def test_only_a_worker_that_drains_hands_over() -> None:
    """A stop that merely calls itself a shutdown is a stop as any other."""
    async with Slow() as substrate:
        book = await begun(substrate)
        journal = RunJournal(book, "r1")
        journal.take(RunStarted(n=1, run_id="r1", agent="a"))
        journal.take(StopRequested(n=2, stop=Stop.now().bind(1.0, Cause("shutdown", id="s"))))
        assert book.state.n == 3
