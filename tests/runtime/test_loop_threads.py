"""A turn loop is pushed to and stopped from other threads, and by signal handlers in the midst of it."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Barrier, Event, Thread, get_ident
from types import FrameType

import anyio
import pytest

from andon import Point, Preempt, Stop, Turn
from andon.core.items import Item
from andon.core.turns import Phase, PreemptResult
from andon.runtime.receipt import Receipt
from andon.runtime.turn import Exit, Planning, TurnView
from andon.testing import Delay, Gate, Hang, run_virtual
from tests.belt import Belt

OURS = ("core/turns.py", "core/buffer.py", "runtime/desk.py")


# Threads


def test_a_loop_runs_in_a_thread_of_its_own() -> None:
    """Pushed to, stopped and waited for from others, with loops of their own."""
    belt = Belt()
    with ThreadPoolExecutor(3) as pool:
        waiters = [pool.submit(asyncio.run, belt.loop.wait()) for _ in range(2)]
        running = pool.submit(asyncio.run, belt.loop.run())
        receipt = belt.loop.push("a")
        belt.loop.stop(when_idle_for=0.01)
        exit_ = running.result(30)
        assert [waiter.result(30) for waiter in waiters] == [exit_, exit_]
    assert receipt.accepted
    assert (exit_.reason, belt.consumed) == (None, ["a"])


def test_loops_in_threads_push_to_each_other() -> None:
    """Four in a ring hand a number on, each in a thread of its own, until one of them stops them all."""
    belts: list[Belt] = []

    def feed(k: int) -> Callable[[Planning[str], Sequence[str]], Turn[str]]:
        def plan(_about: Planning[str], items: Sequence[str]) -> Turn[str]:
            if int(items[0]) < 40:
                belts[(k + 1) % 4].loop.push(str(int(items[0]) + 1))
            else:
                for belt in belts:
                    belt.loop.stop()
            return Turn(items[0], consumed=items)

        return plan

    belts.extend(Belt(gen_input=feed(k)) for k in range(4))
    belts[0].loop.push("0")
    with ThreadPoolExecutor(4) as pool:
        exits = [
            future.result(30) for future in [pool.submit(asyncio.run, belt.loop.run()) for belt in belts]
        ]
    assert [exit_.reason for exit_ in exits] == [None] * 4
    for k, (belt, exit_) in enumerate(zip(belts, exits, strict=True)):
        assert [*belt.consumed, *exit_.unhandled] == [str(n) for n in range(41) if n % 4 == k]


async def test_a_hundred_threads_push_and_each_receipt_is_answered() -> None:
    """TC-11: each waits for its own; nobody is forgotten, and the loop goes on."""
    gate = Gate("model")
    belt = Belt([gate, "Done."])
    barrier = Barrier(100)

    def push(number: int) -> tuple[Receipt, PreemptResult]:
        barrier.wait(30)
        receipt = belt.loop.push(f"{number}", preempt=Preempt(Point.ANY))
        assert receipt.preempt is not None
        return receipt, receipt.preempt.wait(30)

    belt.loop.push("first")
    with ThreadPoolExecutor(100) as pool:
        async with asyncio.timeout(30), belt.loop:
            await gate.reached()
            futures = [pool.submit(push, number) for number in range(100)]
            answers = await asyncio.get_running_loop().run_in_executor(None, results, futures)
            gate.open()
            belt.loop.stop()
    assert all(receipt.accepted for receipt, _ in answers)
    assert {result for _, result in answers} == {PreemptResult.SUBMITTED}
    exit_ = await belt.loop.wait()
    assert Counter(exit_.unhandled) == Counter(f"{number}" for number in range(100))


def results(
    futures: "Sequence[Future[tuple[Receipt, PreemptResult]]]",
) -> list[tuple[Receipt, PreemptResult]]:
    """Wait for what threads give."""
    return [future.result(30) for future in futures]


async def test_twenty_threads_stop_it_each_in_another_way() -> None:
    """TS-26: committed, and the checkpoint is skipped, for one of them said so."""
    stops: list[Callable[[Belt], None]] = [
        lambda belt: belt.loop.stop(),
        lambda belt: belt.loop.stop(Stop.now()),
        lambda belt: belt.loop.stop(Stop.graceful(grace=9)),
        lambda belt: belt.loop.stop(when_idle_for=60),
        lambda belt: belt.loop.stop(skip_checkpoint=True),
    ]

    def stop(number: int, belt: Belt, barrier: Barrier) -> None:
        barrier.wait(30)
        stops[number % 5](belt)

    with ThreadPoolExecutor(20) as pool:
        for _ in range(20):
            belt, barrier = Belt([Hang()]), Barrier(21)
            belt.loop.push("a")
            futures = [pool.submit(stop, number, belt, barrier) for number in range(20)]
            async with asyncio.timeout(30), belt.loop:
                barrier.wait(30)
                exit_ = await belt.loop.wait()
                for future in futures:
                    await asyncio.wrap_future(future)
            assert repr(belt.loop).endswith("stop committed>")
            assert [*exit_.interrupted, *exit_.unhandled] == ["a"]


async def test_a_strategy_in_a_thread_holds_the_next_turn_back() -> None:
    """TC-02: it sees one moment: no turn and an idle loop; what waits is planned when it has decided."""
    deciding = Gate("strategy")
    belt, seen = Belt(), list[tuple[TurnView[str] | None, Phase]]()

    def decide(turn: TurnView[str] | None, phase: Phase) -> None:
        seen.append((turn, phase))
        deciding.wait()

    with ThreadPoolExecutor(1) as pool:
        async with asyncio.timeout(30), belt.loop:
            pushing = pool.submit(partial(belt.loop.push, strategy=decide), "a")
            await deciding.reached()
            belt.loop.push("b")
            belt.loop.stop(when_idle_for=0.001)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert (belt.given, repr(belt.loop)) == (
                [],
                "<TurnLoop loop, idle, turn 0, 1 waiting, stop waiting for idle>",
            )
            deciding.open()
            receipt = await asyncio.wrap_future(pushing)
    assert (receipt.accepted, receipt.preempt) == (True, None)
    assert seen == [(None, Phase.IDLE)]
    assert belt.given == [["b", "a"], ["a"]]


async def test_a_strategy_in_a_thread_sees_the_whole_turn_or_none() -> None:
    """TC-02: whatever the loop does in that moment, the turn and its phase belong together."""
    wake = [Event(), Event()]
    odd: list[tuple[TurnView[str] | None, Phase]] = []

    def decide(turn: TurnView[str] | None, phase: Phase) -> None:
        if (turn is not None) != (phase in {Phase.PLANNING, Phase.ACTIVE}):
            odd.append((turn, phase))
        if turn is not None and phase is Phase.ACTIVE and (not turn.consumed or turn.run is None):
            odd.append((turn, phase))

    def push(wake: Event) -> int:
        pushed = 0
        while wake.wait(30):
            wake.clear()
            if not belt.loop.push("more", strategy=decide).accepted:
                return pushed
            pushed += 1
        raise TimeoutError

    class Waking(Belt):
        def observe(self, name: str, item: Item, /) -> None:
            for one in wake:
                one.set()
            super().observe(name, item)

    belt = Waking()
    with ThreadPoolExecutor(2) as pool:
        async with asyncio.timeout(30), belt.loop:
            belt.loop.push("first")
            futures = [pool.submit(push, one) for one in wake]
            while len(belt.ended) < 40:
                await anyio.lowlevel.checkpoint()
            belt.loop.stop()
        for one in wake:
            one.set()
        pushed = 1 + sum([await asyncio.wrap_future(future) for future in futures])
    exit_ = await belt.loop.wait()
    assert odd == []
    assert len(belt.consumed) + len(exit_.unhandled) == pushed


# Signal handlers


@contextmanager
def on_signal(act: Callable[[], object]) -> Generator[Callable[[], None]]:
    """Do something in a signal handler; gives what sends the signal, from another thread."""
    handled = Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if not handled.is_set():
            handled.set()
            act()

    def send() -> None:
        Thread(target=_send_to_a_sleeper, args=(get_ident(), handled)).start()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield send
    finally:
        signal.signal(signal.SIGUSR1, before)


def _send_to_a_sleeper(thread: int, handled: Event) -> None:
    """Send it once that thread sleeps in its selector, which nothing but the handler will wake.

    A signal that comes just before it sleeps is not handled until something wakes it: the next one.
    """
    frames = sys._current_frames  # pyright: ignore[reportPrivateUsage]
    while frames()[thread].f_code.co_name != "select":
        pass
    while not handled.is_set():
        os.kill(os.getpid(), signal.SIGUSR1)
        handled.wait(0.05)


async def test_a_signal_handler_wakes_an_idle_loop() -> None:
    """It pushes, and it stops: the loop sleeps, and nothing else wakes it."""
    belt = Belt()
    async with asyncio.timeout(5), belt.loop:
        await anyio.lowlevel.checkpoint()
        with on_signal(partial(belt.loop.push, "a")) as send:
            send()
            await belt.until("1 completed")
        with on_signal(belt.loop.stop) as send:
            send()
            exit_ = await belt.loop.wait()
    assert (exit_.reason, belt.consumed) == (None, ["a"])


async def test_a_signal_handler_preempts_after_a_delay() -> None:
    """The timer is set while the loop sleeps."""
    belt = Belt([Hang()])
    belt.loop.push("a")
    preempt = Preempt(Point.ANY, grace=0.01, delay=0.01)
    async with asyncio.timeout(5), belt.loop:
        await belt.until("1 began")
        with on_signal(partial(belt.loop.push, "b", preempt=preempt)) as send:
            send()
            await belt.until("2 completed")
    assert belt.turns == ["1 began", "1 preempted", "2 began", "2 completed"]


@contextmanager
def interrupted_at(step: int, act: Callable[[], None]) -> Generator[list[int]]:
    """Do something at one of the steps of the loop's own code, as a signal handler would.

    Python runs handlers where a function is called or returns. Gives the count of the steps.
    """
    count = [0]

    def profile(frame: FrameType, _event: str, _arg: object) -> None:
        if frame.f_code.co_filename.endswith(OURS):
            count[0] += 1
            if count[0] == step:
                act()

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(before)


class Scene:
    """Two turns, the first preempted; at one step a handler pushes, preempts and stops the loop."""

    def __init__(self, step: int, stop: Stop | None) -> None:
        self.step = step
        self.stop = stop
        self.heard = False
        self.belt = Belt([Delay(5), "Done."], Hang())
        self.receipts: list[Receipt] = []

    def handler(self) -> None:
        """Be the handler."""
        self.heard = True
        self.receipts.append(self.belt.loop.push("signal", preempt=Preempt(Point.ANY, grace=1)))
        self.belt.loop.stop(self.stop)

    async def look(self) -> None:
        """Hold the loop to what the handler has asked for, a while later."""
        await anyio.sleep(2)
        if self.heard:
            assert not self.belt.loop.push("late").accepted

    async def main(self) -> Exit[str]:
        """Run it to its end."""
        belt = self.belt
        belt.loop.push("a")
        belt.loop.push("b")
        async with belt.loop:
            await self.look()
            self.receipts.append(belt.loop.push("c", preempt=Preempt(Point.TOOLS, grace=2)))
            await self.look()
            await self.look()
            if self.heard and self.stop is not None:
                assert repr(belt.loop).startswith("<TurnLoop loop, closed")
            belt.loop.stop(Stop.now())
        await self.look()
        return await belt.loop.wait()

    def play(self) -> tuple[int, Exit[str]]:
        """Give how many steps there were, and the exit."""
        with interrupted_at(self.step, self.handler) as count:
            return count[0], run_virtual(self.main)


@pytest.mark.parametrize("stop", [None, Stop.now()], ids=["bare", "now"])
def test_a_signal_handler_in_the_midst_of_the_loop_loses_nothing(stop: Stop | None) -> None:
    """At whatever step it comes: its stop is heard, each item is in one place, each preempt is answered."""
    step, heard = 0, True
    while heard:
        step += 1
        scene = Scene(step, stop)
        try:
            _, exit_ = scene.play()
            held(scene, exit_)
        except BaseException as error:
            error.add_note(f"at step {step}")
            raise
        heard = scene.heard
    assert step > 200


def test_a_preempt_that_was_submitted_to_a_turn_is_known_to_it() -> None:
    """At whatever step of the turn it is pushed, also while that ends: what the push is told is so."""
    step, told = 0, list[PreemptResult]()
    belt, receipts, saw = Belt(), list[Receipt](), list[int]()

    def decide(turn: TurnView[str] | None, phase: Phase) -> Preempt:
        saw.append(0 if turn is None else turn.number)
        assert (turn is None) == (phase not in {Phase.PLANNING, Phase.ACTIVE})
        return Preempt(Point.ANY)

    def push() -> None:
        receipts.append(belt.loop.push("b", strategy=decide))

    async def main() -> None:
        belt.loop.push("a")
        async with belt.loop:
            pass

    while len(receipts) == step:
        step += 1
        belt = Belt()
        with interrupted_at(step, push):
            run_virtual(main)
        for receipt in receipts[step - 1 :]:
            assert receipt.preempt is not None
            told.append(receipt.preempt.wait(0.01))
            known = {view.number for view in belt.views if view.preempted}
            assert known == ({saw[-1]} if told[-1] is PreemptResult.SUBMITTED else set()), f"at step {step}"
    assert {*told} == {PreemptResult.NO_TURN, PreemptResult.SUBMITTED, PreemptResult.LOOP_CLOSED}


def held(scene: Scene, exit_: Exit[str]) -> None:
    """Hold a scene to the laws of items and receipts."""
    asked = Counter(["a", "b", "c", *["signal"] * scene.heard])
    assert Counter(item for item in found(scene.belt, exit_) if item != "late") == asked
    for receipt in scene.receipts:
        assert receipt.preempt is not None
        assert receipt.preempt.wait(0.01) in PreemptResult


def found(belt: Belt, exit_: Exit[str]) -> list[str]:
    """Where the items are: those of turns, whatever came of them, and those of none."""
    return [*belt.consumed, *exit_.unhandled, *exit_.late()]
