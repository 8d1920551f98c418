"""Turns: what a turn loop does next, decided without doing it.

Rule 1: whatever decides in which phase a loop is, which turn a request is for, and what comes of a
turn is in this file. Rule 2: nothing here waits, reads a clock or knows what an item is.

A loop is in one phase, and its stop in one stage; `PHASES` and `STAGES` below are the only ways from
one to the next. A preempt is for one turn, the one that its push saw; it is submitted when that turn
is active, and answered with TURN_ENDED when it ends before.
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from andon.core.outcome import StopReason
from andon.core.stop import Point, Stop, check_points, check_seconds


class Phase(StrEnum):
    """Where a loop is."""

    NEW = "new"
    IDLE = "idle"
    PLANNING = "planning"
    ACTIVE = "active"
    CLOSED = "closed"


class Stage(StrEnum):
    """How far a stop of the loop is."""

    OPEN = "open"
    WAITING = "waiting for idle"
    COMMITTED = "committed"


class Move(StrEnum):
    """What takes a loop from phase to phase, or its stop from stage to stage."""

    RUN = "run"
    PLAN = "plan"
    ABANDON = "abandon"
    ACTIVATE = "activate"
    END = "end"
    CLOSE = "close"
    WAIT = "stop when idle"
    COMMIT = "stop"


PHASES: dict[Phase, dict[Move, Phase]] = {
    Phase.NEW: {Move.RUN: Phase.IDLE, Move.CLOSE: Phase.CLOSED},
    Phase.IDLE: {Move.PLAN: Phase.PLANNING, Move.CLOSE: Phase.CLOSED},
    Phase.PLANNING: {Move.ACTIVATE: Phase.ACTIVE, Move.ABANDON: Phase.IDLE},
    Phase.ACTIVE: {Move.END: Phase.IDLE},
    Phase.CLOSED: {},
}
STAGES: dict[Stage, dict[Move, Stage]] = {
    Stage.OPEN: {Move.WAIT: Stage.WAITING, Move.COMMIT: Stage.COMMITTED},
    Stage.WAITING: {Move.WAIT: Stage.WAITING, Move.COMMIT: Stage.COMMITTED},
    Stage.COMMITTED: {Move.WAIT: Stage.COMMITTED, Move.COMMIT: Stage.COMMITTED},
}


class PreemptResult(StrEnum):
    """What became of a preempt."""

    SUBMITTED = "SUBMITTED"
    NO_TURN = "NO_TURN"
    TURN_ENDED = "TURN_ENDED"
    LOOP_CLOSED = "LOOP_CLOSED"


class Preempt(Struct, frozen=True):
    """Cancel the turn that a push finds, at a safe point, to make way for what is pushed.

    After `grace` seconds it is cancelled at once. With `delay`, all of this begins that many seconds
    later, if the same turn is still there.
    """

    points: Point
    grace: float | None = None
    delay: float | None = None

    def __post_init__(self) -> None:
        check_points(self.points)
        check_seconds("grace", self.grace)
        check_seconds("delay", self.delay)

    def as_stop(self) -> Stop:
        """Give what the turn's agent is asked; a preempt is never recursive."""
        return Stop.at(self.points, grace=self.grace)


class Bound(Struct, frozen=True):
    """A preempt that waits: for the turn it is for to be active, or, without a stop yet, for its delay."""

    receipt: int
    turn: int
    stop: Stop | None = None


class State(Struct, frozen=True, kw_only=True):
    """All that decisions are made from; `turn` is the number of the last turn that was begun.

    `stop` is what the stops of the loop ask of a turn, joined; None asks nothing of it.
    """

    phase: Phase = Phase.NEW
    stage: Stage = Stage.OPEN
    turn: int = 0
    bound: tuple[Bound, ...] = ()
    stop: Stop | None = None
    idle: float | None = None
    cause: str = ""
    skip_checkpoint: bool = False
    preempted: bool = False
    stopped: bool = False

    @property
    def has_turn(self) -> bool:
        """Whether a turn is being planned or active, so that a preempt can be for it."""
        return self.phase in {Phase.PLANNING, Phase.ACTIVE}


# Effects: what the runtime is to do.


class CancelTurn(Struct, frozen=True):
    """Cancel the agent of the active turn so."""

    stop: Stop
    source: Literal["preempt", "shutdown"]


class Answer(Struct, frozen=True):
    """Tell a push what became of its preempt."""

    receipt: int
    result: PreemptResult


class CloseBuffer(Struct, frozen=True):
    """Take no more items."""


class Plan(Struct, frozen=True):
    """Plan a turn over what is buffered."""


class Wait(Struct, frozen=True):
    """Wait for something to happen; with `idle`, stop if nothing has after so many seconds."""

    idle: float | None = None


class Leave(Struct, frozen=True):
    """End the loop."""


Effect = CancelTurn | Answer | CloseBuffer
Step = Plan | Wait | Leave
Decided = tuple[State, tuple[Effect, ...]]


class MoveError(Exception):
    """A move that is not in the table: a bug of Andon, please report it; nothing has happened."""


