"""What every steered run keeps: each message is in the history once, as it was told, or told undelivered."""

from collections.abc import Sequence
from itertools import pairwise

from andon import Outcome, Run
from andon.core.items import Steered
from andon.runtime.steering import SteerReceipt
from andon.testing.conversation import problems
from tests.whole import whole


async def steered(run: Run, receipts: Sequence[SteerReceipt] = ()) -> Outcome:
    """Wait for the end of a run, and hold it and the receipts of all that was said to it."""
    outcome = await whole(run)
    assert problems(outcome.messages) == []
    roles = [message.role for message in outcome.messages]
    assert ("assistant", "assistant") not in pairwise(roles)
    heard = [event async for event in run.events() if isinstance(event, Steered) and not event.path]
    told = {receipt.id: receipt.delivery for receipt in receipts}
    assert len(told) == len(receipts)
    assert None not in told.values()
    assert [(item.id, item.at, item.n) for item in heard] == sorted(
        ((name, to.at, to.n) for name, to in told.items() if to is not None and to.delivered),
        key=lambda one: one[2] or 0,
    )
    assert all(to.at is to.n is None for to in told.values() if to is not None and not to.delivered)
    messages = list(outcome.messages)
    assert all(sum(one is item.message for one in messages) == 1 for item in heard)
    return outcome


def said(outcome: Outcome) -> list[str]:
    """Give the words of a history, one line a message."""
    return [f"{message.role}: {message.text}" for message in outcome.messages if message.text]
