"""TU: a turn loop that is stopped once it has been idle for some time."""

import asyncio

import anyio
import pytest

from andon import Cancelled, Stop
from andon.core import turns
from andon.core.stop import Where
from andon.core.turns import Stage, State, Wait
from andon.runtime.turn import Exit
from andon.testing import Delay, Gate, virtual
from tests.belt import Belt


def now() -> float:
    """The virtual time."""
    return asyncio.get_running_loop().time()


async def ended_at(belt: Belt, when: float) -> Exit[str]:
    """Wait for the end of a loop, and hold it to a time and a clean exit."""
    exit_ = await belt.loop.wait()
    assert now() == pytest.approx(when)
    assert exit_.reason is None
    return exit_


@virtual
async def test_tu_01_an_idle_loop_exits_by_itself() -> None:
    """So many seconds after it was asked, and nobody asks again."""
    belt = Belt()
    belt.loop.push("a")
    async with belt.loop:
        await belt.until("1 completed")
        await anyio.sleep(7)
        asked = now()
        belt.loop.stop(when_idle_for=0.05)
        assert repr(belt.loop) == "<TurnLoop loop, idle, turn 1, 0 waiting, stop waiting for idle>"
        await ended_at(belt, asked + 0.05)
    assert belt.ended == ["end_turn"]


@virtual
async def test_tu_02_an_item_restarts_the_clock_after_its_turn() -> None:
    """It is accepted and processed, and then the whole time is waited for."""
    belt = Belt("Done.", [Delay(3), "Done."])
    belt.loop.push("a")
    async with belt.loop:
        await belt.until("1 completed")
        asked = now()
        belt.loop.stop(when_idle_for=0.2)
        await anyio.sleep(0.1)
        assert belt.loop.push("b").accepted
        await ended_at(belt, asked + 0.1 + 3 + 0.2)
    assert belt.consumed == ["a", "b"]


@virtual
async def test_tu_03_every_item_restarts_the_clock() -> None:
    """Five that come closer together than the time are all processed."""
    belt = Belt()
    belt.loop.push("0")
    async with belt.loop:
        await belt.until("1 completed")
        asked = now()
        belt.loop.stop(when_idle_for=0.2)
        for k in range(5):
            await anyio.sleep(0.05)
            assert belt.loop.push(str(k + 1)).accepted
        await ended_at(belt, asked + 5 * 0.05 + 0.2)
    assert belt.consumed == [str(k) for k in range(6)]


@virtual
async def test_tu_04_a_stop_now_overrides_it() -> None:
    """The turn is cancelled, at once."""
    gate = Gate("model")
    belt = Belt([gate])
    belt.loop.push("a")
    async with belt.loop:
        await gate.reached()
        asked = now()
        belt.loop.stop(when_idle_for=600)
        await anyio.sleep(1)
        belt.loop.stop(Stop.now())
        exit_ = await belt.loop.wait()
    assert now() == pytest.approx(asked + 1)
    assert isinstance(exit_.reason, Cancelled)
    assert exit_.reason.report is not None
    assert exit_.reason.report.stopped_at is Where.MODEL
    assert exit_.interrupted == ("a",)


@virtual
async def test_tu_06_the_first_time_stands() -> None:
    """A longer one and a shorter one that come later change nothing, not even the clock."""
    for second in (600, 0.01):
        belt = Belt()
        async with belt.loop:
            await anyio.sleep(1)
            asked = now()
            belt.loop.stop(when_idle_for=0.1)
            await anyio.sleep(0.05)
            belt.loop.stop(when_idle_for=second)
            await ended_at(belt, asked + 0.1)


@virtual
async def test_tu_08_a_bare_stop_overrides_it_before_the_run() -> None:
    """The loop exits at once, whichever came first, and also when it waits already."""
    belt = Belt()
    belt.loop.stop(when_idle_for=600)
    belt.loop.stop()
    began = now()
    assert (await belt.loop.run()).reason is None
    assert now() == began

    waiting = Belt()
    async with waiting.loop:
        waiting.loop.stop(when_idle_for=600)
        await anyio.sleep(1)
        waiting.loop.stop()
        await ended_at(waiting, began + 1)

    other = Belt()
    other.loop.stop()
    other.loop.stop(when_idle_for=600)
    await other.loop.run()
    assert now() == pytest.approx(began + 1)


@virtual
async def test_tu_09_a_push_after_the_time_is_late() -> None:
    """It is rejected, and the exit has it."""
    belt = Belt()
    async with belt.loop:
        belt.loop.stop(when_idle_for=0.05)
        exit_ = await belt.loop.wait()
    assert exit_.reason is None
    assert not belt.loop.push("after-stop").accepted
    assert exit_.late() == ("after-stop",)
    assert exit_.unhandled == ()


@pytest.mark.parametrize("before", [True, False])
@virtual
async def test_tu_10_it_touches_no_turn(*, before: bool) -> None:
    """Asked before the run or during a turn, that ends by itself, and only then the time runs."""
    gate = Gate("model")
    belt = Belt([gate, Delay(0.2), "Done."])
    belt.loop.push("a")
    if before:
        belt.loop.stop(when_idle_for=0.05)
    async with belt.loop:
        await gate.reached()
        if not before:
            belt.loop.stop(when_idle_for=0.05)
        gate.open()
        opened = now()
        await ended_at(belt, opened + 0.2 + 0.05)
    assert belt.ended == ["end_turn"]
    assert not belt.views[0].stopped


@virtual
async def test_tu_11_together_with_a_stop_it_is_refused() -> None:
    """At the call, and nothing changes."""
    belt = Belt()
    async with belt.loop:
        await anyio.sleep(1)
        with pytest.raises(ValueError, match="give one of them; nothing was asked"):
            belt.loop.stop(Stop.now(), when_idle_for=0.05, cause="why", skip_checkpoint=True)
        assert repr(belt.loop) == "<TurnLoop loop, idle, turn 0, 0 waiting>"
        await anyio.sleep(1)
        assert belt.loop.push("a").accepted
    assert belt.consumed == ["a"]
    assert (await belt.loop.wait()).stop_cause == ""


def test_tu_12_it_commits_nothing_and_asks_nothing_of_a_turn() -> None:
    """The idle loop waits for so long, which is what starts its timer."""
    state, effects = turns.stop(State(), None, idle=1.0)
    assert (state.stage, state.idle, state.stop, effects) == (Stage.WAITING, 1.0, None, ())
    running, _ = turns.begun(state)
    assert turns.next_step(running, waiting=False) == Wait(1.0)


@virtual
async def test_tu_12_the_loop_that_waits_is_woken_and_starts_its_timer() -> None:
    """Nothing else wakes it."""
    belt = Belt()
    async with belt.loop:
        await anyio.sleep(1)
        belt.loop.stop(when_idle_for=1.0)
        await ended_at(belt, now() + 1)
