"""Attacks by the callbacks of a turn loop: they push, stop, raise, block, hang, and cancel themselves."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import pytest

from andon import Call, Cancelled, Point, Preempt, Run, Stop, Turn
from andon.core.items import Event
from andon.core.turns import Phase, PreemptResult
from andon.runtime.isolate import Cut
from andon.runtime.turn import Planning, TurnView
from andon.testing import Gate, Hang, VirtualLoop, run_virtual, virtual
from andon.testing.clock import tasks_of
from tests.looped import Looped, answer, held
from tests.stores import MemoryStore

CALLBACKS = ("gen_input", "prepare_agent", "on_events")


@virtual
async def test_a_strategy_that_pushes_and_stops_does_so_as_anybody() -> None:
    """From inside it pushes with a strategy of its own, preempts, and stops; nothing deadlocks."""
    gate = Gate("model")
    scene = Looped([gate, "Done."])

    def inner(_turn: TurnView[str] | None, _phase: Phase) -> Preempt:
        scene.loop.push("innermost")
        return Preempt(Point.TOOLS)

    def outer(_turn: TurnView[str] | None, _phase: Phase) -> None:
        assert scene.loop.push("inner", strategy=inner).accepted
        scene.loop.stop(cause="from a strategy")

    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("outer", strategy=outer)
        assert not receipt.accepted
        gate.open()
    exit_ = await scene.loop.wait()
    assert (exit_.reason, exit_.stop_cause) == (None, "from a strategy")
    assert (exit_.unhandled, exit_.late()) == (("innermost", "inner"), ("outer",))


@virtual
async def test_a_strategy_that_raises_lets_the_next_turn_begin() -> None:
    """Nothing was pushed, and the loop that waited for it goes on at once."""
    scene = Looped("Done.")

    def fail(_turn: TurnView[str] | None, _phase: Phase) -> None:
        scene.loop.push("on the way")
        raise ZeroDivisionError

    async with scene.loop:
        await anyio.sleep(1)
        with pytest.raises(ZeroDivisionError):
            scene.loop.push("never", strategy=fail)
        await scene.over(1)
    assert scene.prompts == ["on the way"]


@pytest.mark.parametrize("gives", [Stop.now(), "ANY", Point.ANY])
def test_a_strategy_that_gives_something_else_is_told_so(gives: Any) -> None:  # noqa: ANN401 — the attack
    """The pusher gets a TypeError, and nothing was pushed."""
    scene = Looped()

    def give(_turn: TurnView[str] | None, _phase: Phase) -> Any:  # noqa: ANN401 — the attack
        return gives

    with pytest.raises(TypeError, match="nothing was pushed"):
        scene.loop.push("never", strategy=give)
    assert not scene.loop.busy


async def test_a_strategy_that_blocks_in_its_thread_holds_only_the_next_turn() -> None:
    """The turn under way ends, others push, the idle time runs out; nobody spins, nothing is lost."""
    deciding, first = Gate("strategy"), Gate("model")
    scene = Looped([first, "One."], "Two.", "Three.")
    receipts: list[bool] = []
    phases: list[Phase] = []
    woken: list[int] = []

    def block(_turn: TurnView[str] | None, phase: Phase) -> None:
        phases.append(phase)
        deciding.wait()

    def push() -> None:
        receipts.append(scene.loop.push("second", strategy=block).accepted)

    async with anyio.create_task_group() as group, scene.loop:
        scene.push("first")
        await first.reached()
        group.start_soon(anyio.to_thread.run_sync, push)
        await deciding.reached()
        scene.push("third")
        scene.loop.stop(when_idle_for=0.001)
        first.open()
        await scene.over(1)
        woken.append(await rounds_until_quiet())
        assert scene.batches == [["first"]]
        deciding.open()
    exit_ = await scene.loop.wait()
    assert woken[0] < 20
    assert (receipts, phases) == ([True], [Phase.ACTIVE])
    assert scene.batches == [["first"], ["third", "second"], ["second"]]
    assert (exit_.reason, exit_.unhandled) == (None, ())


async def rounds_until_quiet() -> int:
    """Let the loop turn until nothing is ready for several real milliseconds; gives how often it woke."""
    loop = asyncio.get_running_loop()
    woken = 0
    until = loop.time() + 0.05
    while loop.time() < until:
        woken += 1
        await anyio.sleep(0.005)
    return woken


def test_an_idle_loop_that_waits_for_a_blocked_push_does_not_spin() -> None:
    """The idle time is over while a push decides: the loop sleeps until that has ended."""
    loop = VirtualLoop()

    async def idle() -> None:
        deciding = Gate("strategy")
        scene = Looped()

        def block(*_: object) -> None:
            deciding.wait()

        async with anyio.create_task_group() as group, scene.loop:
            group.start_soon(anyio.to_thread.run_sync, lambda: scene.loop.push("late?", strategy=block))
            await deciding.reached()
            scene.loop.stop(when_idle_for=0.01)
            await anyio.sleep(0.1)
            before = loop.steps
            await anyio.sleep(0.1)
            assert loop.steps - before < 20
            scene.model.script("Done.")
            deciding.open()
        assert scene.prompts == ["late?"]
        assert (await scene.loop.wait()).reason is None

    run_virtual(idle, loop=loop)


def cancels_itself(callback: str) -> Looped:
    """Make a loop whose callback cancels the task that it runs in."""

    async def attack(*_: object) -> object:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep(1)
        return None

    callbacks: dict[str, Any] = {callback: attack}
    return Looped([Hang()], **callbacks)


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_callback_that_cancels_its_own_task_ends_the_loop_and_cancels_nobody(callback: str) -> None:
    """Its CancelledError is the reason like any error; whoever runs the loop was not cancelled."""

    @virtual
    async def unharmed() -> None:
        scene = cancels_itself(callback)
        scene.push("first", "second")
        exit_ = await scene.loop.run()
        assert isinstance(exit_.reason, Cut)
        assert exit_ == await scene.loop.wait()
        assert sorted([*exit_.unhandled, *exit_.failed]) == ["first", "second"]
        assert scene.model.live == 0
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    unharmed()


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("callback", ["gen_input", "prepare_agent"])
def test_a_callback_that_hangs_while_the_loop_is_cancelled_is_cut(callback: str, *, obeys: bool) -> None:
    """It has a little time to clean up; one that ignores it is left behind; the items are given back."""

    @virtual
    async def cut() -> None:
        hang, told = Gate("callback"), 0

        async def attack(*_: object) -> None:
            nonlocal told
            while True:
                try:
                    await hang
                except Cut:
                    told += 1
                    if obeys:
                        raise
                else:
                    return

        callbacks: dict[str, Any] = {callback: attack}
        scene = Looped(**callbacks)
        scene.push("first", "second")
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(scene.loop.run)
            await hang.reached()
            scene.push("third")
            group.cancel_scope.cancel()
        assert anyio.current_time() - began <= 2.01
        exit_ = await scene.loop.wait()
        assert isinstance(exit_.reason, Cut)
        assert exit_.unhandled == ("first", "second", "third")
        assert told == 1
        hang.open()

    cut()


@virtual
async def test_a_callback_that_hangs_over_its_events_does_not_outlive_the_loop() -> None:
    """The loop's task is cancelled: the agent is cut, and in the end the callback is, too."""
    hang = Gate("callback")
    cut: list[str] = []

    async def attack(*_: object) -> None:
        try:
            await hang
        except Cut:
            cut.append("callback")
            raise

    scene = Looped([Hang()], on_events=attack)
    async with anyio.create_task_group() as group:
        scene.push("first")
        group.start_soon(scene.loop.run)
        await hang.reached()
        group.cancel_scope.cancel()
    exit_ = await scene.loop.wait()
    assert exit_.failed == ("first",)
    assert cut == ["callback"]
    assert scene.model.live == 0
    assert len(tasks_of(asyncio.get_running_loop())) == 1


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("stop", [None, Stop.now()])
def test_a_callback_may_push_and_stop(callback: str, stop: Stop | None) -> None:
    """No deadlock: what it pushes before is accepted, what it pushes after is late."""

    @virtual
    async def both() -> None:
        inner = Looped("Done.")
        callbacks: dict[str, Any] = {
            "gen_input": inner.first,
            "prepare_agent": inner.prepare,
            "on_events": inner.watch,
        }
        plain = callbacks[callback]

        async def attack(*given: Any) -> object:  # noqa: ANN401 — the callback's
            assert scene.loop.push("before").accepted
            scene.loop.stop(stop)
            assert not scene.loop.push("after").accepted
            value: Any = plain(*given)
            return await value if asyncio.iscoroutine(value) else value

        callbacks[callback] = attack
        scene = Looped(store=MemoryStore(), **callbacks)
        exit_ = await scene.to_the_end("first")
        assert exit_.late() == ("after",)
        if callback != "on_events":
            assert (exit_.reason, exit_.unhandled, inner.turns) == (None, ("first", "before"), [])
        else:
            assert exit_.unhandled == ("before",)
            assert isinstance(exit_.reason, Cancelled) == (stop is not None)
            assert exit_.interrupted == (() if stop is None else ("first",))

    both()


