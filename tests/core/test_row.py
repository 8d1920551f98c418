"""Rows: what the list of runs says is a projection of the journal, which goes through JSON."""

import pytest
from hypothesis import given

from andon.core.command import Key
from andon.core.fold import State
from andon.core.items import MessageAdded, ModelStarted, RunEnded, ToolStarted
from andon.core.live import Live, Queued
from andon.core.messages import Call, Message
from andon.core.outcome import Interrupt, Outcome
from andon.core.row import LIVE, PREVIEW, RUN_STATES, Row, row_of_ended, row_of_live, row_of_queued
from andon.core.stop import Stop, StopReport, StopResult
from tests.core.values import ROWS

KEY = Key("app", "user", "s")


@given(ROWS)
def test_a_row_comes_back_from_its_json_as_it_was(row: Row) -> None:
    """Any console may read it."""
    assert Row.from_json(row.to_json()) == row
    assert row.key == Key(row.app, row.user, row.session)


def test_a_run_is_live_until_it_has_ended() -> None:
    """Also while it waits, stops, or nobody dares to touch it."""
    assert set(RUN_STATES) - LIVE == {"finished", "cancelled", "interrupted", "limit", "failed"}
    for state in RUN_STATES:
        row = Row(run_id="r", app="a", user="u", session="s", state=state)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert row.is_live is (state in LIVE)


def test_a_run_that_waits_shows_what_it_is_asked() -> None:
    """Its beginning, with who asked and since when; one that goes on is asked nothing new."""
    queued = Queued(run_id="r", at=3.0, by="ada", message=Message.user("x" * 500))
    row = row_of_queued(KEY, queued, 7)
    assert (row.state, row.n, row.queued, row.by) == ("queued", 7, 3.0, "ada")
    assert row.prompt == "x" * PREVIEW
    assert row_of_queued(KEY, Queued(run_id="r", at=3.0), 7).prompt == ""


def test_a_run_that_waits_and_was_cancelled_is_stopping() -> None:
    """It has not ended before its end is in the journal."""
    assert row_of_queued(KEY, Queued(run_id="r", at=3.0, stop=Stop.now()), 7).state == "stopping"


def _live() -> Live:
    live = Live("r", State(), base=0, began=4.0)
    live.take_up(Queued(run_id="r", at=3.0, by="ada", message=Message.user("x" * 500)))
    return live


def test_a_live_run_shows_what_it_does() -> None:
    """The model, the tools that run, or that it ends."""
    live = _live()
    look, pay = Call("look", {}, "x"), Call("pay", {}, "y")
    live.state.apply(MessageAdded(message=Message.user("go"))).apply(ModelStarted(step=1))
    assert row_of_live(KEY, live, 7).step == "model"
    live.state.apply(MessageAdded(message=Message.assistant(look, pay)))
    assert row_of_live(KEY, live, 7).step == "tools"
    live.state.apply(ToolStarted(call_id="x", name="look")).apply(ToolStarted(call_id="y", name="pay"))
    row = row_of_live(KEY, live, 7)
    assert (row.step, row.prompt, row.queued, row.began) == ("look, pay", "x" * PREVIEW, 3.0, 4.0)
    assert (row.usage.model_calls, row.usage.tool_calls) == (1, 2)
    live.state.apply(MessageAdded(message=Message.assistant("done")))
    assert row_of_live(KEY, live, 7).step == "ending"


def test_a_live_run_is_running_stopping_or_in_quarantine() -> None:
    """A stop that was asked for is told at once, and never as cancelled before it is so."""
    live = _live()
    assert row_of_live(KEY, live, 7).state == "running"
    live.stop = Stop.now()
    assert row_of_live(KEY, live, 7).state == "stopping"
    assert row_of_live(KEY, live, 7, quarantined=True).state == "quarantined"


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("end_turn", "finished"),
        ("cancelled", "cancelled"),
        ("interrupt", "interrupted"),
        ("limit", "limit"),
        ("error", "failed"),
    ],
)
def test_a_run_that_has_ended_shows_how(reason: str, state: str) -> None:
    """With all that its outcome says but the messages."""
    report = StopReport(result=StopResult.STOPPED)
    outcome = Outcome(
        run_id="r",
        stop_reason=reason,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        cancelled=report,
        interrupts=(Interrupt("q"),),
        limit="cost",
        error="no",
    )
    row = row_of_ended(KEY, _live(), RunEnded(n=9, at=5.0, outcome=outcome))
    assert (row.state, row.n, row.ended, row.step) == (state, 9, 5.0, "")
    assert (row.cancelled, row.interrupts, row.limit, row.error) == (report, (Interrupt("q"),), "cost", "no")
