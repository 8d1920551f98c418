"""Turns are decided by two tables: each legal move, each illegal one, and what each asks of the runtime."""

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andon import Point, Preempt, Stop
from andon.core import turns
from andon.core.outcome import StopReason
from andon.core.turns import (
    PHASES,
    STAGES,
    Answer,
    Bound,
    CancelTurn,
    CloseBuffer,
    Leave,
    Move,
    MoveError,
    Phase,
    Plan,
    PreemptResult,
    Stage,
    State,
    TurnEnd,
    Wait,
)
from tests.core.values import stops

STOPS = {Move.WAIT, Move.COMMIT}
NOW = Stop.now()
AT = Stop.at(Point.TOOLS)
SUBMITTED = [CancelTurn(AT, "preempt"), Answer(1, PreemptResult.SUBMITTED)]


MOVES = [(phase, made) for phase in Phase for made in Move if made not in STOPS]

# The tables


@pytest.mark.parametrize(("phase", "made"), MOVES)
def test_a_loop_goes_only_where_the_table_lets_it(phase: Phase, made: Move) -> None:
    """What is not in it raises, says what cannot be, and nothing happens."""
    state = State(phase=phase, turn=3, bound=(Bound(1, 3),))
    to = PHASES[phase].get(made)
    if to is None:
        with pytest.raises(MoveError, match=f"a loop that is {phase} cannot {made}"):
            turns.move(state, made)
        assert state == State(phase=phase, turn=3, bound=(Bound(1, 3),))
        return
    assert turns.move(state, made) == State(phase=to, turn=3, bound=(Bound(1, 3),))


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("made", [Move.WAIT, Move.COMMIT])
@pytest.mark.parametrize("phase", Phase)
def test_a_stop_goes_forward_only_in_any_phase(stage: Stage, made: Move, phase: Phase) -> None:
    """A commit is for good, and a stop of any kind never opens the loop again."""
    order = list(Stage)
    after = turns.move(State(phase=phase, stage=stage), made)
    assert after == State(phase=phase, stage=STAGES[stage][made])
    assert order.index(after.stage) >= order.index(stage)
    assert after.stage is not Stage.OPEN
    assert (after.stage is Stage.COMMITTED) == (Stage.COMMITTED in {stage, STAGES[stage][made]})


def test_every_phase_can_be_reached_and_only_the_closed_one_is_the_end() -> None:
    """The tables name every phase, every stage and every move."""
    assert set(PHASES) == set(Phase)
    assert set(STAGES) == set(Stage)
    reached = {to for row in PHASES.values() for to in row.values()}
    assert reached == set(Phase) - {Phase.NEW}
    assert [phase for phase, row in PHASES.items() if not row] == [Phase.CLOSED]
    assert {made for row in PHASES.values() for made in row} == set(Move) - STOPS


@pytest.mark.parametrize(
    ("act", "legal"),
    [
        (turns.begun, {Phase.NEW}),
        (turns.planned, {Phase.IDLE}),
        (turns.abandoned, {Phase.PLANNING}),
        (turns.activated, {Phase.PLANNING}),
        (turns.ended, {Phase.ACTIVE}),
        (turns.closed, {Phase.NEW, Phase.IDLE}),
    ],
)
@pytest.mark.parametrize("phase", Phase)
def test_each_decision_is_one_move(
    act: Callable[[State], turns.Decided], legal: set[Phase], phase: Phase
) -> None:
    """Elsewhere it raises."""
    if phase in legal:
        after, _ = act(State(phase=phase))
        assert after.phase in PHASES[phase].values()
        return
    with pytest.raises(MoveError):
        act(State(phase=phase))


# What an idle loop does


@pytest.mark.parametrize("waiting", [True, False])
def test_a_committed_stop_comes_before_what_waits(*, waiting: bool) -> None:
    """The loop is left."""
    assert turns.next_step(State(stage=Stage.COMMITTED, idle=5), waiting=waiting) == Leave()


