"""Attacks on the stops of a turn loop: at once, in chains, in any order; nothing is ever weakened."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, permutations
from threading import Barrier
from typing import Any

import anyio
import pytest

from andon import Call, Cancelled, ModelError, Point, Preempt, Stop, TurnLoop
from andon.core.turns import PreemptResult, Stage
from andon.errors import Interrupted
from andon.testing import Gate, Hang, virtual
from tests.looped import Looped, asked_of, asking, held, items_of, state_of
from tests.stores import MemoryStore

Ask = Callable[[TurnLoop[str]], object]

STOPS: dict[str, Ask] = {
    "bare": lambda loop: loop.stop(cause="first come"),
    "when idle": lambda loop: loop.stop(when_idle_for=5),
    "at a point": lambda loop: loop.stop(Stop.at(Point.MODEL, grace=600)),
    "graceful": lambda loop: loop.stop(Stop.graceful()),
    "now, without a checkpoint": lambda loop: loop.stop(Stop.now(), skip_checkpoint=True),
}


async def test_concurrent_waits_for_idleness_are_one() -> None:
    """Forty threads ask at once, for short and long: one duration counts, and the loop ends once."""
    for _ in range(20):
        scene = Looped("Done.")
        barrier = Barrier(40)

        def ask(number: int, scene: Looped = scene, barrier: Barrier = barrier) -> None:
            barrier.wait(30)
            scene.loop.stop(when_idle_for=0.001 + number / 100_000, cause=f"{number}")

        with ThreadPoolExecutor(40) as pool:
            async with scene.loop:
                scene.push("first")
                asked = [pool.submit(ask, number) for number in range(40)]
                exit_ = await scene.loop.wait()
            for one in asked:
                one.result(30)
        assert exit_.reason is None
        assert exit_.stop_cause in set(map(str, range(40)))
        assert scene.ends == ["completed"]


@virtual
async def test_the_clock_of_idleness_is_not_moved_by_what_is_no_item() -> None:
    """Longer waits, pushes that decide on nothing and fail, and whoever waits: it ends when it was to end."""
    scene = Looped()

    def fail(*_: object) -> None:
        raise LookupError

    began = anyio.current_time()
    async with scene.loop:
        scene.loop.stop(when_idle_for=1)
        for _ in range(9):
            await anyio.sleep(0.1)
            scene.loop.stop(when_idle_for=600)
            with pytest.raises(LookupError):
                scene.loop.push("never", strategy=fail)
        await scene.loop.wait()
    assert anyio.current_time() - began == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("order", list(permutations(STOPS)), ids="-".join)
def test_a_chain_of_stops_in_any_order_only_escalates(order: tuple[str, ...]) -> None:
    """What the agent is asked never weakens; in the end it is cut, and the first cause and skip stay."""

    @virtual
    async def chain() -> None:
        gate, store = Gate("tool"), MemoryStore()
        scene = Looped(Call("work"), tools=[held(gate)], store=store)
        stages: list[Stage] = []
        async with scene.loop:
            scene.push("first", "second")
            await gate.reached()
            for name in order:
                STOPS[name](scene.loop)
                stages.append(state_of(scene).stage)
        exit_ = await scene.loop.wait()
        assert stages == sorted(stages, key=list(Stage).index)
        stops = await asked_of(scene.runs[0])
        assert all(after.join(before) == after for before, after in pairwise(stops))
        assert stops[-1].immediate
        assert isinstance(exit_.reason, Cancelled)
        assert (exit_.interrupted, exit_.unhandled) == (("first",), ("second",))
        assert (exit_.stop_cause, exit_.checkpoint_attempted, store.data) == ("first come", False, {})

    chain()


@pytest.mark.parametrize("weaker", [name for name in STOPS if not name.startswith("now")])
def test_now_is_never_taken_back(weaker: str) -> None:
    """Whatever comes after it, while the agent still cleans up, changes nothing."""

    @virtual
    async def kept() -> None:
        cleaning, began = Gate("cleaning"), Gate("tool")

        async def work() -> str:
            """Work, and clean up for a while."""
            try:
                await began
            finally:
                await cleaning
            return "done"

        scene = Looped(Call("work"), tools=[work])
        async with scene.loop:
            scene.push("first")
            await began.reached()
            scene.loop.stop(Stop.now(recursive=True))
            await cleaning.reached()
            STOPS[weaker](scene.loop)
            STOPS[weaker](scene.loop)
            cleaning.open()
        exit_ = await scene.loop.wait()
        assert isinstance(exit_.reason, Cancelled)
        (first, *later) = await asked_of(scene.runs[0])
        assert first.immediate
        assert first.recursive
        assert all(stop.immediate and stop.recursive for stop in later)
        assert exit_.interrupted == ("first",)

    kept()


ENDS: dict[str, Any] = {
    "an answer": ["Done."],
    "an error": [ModelError("no")],
    "a question": [Call("ask")],
    "never": [Hang()],
    "a point": [Call("work")],
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("stop", [None, *STOPS])
@pytest.mark.parametrize("preempted", [False, True])
def test_interrupted_are_the_items_of_the_turn_that_a_stop_or_a_question_ended(
    end: str, stop: str | None, *, preempted: bool
) -> None:
    """Of that turn only; each item is in one place, and the reason says which it was."""

    @virtual
    async def invariant() -> None:
        gate, store = Gate("model"), MemoryStore()
        replies = [gate, *ENDS[end]]
        tools = [asking(), held(Gate(opened=True))]
        scene = Looped(replies, *["Done."] * 3, tools=tools, gen_input="all", store=store)
        async with scene.loop:
            scene.push("a", "b")
            await gate.reached()
            if preempted:
                scene.push("c", preempt=Preempt(Point.ANY, grace=1))
            if stop is not None:
                STOPS[stop](scene.loop)
            gate.open()
            if end == "never" and stop != "now, without a checkpoint" and not preempted:
                await anyio.sleep(10)
                scene.loop.stop(Stop.now())
        exit_ = await scene.loop.wait()
        outcome = await scene.runs[0].outcome()
        stopped = scene.turns[0].stopped and outcome.stop_reason == "cancelled"
        asked = outcome.stop_reason == "interrupt"
        assert exit_.interrupted == (("a", "b") if stopped or asked else ())
        assert isinstance(exit_.reason, Cancelled) == stopped
        assert isinstance(exit_.reason, Interrupted) == asked
        assert exit_.failed == (("a", "b") if outcome.stop_reason == "error" else ())
        taken = [item for turn in scene.turns[1:] for item in turn.consumed]
        assert sorted([*items_of(exit_), *taken]) == sorted({*items_of(exit_), *taken})
        if exit_.interrupted and not state_of(scene).skip_checkpoint:
            assert list(store.data) == ["chat-42"]

    invariant()


async def test_stops_and_pushes_of_many_threads_meet_at_the_exit() -> None:
    """Each push knows where its item went: handled or unhandled if it was accepted, late if it was not."""
    for round_ in range(20):
        gate = Gate("model")
        scene = Looped([gate, "Done."], *["Done."] * 1_000)
        barrier = Barrier(16)

        def push(number: int, scene: Looped = scene, barrier: Barrier = barrier) -> list[tuple[str, bool]]:
            barrier.wait(30)
            names = [f"{number}-{n}" for n in range(20)]
            preempts = (None, Preempt(Point.STREAM), Preempt(Point.ANY, grace=0.001))
            return [(name, scene.loop.push(name, preempt=preempts[number % 3]).accepted) for name in names]

        def stop(number: int, scene: Looped = scene, barrier: Barrier = barrier) -> None:
            barrier.wait(30)
            list(STOPS.values())[number % len(STOPS)](scene.loop)

        with ThreadPoolExecutor(16) as pool:
            async with scene.loop:
                scene.push("first")
                await gate.reached()
                pushes = [pool.submit(push, number) for number in range(11)]
                stops = [pool.submit(stop, round_ + number) for number in range(5)]
                gate.open()
                exit_ = await scene.loop.wait()
            for one in stops:
                one.result(30)
            told = dict(one for push_ in pushes for one in push_.result(30))
        taken = [item for turn in scene.turns for item in turn.consumed]
        accepted = ["first", *(name for name, was in told.items() if was)]
        assert sorted([*taken, *exit_.unhandled]) == sorted(accepted)
        assert sorted(exit_.late()) == sorted(name for name, was in told.items() if not was)


async def test_64_threads_push_with_preempts_while_the_loop_is_stopped() -> None:
    """No receipt hangs, whichever way the race goes, and no item is lost."""
    for _ in range(5):
        gate = Gate("model")
        scene = Looped([gate, Hang()], *["Done."] * 200)
        barrier = Barrier(65)

        def push(
            number: int, scene: Looped = scene, barrier: Barrier = barrier
        ) -> tuple[bool, PreemptResult]:
            barrier.wait(30)
            delay = 0.0005 if number % 4 == 0 else None
            receipt = scene.loop.push(f"{number}", preempt=Preempt(Point.STREAM, grace=1, delay=delay))
            assert receipt.preempt is not None
            return receipt.accepted, receipt.preempt.wait(30)

        with ThreadPoolExecutor(64) as pool:
            async with scene.loop:
                scene.push("first")
                await gate.reached()
                gate.open()
                pushes = [pool.submit(push, number) for number in range(64)]
                barrier.wait(30)
                scene.loop.stop(Stop.now())
                exit_ = await scene.loop.wait()
            told = [await anyio.to_thread.run_sync(one.result, 30) for one in pushes]
        taken = [item for turn in scene.turns for item in turn.consumed]
        accepted = [f"{number}" for number, (was, _) in enumerate(told) if was]
        assert sorted([*taken, *exit_.unhandled]) == sorted(["first", *accepted])
        assert sorted(exit_.late()) == sorted({*map(str, range(64))} - {*accepted})
        assert set(exit_.interrupted) <= set(taken)
        for was, result in told:
            assert was or result is PreemptResult.LOOP_CLOSED