def move(state: State, made: Move) -> State:
    """Go to the next phase, or stage; what is not in the tables raises, and nothing happens."""
    if made in STAGES[state.stage]:
        return replace(state, stage=STAGES[state.stage][made])
    to = PHASES[state.phase].get(made)
    if to is None:
        msg = f"a loop that is {state.phase} cannot {made}"
        raise MoveError(msg)
    return replace(state, phase=to)


def begun(state: State) -> Decided:
    """Begin to run."""
    return move(state, Move.RUN), ()


def next_step(state: State, *, waiting: bool) -> Step:
    """Say what an idle loop does next: a stop comes before the items that wait."""
    if state.stage is Stage.COMMITTED:
        return Leave()
    if waiting:
        return Plan()
    return Wait(state.idle if state.stage is Stage.WAITING else None)


def planned(state: State) -> Decided:
    """Begin to plan a turn; flags of the turn before are its own."""
    return replace(move(state, Move.PLAN), turn=state.turn + 1, preempted=False, stopped=False), ()


def may_go_on(state: State) -> bool:
    """Say whether the turn that is being planned goes on: a stop abandons it."""
    return state.stage is not Stage.COMMITTED


def abandoned(state: State) -> Decided:
    """Leave a turn that was being planned: nothing of it has happened."""
    return _without_turn(move(state, Move.ABANDON))


def activated(state: State) -> Decided:
    """Begin a turn, unless a stop has come: the preempts that it was planned with are submitted to it."""
    if not may_go_on(state):
        return state, ()
    return _submit(move(state, Move.ACTIVATE))


def ended(state: State) -> Decided:
    """End a turn: what was asked of it and not submitted asks nothing of a later one."""
    return _without_turn(move(state, Move.END))


def preempt(state: State, receipt: int, asked: Bound) -> Decided:
    """Bind a preempt to the turn that its push saw; once a stop has closed the loop it asks for nothing."""
    if state.phase is Phase.CLOSED or state.stage is Stage.COMMITTED:
        return state, (Answer(receipt, PreemptResult.LOOP_CLOSED),)
    if not state.has_turn or asked.turn != state.turn:
        result = PreemptResult.TURN_ENDED if asked.turn else PreemptResult.NO_TURN
        return state, (Answer(receipt, result),)
    return _submit(replace(state, bound=(*state.bound, asked)))


def due(state: State, receipt: int, stop: Stop) -> Decided:
    """Let the delay of a preempt be over; one that was answered meanwhile asks for nothing."""
    bound = tuple(replace(one, stop=stop) if one.receipt == receipt else one for one in state.bound)
    return _submit(replace(state, bound=bound))


def stop(
    state: State,
    asked: Stop | None,
    *,
    idle: float | None = None,
    cause: str = "",
    skip_checkpoint: bool = False,
) -> Decided:
    """Stop the loop: nothing weakens what was asked before, and the first cause stays."""
    state = replace(
        state, cause=state.cause or cause, skip_checkpoint=state.skip_checkpoint or skip_checkpoint
    )
    if idle is not None:
        first = idle if state.idle is None else state.idle
        return move(replace(state, idle=first), Move.WAIT), ()
    state = move(state, Move.COMMIT)
    if asked is None:
        return state, (CloseBuffer(),)
    joined = asked if state.stop is None else state.stop.join(asked)
    state = replace(state, stop=joined)
    if state.phase is not Phase.ACTIVE:
        return state, (CloseBuffer(),)
    return replace(state, stopped=True), (CloseBuffer(), CancelTurn(asked, "shutdown"))


def closed(state: State) -> Decided:
    """Close the loop: nobody waits for an answer any more."""
    answers = tuple(Answer(one.receipt, PreemptResult.LOOP_CLOSED) for one in state.bound)
    return replace(move(state, Move.CLOSE), bound=()), (CloseBuffer(), *answers)


def _submit(state: State) -> Decided:
    if state.phase is not Phase.ACTIVE:
        return state, ()
    waiting: list[Bound] = []
    effects: list[Effect] = []
    for one in state.bound:
        if one.stop is None:
            waiting.append(one)
        else:
            effects += (CancelTurn(one.stop, "preempt"), Answer(one.receipt, PreemptResult.SUBMITTED))
    return replace(state, bound=tuple(waiting), preempted=state.preempted or bool(effects)), tuple(effects)


def _without_turn(state: State) -> Decided:
    answers = tuple(Answer(one.receipt, PreemptResult.TURN_ENDED) for one in state.bound)
    return replace(state, bound=()), answers


class TurnEnd(StrEnum):
    """What came of a turn, and so of the items it had consumed."""

    COMPLETED = "completed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    BROKEN = "broken"  # by its callback


def verdict(state: State, stop_reason: StopReason, *, broken: bool, torn: bool = False) -> TurnEnd:
    """Say what came of a turn: its callback's error goes before a stop, that before a preempt.

    A turn is `torn` when the task of its loop was cancelled, from outside.
    """
    if broken:
        return TurnEnd.BROKEN
    match stop_reason:
        case "cancelled" if torn:
            return TurnEnd.FAILED
        case "cancelled" if state.stopped:
            return TurnEnd.STOPPED
        case "cancelled" if state.preempted:
            return TurnEnd.PREEMPTED
        case "interrupt":
            return TurnEnd.INTERRUPTED
        case "error":
            return TurnEnd.FAILED
        case _:
            return TurnEnd.COMPLETED
