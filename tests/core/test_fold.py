"""The state of a run is what its items add up to, however they are cut into parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andon.core.checkpoint import VERSION, Checkpoint
from andon.core.fold import Next, State, checkpoint, fold
from andon.core.items import (
    Event,
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    RunEnded,
    RunStarted,
    Steered,
    StopRequested,
    ToolEnded,
    ToolStarted,
)
from andon.core.limits import Usage
from andon.core.messages import Call, Message, Result, ResultState, Text, size
from andon.core.outcome import Outcome
from andon.core.repair import NOT_STARTED, answer
from andon.core.stop import Cause, Point, Stop, join_all
from tests.core.values import CHECKPOINTS, DELTAS, HISTORIES, OWN_EVENTS, items, stops

LOOK, PAY = Call("look", {}, "x"), Call("pay", {}, "y")
ASKED = Message.assistant("Let me look.", LOOK, PAY)
PROMPT = Message.user("go")


def added(*messages: Message) -> list[Event]:
    """The items that add messages."""
    return [MessageAdded(message=message) for message in messages]


def facts(state: State) -> dict[str, object]:
    """All that a state says of itself."""
    named = {name: getattr(state, name) for name in State.__slots__ if not name.startswith("_")}
    return {**named, "pending": state.pending, "next": state.next, "characters": state.characters()}


# A run starts once, and that is its first item.
STARTS = st.builds(
    RunStarted,
    run_id=st.just("r"),
    agent=st.just("a"),
    history=HISTORIES.map(tuple),
    checkpoint=st.none() | CHECKPOINTS,
)
LATER = OWN_EVENTS.filter(lambda event: not isinstance(event, RunStarted))


def _log(first: Event, rest: list[Event]) -> list[Event]:
    return [first, *rest]


LOGS = st.builds(_log, STARTS, st.lists(LATER, max_size=8))


@given(LOGS, st.integers(0, 9))
def test_a_prefix_and_the_rest_add_up_to_the_whole(events: list[Event], cut: int) -> None:
    """A run that is resumed, replayed or read half-way is the same run."""
    state = fold(events[:cut])
    state.characters()  # looking in between changes nothing
    for event in events[cut:]:
        state.apply(event)
    assert facts(state) == facts(fold(events))


@given(LOGS, st.lists(DELTAS, max_size=3))
def test_deltas_change_nothing(events: list[Event], deltas: list[Event]) -> None:
    """They need not be journaled."""
    assert facts(fold([*deltas, *events, *deltas])) == facts(fold(events))


@given(items(st.just(("child",))))
def test_the_items_of_a_child_change_only_what_is_spent(item: Item) -> None:
    """Its history is its own."""
    spending = {"usage", "child_calls", "tool_calls"}
    before, after = facts(State()), facts(fold([item]))
    assert {key: after[key] for key in after if key not in spending} == {
        key: before[key] for key in before if key not in spending
    }


@given(HISTORIES)
def test_characters_are_counted_as_messages_come(history: list[Message]) -> None:
    """Each once."""
    state = State()
    for item in added(*history):
        state.apply(item)
        assert state.characters() == sum(map(size, state.messages))


# What comes next


def test_a_run_goes_round_until_an_answer_has_no_calls() -> None:
    """Ask, use, collect, ask, finish; and then it is over."""
    state = fold([RunStarted(run_id="r", agent="a"), *added(PROMPT)])
    assert state.next is Next.ASK
    state.apply(ModelStarted(step=1)).apply(MessageAdded(message=ASKED))
    assert (state.next, state.pending) == (Next.USE, [LOOK, PAY])
    state.apply(ToolStarted(call_id="x", name="look"))
    state.apply(ToolEnded(call_id="x", name="look", state=ResultState.COMPLETED, content="red"))
    assert (state.next, state.pending) == (Next.USE, [PAY])
    state.apply(ToolEnded(call_id="y", name="pay", state=ResultState.FAILED, content="no"))
    assert (state.next, state.pending) == (Next.COLLECT, [])
    state.apply(MessageAdded(message=answer(state.calls, state.results)))
    assert (state.next, state.calls, state.results) == (Next.ASK, (), {})
    state.apply(MessageAdded(message=Message.assistant("red")))
    assert state.next is Next.FINISH
    outcome = Outcome(run_id="r", stop_reason="end_turn")
    state.apply(RunEnded(outcome=outcome))
    assert (state.next, state.ended) == (Next.ENDED, outcome)


def test_a_run_that_has_not_begun_would_ask() -> None:
    """There is nothing else it could do."""
    assert State().next is Next.ASK


def test_a_steering_message_joins_the_history() -> None:
    """And is answered."""
    state = fold([*added(PROMPT, Message.assistant("no")), Steered(message=Message.user("look again"))])
    assert state.messages[-1] == Message.user("look again")
    assert state.next is Next.ASK


def test_usage_and_calls_are_counted() -> None:
    """Steps are the model calls, retries of one step are no second step."""
    state = fold(
        [
            ModelStarted(step=1, attempt=1),
            ModelEnded(step=1, end="failed", usage=Usage(input_tokens=5)),
            ModelStarted(step=1, attempt=2),
            ModelEnded(step=1, usage=Usage(input_tokens=5, output_tokens=1)),
            ToolStarted(call_id="x", name="look"),
        ]
    )
    assert state.spent() == Usage(input_tokens=10, output_tokens=1, model_calls=1, tool_calls=1)


def test_a_call_without_usage_costs_nothing() -> None:
    """What the provider does not tell is not made up."""
    state = fold([ModelEnded(step=1, usage=Usage(input_tokens=5)), ModelEnded(step=2)])
    assert state.usage == Usage(input_tokens=5)


@given(st.lists(stops(), min_size=1, max_size=3))
def test_requests_to_stop_are_joined(requests: list[Stop]) -> None:
    """The state's stop is the join of all of them."""
    assert fold([StopRequested(stop=stop) for stop in requests]).stop == join_all(requests)


