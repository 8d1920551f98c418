"""The report of a stop: its result, and one report made of many."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andon.core.stop import GRAVITY, Abandoned, Cause, StopReport, StopResult, summarise, verdict
from tests.core.values import REPORTS


@pytest.mark.parametrize(
    ("stopped", "escalated_by", "result"),
    [
        (True, None, StopResult.STOPPED),
        (True, "request", StopResult.STOPPED),
        (True, "timeout", StopResult.ESCALATED),
        (False, None, StopResult.FINISHED_FIRST),
        (False, "timeout", StopResult.FINISHED_FIRST),
    ],
)
def test_only_a_deadline_that_passed_makes_it_escalated(
    stopped: bool,  # noqa: FBT001 - a table
    escalated_by: str | None,
    result: StopResult,
) -> None:
    """An escalation by request is a plain STOPPED; one that came too late is FINISHED_FIRST."""
    assert verdict(stopped=stopped, escalated_by=escalated_by) == result  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_the_cause_is_the_first_who_asked() -> None:
    """Later ones are in the causes."""
    first, second = Cause(id="a", at=1), Cause(id="b", at=2)
    assert StopReport(result=StopResult.STOPPED, causes=(first, second)).cause is first
    assert StopReport(result=StopResult.FINISHED_FIRST).cause is None


def test_a_summary_of_nothing_says_nothing_was_running() -> None:
    """There was nothing to stop."""
    assert summarise(()) == StopReport(result=StopResult.NOTHING_RUNNING)


@given(REPORTS)
def test_a_summary_of_one_is_that_one(report: StopReport) -> None:
    """With itself as its only part."""
    whole = summarise((report,))
    assert whole.reports == (report,)
    assert (whole.result, whole.causes, whole.run_id) == (report.result, report.causes, report.run_id)


@given(st.lists(REPORTS, min_size=2, max_size=4).map(tuple))
def test_a_summary_of_many_hides_nothing(reports: tuple[StopReport, ...]) -> None:
    """The gravest result, the longest latency, every cause and all that was abandoned."""
    whole = summarise(reports)
    assert GRAVITY.index(whole.result) == max(GRAVITY.index(report.result) for report in reports)
    assert whole.latency == max(report.latency for report in reports)
    assert {c.id for c in whole.causes} == {c.id for report in reports for c in report.causes}
    assert len(whole.abandoned) == sum(len(report.abandoned) for report in reports)
    assert whole.accepted == any(report.accepted for report in reports)
    assert whole.durable == all(report.durable for report in reports)
    assert whole.reports == reports


@given(REPORTS)
def test_a_report_goes_to_json_and_back(report: StopReport) -> None:
    """It is part of the HTTP answer."""
    assert msgspec.json.decode(msgspec.json.encode(report), type=StopReport) == report


def test_what_was_abandoned_is_named() -> None:
    """A tool by its name and call, a model by its name alone."""
    assert msgspec.to_builtins(Abandoned("model")) == {"name": "model"}
