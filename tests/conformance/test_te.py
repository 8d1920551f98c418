"""TE: the callback that watches a turn, and what it is shown of it."""

from collections.abc import AsyncGenerator

import anyio

from andon import Call, Cancelled, ModelError, Point, Preempt, Stop
from andon.core.items import Event
from andon.core.turns import PreemptResult
from andon.runtime.turn import TurnView
from andon.testing import Gate, Hang, virtual
from tests.looped import Looped, answer, held


class Watcher:
    """Reads all events of a turn, and notes the flags that it then sees."""

    def __init__(self) -> None:
        self.flags: list[tuple[bool, bool]] = []

    async def __call__(self, turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        """Watch a turn."""
        async for _ in events:
            pass
        self.flags.append((turn.preempted, turn.stopped))


@virtual
async def test_te_01_without_a_callback_an_error_of_the_agent_ends_the_loop() -> None:
    """It is the reason of the exit, the very error."""
    error = ModelError("no such luck")
    scene = Looped(error, on_events=None)
    exit_ = await scene.to_the_end("first", "second")
    assert exit_.reason is error
    assert (exit_.failed, exit_.unhandled) == (("first",), ("second",))


@virtual
async def test_te_02_an_error_of_the_callback_ends_the_loop() -> None:
    """The agent is cancelled and joined, and the loop ends with that error."""
    error = LookupError("my own mistake")

    async def watch(*_: object) -> None:
        raise error

    scene = Looped([Hang()], on_events=watch)
    exit_ = await scene.to_the_end("first", "second")
    assert exit_.reason is error
    assert (exit_.failed, exit_.unhandled, exit_.interrupted) == (("first",), ("second",), ())
    assert scene.model.live == 0


@virtual
async def test_te_03_the_callback_sees_that_its_turn_is_preempted() -> None:
    """At the end of the events at the latest; the next turn is not."""
    watcher = Watcher()
    scene = Looped([Hang()], "Done.", on_events=watcher)
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        scene.loop.push("second", preempt=Preempt(Point.ANY, grace=0.001))
    assert watcher.flags == [(True, False), (False, False)]


@virtual
async def test_te_05_a_preempt_and_then_a_stop_are_both_seen() -> None:
    """The stop has the last word on what becomes of the turn."""
    watcher = Watcher()
    gate = Gate("tool")
    scene = Looped(Call("work"), tools=[held(gate)], on_events=watcher)
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("second", preempt=Preempt(Point.ANY))
        scene.loop.stop(Stop.now())
        assert await answer(receipt) is PreemptResult.SUBMITTED
    exit_ = await scene.loop.wait()
    assert watcher.flags == [(True, True)]
    assert isinstance(exit_.reason, Cancelled)
    assert (exit_.interrupted, exit_.unhandled) == (("first",), ("second",))


@virtual
async def test_te_06_a_preempt_that_comes_after_the_stop_is_late() -> None:
    """The push is refused, the turn is not preempted by it, and the loop ends."""
    watcher = Watcher()
    cleaning = Gate("cleaning")

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        await watcher(turn, events)
        await cleaning

    scene = Looped([Hang()], on_events=watch)
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        scene.loop.stop(Stop.now())
        await cleaning.reached()
        receipt = scene.loop.push("second", preempt=Preempt(Point.ANY))
        assert not receipt.accepted
        assert receipt.preempt is not None
        assert await receipt.preempt is PreemptResult.LOOP_CLOSED
        assert scene.loop.turn is not None
        assert (scene.loop.turn.stopped, scene.loop.turn.preempted) == (True, False)
        cleaning.open()
    exit_ = await scene.loop.wait()
    assert watcher.flags == [(False, True)]
    assert (exit_.interrupted, exit_.late()) == (("first",), ("second",))
