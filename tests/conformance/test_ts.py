"""TS: how a turn loop is stopped."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from andon import Cancelled, Point, Stop, StopReport, StopResult
from andon.core.items import Event
from andon.core.parked import unpark
from andon.core.stop import Where
from andon.runtime.turn import Exit, TurnView
from andon.testing import Gate, virtual
from tests.belt import Belt
from tests.stores import MemoryStore


class Held(Belt):
    """A belt whose first turn is held in its model; it has `task1`, and `task2` waits."""

    def __init__(self, *items: str, **options: Any) -> None:  # noqa: ANN401 — the loop's own
        self.gate = Gate("model")
        super().__init__([self.gate, "Done."], **options)
        for item in items or ("task1", "task2"):
            self.loop.push(item)

    async def running(self) -> TurnView[str]:
        """Wait until the first turn is in its model."""
        await self.gate.reached()
        turn = self.loop.turn
        assert turn is not None
        return turn


def stored(store: MemoryStore) -> tuple[list[bytes], list[bytes]]:
    """The items that were kept under the id: those of the turn in flight, and those that wait."""
    parked = unpark(store.data["id"])
    assert list(store.data) == ["id"]
    return [bytes(item) for item in parked.interrupted], [bytes(item) for item in parked.unhandled]


def cut(exit_: Exit[str]) -> StopReport:
    """Hold an exit to a turn that a stop has cancelled, and give the report of its run."""
    assert isinstance(exit_.reason, Cancelled)
    assert exit_.reason.report is not None
    assert exit_.reason.report.cause is not None
    assert exit_.reason.report.cause.source == "shutdown"
    return exit_.reason.report


@virtual
async def test_ts_01_a_bare_stop_lets_the_turn_end_and_begins_no_other() -> None:
    """The agent is never cancelled; what waits is unhandled."""
    belt = Held()
    async with belt.loop:
        turn = await belt.running()
        belt.loop.stop()
        await anyio.sleep(60)
        assert (turn.stopped, turn.stop_requested, belt.ended) == (False, True, [])
        belt.gate.open()
        exit_ = await belt.loop.wait()
    assert belt.ended == ["end_turn"]
    assert (exit_.reason, exit_.interrupted, exit_.unhandled) == (None, (), ("task2",))
    assert belt.turns == ["1 began", "1 completed"]


@virtual
async def test_ts_02_an_idle_loop_is_stopped_three_times() -> None:
    """A clean exit."""
    belt = Belt()
    async with belt.loop:
        await anyio.sleep(1)
        for _ in range(3):
            belt.loop.stop()
        exit_ = await belt.loop.wait()
        belt.loop.stop()
    assert (exit_.reason, exit_.unhandled, belt.given) == (None, (), [])
    assert await belt.loop.wait() is exit_


@virtual
async def test_ts_03_an_idle_loop_has_nothing_to_cancel() -> None:
    """Stopped gracefully, or now, it just ends."""
    for stop in (Stop.graceful(), Stop.graceful(grace=5), Stop.now()):
        belt = Belt()
        async with belt.loop:
            await anyio.sleep(1)
            belt.loop.stop(stop)
            exit_ = await belt.loop.wait()
        assert exit_.reason is None


@virtual
async def test_ts_04_stop_now_cuts_the_turn_and_keeps_it() -> None:
    """The reason is a Cancelled, and the checkpoint is stored under the id."""
    store = MemoryStore()
    belt = Held(store=store, checkpoint_id="id")
    async with belt.loop:
        turn = await belt.running()
        belt.loop.stop(Stop.now())
        exit_ = await belt.loop.wait()
    report = cut(exit_)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert str(exit_.reason) == "turn 1 was cancelled by a stop of the loop"
    assert (exit_.interrupted, exit_.unhandled) == (("task1",), ("task2",))
    assert (exit_.checkpoint_attempted, exit_.checkpoint_error) == (True, None)
    assert stored(store) == ([b'"task1"'], [b'"task2"'])
    assert turn.stopped
    assert repr(turn) == "<Turn 1 active, stopped, stop_requested>"
    assert belt.turns == ["1 began", "1 stopped"]


@virtual
async def test_ts_04_a_stop_at_a_point_waits_for_it_and_its_grace_escalates() -> None:
    """The model goes on until the grace is over."""
    belt = Held()
    async with belt.loop:
        await belt.running()
        belt.loop.stop(Stop.at(Point.TOOLS, grace=5))
        await anyio.sleep(4)
        assert belt.ended == []
        exit_ = await belt.loop.wait()
    report = cut(exit_)
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")
    assert report.latency == pytest.approx(5)


@virtual
async def test_ts_06_the_error_of_the_callback_goes_before_the_stop() -> None:
    """What the stop cut is kept all the same."""

    class OwnError(Exception):
        pass

    async def watch(_turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for _ in events:
            pass
        raise OwnError

    store = MemoryStore()
    belt = Held("msg1", on_events=watch, store=store, checkpoint_id="id")
    async with belt.loop:
        await belt.running()
        belt.loop.stop(Stop.now())
        exit_ = await belt.loop.wait()
    assert isinstance(exit_.reason, OwnError)
    assert (exit_.interrupted, exit_.failed, exit_.checkpoint_attempted) == (("msg1",), (), True)
    assert stored(store) == ([b'"msg1"'], [])


@virtual
async def test_ts_08_a_bare_stop_weakens_no_stop_now() -> None:
    """In whatever order they come."""
    for stops in ((Stop.now(), None), (None, Stop.now()), (Stop.now(), None, Stop.graceful())):
        belt = Held()
        async with belt.loop:
            await belt.running()
            for stop in stops:
                belt.loop.stop(stop)
            exit_ = await belt.loop.wait()
        report = cut(exit_)
        assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
        assert Stop.now() in [cause.asked for cause in report.causes]
        assert exit_.interrupted == ("task1",)


@virtual
async def test_ts_10_the_cause_reaches_the_exit() -> None:
    """And the first that is given stays."""
    belt = Belt()
    belt.loop.stop(cause="user session timeout")
    belt.loop.stop(cause="deploy")
    exit_ = await belt.loop.run()
    assert exit_.stop_cause == "user session timeout"


@virtual
async def test_ts_11_a_stop_without_a_cause_has_none() -> None:
    """An empty text; an empty one does not stand in the way of another."""
    belt = Belt()
    belt.loop.stop()
    exit_ = await belt.loop.run()
    assert exit_.stop_cause == ""

    second = Belt()
    second.loop.stop(cause="")
    second.loop.stop(cause="deploy")
    assert (await second.loop.run()).stop_cause == "deploy"


@virtual
async def test_ts_12_the_callback_sees_the_cause_once_it_is_stopped() -> None:
    """The same as the exit and the run's report say."""
    seen: list[tuple[bool, str]] = []

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        seen.append((turn.stopped, turn.stop_cause))
        async for _ in events:
            pass
        seen.append((turn.stopped, turn.stop_cause))

    belt = Held(on_events=watch)
    async with belt.loop:
        await belt.running()
        belt.loop.stop(Stop.now(), cause="deploy")
        exit_ = await belt.loop.wait()
    assert seen == [(False, ""), (True, "deploy")]
    assert exit_.stop_cause == "deploy"
    assert [cause.reason for cause in cut(exit_).causes] == ["deploy"]
    assert str(exit_.reason) == "turn 1 was cancelled by a stop of the loop: deploy"


