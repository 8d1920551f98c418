"""Books: where each item of a turn loop must be, kept beside the loop by its callers and callbacks."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Raw, Struct

from andon import Preempt, Turn
from andon.core.outcome import Outcome
from andon.core.parked import unpark
from andon.core.turns import PreemptResult, TurnEnd
from andon.runtime.receipt import Receipt
from andon.runtime.turn import TurnView
from tests.machine.scenes import Script


class Failure(Exception):  # noqa: N818 — it stands for any error of a callback
    """A callback that fails on purpose."""


class Pushed(Struct, eq=False):
    """A push: what it said, and which turn it saw, 0 for none.

    A strategy is told that. Of other pushes only one thread knows it for sure; beside others, a turn may
    have begun or ended between the look and the push, and `saw` is each that it may have been.
    """

    item: int
    receipt: Receipt
    preempt: Preempt | None
    saw: Sequence[int]
    committed: bool


class Booked(Struct, eq=False):
    """A turn: what it was given, what was planned, and how it ended."""

    number: int
    items: list[int]
    interrupted: list[int]
    script: Script
    plan: Turn[int] | None = None
    view: TurnView[int] | None = None
    error: Failure | None = None
    outcome: Outcome | None = None
    doomed: bool = False  # a stop had come before its agent was there
    stopped: bool = False  # a cancelling stop had come before its end
    torn: bool = False
    end: str = ""


class Books:
    """What must be true of one life of a loop.

    `exact` says that all is done by one thread, so that the order of things is known; else what is
    left of these rules is what holds in any order.
    """

    def __init__(self, *, exact: bool, requeues: bool, watched: bool, stored: bytes | None) -> None:
        self.exact = exact
        self.requeues = requeues
        self.watched = watched
        self.pushed: list[Pushed] = []
        self.turns: list[Booked] = []
        self.buffer: list[int] = []
        self.flight: list[int] = []  # the items of a turn in flight
        self.places: Counter[str] = Counter()
        self.done: list[int] = []  # in completed or preempted turns, or dropped
        self.kept = False  # whether there is a turn in flight to go on with
        self.preempted: Sequence[int] = ()
        self.reasons: list[object] = []
        self.committed = False
        self.cancelling = False
        self.skips = False
        self.torn = False
        self.has_run = False
        self.cause = ""
        self.idle: float | None = None
        self.busy_until = 0.0  # virtual time of the last thing that was no idleness
        self.stored = stored  # what must be in the store while no one has ended a turn
        self.untouched = True
        self.left = [-1] if stored else []  # what is in the store once it has been touched
        self.restored: list[int] = []

    def load(self, stored: bytes) -> bool:
        """Take up what the life before has left; gives whether a turn was in flight."""
        parked = unpark(stored)
        self.restored = items_of(parked.unhandled)
        self.flight = items_of(parked.interrupted)
        self.buffer[:0] = self.restored
        self.restored = [*self.restored, *self.flight]
        return parked.turn is not None

    def unload(self) -> None:
        """Book that nothing of it was taken up."""
        self.kept = False
        self.buffer = [item for item in self.buffer if item not in self.restored]
        self.flight, self.restored = [], []

    def take(self, push: Pushed, now: float) -> None:
        """Book a push."""
        self.pushed.append(push)
        if push.receipt.accepted:
            self.buffer.append(push.item)
            self.busy_until = now
        if not self.exact:
            return
        if push.committed:
            assert not push.receipt.accepted, f"item {push.item} was accepted after the stop"
        if not push.receipt.accepted:
            assert push.committed or self.is_ending, f"item {push.item} was refused by an open loop"

    @property
    def is_ending(self) -> bool:
        """Whether something has ended the loop, or may have: the idle time is looked at when it has ended."""
        last = self.turns[-1].end if self.turns else ""
        ends = last in {"stopped", "interrupted"} or (last == "failed" and not self.watched)
        return ends or self.torn or bool(self.reasons) or self.idle is not None

    def plan(self, turn: Booked) -> None:
        """Book that a turn is being planned: it sees all that waits, in order, and no stop came before."""
        assert not (self.turns and not self.turns[-1].end), "two turns at the same time"
        self.turns.append(turn)
        waiting = turn.items
        if self.exact:
            assert not self.committed, f"turn {turn.number} is planned after the stop"
            assert waiting == self.buffer, f"gen_input sees {waiting}, and {self.buffer} wait"
            self.buffer = []

    def end(self, turn: Booked, end: str, now: float) -> None:
        """Book that a turn has ended, and where its items are now."""
        turn.end, turn.stopped, turn.torn = end, self._has_stopped(turn), self.torn
        self.busy_until = now
        if end == "abandoned":
            self.buffer[:0] = turn.items
            return
        plan = turn.plan
        assert plan is not None, f"turn {turn.number} is {end}, and was never planned"
        assert self.torn or not (self.exact and turn.doomed), f"turn {turn.number} went on in spite of a stop"
        self.kept = end in {TurnEnd.STOPPED, TurnEnd.INTERRUPTED} or self._is_cut(turn)
        self.flight = list(plan.consumed) if self.kept else []
        self.buffer[:0] = plan.remaining
        self.done += plan.dropped
        self.preempted = ()
        consumed = list(plan.consumed)
        match end:
            case TurnEnd.COMPLETED:
                self.done += consumed
            case TurnEnd.PREEMPTED:
                self.preempted = tuple(consumed)
                if self.requeues:
                    self.buffer[:0] = consumed
                else:
                    self.done += consumed
            case _:
                pass
        self.untouched = self.untouched and self.kept
        if self.left and not self.kept:  # what was stored is replaced by what waits
            self.left = list(self.buffer)

    def _has_stopped(self, turn: Booked) -> bool:
        """Whether a stop has cancelled a turn: of what threads are about to ask, only the loop knows."""
        if self.exact or turn.view is None:
            return self.cancelling
        assert self.cancelling or not turn.view.stopped, f"turn {turn.number} was stopped by nobody"
        return turn.view.stopped

    def _is_cut(self, turn: Booked) -> bool:
        """Whether a stop has cut a turn whose callback failed: it can be gone on with all the same."""
        cut = turn.outcome is not None and turn.outcome.stop_reason == "cancelled"
        return turn.end == TurnEnd.BROKEN and turn.stopped and cut and not turn.torn

    def expected(self, turn: Booked, outcome: Outcome) -> TurnEnd | None:
        """Say how a turn must have ended: callback error, stop, preempt, natural end, in this order."""
        if turn.error is not None:
            return TurnEnd.BROKEN
        match outcome.stop_reason:
            case "cancelled" if turn.torn:
                return None
            case "cancelled" if turn.stopped:
                return TurnEnd.STOPPED
            case "cancelled" if self.submitted(turn):
                return TurnEnd.PREEMPTED
            case "cancelled":
                early = turn.script.watching == "early" and self.watched
                assert early, f"turn {turn.number} was cancelled, and nobody has asked for it"
                return TurnEnd.COMPLETED
            case "interrupt":
                return TurnEnd.INTERRUPTED
            case "error":
                return TurnEnd.FAILED
            case _:
                return TurnEnd.COMPLETED

    def submitted(self, turn: Booked) -> bool:
        """Whether a push that saw this turn was told that its preempt was submitted."""
        return any(turn.number in one.saw and told(one) is PreemptResult.SUBMITTED for one in self.pushed)

    def check_preempted(self, turn: Booked) -> None:
        """A turn knows that it was preempted, and pushes were told so."""
        if turn.end != "abandoned" and turn.view is not None:
            known, was_told = turn.view.preempted, self.submitted(turn)
            holds = known == was_told or (was_told and not self.exact)  # told of the turn before, maybe
            assert holds, f"turn {turn.number} is preempted: {known}, and it was told: {was_told}"

    def check_answer(self, push: Pushed) -> None:
        """A preempt is answered by what its push saw, and by what became of that turn."""
        answer = told(push)
        if push.preempt is None:
            assert answer is None
            return
        if not self.exact:
            self._check_any(push, answer)
            return
        if push.committed or not push.receipt.accepted:
            assert answer is PreemptResult.LOOP_CLOSED, f"{push.item} came after the stop: {answer}"
        elif push.saw == (0,):
            assert answer is PreemptResult.NO_TURN, f"{push.item} saw no turn: {answer}"
        else:
            turn = next((one for one in self.turns if one.number in push.saw), None)
            assert turn is not None, f"{push.item} saw turn {push.saw}, which never was"
            self._check_submitted(push, turn, answer)

    def _check_any(self, push: Pushed, answer: PreemptResult | None) -> None:
        """What holds beside other threads: no turn was preempted that the push did not see."""
        if answer is PreemptResult.NO_TURN:
            assert 0 in push.saw, f"{push.item} saw turn {push.saw}: {answer}"
        if answer is PreemptResult.SUBMITTED:
            found = [one for one in self.turns if one.number in push.saw]
            known = any(one.view is not None and one.view.preempted for one in found)
            assert known, f"{push.item} saw turn {push.saw}, which was not preempted: {answer}"

    def _check_submitted(self, push: Pushed, turn: Booked, answer: PreemptResult | None) -> None:
        if turn.end == "abandoned":
            assert answer is PreemptResult.TURN_ENDED, f"turn {turn.number} was abandoned: {answer}"
        elif push.preempt is not None and push.preempt.delay is None:
            assert answer is PreemptResult.SUBMITTED, f"turn {turn.number} was there: {answer}"
        else:
            assert answer in {PreemptResult.SUBMITTED, PreemptResult.TURN_ENDED}, answer


def told(push: Pushed) -> PreemptResult | None:
    """Give what a push was told of its preempt."""
    return push.receipt.preempt._given if push.receipt.preempt is not None else None  # pyright: ignore[reportPrivateUsage]


def same(found: Iterable[int], *places: Iterable[int]) -> None:
    """Check that each item is in exactly one place."""
    were = Counter(found)
    are = Counter(item for place in places for item in place)
    assert were == are, (
        f"lost: {sorted((were - are).elements())}, too many: {sorted((are - were).elements())}"
    )


def items_of(kept: Iterable[Raw]) -> list[int]:
    """Read stored items."""
    return [int(bytes(one)) for one in kept]