def test_a_history_that_is_brought_along_is_repaired() -> None:
    """So that it can be sent."""
    state = fold([RunStarted(run_id="r", agent="a", history=(PROMPT, ASKED))])
    assert state.messages == [PROMPT, ASKED, answer(ASKED.calls, {})]
    assert state.next is Next.ASK


# Checkpoints


def saved(*messages: Message, results: tuple[Result, ...] = ()) -> Checkpoint:
    """A checkpoint after one step."""
    return Checkpoint(version=VERSION, run_id="r", agent="a", messages=messages, results=results, steps=1)


def test_a_checkpoint_leaves_out_the_notes_that_sealed_the_history() -> None:
    """The cut answer and what was synthetic are no part of what it goes on from."""
    cut = Message("assistant", (Text("Half"),), cut=True)
    note = Message("assistant", (Text("Cancelled by user"),), synthetic=True)
    state = fold([RunStarted(run_id="r", agent="a"), *added(PROMPT, cut, note)])
    assert checkpoint(state, "a").messages == (PROMPT,)
    assert checkpoint(State(), "a").messages == ()


def test_a_checkpoint_keeps_what_has_ended_and_forgets_what_never_began() -> None:
    """A call that was not started is still to do, one that is unknown is not."""
    states = {"x": ResultState.UNKNOWN, "y": ResultState.NOT_STARTED}
    ends: list[Event] = [
        ToolEnded(call_id=call.id, name=call.name, state=states[call.id], content=NOT_STARTED)
        for call in (LOOK, PAY)
    ]
    state = fold([RunStarted(run_id="r", agent="a"), *added(PROMPT, ASKED), *ends])
    kept = checkpoint(state, "a")
    assert [result.call_id for result in kept.results] == ["x"]
    assert fold([RunStarted(run_id="s", agent="a", checkpoint=kept)]).pending == [PAY]


def test_a_run_goes_on_in_the_middle_of_a_round() -> None:
    """What has ended stays ended, and the model is not asked again."""
    done = Result("x", "look", "red")
    state = fold([RunStarted(run_id="s", agent="a", checkpoint=saved(PROMPT, ASKED, results=(done,)))])
    assert (state.next, state.pending, state.results) == (Next.USE, [PAY], {"x": done})


@pytest.mark.parametrize(
    ("messages", "next_"),
    [
        ((), Next.ASK),
        ((PROMPT,), Next.ASK),
        ((PROMPT, ASKED), Next.USE),
        ((PROMPT, ASKED, Message("tool", (Result("x", "look", "red"), Result("y", "pay", "ok")))), Next.ASK),
        ((PROMPT, Message.assistant("done")), Next.FINISH),
    ],
)
def test_a_run_goes_on_with_what_comes_next(messages: tuple[Message, ...], next_: Next) -> None:
    """From each kind of place."""
    assert fold([RunStarted(run_id="s", agent="a", checkpoint=saved(*messages))]).next is next_


@given(CHECKPOINTS)
def test_what_was_spent_before_goes_on_counting(kept: Checkpoint) -> None:
    """Limits hold across a resume."""
    state = fold([RunStarted(run_id="s", agent="a", checkpoint=kept)])
    spent = state.spent()
    assert spent.model_calls == kept.usage.model_calls
    assert spent.tool_calls == kept.usage.tool_calls
    assert (spent.input_tokens, spent.cost) == (kept.usage.input_tokens, kept.usage.cost)


def test_a_stop_of_the_past_does_not_reach_the_resumed_run() -> None:
    """No flag outlives a run."""
    stop = Stop.at(Point.ANY).bind(1, Cause(id="a"))
    before = fold([RunStarted(run_id="r", agent="a"), StopRequested(stop=stop), *added(PROMPT)])
    assert fold([RunStarted(run_id="s", agent="a", checkpoint=checkpoint(before, "a"))]).stop is None