@virtual
async def test_a_callback_that_keeps_its_turn_sees_it_as_it_was() -> None:
    """What is asked of the loop later is no part of a turn that has ended."""
    gate = Gate("tool")
    scene = Looped(Call("work"), [Hang()], tools=[held(gate)])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("second", preempt=Preempt(Point.ANY))
        assert await answer(receipt) is PreemptResult.SUBMITTED
        gate.open()
        await scene.over(1)
        await anyio.sleep(1)
        scene.loop.stop(Stop.now(), cause="deploy")
    first, second = scene.turns
    assert (first.preempted, first.stopped, first.stop_requested, first.stop_cause) == (
        True,
        False,
        False,
        "",
    )
    assert (second.preempted, second.stopped, second.stop_requested) == (False, True, True)
    assert second.stop_cause == "deploy"


@virtual
async def test_a_callback_that_reads_events_of_an_earlier_turn_reads_those() -> None:
    """The events of a turn stay what they were, and end."""
    kept: list[Run] = []

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        assert turn.run is not None
        kept.append(turn.run)
        async for _ in events:
            pass
        for run in kept:
            ended = [event async for event in run.events()]
            assert type(ended[-1]).__name__ == "RunEnded"

    scene = Looped("One.", "Two.", on_events=watch)
    exit_ = await scene.to_the_end("first", "second")
    assert exit_.reason is None
    assert [(await run.outcome()).text for run in kept] == ["One.", "Two."]


@virtual
async def test_an_agent_that_serves_two_loops_is_stopped_in_one() -> None:
    """A stop of a loop is for its own turn; the other's run of the same agent goes on."""
    gates = [Gate("one"), Gate("two")]
    shared = Looped([gates[0]], [gates[1], "Two."])
    other = Looped(agent=shared.agent)
    async with shared.loop, other.loop:
        shared.push("first")
        await gates[0].reached()
        other.push("second")
        await gates[1].reached()
        shared.loop.stop(Stop.now())
        await shared.loop.wait()
        gates[1].open()
    assert (await shared.loop.wait()).interrupted == ("first",)
    assert (await other.loop.wait()).reason is None
    assert [(await run.outcome()).text for run in other.runs] == ["Two."]


@virtual
async def test_a_plan_for_ever_is_not_endless() -> None:
    """Thousands of items, one a turn: each batch is whole and in order."""
    n = 300

    def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        assert items == [f"{number}" for number in range(about.turn - 1, n)]
        return Turn(items[0], consumed=items[:1], remaining=items[1:])

    scene = Looped(*["Done."] * n, gen_input=plan)
    exit_ = await scene.to_the_end(*[f"{number}" for number in range(n)])
    assert exit_.reason is None
    assert len(scene.prompts) == n