@pytest.mark.parametrize("stage", [Stage.OPEN, Stage.WAITING])
def test_what_waits_is_planned(stage: Stage) -> None:
    """Also while a stop waits for idleness."""
    assert turns.next_step(State(stage=stage, idle=5), waiting=True) == Plan()


def test_an_idle_loop_waits_for_something_or_for_its_time() -> None:
    """The time counts only for a stop that waits for it."""
    assert turns.next_step(State(), waiting=False) == Wait()
    assert turns.next_step(State(stage=Stage.WAITING, idle=5), waiting=False) == Wait(5)


# Turns


def state_in(phase: Phase, **more: Any) -> State:  # noqa: ANN401 — what a State has
    """A state whose turn, if it has one, is the second."""
    return State(phase=phase, turn=2, **more)


def test_a_turn_is_numbered_and_its_flags_are_its_own() -> None:
    """Those of the turn before are gone."""
    after, effects = turns.planned(state_in(Phase.IDLE, preempted=True, stopped=True))
    assert (after, effects) == (State(phase=Phase.PLANNING, turn=3), ())


def test_a_stop_that_came_while_it_was_planned_keeps_a_turn_from_beginning() -> None:
    """Nothing happens, and what was bound to it waits for it to be abandoned."""
    state = state_in(Phase.PLANNING, stage=Stage.COMMITTED, bound=(Bound(1, 2, AT),))
    assert turns.activated(state) == (state, ())
    assert not turns.may_go_on(state)
    assert turns.may_go_on(state_in(Phase.PLANNING, stage=Stage.WAITING))


@pytest.mark.parametrize(
    ("phase", "seen", "result"),
    [
        (Phase.NEW, 0, PreemptResult.NO_TURN),
        (Phase.IDLE, 0, PreemptResult.NO_TURN),
        (Phase.IDLE, 2, PreemptResult.TURN_ENDED),
        (Phase.ACTIVE, 0, PreemptResult.NO_TURN),
        (Phase.ACTIVE, 1, PreemptResult.TURN_ENDED),
        (Phase.PLANNING, 1, PreemptResult.TURN_ENDED),
        (Phase.CLOSED, 0, PreemptResult.LOOP_CLOSED),
        (Phase.CLOSED, 2, PreemptResult.LOOP_CLOSED),
    ],
)
def test_a_preempt_is_for_the_turn_that_its_push_saw(phase: Phase, seen: int, result: PreemptResult) -> None:
    """If that is not there it asks for nothing, and says so at once."""
    state = state_in(phase)
    assert turns.preempt(state, 1, Bound(1, seen, AT)) == (state, (Answer(1, result),))


@pytest.mark.parametrize("phase", Phase)
def test_a_preempt_after_the_stop_asks_for_nothing(phase: Phase) -> None:
    """Its item is late, so that there is nothing to make way for."""
    state = state_in(phase, stage=Stage.COMMITTED)
    assert turns.preempt(state, 1, Bound(1, 2, AT)) == (state, (Answer(1, PreemptResult.LOOP_CLOSED),))


def test_a_preempt_of_an_active_turn_is_submitted_once() -> None:
    """With what it asks; a second decision finds nothing left of it."""
    after, effects = turns.preempt(state_in(Phase.ACTIVE), 1, Bound(1, 2, AT))
    assert list(effects) == SUBMITTED
    assert after == state_in(Phase.ACTIVE, preempted=True)
    assert turns.due(after, 1, AT) == (after, ())


def test_a_preempt_of_a_turn_that_is_planned_waits_until_it_is_active() -> None:
    """It is not answered before that."""
    waiting, nothing = turns.preempt(state_in(Phase.PLANNING), 1, Bound(1, 2, AT))
    assert (nothing, waiting.bound, waiting.preempted) == ((), (Bound(1, 2, AT),), False)
    after, effects = turns.activated(waiting)
    assert list(effects) == SUBMITTED
    assert (after.bound, after.preempted) == ((), True)


