"""Calls are mended before they join a history: names and ids that every provider takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andon.core.calls import NAME, mend, mend_history
from andon.core.messages import Call, Message, Result, Text
from andon.core.repair import repair
from andon.testing.conversation import problems
from tests.core.values import HISTORIES

ODD = st.sampled_from(["look", "functions.look", "", "9lives", "-x", "x" * 70, "größe", "a b"])
ODD_CALLS = st.builds(Call, ODD, st.just({}), st.sampled_from(["", "a", "call_0", "call_1_0"]))
ROUNDS = st.lists(st.lists(ODD_CALLS, min_size=1, max_size=3), max_size=4)


def conversation(rounds: list[list[Call]]) -> list[Message]:
    """A history in which each round was answered under the names and ids that it came with."""
    history = [Message.user("go")]
    for calls in rounds:
        history.append(Message("assistant", tuple(calls)))
        history.append(Message("tool", tuple(Result(call.id, call.name, "done") for call in calls)))
    return history


@pytest.mark.parametrize(
    ("name", "mended"),
    [
        ("functions.search", "functions_search"),
        ("", "unnamed"),
        ("9lives", "_9lives"),
        ("-x", "_-x"),
        ("größe ok", "gr__e_ok"),
        ("x" * 65, "x" * 64),
        ("9" * 64, "_" + "9" * 63),
    ],
)
def test_a_name_that_no_provider_takes_is_mended_and_kept_beside(name: str, mended: str) -> None:
    """Every provider takes the new one; what the model had said can still be told."""
    (call,) = mend([Call(name, {"a": 1}, "c")], set(), "p")
    assert call == Call(mended, {"a": 1}, "c", said=name)
    assert NAME.fullmatch(mended)


def test_what_is_sound_is_the_same_object() -> None:
    """Nothing is copied that need not be."""
    call = Call("look", {}, "x")
    assert mend([Text("a"), call], {"y"}, "p")[1] is call


def test_an_id_that_is_taken_is_replaced() -> None:
    """By one that is taken by nobody, also where the prefix itself is found among them."""
    calls = mend([Call("a", id="x"), Call("b"), Call("c", id="p_1_")], {"x", "p_1"}, "p")
    assert [getattr(call, "id", "") for call in calls] == ["p_0", "p_1_", "p_2"]


@given(ROUNDS)
def test_every_provider_takes_a_mended_history(rounds: list[list[Call]]) -> None:
    """And each result is where it was, answering the same call."""
    history = mend_history(conversation(rounds))
    assert repair(history) == history
    assert problems(history) == []
    said = [[call.name if call.said is None else call.said for call in m.calls] for m in history if m.calls]
    assert said == [[call.name for call in calls] for calls in rounds]


@given(HISTORIES | ROUNDS.map(conversation))
def test_a_mended_history_is_left_alone(history: list[Message]) -> None:
    """All its messages are the same objects, so that what is cached for them is found again."""
    once = mend_history(history)
    assert all(one is other for one, other in zip(once, mend_history(once), strict=True))


def test_several_results_of_one_id_answer_its_calls_in_order() -> None:
    """The first answers the first; one too many goes with the last, and what answers none is left."""
    asked = Message.assistant(Call("look", {}, "x"), Call("look", {}, "x"))
    orphan = Result("y", "look", "nobody asked")
    told = Message("tool", (orphan, *(Result("x", "look", word) for word in ("one", "two", "three"))))
    _, answered = mend_history([asked, told])
    assert [(one.call_id, one.content) for one in answered.results] == [
        ("y", "nobody asked"),
        ("x", "one"),
        ("call_0_1", "two"),
        ("call_0_1", "three"),
    ]


def test_a_result_that_answers_nothing_is_left_to_the_repair() -> None:
    """Beside one whose call was mended, it stays as it came."""
    asked = Message.assistant(Call("odd name", {}, "a"))
    orphan = Result("z", "look", "whose?")
    told = Message("tool", (Result("a", "odd name", "here"), orphan))

    _, answered = mend_history([asked, told])

    assert answered.parts == (Result("a", "odd_name", "here"), orphan)
