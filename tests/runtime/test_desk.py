"""A desk is where a loop and its callers meet: what is asked is bound, held back or answered there."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import pytest

from andon import Agent, Point, Preempt, Stop, TurnLoop
from andon.core.buffer import Buffer
from andon.core.turns import Leave, MoveError, Phase, Plan, PreemptResult, State, TurnEnd, Wait
from andon.runtime.bell import Bell
from andon.runtime.desk import Desk, Entry
from andon.runtime.turn import TurnView
from andon.testing import ScriptedModel
from tests.belt import Belt


def begun() -> tuple[Desk[str], TurnLoop[str]]:
    """The desk of a loop that runs; its clocks stand at 100."""
    loop = Belt().loop
    desk = loop._desk  # pyright: ignore[reportPrivateUsage]
    desk.begin(lambda: 100.0, lambda: 100.0, lambda act: act())
    return desk, loop


def show(loop: TurnLoop[str], desk: Desk[str], number: int, items: list[str]) -> TurnView[str]:
    """The view of a turn."""
    return TurnView(loop, number, items, lambda: desk.state)


def test_while_a_push_decides_no_turn_is_planned() -> None:
    """Not even over what waits already, and idleness does not count; then it is."""
    desk, loop = begun()
    desk.push("a", None)
    desk.stop(None, idle=5.0)
    with desk.pushing() as seen:
        assert (seen.number, seen.turn, seen.phase) == (0, None, Phase.IDLE)
        assert desk.next_step() == Wait()
        assert desk.plan(lambda number, items: show(loop, desk, number, items)) is None
        desk.stop_if_idle()
    assert desk.next_step() == Plan()
    entries = desk.plan(lambda number, items: show(loop, desk, number, items))
    assert entries is not None
    assert [entry.item for entry in entries] == ["a"]


def test_idleness_does_not_stop_a_loop_that_has_something_to_do() -> None:
    """Its timer may be over just when an item comes."""
    desk, loop = begun()
    desk.stop(None, idle=5.0)
    desk.push("a", None)
    desk.stop_if_idle()
    assert desk.next_step() == Plan()
    desk.plan(lambda number, items: show(loop, desk, number, items))
    desk.stop_if_idle()
    desk.put_back([])
    assert desk.next_step() == Wait(5.0)
    desk.stop_if_idle()
    assert desk.next_step() == Leave()


def test_once_a_stop_has_come_nothing_holds_the_end_back() -> None:
    """Neither a push that decides nor what waits, and no turn is planned."""
    desk, loop = begun()
    desk.push("a", None)
    desk.stop(None)
    with desk.pushing():
        assert desk.next_step() == Leave()
    assert desk.plan(lambda number, items: show(loop, desk, number, items)) is None


def test_a_push_that_decides_is_no_idleness() -> None:
    """The time is up while it does: what it pushes is accepted."""
    desk, _ = begun()
    desk.stop(None, idle=1)
    with desk.pushing():
        desk.stop_if_idle()
        assert desk.push("a", None).accepted
    assert desk.next_step() == Plan()


def test_an_item_that_is_given_back_waits_behind_the_others_and_is_late_only_at_the_end() -> None:
    """It was accepted before, so that a stop does not refuse it."""
    desk, _ = begun()
    desk.push("a", None)
    desk.stop(None)
    desk.give_back("b")
    assert desk.close() == ["a", "b"]
    desk.give_back("c")
    assert desk.late() == ("c",)


def test_a_turn_that_a_stop_overtakes_is_not_activated() -> None:
    """What it was given is taken back from its view."""
    desk, loop = begun()
    desk.push("a", None)
    desk.plan(lambda number, items: show(loop, desk, number, items))
    view = desk.view
    assert view is not None
    assert (view.phase, view.items, view.run) == (Phase.PLANNING, ("a",), None)
    run = Agent(ScriptedModel()).start("go")
    desk.stop(Stop.now())
    assert not desk.activate(view, run, [Entry("a")], [])
    assert (view.consumed, view.run, desk.run, view.phase) == ((), None, None, Phase.PLANNING)


def test_a_move_that_is_not_in_the_table_changes_nothing() -> None:
    """It is a bug, and says so."""
    desk, loop = begun()
    before, view = desk.state, show(loop, desk, 1, [])
    with pytest.raises(MoveError, match="a loop that is idle cannot end"):
        desk.end(view, completed, [])
    assert desk.state is before


@pytest.mark.parametrize(
    ("asked", "deadline"),
    [
        (Stop.at(Point.ANY), None),
        (Stop.at(Point.ANY, grace=5), 105.0),
        (Stop(points=Point.ANY, grace=5, deadline=103.0), 103.0),
        (Stop(points=Point.ANY, grace=5, deadline=109.0), 105.0),
        (Stop(points=Point.ANY, deadline=109.0), 109.0),
    ],
)
def test_a_grace_runs_from_when_it_was_asked(asked: Stop, deadline: float | None) -> None:
    """And the earlier of two times counts."""
    bound = begun()[0].from_now(asked)
    assert (bound.grace, bound.deadline) == (None, deadline)


def completed(_: State) -> TurnEnd:
    """Judge that a turn has been completed."""
    return TurnEnd.COMPLETED


class Interrupting(Buffer[Entry[str]]):
    """A buffer in whose midst a signal handler comes."""

    def push_front(self, items: Iterable[Entry[str]]) -> None:
        """Stop the loop first."""
        self.desk.stop(Stop.now(), cause="signal")
        super().push_front(items)

    def __init__(self, desk: Desk[str]) -> None:
        super().__init__()
        self.desk = desk


def test_a_stop_that_comes_while_a_turn_is_left_cancels_nothing() -> None:
    """Its run has ended; the stop is for the loop."""
    desk, loop = begun()
    desk.plan(lambda number, items: show(loop, desk, number, items))
    view = desk.view
    assert view is not None
    run = Agent(ScriptedModel()).start("go")
    assert desk.activate(view, run, [], [])
    desk.buffer = Interrupting(desk)
    assert desk.end(view, completed, []) is TurnEnd.COMPLETED
    assert desk.next_step() == Leave()
    assert "<Scope open>" in repr(run)


async def test_a_delayed_preempt_that_is_answered_leaves_no_timer() -> None:
    """The turn it was for is over."""
    desk, loop = begun()
    desk.plan(lambda number, items: show(loop, desk, number, items))
    receipt = desk.push("a", Preempt(Point.ANY, delay=5))
    assert receipt.preempt is not None
    desk.put_back([])
    assert await receipt.preempt is PreemptResult.TURN_ENDED
    assert desk._delays == {}  # pyright: ignore[reportPrivateUsage]


async def test_a_delay_that_another_thread_asked_for_may_be_answered_before_it_begins() -> None:
    """The loop gets to it only later, and sets no timer."""
    desk, loop = begun()
    later = deque[Callable[[], None]]()
    desk.on_loop = later.append
    desk.plan(lambda number, items: show(loop, desk, number, items))
    desk.push("a", Preempt(Point.ANY, delay=5))
    desk.put_back([])
    later.popleft()()
    assert desk._delays == {}  # pyright: ignore[reportPrivateUsage]


# The bell it rings


class Raced(list["asyncio.Future[None]"]):
    """Waiters of which another thread takes the last one, just after they were counted."""

    def __len__(self) -> int:
        return 1


def test_a_bell_that_two_threads_ring_fails_neither() -> None:
    """Whoever comes second finds nobody left."""
    bell = Bell()
    bell.waiters = Raced()
    bell.ring()