@pytest.mark.parametrize(("phase", "leave"), [(Phase.PLANNING, turns.abandoned), (Phase.ACTIVE, turns.ended)])
def test_a_preempt_whose_turn_is_over_is_answered_and_forgotten(
    phase: Phase, leave: Callable[[State], turns.Decided]
) -> None:
    """It asks nothing of a later turn."""
    bound = (Bound(1, 2), Bound(2, 2, AT if phase is Phase.PLANNING else None))
    after, effects = leave(state_in(phase, bound=bound))
    assert effects == (Answer(1, PreemptResult.TURN_ENDED), Answer(2, PreemptResult.TURN_ENDED))
    assert after == state_in(Phase.IDLE)


def test_a_delayed_preempt_is_submitted_when_its_delay_is_over() -> None:
    """Until then the turn goes on; another that is ready does not take it along."""
    waiting, effects = turns.preempt(state_in(Phase.ACTIVE), 1, Bound(1, 2))
    assert (effects, waiting.preempted) == ((), False)
    both, effects = turns.preempt(waiting, 2, Bound(2, 2, NOW))
    assert effects == (CancelTurn(NOW, "preempt"), Answer(2, PreemptResult.SUBMITTED))
    assert both.bound == (Bound(1, 2),)
    after, effects = turns.due(both, 1, AT)
    assert list(effects) == SUBMITTED
    assert after.bound == ()


def test_a_delay_that_is_over_while_the_turn_is_planned_waits_for_it() -> None:
    """It is ready when the turn begins."""
    waiting, _ = turns.preempt(state_in(Phase.PLANNING), 1, Bound(1, 2))
    due, effects = turns.due(waiting, 1, AT)
    assert (effects, due.bound) == ((), (Bound(1, 2, AT),))
    assert list(turns.activated(due)[1]) == SUBMITTED
    assert turns.activated(waiting)[1] == ()


@given(
    st.lists(st.sampled_from(["preempt", "late preempt", "due", "stop", "stop now", "idle"]), max_size=12),
    st.sampled_from([Phase.PLANNING, Phase.ACTIVE]),
)
def test_every_preempt_is_answered_once(asked: list[str], phase: Phase) -> None:
    """Whatever comes between it and the end of the loop; submitted only while its turn is active."""
    state, answers = state_in(phase), list[int]()

    def decide(act: Callable[[State], turns.Decided]) -> None:
        nonlocal state
        was = state
        state, effects = act(was)
        answers.extend(effect.receipt for effect in effects if isinstance(effect, Answer))
        if any(isinstance(effect, CancelTurn) for effect in effects):
            assert Phase.ACTIVE in {was.phase, state.phase}

    for number, what in enumerate(asked):
        acts: dict[str, Callable[[State], turns.Decided]] = {
            "preempt": partial(turns.preempt, receipt=number, asked=Bound(number, 2, AT)),
            "late preempt": partial(turns.preempt, receipt=number, asked=Bound(number, 2)),
            "due": partial(turns.due, receipt=number - 1, stop=AT),
            "stop": partial(turns.stop, asked=None),
            "stop now": partial(turns.stop, asked=NOW),
            "idle": partial(turns.stop, asked=None, idle=1.0),
        }
        decide(acts[what])
    if state.phase is Phase.PLANNING:
        decide(turns.activated)
    decide(turns.ended if state.phase is Phase.ACTIVE else turns.abandoned)
    decide(turns.closed)
    assert sorted(answers) == [number for number, what in enumerate(asked) if "preempt" in what]
    assert state.bound == ()


def test_a_loop_that_closes_answers_whoever_still_waits() -> None:
    """And takes no more items."""
    after, effects = turns.closed(State(phase=Phase.IDLE, bound=(Bound(1, 2),)))
    assert effects == (CloseBuffer(), Answer(1, PreemptResult.LOOP_CLOSED))
    assert after == State(phase=Phase.CLOSED)


# Stops


