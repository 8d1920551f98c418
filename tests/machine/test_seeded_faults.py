"""The machine is awake: it catches each of these faults, seeded into the turn loop one at a time."""
# pyright: reportPrivateUsage=false
# The faults are inside: that is where they are seeded.

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from traceback import format_exception
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from msgspec.structs import replace

from andon.core import turns
from andon.core.buffer import Buffer
from andon.core.outcome import StopReason
from andon.core.parked import Parked
from andon.core.stop import Stop
from andon.core.turns import Bound, Decided, PreemptResult, State, TurnEnd
from andon.runtime.desk import Desk, Entry
from andon.runtime.parking import Parking
from andon.runtime.run import Run
from andon.runtime.turn import TurnView
from andon.runtime.turning import Turning
from andon.testing import run_virtual
from tests.machine.scenes import Scene, trials
from tests.machine.test_turn_loop import LOOK, lives

Patch = pytest.MonkeyPatch
MOST = 1000  # examples, of two or three lives


def what_is_put_back_is_turned_round(patch: Patch) -> None:
    """Items that go back to the front are in the wrong order."""

    def push_front(self: Buffer[object], items: Iterable[object]) -> None:
        for item in items:
            self._items.appendleft(item)

    patch.setattr(Buffer, "push_front", push_front)


def what_is_requeued_comes_last(patch: Patch) -> None:
    """The items of a preempted turn wait behind those that came since."""
    end = Desk[Any].end

    def requeue(
        self: Desk[Any],
        view: TurnView[Any],
        judge: Callable[[State], TurnEnd],
        again: list[Entry[Any]],
    ) -> TurnEnd:
        ended = end(self, view, judge, [])
        for entry in again if ended is TurnEnd.PREEMPTED else ():
            self.buffer.push(entry)
        return ended

    patch.setattr(Desk, "end", requeue)


def a_late_push_is_accepted(patch: Patch) -> None:
    """Nothing closes the buffer."""

    def close(_: Buffer[object]) -> None: ...

    patch.setattr(Buffer, "close", close)


def a_preempt_hits_the_next_turn(patch: Patch) -> None:
    """What was asked of a turn that has ended is still asked."""

    def keep(state: State) -> Decided:
        return state, ()

    patch.setattr(turns, "_without_turn", keep)


def a_receipt_is_never_answered(patch: Patch) -> None:
    """Whoever asked too late is never told."""
    answer = Desk[Any]._answer

    def forget(self: Desk[Any], number: int, result: PreemptResult) -> None:
        if result is not PreemptResult.TURN_ENDED:
            answer(self, number, result)

    patch.setattr(Desk, "_answer", forget)


def what_remains_is_lost(patch: Patch) -> None:
    """What a plan keeps for later is gone."""
    activate = Desk[Any].activate

    def lose(
        self: Desk[Any],
        view: TurnView[Any],
        run: Run,
        consumed: list[Entry[Any]],
        _remaining: list[Entry[Any]],
    ) -> bool:
        return activate(self, view, run, consumed, [])

    patch.setattr(Desk, "activate", lose)


def a_stop_is_forgotten_while_planning(patch: Patch) -> None:
    """A turn goes on, whatever was asked while it was planned."""

    def always(_: State) -> bool:
        return True

    patch.setattr(turns, "may_go_on", always)


def the_buffer_is_closed_after_collecting(patch: Patch) -> None:
    """What is pushed between the two is accepted, and nobody takes it."""
    closed = turns.closed

    def late(state: State) -> Decided:
        state, effects = closed(state)
        return state, tuple(one for one in effects if not isinstance(one, turns.CloseBuffer))

    patch.setattr(turns, "closed", late)


def what_is_interrupted_waits_as_well(patch: Patch) -> None:
    """The items of a cut turn are told twice."""
    conclude = Turning[Any]._conclude

    def twice(self: Turning[Any], end: TurnEnd, *arguments: Any) -> BaseException | None:  # noqa: ANN401 — passed on
        reason = conclude(self, end, *arguments)
        self._desk.restore([Entry(item) for item in self.interrupted])
        return reason

    patch.setattr(Turning, "_conclude", twice)


def the_checkpoint_is_deleted_when_it_is_read(patch: Patch) -> None:
    """Nothing is left to go on from if the loop ends before it has done it."""
    load = Parking[Any].load

    async def delete(self: Parking[Any]) -> Parked | None:
        parked = await load(self)
        await self._store.delete(self._id)
        self._seen = None
        return parked

    patch.setattr(Parking, "load", delete)


