"""What is told of a run elsewhere is shown as if it were here."""

import pytest

from andon.cli.follow import Words
from andon.client.shape import News
from andon.core.command import Push
from andon.core.items import (
    MessageAdded,
    ModelStarted,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    Steered,
    StopRequested,
    TextDelta,
    ToolStarted,
)
from andon.core.journal import Partial, Quarantined, Received, SessionCreated, Superseded
from andon.core.messages import Message, Reasoning
from andon.core.outcome import Outcome
from andon.core.stop import Cause, Point, Stop, StopReport, StopResult

STARTED = RunStarted(run_id="r", agent="trips")
ENDED = RunEnded(outcome=Outcome(run_id="r", stop_reason="end_turn"))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> "Shown":
    """Show news, and give what is on stdout and stderr."""
    return Shown(capsys)


class Shown:
    """Shows news to a reader who has no terminal."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *news: News) -> tuple[str, str]:
        """Show them."""
        words = Words()
        for each in (STARTED, *news):
            words.take(each)
        told = self._capsys.readouterr()
        return told.out, told.err


def said(text: str, *, path: tuple[str, ...] = ()) -> MessageAdded:
    """Make the message of an assistant."""
    return MessageAdded(message=Message.assistant(text), path=path)


def test_words_that_passed_by_unheard_are_told_with_their_message(shown: Shown) -> None:
    """Words that were heard are not told again."""
    out, err = shown(
        ModelStarted(step=1),
        MessageAdded(message=Message.assistant(Reasoning("hm"), "Hello.")),
        ModelStarted(step=2),
        TextDelta("And "),
        said("And bye."),
        ENDED,
    )

    assert (out, err) == ("Hello.\nAnd bye.\n", "hm\n")


def test_a_partial_takes_the_place_of_what_was_heard(shown: Shown) -> None:
    """Only what is new of it is told, or all of it if that is other words."""
    assert shown(TextDelta("Hel"), Partial("Hello"), TextDelta("!"), said("Hello!"), ENDED)[0] == "Hello!\n"
    assert shown(TextDelta("Oh"), Partial("Hello"), said("Hello"), ENDED) == ("Oh\nHello\n", "said anew:\n")


def test_children_beside_each_other_are_not_mixed_up(shown: Shown) -> None:
    """What one has said is not what the other says."""
    one, two = RunStarted(run_id="1", agent="x", path=("1",)), RunStarted(run_id="2", agent="y", path=("2",))
    _, err = shown(
        one,
        two,
        TextDelta("a", ("1",)),
        TextDelta("b", ("2",)),
        said("ab", path=("1",)),
        said("b", path=("2",)),
    )

    assert err.split() == ["x:", "a", "y:", "b", "x:", "b"]


def test_who_steps_in_is_told(shown: Shown) -> None:
    """A stop, a steer, a worker that dies, a session that is left alone."""
    stop = Stop.at(Point.TOOLS).bind(1.0, Cause("user", "ann", "enough", "c"))
    _, err = shown(
        Steered(message=Message.user("by train")),
        StopRequested(stop=stop),
        StopRequested(stop=stop, path=("child",)),
        Superseded("r"),
        Quarantined(why="workers die on it"),
        ToolStarted(call_id="c", name="search"),
    )

    assert err == (
        "steered: by train\n"
        "asked to stop (at TOOLS) by ann, because: enough\n"
        "its worker has died; another one goes on\n"
        "in quarantine: workers die on it\n"
        "→ search()\n"
    )


def test_the_runs_of_a_session_follow_each_other(shown: Shown) -> None:
    """With what was said to each; the tools of one are not in the report of the next."""
    report = StopReport(result=StopResult.STOPPED, causes=(Cause("user"),))
    cancelled = RunEnded(outcome=Outcome(run_id="r", stop_reason="cancelled", cancelled=report))
    push = Push(id="p", at=1.0, run_id="r2", message=Message.user("and now?"))
    out, err = shown(
        SessionCreated(),
        cancelled,
        Received(seq=1, command=push),
        RunStarted(run_id="r2", agent="trips"),
        said("this"),
        ENDED,
    )

    assert out == "this\n"
    assert err.startswith("cancelled\nresult: stopped, as asked\n")
    assert err.endswith("> and now?\n")


def test_reasoning_is_followed_as_well(shown: Shown) -> None:
    """On the side."""
    partial = Partial("", "hmm")
    assert shown(ReasoningDelta("h"), partial, TextDelta("yes"), ENDED) == ("yes\n", "hmm\n")
