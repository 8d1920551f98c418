"""Repair makes any history one that every provider takes, and touches nothing that is finished."""

from hypothesis import given

from andon.core.messages import Call, Image, Message, Part, Reasoning, Result, ResultState, Text
from andon.core.repair import NOT_STARTED, UNKNOWN, answer, not_started, repair, seal, unknown, without_blanks
from tests.core.values import HISTORIES
from tests.whole import complaints

ASKED = Message.assistant("Let me look.", Call("look", {}, "x"), Call("pay", {}, "y"))
SEEN = Result("x", "look", "red")
PAID = Result("y", "pay", "done")


@given(HISTORIES)
def test_what_comes_out_is_always_valid(history: list[Message]) -> None:
    """Each call has exactly one result, in order, next; nothing is empty, nothing answers nothing."""
    assert complaints(repair(history)) == []


@given(HISTORIES)
def test_repair_is_idempotent(history: list[Message]) -> None:
    """What is whole is left alone."""
    once = repair(history)
    assert repair(once) == once


@given(HISTORIES)
def test_what_was_said_is_never_touched(history: list[Message]) -> None:
    """All but blank words, orphan and second results is kept as it is, and in its order."""
    before = [p for m in history if m.role != "tool" for p in m.parts if not _blank(p)]
    after = [p for m in repair(history) if m.role != "tool" for p in m.parts]
    assert after == before


@given(HISTORIES)
def test_every_result_that_comes_out_was_there_or_says_not_started(history: list[Message]) -> None:
    """Repair invents no outcome."""
    given_ = [result for message in history for result in message.results]
    for result in (result for message in repair(history) for result in message.results):
        assert result in given_ or (result.state is ResultState.NOT_STARTED and result.content == NOT_STARTED)


def _blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def test_an_open_call_is_answered_and_the_finished_one_kept() -> None:
    """Also where the tool's message carries only half of the round."""
    whole = [Message.user("go"), ASKED, Message("tool", (SEEN, not_started(ASKED.calls[1])))]
    assert repair([Message.user("go"), ASKED, Message("tool", (SEEN,))]) == whole


def test_calls_that_nobody_answered_are_answered_before_the_next_message() -> None:
    """At the end and in the middle."""
    sealed = answer(ASKED.calls, {})
    assert repair([ASKED]) == [ASKED, sealed]
    assert repair([ASKED, Message.user("well?")]) == [ASKED, sealed, Message.user("well?")]


def test_results_come_in_the_order_of_the_calls() -> None:
    """Whatever order they ended in."""
    assert repair([ASKED, Message("tool", (PAID, SEEN))]) == [ASKED, Message("tool", (SEEN, PAID))]


def test_a_result_that_is_there_wins_over_a_later_one() -> None:
    """A finished result is never replaced."""
    late = Result("x", "look", "blue")
    assert repair([ASKED, Message("tool", (SEEN, PAID, late))]) == [ASKED, Message("tool", (SEEN, PAID))]


def test_an_orphan_is_dropped() -> None:
    """A result that nobody asked for, and a second message for one round."""
    assert repair([Message.user("go"), Message("tool", (SEEN,))]) == [Message.user("go")]
    round_ = Message("tool", (SEEN, PAID))
    assert repair([ASKED, round_, round_]) == [ASKED, round_]


def test_a_whole_message_is_the_same_object() -> None:
    """Nothing is copied that need not be: payloads and caches stay with it."""
    round_ = Message("tool", (SEEN, PAID))
    history = [Message.user("go"), ASKED, round_, Message.assistant("red")]
    assert all(a is b for a, b in zip(repair(history), history, strict=True))


def test_blank_words_are_dropped_and_all_else_stays() -> None:
    """Providers refuse empty text, not pictures or reasoning."""
    mixed = Message("assistant", (Text(" "), Reasoning(""), Text("yes")), cut=True)
    assert without_blanks(mixed) == Message("assistant", (Reasoning(""), Text("yes")), cut=True)
    assert without_blanks(Message.user(Image(b"1"))) == Message.user(Image(b"1"))


def test_synthetic_results_say_the_truth() -> None:
    """Not started is not unknown."""
    call = Call("pay", {}, "y")
    assert not_started(call) == Result("y", "pay", NOT_STARTED, ResultState.NOT_STARTED)
    assert unknown(call) == Result("y", "pay", UNKNOWN, ResultState.UNKNOWN)
    assert (NOT_STARTED, UNKNOWN) == (
        "Cancelled: was not started",
        "Cancelled: was stopped; whether it took effect is not known",
    )


def test_a_history_that_does_not_end_with_the_assistant_is_sealed() -> None:
    """So that the next prompt does not follow another one."""
    note = Message("assistant", (Text("note"),), synthetic=True)
    assert seal(Message.user("go"), "note") == note
    assert seal(Message("tool", (SEEN,)), "note") == note
    assert seal(ASKED, "note") == note
    assert seal(Message.assistant("done"), "note") is None
