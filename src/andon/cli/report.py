"""Report: a stop report in plain words, and the state of each tool call."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from andon.core.messages import Message, Result, ResultState
from andon.core.stop import Cause, Point, Stop, StopReport, StopResult, Where

WHERE: dict[Where, str] = {
    Where.BEFORE_START: "before the model was asked",
    Where.MODEL: "in a model call, which was cut; the partial answer is kept",
    Where.POINT_MODEL: "at a safe point: the model had answered, none of its tools had started",
    Where.TOOLS: "while tools ran, which were cut",
    Where.POINT_TOOLS: "at a safe point: every tool of the round had ended",
    Where.POINT_STEP: "at a safe point: between two steps",
    Where.PAUSED: "while it was paused",
}
HEADS: dict[StopResult, str] = {
    StopResult.STOPPED: "stopped, as asked",
    StopResult.ESCALATED: "stopped at once, because no safe point came within the grace",
    StopResult.FINISHED_FIRST: "not stopped: the run ended by itself before the stop took effect",
    StopResult.NOTHING_RUNNING: "nothing was running",
}
POINTS: dict[Point, str] = {
    Point.STREAM: "in the model call",
    Point.MODEL: "when the model has answered",
    Point.TOOLS: "when the tools have ended",
}
STATES: dict[ResultState, tuple[str, str, str]] = {  # sign, style, words
    ResultState.COMPLETED: ("✓", "green", "completed"),
    ResultState.FAILED: ("✗", "red", "failed"),
    ResultState.NOT_STARTED: ("·", "dim", "was not started"),
    ResultState.UNKNOWN: ("?", "magenta", "was stopped; whether it took effect is not known"),
}

Row = tuple[str, str]


def seconds(time: float) -> str:
    """Write a duration so that a person can read it."""
    if time < 0.001:  # noqa: PLR2004 - a millisecond
        return "less than 1 ms"
    return f"{time * 1000:.0f} ms" if time < 1 else f"{time:.1f} s"


def rows(report: StopReport, results: Sequence[Result] = ()) -> list[Row]:
    """Tell a stop report in labelled lines: who, why, where, how long, and what became of the tools."""
    told: list[Row] = [("result", HEADS[report.result])]
    if report.stopped_at is not None:
        told.append(("where", WHERE[report.stopped_at]))
    told += [("asked by" if n == 0 else "and by", _cause(cause)) for n, cause in enumerate(report.causes)]
    if report.causes:
        told.append(("took", f"{seconds(report.latency)} from the first request to the end of the run"))
    if report.stopped_at is not None:
        told.append(("escalated", _escalated(report)))
        told.append(("abandoned", _abandoned(report)))
    if report.checkpoint is not None:
        told.append(("checkpoint", report.checkpoint))
    if report.checkpoint_error is not None:
        told.append(("checkpoint", f"not stored: {report.checkpoint_error}"))
    told += [(result.name, STATES[result.state][2]) for result in results]
    return told


def results(messages: Sequence[Message]) -> list[Result]:
    """Give the result of each tool call in a history, in order."""
    return [result for message in messages for result in message.results]


def print_report(console: Console, report: StopReport, results: Sequence[Result] = ()) -> None:
    """Print a stop report; in colour on a terminal, in plain lines elsewhere."""
    told = rows(report, results)
    first_result = len(told) - len(results)
    styles = {n: STATES[result.state][1] for n, result in enumerate(results, first_result)}
    if not console.is_terminal:
        for label, words in told:
            console.print(f"{label}: {words}", markup=False, highlight=False, soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2))
    for n, (label, words) in enumerate(told):
        table.add_row(Text(label, "bold"), Text(words, styles.get(n, "")))
    console.print(table)


def print_history(console: Console, messages: Sequence[Message]) -> None:
    """Print messages as a small table: who, what, and whether it was cut, or is a note of the run."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for message in messages:
        said = [message.text] if message.text else []
        said += [f"calls {call.name}" for call in message.calls]
        said += [f"{result.name}: {result.content}" for result in message.results]
        mark = "cut" if message.cut else "note" if message.synthetic else ""
        table.add_row(Text(message.role, "cyan"), Text("\n".join(said)), Text(mark, "magenta"))
    console.print(table)


def _cause(cause: Cause) -> str:
    who = cause.source if cause.by is None else f"{cause.source} {cause.by}"
    said = who if cause.reason is None else f"{who}, because: {cause.reason}"
    return said if cause.asked is None else f"{said} (asked for: {_asked(cause.asked)})"


def _asked(stop: Stop) -> str:
    if stop.immediate:
        return "now"
    if stop.points == Point.ANY:
        where = "at the next safe point"
    else:
        where = " or ".join(POINTS[point] for point in stop.points)
    return where if stop.grace is None else f"{where}, within {stop.grace:g} s"


def _escalated(report: StopReport) -> str:
    match report.escalated_by:
        case None:
            return "no"
        case "timeout":
            return "yes: the grace ran out"
        case "request":
            return "yes: a later request asked for more"


def _abandoned(report: StopReport) -> str:
    if not report.abandoned:
        return "nothing"
    names = ", ".join(work.name for work in report.abandoned)
    return f"{names}: would not stop, is not waited for, and what it may still give is not used"
