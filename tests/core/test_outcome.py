"""The outcome gives the last word, and goes to JSON and back."""

import msgspec
from hypothesis import given

from andon.core.messages import Message, Result
from andon.core.outcome import Outcome
from tests.core.values import OUTCOMES


@given(OUTCOMES)
def test_an_outcome_goes_to_json_and_back(outcome: Outcome) -> None:
    """With its report and its checkpoint."""
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome) == outcome


def test_the_message_is_the_assistants_last() -> None:
    """Not an earlier one, and not the user's."""
    outcome = Outcome(
        run_id="r",
        stop_reason="end_turn",
        messages=(
            Message.user("1"),
            Message.assistant("2"),
            Message("tool", (Result("c", "look", "3"),)),
            Message.assistant("4"),
            Message.user("5"),
        ),
    )
    assert outcome.message == Message.assistant("4")
    assert outcome.text == "4"
