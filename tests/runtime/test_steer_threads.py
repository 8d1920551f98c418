"""Steering from threads: never blocked, in the order of each thread, and told also where a loop is gone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import anyio
import pytest

from andon import Agent, Call, Limits, Run, tool
from andon.core.draft import Chunk
from andon.core.steer import Delivery, When
from andon.errors import RunStateError
from andon.ports import ModelRequest
from andon.runtime.steering import SteerReceipt
from andon.testing import Gate, ScriptedModel
from tests.runtime.test_odd_ends import close_all
from tests.steered import said, steered

THREADS = 64
EACH = 5
KINDS: tuple[When, ...] = ("next", "idle", "now")
Speak = Callable[[Barrier, Run, int, When], list[SteerReceipt]]


def say(barrier: Barrier, run: Run, number: int, when: When) -> list[SteerReceipt]:
    """Come to the barrier, then say several things, one after the other."""
    barrier.wait(30)
    return [run.steer(f"{number} {n}", when=when) for n in range(EACH)]


def say_until_it_ends(barrier: Barrier, run: Run, number: int, when: When) -> list[SteerReceipt]:
    """Come to the barrier, then say one thing after the other, each when the one before it was heard."""
    barrier.wait(30)
    receipts: list[SteerReceipt] = []
    heard = True
    while heard:
        receipts.append(run.steer(f"{number} {len(receipts):06}", when=when))
        heard = receipts[-1].wait(timeout=30).delivered
    return receipts


async def crowd(
    run: Run, kinds: tuple[When, ...], speak: Speak = say, threads: int = THREADS
) -> list[SteerReceipt]:
    """Let many threads steer a run in one moment."""
    barrier = Barrier(threads)
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(speak, barrier, run, number, kinds[number % len(kinds)]) for number in range(threads)
        ]
        async with anyio.create_task_group() as tasks:
            for future in futures:
                tasks.start_soon(future_is_done, asyncio.wrap_future(future))
    return [receipt for future in futures for receipt in future.result()]


async def future_is_done(future: asyncio.Future[list[SteerReceipt]]) -> None:
    """Wait for what a thread gives."""
    await future


def in_order(run: Run) -> None:
    """What one thread has said comes in its order."""
    heard = [message.text for message in run.messages if message.role == "user"][1:]
    for number in range(THREADS):
        mine = [words for words in heard if words.startswith(f"{number} ")]
        assert mine == sorted(mine)


@pytest.mark.parametrize("kinds", [KINDS, ("next",), ("idle",), ("now",)])
async def test_64_threads_at_once_are_all_heard_once(kinds: tuple[When, ...]) -> None:
    """While a model answers, which those that say it now cut."""
    answer = Gate("model")

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Some words. "
        await answer

    async with Agent(model).start("go") as run:
        await answer.reached()
        receipts = await crowd(run, kinds)
        answer.open()
        await steered(run, receipts)
    assert len(receipts) == THREADS * EACH
    assert all(to is not None and to.delivered for to in (receipt.delivery for receipt in receipts))
    in_order(run)


async def test_threads_that_race_the_end_are_each_told_the_truth() -> None:
    """Some are heard, others come too late; none is told wrong, and none waits for ever."""
    for _ in range(10):
        answer = Gate("model")
        model = ScriptedModel([answer, "Done."], *["Done."] * 20)
        async with Agent(model, limits=Limits(model_calls=20)).start("go") as run:
            await answer.reached()
            receipts = [run.steer("first")]
            answer.open()
            receipts += await crowd(run, ("next", "idle"), say_until_it_ends)
            await steered(run, receipts)
        assert {to.delivered for to in (receipt.delivery for receipt in receipts) if to is not None} == {
            True,
            False,
        }
        in_order(run)


async def test_a_burst_that_never_waits_is_cut_soon() -> None:
    """The loop gets its turns while a model gives chunks without end."""
    streaming = Gate("streaming", opened=True)

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        if len(request.messages) > 1:
            yield "Enough."
            return
        await streaming
        while True:
            yield "word "

    async with Agent(model).start("go") as run:
        await streaming.reached()
        receipts: list[SteerReceipt] = []
        thread = Thread(target=lambda: receipts.append(run.steer("stop", when="now")))
        thread.start()
        outcome = await steered_by(thread, run, receipts)
    assert outcome[2:] == ["user: stop", "assistant: Enough."]


async def steered_by(thread: Thread, run: Run, receipts: list[SteerReceipt]) -> list[str]:
    """Give the words of a run that a thread steers."""
    await run.outcome()
    thread.join()
    return said(await steered(run, receipts))


async def test_a_thread_waits_for_its_receipt() -> None:
    """A time-out leaves the message where it is; the event loop must not be blocked by a wait."""
    answer = Gate("model")
    model = ScriptedModel(["First.", answer], "Second.")
    async with Agent(model).start("go") as run:
        await answer.reached()
        receipt = run.steer("hm")
        with pytest.raises(RunStateError, match="would block this event loop"):
            receipt.wait()
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(receipt.wait, 0.01)
        waiting = asyncio.get_running_loop().run_in_executor(None, receipt.wait, 30)
        answer.open()
        assert (await waiting).delivered
        await steered(run, [receipt])


@pytest.mark.parametrize("when", KINDS)
async def test_a_tool_in_a_thread_may_steer(when: When) -> None:
    """It has the run, and that is enough."""
    receipts: list[SteerReceipt] = []

    @tool
    def work() -> str:
        """Work."""
        receipts.append(run.steer("from a thread", when=when))
        return "done"

    run = Agent(ScriptedModel(Call("work"), "Done.", "Yes."), tools=[work]).start("go")
    async with run:
        outcome = await steered(run, receipts)
    assert "user: from a thread" in said(outcome)


@pytest.mark.parametrize("when", KINDS)
def test_a_child_in_a_thread_of_its_own_is_steered(when: When) -> None:
    """Its loop is another one, and is woken."""
    answer = Gate("model")
    inner = ScriptedModel(["Half", answer], *["Whole."] * 2)

    @tool
    def help_me() -> str:
        """Ask another agent."""
        return Agent(inner, name="child").run_sync("help").text

    async def main() -> None:
        async with Agent(ScriptedModel(Call("help_me"), "Done."), tools=[help_me]).start("go") as run:
            await answer.reached()
            (child,) = run.children
            receipt = child.steer("hm", when=when)
            if when != "now":
                answer.open()
            outcome = await run.outcome()
            assert (await receipt).delivered
            assert outcome.messages[2].results[0].content == "Whole."

    asyncio.run(main())


class Lost:
    """A run whose event loop was closed under it, while its model was asked."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.run = Agent(ScriptedModel([Gate("model")])).start("go")
        self.loop.run_until_complete(self._begin())
        self.before = self.run.steer("before")
        self.left = asyncio.all_tasks(self.loop)
        self.loop.close()

    async def _begin(self) -> None:
        self.run.events()
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("when", KINDS)
def test_on_a_lost_loop_nobody_waits_for_ever(when: When) -> None:
    """Nothing of the run will ever hear it, nor what was said before."""
    lost = Lost()
    receipt = lost.run.steer("hello?", when=when)
    assert receipt.wait(timeout=5) == lost.before.wait(timeout=5) == Delivery(delivered=False)
    close_all(lost.left)
    assert lost.run.steer("still?", when=when).wait(timeout=5) == Delivery(delivered=False)


def test_a_stop_on_a_lost_loop_tells_those_who_steered_as_well() -> None:
    """It finds out that the loop is gone."""
    lost = Lost()
    lost.run.cancel()
    assert lost.before.wait(timeout=5) == Delivery(delivered=False)
    close_all(lost.left)


def test_a_lost_run_that_the_garbage_collector_closes_tells_it_too() -> None:
    """Nobody needs to ask."""
    lost = Lost()
    assert lost.before.delivery is None
    close_all(lost.left)
    assert lost.before.wait(timeout=5) == Delivery(delivered=False)


@pytest.mark.parametrize("when", KINDS)
def test_after_the_end_the_loop_may_be_gone(when: When) -> None:
    """A handle that is kept answers for ever."""
    run = Agent(ScriptedModel("Done.")).start("go")
    assert asyncio.run(run.outcome()).text == "Done."
    assert run.steer("too late", when=when).wait(timeout=5) == Delivery(delivered=False)