def a_stop_goes_before_a_callback_error(patch: Patch) -> None:
    """The error of a callback is hidden by a stop."""
    verdict = turns.verdict

    def swapped(state: State, stop_reason: StopReason, *, broken: bool, **options: Any) -> TurnEnd:  # noqa: ANN401 — passed on
        return verdict(state, stop_reason, broken=broken and not state.stopped, **options)

    patch.setattr(turns, "verdict", swapped)


def a_preempt_goes_before_a_stop(patch: Patch) -> None:
    """A turn that was preempted and stopped counts as preempted."""
    verdict = turns.verdict

    def swapped(state: State, stop_reason: StopReason, **options: Any) -> TurnEnd:  # noqa: ANN401 — passed on
        return verdict(replace(state, stopped=state.stopped and not state.preempted), stop_reason, **options)

    patch.setattr(turns, "verdict", swapped)


def an_item_does_not_restart_the_idle_time(patch: Patch) -> None:
    """The time counts from when it was asked for, whatever was done since."""
    patch.setattr(Turning, "_idle_since", property(lambda _: 0.0, lambda _, __: None), raising=False)


def a_skip_does_not_stick(patch: Patch) -> None:
    """A later stop leaves a checkpoint all the same."""
    stop = turns.stop

    def forget(state: State, asked: Stop | None, **options: Any) -> Decided:  # noqa: ANN401 — passed on
        return stop(replace(state, skip_checkpoint=False), asked, **options)

    patch.setattr(turns, "stop", forget)


def a_preempt_is_told_to_a_turn_that_is_planned(patch: Patch) -> None:
    """It is answered as submitted before there is anybody to submit it to."""
    preempt = turns.preempt

    def hasty(state: State, receipt: int, asked: Bound) -> Decided:
        if state.phase is turns.Phase.PLANNING and turns.may_go_on(state):
            return state, (turns.Answer(receipt, PreemptResult.SUBMITTED),)
        return preempt(state, receipt, asked)

    patch.setattr(turns, "preempt", hasty)


FAULTS: list[tuple[Callable[[Patch], None], Sequence[str]]] = [
    (what_is_put_back_is_turned_round, ("gen_input sees", "wait, not")),
    (what_is_requeued_comes_last, ("gen_input sees", "wait, not")),
    (a_late_push_is_accepted, ("was accepted after the stop", "late are")),
    (a_preempt_hits_the_next_turn, ("LOOP_CLOSED", "was abandoned", "is preempted: ")),
    (a_receipt_is_never_answered, ("deadlock: no callback is ready",)),
    (what_remains_is_lost, ("gen_input sees", "wait, not")),
    (a_stop_is_forgotten_while_planning, ("in spite of a stop",)),
    (the_buffer_is_closed_after_collecting, ("was accepted after the stop",)),
    (what_is_interrupted_waits_as_well, ("wait, not",)),
    (the_checkpoint_is_deleted_when_it_is_read, ("before it was consumed", "are stored, and")),
    (a_stop_goes_before_a_callback_error, ("and should be broken",)),
    (a_preempt_goes_before_a_stop, ("and should be stopped",)),
    (an_item_does_not_restart_the_idle_time, ("idle for",)),
    (a_skip_does_not_stick, ("not exit_.checkpoint_attempted",)),
    (a_preempt_is_told_to_a_turn_that_is_planned, ("was abandoned", "is preempted: ")),
]


class Caught(Exception):  # noqa: N818 — it is what is wanted
    """An example has gone wrong."""


@dataclass
class Search:
    """Look for the first example that shows a fault."""

    examples: int = 0
    found: list[str] = field(default_factory=list[str])

    def look(self) -> None:
        """Try so many examples, or until one is wrong."""

        @settings(
            LOOK, max_examples=MOST, phases=[Phase.generate], derandomize=True, report_multiple_bugs=False
        )
        @given(trials)
        def look(trial: tuple[Scene, ...]) -> None:
            self.examples += 1
            try:
                run_virtual(lives, trial)
            except BaseException as error:
                self.found.append("".join(format_exception(error)))
                raise Caught from error

        with suppress(Caught):
            look()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("fault", "words"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_seeded_fault_is_caught(
    fault: Callable[[Patch], None], words: Sequence[str], monkeypatch: Patch
) -> None:
    """At least one example goes wrong, and says what is wrong."""
    search = Search()
    fault(monkeypatch)
    search.look()
    assert search.found, f"nothing was found in {search.examples} examples"
    assert any(word in search.found[0] for word in words), search.found[0]
