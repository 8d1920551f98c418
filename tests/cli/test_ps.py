"""What the list of runs says, in few characters."""

import pytest
from msgspec.structs import replace

from andon.cli.answer import read
from andon.cli.ps import age, amount, cells
from andon.cli.sessions import state
from andon.cli.table import print_table
from andon.client.shape import Session
from andon.core.limits import Usage
from andon.core.outcome import Interrupt
from andon.core.row import Row
from andon.core.stop import Cause, StopReport, StopResult
from andon.errors import UserError

ROW = Row(
    run_id="0123456789abcdef",
    app="trips",
    user="ann",
    session="s1",
    state="running",
    queued=99.0,
    began=100.0,
    step="search",
    usage=Usage(input_tokens=9_000, output_tokens=3_000, cost=0.0123),
)
STOPPED = StopReport(result=StopResult.STOPPED, causes=(Cause("user", "ann", "enough"),))


def test_a_row_tells_state_run_session_age_and_what_was_spent() -> None:
    """And the step, or how it ended."""
    assert cells(ROW, 165.0) == (
        "running",
        "0123456789ab",
        "trips/ann/s1",
        "1m05s",
        "12k",
        "$0.0123",
        "search",
    )
    ended = replace(ROW, state="cancelled", ended=101.5, step="", cancelled=STOPPED)
    assert cells(ended, 999.0)[3::3] == ("1s", "by ann: enough")
    asks = replace(ROW, state="interrupted", step="", interrupts=(Interrupt("q", "sure?"),))
    assert cells(asks, 165.0)[-1] == "asks: sure?"
    assert cells(replace(ROW, state="failed", step="", error="ModelError: x"), 165.0)[-1] == "ModelError: x"
    assert cells(replace(ROW, state="queued", step=""), 100.0)[3] == "1s waiting"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-1, "0s"), (59.9, "59s"), (60, "1m00s"), (3_600, "1h00m"), (90_000, "1d01h"), (864_000, "10d00h")],
)
def test_an_age_has_two_units(seconds: float, told: str) -> None:
    """A clock of elsewhere may be ahead."""
    assert age(seconds) == told


def test_an_amount_is_short() -> None:
    """Exact where that is short."""
    assert [amount(9_999), amount(10_000), amount(1_500_000)] == ["9999", "10k", "1.5M"]


def test_a_table_is_aligned_and_bears_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What a tool is called does not steer the terminal."""
    print_table(("A", "BB"), [("long", "x"), ("s", "\x1b]0;owned\x07two\nlines")], "")

    assert capsys.readouterr().out == "A     BB\nlong  x\ns     ]0;ownedtwo lines\n"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"quarantined": "died"}, "quarantined"),
        ({"closed": True, "held": True}, "stopped"),
        ({"held": True}, "paused"),
        ({"live_run_id": "r"}, "running"),
        ({"interrupts": (Interrupt("q"),)}, "asks"),
        ({}, "idle"),
    ],
)
def test_a_session_is_told_in_a_word(fields: dict[str, object], said: str) -> None:
    """What keeps it from going on comes first."""
    session = replace(Session(id="s", app_name="a", user_id="u"), **fields)

    assert state(session) == said


def test_answers_find_their_questions() -> None:
    """One needs no id; what is JSON is given as that."""
    one, two = (Interrupt("q1", "sure?"),), (Interrupt("q1", "sure?"), Interrupt("q2", "how many?"))

    assert read(["yes"], one) == {"q1": "yes"}
    assert read(["a=b"], one) == {"q1": "a=b"}
    assert read(["q1=true"], one) == {"q1": True}
    assert read(["q1=no", "q2=3"], two) == {"q1": "no", "q2": 3}
    for given, questions in (([], one), (["yes"], two), (["q3=1"], two)):
        with pytest.raises(UserError, match=r"(?s)q1: sure\?"):
            read(given, questions)
