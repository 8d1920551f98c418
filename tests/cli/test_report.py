"""A stop report in plain words."""

import io

import pytest
from rich.console import Console

from andon.cli.report import print_history, print_report, results, rows, seconds
from andon.core.messages import Call, Message, Result, ResultState, Text
from andon.core.stop import Abandoned, Cause, Point, Stop, StopReport, StopResult, Where

CAUSE = Cause("user", "ada", "too slow", asked=Stop.graceful(grace=2))
REPORT = StopReport(
    result=StopResult.ESCALATED,
    stopped_at=Where.TOOLS,
    escalated_by="timeout",
    causes=(CAUSE,),
    latency=2.04,
    abandoned=(Abandoned("stubborn", "c2"),),
)
RESULTS = [Result("c1", "search", "…"), Result("c2", "stubborn", "…", ResultState.UNKNOWN)]


def test_a_report_says_who_why_where_and_how_long() -> None:
    """And what was escalated and abandoned, and what became of each call."""
    assert rows(REPORT, RESULTS) == [
        ("result", "stopped at once, because no safe point came within the grace"),
        ("where", "while tools ran, which were cut"),
        ("asked by", "user ada, because: too slow (asked for: at the next safe point, within 2 s)"),
        ("took", "2.0 s from the first request to the end of the run"),
        ("escalated", "yes: the grace ran out"),
        ("abandoned", "stubborn: would not stop, is not waited for, and what it may still give is not used"),
        ("search", "completed"),
        ("stubborn", "was stopped; whether it took effect is not known"),
    ]


def test_a_run_that_finished_first_is_not_called_stopped() -> None:
    """Nothing was escalated or abandoned, so nothing is said of that."""
    told = rows(StopReport(result=StopResult.FINISHED_FIRST, causes=(Cause(asked=Stop.now()),), latency=0.02))

    assert told == [
        ("result", "not stopped: the run ended by itself before the stop took effect"),
        ("asked by", "code (asked for: now)"),
        ("took", "20 ms from the first request to the end of the run"),
    ]


def test_each_who_asked_is_named() -> None:
    """Also one who did not say why, or what."""
    report = StopReport(
        result=StopResult.STOPPED,
        causes=(
            Cause("user", asked=Stop.gently()),
            Cause("limit", reason="cost 3"),
            Cause("preempt", asked=Stop.at(Point.TOOLS)),
        ),
    )

    assert [words for label, words in rows(report) if label in {"asked by", "and by"}] == [
        "user (asked for: in the model call or when the model has answered or when the tools have ended)",
        "limit, because: cost 3",
        "preempt (asked for: when the tools have ended)",
    ]


@pytest.mark.parametrize("where", Where)
def test_every_place_has_words(where: Where) -> None:
    """None is left out of the table."""
    assert ("escalated", "no") in rows(StopReport(result=StopResult.STOPPED, stopped_at=where))


@pytest.mark.parametrize("result", StopResult)
def test_every_result_has_words(result: StopResult) -> None:
    """None is left out of the table."""
    assert rows(StopReport(result=result))[0][1]


def test_a_checkpoint_is_named_and_a_failure_to_store_it_too() -> None:
    """Whoever wants to go on must know."""
    assert ("checkpoint", "run-1") in rows(StopReport(result=StopResult.STOPPED, checkpoint="run-1"))
    assert ("checkpoint", "not stored: disk full") in rows(
        StopReport(result=StopResult.STOPPED, checkpoint_error="disk full")
    )


def test_results_are_read_from_a_history() -> None:
    """In the order of the calls."""
    history = [Message.user("hi"), Message("tool", (RESULTS[0],)), Message("tool", (RESULTS[1],))]

    assert results(history) == RESULTS


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_report_is_coloured_on_a_terminal_only(is_terminal: bool) -> None:  # noqa: FBT001
    """The words are the same."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, color_system="standard", width=120)

    print_report(console, REPORT, RESULTS)

    assert ("\x1b[" in out.getvalue()) is is_terminal
    assert "while tools ran, which were cut" in out.getvalue()


def test_a_history_is_a_small_table() -> None:
    """Who said what, and which of it was cut or is a note of the run."""
    out = io.StringIO()
    history = [
        Message.user("go"),
        Message.assistant("Well.", Call("search")),
        Message("tool", (RESULTS[0],)),
        Message("assistant", (Text("So"),), cut=True),
        Message("assistant", (Text("Cancelled"),), synthetic=True),
    ]

    print_history(Console(file=out, width=60), history)

    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["user", "go"],
        ["assistant", "Well."],
        ["calls", "search"],
        ["tool", "search:", "…"],
        ["assistant", "So", "cut"],
        ["assistant", "Cancelled", "note"],
    ]


@pytest.mark.parametrize(
    ("time", "said"), [(0.0004, "less than 1 ms"), (0.25, "250 ms"), (1.0, "1.0 s"), (75.2, "75.2 s")]
)
def test_a_duration_is_short(time: float, said: str) -> None:
    """Nobody reads microseconds."""
    assert seconds(time) == said
