"""Reports: what an outcome and its stop report say of a run is what has happened."""

from collections.abc import Iterator, Sequence

from andon.core.fold import fold
from andon.core.items import (
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    RunEnded,
    RunStarted,
    Steered,
    ToolEnded,
    ToolStarted,
)
from andon.core.messages import ResultState
from andon.core.outcome import Outcome
from andon.core.stop import Point, StopReport, StopResult, Where
from andon.testing.family import child_of, ends
from andon.testing.trial import Seen

SLACK = 1e-3  # seconds: wall time as a float is coarse


def told(seen: Seen, items: Sequence[Item], outcome: Outcome) -> Iterator[str]:
    """Name what the outcome says, and the run's own items do not."""
    report = outcome.cancelled
    if (report is not None) != (outcome.stop_reason == "cancelled"):
        yield "a cancelled run, and no other, has a stop report in its outcome"
    ended = outcome.stop_reason != "interrupt"  # a paused run may be given up
    if report is None and ended and any(one.result is not StopResult.FINISHED_FIRST for one in seen.reports):
        yield f"a run that ended by itself FINISHED_FIRST: {[str(one.result) for one in seen.reports]}"
    yield from _by_itself(seen, outcome)
    if outcome.stop_reason == "end_turn" and (outcome.message.cut or outcome.message.synthetic):
        yield "a final answer is whole"
    if report is not None:
        yield from _report(seen, items, outcome, report)


def _by_itself(seen: Seen, outcome: Outcome) -> Iterator[str]:
    """Without a stop a run ends as it says; where only a child is stopped, or is told, it may get further."""
    ends_as, alone = outcome.stop_reason, seen.mode.whom == "child"
    untouched = alone or not (seen.mode.stops or seen.mode.by_task)
    expected = {seen.scenario.ends}
    if seen.scenario.ends == "interrupt" and (alone or seen.saved is not None):
        expected.add("end_turn")  # the questions were answered, or never asked
    if seen.scenario.needs_all and alone:
        expected.add("error")
    if untouched and ends_as not in expected:
        yield f"a run that nobody stops ends as {seen.scenario.ends}: it ended as {ends_as}"
    if ends_as == "error" and "error" not in expected:
        yield f"a stop is no error: {outcome.error}"


def _report(seen: Seen, items: Sequence[Item], outcome: Outcome, report: StopReport) -> Iterator[str]:
    stop = fold(items).stop
    if report.result not in {StopResult.STOPPED, StopResult.ESCALATED} or not report.accepted:
        yield f"a cancelled run was stopped: its report says {report.result}"
    if report.stopped_at is None or stop is None or not stop.due(report.stopped_at):
        yield f"a stop takes effect where it was asked for: {stop!r} took effect at {report.stopped_at}"
        return
    if not report.causes or report.causes != stop.causes:
        yield "the report names every cause"
    if list(report.abandoned) != list(seen.abandoned):
        yield f"the report names what was abandoned: {report.abandoned} is not {seen.abandoned}"
    end = items[-1].at if isinstance(items[-1], RunEnded) else 0.0
    if report.causes and not 0 <= report.latency <= end - report.causes[0].at + SLACK:
        yield f"the latency is the time from the first request: {report.latency}"
    yield from _escalation(report, end)
    if not _left_inside(seen, items, outcome, report.stopped_at):
        yield from _place(items, outcome, report.stopped_at)


def _escalation(report: StopReport, end: float) -> Iterator[str]:
    if (report.result is StopResult.ESCALATED) != (report.escalated_by == "timeout"):
        yield f"ESCALATED means by the deadline: {report.result} by {report.escalated_by}"
    asked = [(cause.at, cause.asked) for cause in report.causes if cause.asked is not None]
    graces = [at + stop.grace for at, stop in asked if stop.grace is not None]
    if report.result is StopResult.ESCALATED and not any(end >= due - SLACK for due in graces):
        yield "ESCALATED only if a deadline has passed"
    cut = report.stopped_at in {Where.MODEL, Where.TOOLS}
    by_itself = any(stop.immediate or Point.STREAM in stop.points for _, stop in asked)
    if cut and not by_itself and report.result is not StopResult.ESCALATED:
        yield "what was cut though only points were asked for is ESCALATED"
    if report.escalated_by == "request" and not any(stop.immediate for _, stop in asked):
        yield "escalated by a request only if one asked for now"


def _left_inside(seen: Seen, items: Sequence[Item], outcome: Outcome, where: Where) -> bool:
    """Say whether the run stopped because one inside it had, at that place."""
    again = [item.call_id for item in items if isinstance(item, ToolEnded) and item.again]
    inside = [run_id for call_id in again for run_id in child_of(seen, outcome.run_id, call_id)]
    reports = [ends(seen)[run_id].cancelled for run_id in inside if run_id in ends(seen)]
    places = {report.stopped_at for report in reports if report is not None}
    not_begun = Where.BEFORE_START in places and where in {Where.POINT_STEP, Where.TOOLS}
    return where in places or not_begun  # the run itself had begun


def _place(items: Sequence[Item], outcome: Outcome, where: Where) -> Iterator[str]:
    """The place that the report names is where the items end."""
    went_on = isinstance(items[0], RunStarted) and items[0].checkpoint is not None
    asked = [place for place, item in enumerate(items) if isinstance(item, ModelStarted)]
    read = [place for place, item in enumerate(items) if _is_to_answer(item)]
    tail = items[asked[-1] :] if asked else items
    model = next((item for item in reversed(tail) if isinstance(item, ModelEnded)), None)
    tools = [item for item in tail if isinstance(item, ToolEnded)]
    ran = any(isinstance(item, ToolStarted) for item in tail)
    untouched = all(item.state is ResultState.NOT_STARTED for item in tools)
    match where:
        case Where.BEFORE_START:
            right = not asked and not ran
        case Where.MODEL:
            unread = items[read[-1] :] if read else items
            right = not any(isinstance(item, ModelEnded) and item.end == "complete" for item in unread)
        case Where.POINT_MODEL:
            right = model is not None and model.end == "complete" and not ran and bool(tools) and untouched
        case Where.TOOLS:
            right = bool(tools)
        case Where.POINT_TOOLS:
            right = bool(tools) and all(item.state is not ResultState.NOT_STARTED for item in tools)
        case Where.POINT_STEP:
            right = not asked  # what is asked in a workflow is its steps
        case Where.PAUSED:
            right = bool(outcome.interrupts)
    if not right and (asked or not went_on):
        yield f"the report names the place where the run stopped: it says {where}"


def _is_to_answer(item: Item) -> bool:
    if isinstance(item, Steered):
        return True
    if not isinstance(item, MessageAdded) or item.message.role == "assistant":
        return False
    states = {result.state for result in item.message.results}
    return states != {ResultState.NOT_STARTED}  # that one only seals the history