def asked_of(*requests: "Stop | float | None", phase: Phase = Phase.ACTIVE) -> tuple[State, list[CancelTurn]]:
    """Stop a loop several times, a number for an idle time; give the state and what was asked of its turn."""
    state, asked = state_in(phase), list[CancelTurn]()
    for request in requests:
        if request is None or isinstance(request, Stop):
            state, effects = turns.stop(state, request)
        else:
            state, effects = turns.stop(state, None, idle=request)
        asked += [effect for effect in effects if isinstance(effect, CancelTurn)]
    return state, asked


@pytest.mark.parametrize("phase", Phase)
def test_a_bare_stop_asks_nothing_of_a_turn(phase: Phase) -> None:
    """TS-20: it commits, the buffer takes no more, and neither this turn nor a later one is cancelled."""
    state, effects = turns.stop(state_in(phase), None)
    assert (state.stage, state.stop, state.stopped, effects) == (
        Stage.COMMITTED,
        None,
        False,
        (CloseBuffer(),),
    )


@given(stops())
def test_a_stop_of_an_active_turn_is_honoured_as_given(asked: Stop) -> None:
    """It reaches the turn as it is, recursive or not."""
    state, effects = turns.stop(state_in(Phase.ACTIVE), asked)
    assert effects == (CloseBuffer(), CancelTurn(asked, "shutdown"))
    assert (state.stopped, state.stage, state.stop) == (True, Stage.COMMITTED, asked)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ACTIVE])
def test_a_stop_without_an_active_turn_cancels_nothing(phase: Phase) -> None:
    """It is enough that no turn begins any more."""
    state, asked = asked_of(NOW, phase=phase)
    assert (asked, state.stopped, state.stage) == ([], False, Stage.COMMITTED)


def test_what_was_not_submitted_is_not_there_for_a_later_turn() -> None:
    """TS-23, TC-07: the turn ends, and what is bound to it with it; the next one begins unasked."""
    bound, _ = turns.preempt(state_in(Phase.ACTIVE), 1, Bound(1, 2))
    idle, answered = turns.ended(bound)
    assert answered == (Answer(1, PreemptResult.TURN_ENDED),)
    planned, _ = turns.planned(idle)
    assert turns.due(planned, 1, AT) == (planned, ())
    active, effects = turns.activated(planned)
    assert (effects, active.preempted) == ((), False)


@pytest.mark.parametrize("order", list(permutations([NOW, None, Stop.graceful(grace=3)])))
def test_stops_add_up_in_any_order(order: tuple[Stop | None, ...]) -> None:
    """TS-24: now, bare and graceful are now and recursive, and each was asked of the turn's run."""
    state, asked = asked_of(*order)
    assert state.stop == Stop.now(recursive=True)
    assert [one.stop for one in asked] == [stop for stop in order if stop is not None]


def test_two_points_are_both_points() -> None:
    """TS-25, TM-04, TP-16: whichever comes first counts."""
    state, _ = asked_of(Stop.at(Point.MODEL), Stop.at(Point.TOOLS))
    assert state.stop == Stop.at(Point.ANY) == Stop.at(Point.MODEL | Point.TOOLS)
    assert Preempt(Point.ANY).as_stop() == Stop.at(Point.MODEL | Point.TOOLS)
    assert not Preempt(Point.TOOLS, grace=1).as_stop().recursive


def test_a_stop_with_no_intent_changes_none() -> None:
    """TM-01, TM-02: MODEL stays MODEL, and now has no time left to run."""
    assert asked_of(Stop.at(Point.MODEL), None)[0].stop == Stop.at(Point.MODEL)
    assert asked_of(Stop.at(Point.MODEL, grace=60), NOW)[0].stop == NOW


@given(st.lists(st.tuples(stops() | st.none(), st.booleans(), st.text(max_size=3)), min_size=1, max_size=20))
def test_many_stops_are_one(asked: list[tuple[Stop | None, bool, str]]) -> None:
    """TS-26: committed, the checkpoint skipped if any said so, the first cause, all that was asked."""
    state = state_in(Phase.ACTIVE)
    for stop, skip, cause in asked:
        state, _ = turns.stop(state, stop, cause=cause, skip_checkpoint=skip)
    joined: Stop | None = None
    for stop, _, _ in asked:
        joined = stop if joined is None else joined if stop is None else joined.join(stop)
    assert (state.stage, state.stop) == (Stage.COMMITTED, joined)
    assert state.skip_checkpoint == any(skip for _, skip, _ in asked)
    assert state.cause == next((cause for _, _, cause in asked if cause), "")