@virtual
async def test_ts_14_with_the_checkpoint_skipped_nothing_is_stored() -> None:
    """What waits is unhandled, and nowhere else."""
    store = MemoryStore()
    belt = Belt(store=store, checkpoint_id="id")
    belt.loop.push("a")
    belt.loop.push("b")
    belt.loop.stop(skip_checkpoint=True)
    exit_ = await belt.loop.run()
    assert (exit_.reason, exit_.unhandled) == (None, ("a", "b"))
    assert (exit_.checkpoint_attempted, store.data) == (False, {})


@virtual
async def test_ts_16_once_skipped_the_checkpoint_stays_skipped() -> None:
    """Whatever the stops say that come later, or came before."""
    now, graceful = {"stop": Stop.now()}, {"stop": Stop.graceful(grace=1)}
    skip = {"skip_checkpoint": True}
    cases: list[tuple[dict[str, Any], ...]] = [
        ({**graceful, **skip}, {}),
        (skip, now),
        (now, skip),
        ({**skip, "when_idle_for": 9}, now),
    ]
    for calls in cases:
        store = MemoryStore()
        belt = Held(store=store, checkpoint_id="id")
        async with belt.loop:
            await belt.running()
            for call in calls:
                belt.loop.stop(**call)
            exit_ = await belt.loop.wait()
        cut(exit_)
        assert exit_.interrupted == ("task1",)
        assert (exit_.checkpoint_attempted, store.data) == (False, {})


@virtual
async def test_ts_17_stopped_before_it_runs_a_loop_plans_nothing() -> None:
    """What was pushed before the stop is unhandled, what comes after it is late."""
    for stop in (None, Stop.now(), Stop.graceful()):
        belt = Belt()
        belt.loop.push("item1")
        belt.loop.push("item2")
        belt.loop.stop(stop)
        exit_ = await belt.loop.run()
        assert (exit_.reason, exit_.unhandled, exit_.interrupted) == (None, ("item1", "item2"), ())
        assert (belt.given, belt.prepared) == ([], [])
        assert not belt.loop.push("item3").accepted
        assert exit_.late() == ("item3",)


@virtual
async def test_ts_18_what_is_pushed_after_the_stop_is_late() -> None:
    """Also when the loop has not run yet."""
    belt = Belt()
    belt.loop.stop()
    receipts = [belt.loop.push("item1"), belt.loop.push("item2")]
    exit_ = await belt.loop.run()
    assert [receipt.accepted for receipt in receipts] == [False, False]
    assert (exit_.reason, exit_.unhandled, exit_.interrupted) == (None, (), ())
    assert exit_.late() == ("item1", "item2")
