"""What a person, and a program, is shown of a run."""

import io
from typing import Protocol

import pytest
from rich.console import Console

from andon.cli.screen import LONGEST, Lines, Words
from andon.core.checkpoint import Checkpoint
from andon.core.items import (
    Event,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from andon.core.messages import Call, Message, ResultState
from andon.core.outcome import Interrupt, Outcome
from andon.core.stop import StopReport, StopResult

DONE = Outcome(run_id="r", stop_reason="end_turn")


class Showing(Protocol):
    """Show some events, and give what is on stdout and stderr."""

    def __call__(self, *events: Event) -> tuple[str, str]:
        """Show them."""
        ...


@pytest.fixture
def shown() -> Showing:
    """Show events to a reader who has no terminal."""

    def show(*events: Event) -> tuple[str, str]:
        out, err = io.StringIO(), io.StringIO()
        screen = Words(out, Console(file=err, width=80))
        for event in (*events, RunEnded(outcome=DONE)):
            screen.show(event)
        return out.getvalue(), err.getvalue()

    return show


def test_an_answer_ends_with_one_new_line(shown: Showing) -> None:
    """Whether the model wrote it or not."""
    assert shown(TextDelta("one "), TextDelta("answer")) == ("one answer\n", "")
    assert shown(TextDelta("one answer\n")) == ("one answer\n", "")
    assert shown() == ("", "")


def test_an_answer_that_is_asked_for_again_begins_on_a_line_of_its_own(shown: Showing) -> None:
    """After a model has failed."""
    out, err = shown(
        ModelStarted(step=1),
        TextDelta("one ans"),
        ModelEnded(step=1, end="failed", error="ModelError: busy"),
        ModelStarted(step=1, attempt=2),
        TextDelta("one answer"),
    )

    assert out == "one ans\none answer\n"
    assert err == "✗ the model failed: ModelError: busy\n"


def test_reasoning_and_words_are_kept_apart(shown: Showing) -> None:
    """Reasoning is no part of the answer."""
    assert shown(ReasoningDelta("hm, "), ReasoningDelta("yes"), TextDelta("yes")) == ("yes\n", "hm, yes\n")


def test_what_a_child_says_is_no_part_of_the_answer(shown: Showing) -> None:
    """It goes where reasoning goes, in, with the name of its agent; two that talk at once are kept apart."""
    out, err = shown(
        RunStarted(run_id="a", agent="trains", path=("a",)),
        RunStarted(run_id="b", agent="rooms", path=("b",)),
        TextDelta("at ", ("a",)),
        TextDelta("nine", ("a",)),
        TextDelta("two", ("b",)),
        ToolStarted(call_id="c1", name="find", path=("b",)),
        TextDelta("Nine, and two."),
    )

    assert out == "Nine, and two.\n"
    assert err == "  trains: at nine\n  rooms: two\n  → find()\n"


def test_a_question_is_shown_with_the_way_to_it() -> None:
    """A run that waits for an answer says for which."""
    err = io.StringIO()
    asked = Interrupt("1", "Pay 31 euros?", ("trips", "pay"))
    paused = Outcome(run_id="r", stop_reason="interrupt", interrupts=(asked,))
    Words(io.StringIO(), Console(file=err, width=80)).end(paused, None)

    assert err.getvalue() == "waits for an answer: Pay 31 euros?\nasked by: trips → pay\n"


def test_a_call_that_waits_goes_on_with_its_arguments(shown: Showing) -> None:
    """It is not said to be stopped, and what a resumed run does is told as before."""
    ends = ToolEnded(call_id="c1", name="pay", state=ResultState.UNKNOWN, again=True)
    asked = Message.assistant(Call("pay", {"euros": 31}, "c1"))
    kept = Checkpoint(version=1, run_id="r", agent="a", messages=(Message.user("pay"), asked))

    assert shown(ends)[1] == "… pay goes on when the run is resumed\n"
    resumed = RunStarted(run_id="s", agent="a", checkpoint=kept)
    assert shown(resumed, ToolStarted(call_id="c1", name="pay"))[1] == "→ pay(euros=31)\n"


def test_a_tool_is_shown_with_its_arguments_and_how_it_ended(shown: Showing) -> None:
    """What it told on its way, too."""
    _, err = shown(
        MessageAdded(message=Message.assistant(Call("find", {"what": "a cord", "most": 3}, "c1"))),
        ToolStarted(at=1.0, call_id="c1", name="find"),
        ToolProgress("c1", "half way"),
        ToolEnded(at=1.25, call_id="c1", name="find", state=ResultState.COMPLETED, content="two\nlines"),
    )

    assert err == '→ find(what="a cord", most=3)\n  find: half way\n✓ find completed (250 ms): two lines\n'


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (ResultState.FAILED, "✗ find failed: no\n"),
        (ResultState.UNKNOWN, "? find was stopped; whether it took effect is not known\n"),
        (ResultState.NOT_STARTED, "· find was not started\n"),
    ],
)
def test_every_state_of_a_call_has_its_words(shown: Showing, state: ResultState, said: str) -> None:
    """A call may end that never started."""
    assert shown(ToolEnded(call_id="c1", name="find", state=state, content="no"))[1] == said


def test_what_is_long_is_shortened(shown: Showing) -> None:
    """A line is a line."""
    _, err = shown(ToolEnded(call_id="c1", name="f", state=ResultState.COMPLETED, content="x" * 500))

    assert err == f"✓ f completed: {'x' * (LONGEST - 1)}…\n"


def test_markup_in_what_is_said_is_only_text(shown: Showing) -> None:
    """A model that writes brackets colours nothing."""
    assert shown(ReasoningDelta("[red]x[/red] :smile:"))[1] == "[red]x[/red] :smile:\n"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (DONE, ""),
        (Outcome(run_id="r", stop_reason="error", error="ModelError: no"), "failed: ModelError: no\n"),
        (Outcome(run_id="r", stop_reason="limit", limit="seconds 3"), "ended at a limit: seconds 3\n"),
        (Outcome(run_id="r", stop_reason="cancelled"), "cancelled\n"),
    ],
)
def test_how_a_run_ended_is_said(outcome: Outcome, said: str) -> None:
    """An answer needs no word."""
    err = io.StringIO()

    Words(io.StringIO(), Console(file=err)).end(outcome, None)

    assert err.getvalue() == said


def test_a_report_is_shown_with_the_calls_of_the_run() -> None:
    """In lines of their own."""
    err = io.StringIO()
    screen = Words(io.StringIO(), Console(file=err))
    screen.show(ToolEnded(call_id="c1", name="find", state=ResultState.COMPLETED))
    screen.end(DONE, StopReport(result=StopResult.FINISHED_FIRST))

    assert err.getvalue().endswith("before the stop took effect\nfind: completed\n")


def test_without_an_output_of_its_own_the_answer_is_on_the_console() -> None:
    """Then a console that records has all of it."""
    console = Console(file=io.StringIO(), record=True)
    screen = Words(None, console)
    screen.show(ReasoningDelta("hm"))
    screen.show(TextDelta("[b]yes[/b]"))
    screen.close()

    assert console.export_text() == "hm\n[b]yes[/b]\n"


def test_lines_hold_one_event_each() -> None:
    """Notices go elsewhere."""
    out, err = io.StringIO(), io.StringIO()
    screen = Lines(out, Console(file=err))
    screen.show(TextDelta("two\nlines"))
    screen.notice("[stopping]")
    screen.end(DONE, None)

    assert out.getvalue() == '{"type":"text_delta","text":"two\\nlines"}\n'
    assert err.getvalue() == "[stopping]\n"