def test_a_loop_that_has_closed_asks_nothing_of_anybody() -> None:
    """TS-27, TC-15: what comes afterwards is answered at once, and nothing of it is kept."""
    closed, _ = turns.closed(state_in(Phase.IDLE, stage=Stage.COMMITTED))
    for decided in (turns.preempt(closed, 1, Bound(1, 2, AT)), turns.due(closed, 1, AT)):
        assert decided[0] == closed
        assert not any(isinstance(effect, CancelTurn) for effect in decided[1])
    assert turns.stop(closed, NOW)[1] == (CloseBuffer(),)


def test_fifty_requests_are_one_and_each_is_answered() -> None:
    """TC-13: they join, and all answers resolve."""
    state = state_in(Phase.PLANNING)
    for number in range(50):
        point = Point.MODEL if number % 2 else Point.TOOLS
        state, effects = turns.preempt(state, number, Bound(number, 2, Stop.at(point)))
        assert effects == ()
    _, effects = turns.activated(state)
    answers = [effect for effect in effects if isinstance(effect, Answer)]
    stop = Stop.at(Point.MODEL)
    for effect in effects:
        stop = stop.join(effect.stop) if isinstance(effect, CancelTurn) else stop
    assert answers == [Answer(number, PreemptResult.SUBMITTED) for number in range(50)]
    assert stop == Stop.at(Point.ANY)


def test_the_first_idle_time_stands_and_an_idle_stop_undoes_no_other() -> None:
    """Neither the time nor the stage goes back."""
    state, asked = asked_of(0.1, 600.0)
    assert (state.stage, state.idle, asked, state.stop) == (Stage.WAITING, 0.1, [], None)
    assert asked_of(None, 0.1)[0].stage is Stage.COMMITTED
    assert asked_of(0.1, NOW)[0].stage is Stage.COMMITTED


# What comes of a turn

REASONS: tuple[StopReason, ...] = ("end_turn", "cancelled", "interrupt", "limit", "error")


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("torn", [True, False])
def test_the_callbacks_error_goes_before_everything(reason: StopReason, *, torn: bool) -> None:
    """Before a stop, a preempt and whatever the agent did."""
    state = State(stopped=True, preempted=True)
    assert turns.verdict(state, reason, broken=True, torn=torn) is TurnEnd.BROKEN


@pytest.mark.parametrize(
    ("stopped", "preempted", "torn", "end"),
    [
        (False, False, False, TurnEnd.COMPLETED),
        (False, True, False, TurnEnd.PREEMPTED),
        (True, False, False, TurnEnd.STOPPED),
        (True, True, False, TurnEnd.STOPPED),
        (True, True, True, TurnEnd.FAILED),
        (False, False, True, TurnEnd.FAILED),
    ],
)
def test_a_cancelled_turn_ends_as_whoever_cancelled_it_says(
    end: TurnEnd, *, stopped: bool, preempted: bool, torn: bool
) -> None:
    """A stop goes before a preempt; nobody but its own callback means that it is done with."""
    state = State(stopped=stopped, preempted=preempted)
    assert turns.verdict(state, "cancelled", broken=False, torn=torn) is end


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("end_turn", TurnEnd.COMPLETED),
        ("limit", TurnEnd.COMPLETED),
        ("interrupt", TurnEnd.INTERRUPTED),
        ("error", TurnEnd.FAILED),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_turn_that_was_not_cancelled_ends_as_its_agent_says(
    reason: StopReason, end: TurnEnd, *, asked: bool
) -> None:
    """Whatever was asked of it: it finished first."""
    state = State(stopped=asked, preempted=asked)
    assert turns.verdict(state, reason, broken=False) is end
