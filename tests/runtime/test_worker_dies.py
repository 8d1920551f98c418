"""A worker that dies at any operation: the next one goes on, nothing is lost, nothing is done twice."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from andon.core.messages import Message, ResultState
from andon.core.session import fold_session
from andon.core.stop import StopResult
from andon.runtime.memory import MemorySubstrate
from andon.testing import run_virtual
from tests.deeds import Deeds, lines
from tests.hall import KEY, Hall, hall, settle, sound
from tests.mortal import Mortal

Story = Callable[[Hall], Awaitable[None]]


async def tools(hall: Hall) -> None:
    """Two runs with tools and an agent inside."""
    assert (await hall.run("tools")).state == "finished"
    assert (await hall.run("hello")).state == "finished"


async def question(hall: Hall) -> None:
    """A question, and its answer."""
    asked = await hall.run("ask")
    assert asked.state == "interrupted"
    run_id = await hall.office.answer(KEY, {asked.interrupts[0].id: "yes"})
    row = await hall.office.ended(KEY, run_id, 10_000)
    assert row is not None
    assert row.state == "finished"


async def cancel(hall: Hall) -> None:
    """A run that hangs is cancelled, the one behind it is not."""
    hanging = await hall.office.push(KEY, "hang", by="ann")
    waiting = await hall.office.push(KEY, "hello")
    await hall.live(hanging, "model")
    report = await hall.office.cancel(KEY, run_id=hanging, reason="enough", by="bob", wait=10_000)
    assert report is not None
    assert report.result is StopResult.STOPPED
    assert [(cause.by, cause.reason) for cause in report.causes] == [("bob", "enough")]
    row = await hall.office.ended(KEY, waiting, 10_000)
    assert row is not None
    assert row.state == "finished"


async def steer(hall: Hall) -> None:
    """Something is said to a run while its tool works, and something is pushed."""
    run_id = await hall.office.push(KEY, "again")
    await hall.live(run_id, "again")
    other = await hall.office.push(KEY, "hello", on_busy="enqueue")
    await hall.office.steer(KEY, "Be brief.")
    for name in (run_id, other):
        row = await hall.office.ended(KEY, name, 10_000)
        assert row is not None
        assert row.state == "finished"


async def pause(hall: Hall) -> None:
    """A run is paused after its tools, something is pushed, and all goes on when it is resumed."""
    run_id = await hall.office.push(KEY, "tools")
    await hall.live(run_id)
    report = await hall.office.pause(KEY, wait=10_000)
    assert report is not None
    waiting = await hall.office.push(KEY, "hello")
    again = await hall.office.resume(KEY)
    for name in (again, waiting):
        if name is not None:
            assert await hall.office.ended(KEY, name, 10_000)


STORIES: dict[str, Story] = {
    "tools": tools,
    "question": question,
    "cancel": cancel,
    "steer": steer,
    "pause": pause,
}


async def replaced(here: Hall, mortal: Mortal) -> None:
    """Let another worker come when the first has died."""
    await mortal.dead
    here.hire()


async def tell(story: Story, dies_at: int, *, after: bool) -> tuple[Deeds, list[Message], int]:
    """Tell a story while the first worker dies at an operation.

    Gives what was done, the history, and how many operations the first worker did.
    """
    deeds = Deeds()
    async with hall(deeds.agent, workers=0, substrate=MemorySubstrate(lease=5)) as here:
        first = Mortal(here.substrate, dies_at=dies_at, after=after)
        async with anyio.create_task_group() as life:
            life.start_soon(here.worker(first, beat=1.0).run)
            life.start_soon(replaced, here, first)
            await story(here)
            await settle()
            life.cancel_scope.cancel()
        entries = await sound(here)
    return deeds, fold_session(KEY, entries).messages, len(first.done)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", STORIES)
def test_a_worker_may_die_at_any_operation(name: str, after: bool) -> None:  # noqa: FBT001
    """The history is that of a session in which nobody died, but for what cannot be known."""
    _, calm, count = run_virtual(lambda: tell(STORIES[name], 0, after=False))
    assert count > 10
    for dies_at in range(1, count + 1):
        deeds, history, _ = run_virtual(lambda k=dies_at: tell(STORIES[name], k, after=after))
        unknown = [
            result.name
            for message in history
            for result in message.results
            if result.state is ResultState.UNKNOWN
        ]
        assert set(unknown) <= {"once", "inner"}, (dies_at, lines(history))
        assert all(deeds.tally.begun[one] <= 1 for one in ("once", "child")), (dies_at, deeds.tally.begun)
        if not unknown:
            assert lines(history) in (lines(calm), said_nothing(calm)), dies_at


def said_nothing(calm: list[Message]) -> list[str]:
    """Give the history if the model that was cancelled had not said its word, nor been asked again."""
    return ["assistant: Cancelled by user" if line == "assistant: Hm. " else line for line in lines(calm)]
