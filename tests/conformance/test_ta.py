"""TA: items that come too late."""

import pytest

from andon.core.parked import unpark
from andon.errors import LoopClosedError
from andon.runtime.turn import Exit
from andon.testing import virtual
from tests.belt import Belt
from tests.stores import MemoryStore

LATE = ("late1", "late2", "late3")


async def ended(belt: Belt) -> Exit[str]:
    """Stop a loop with one item that waits, then push three."""
    belt.loop.push("early")
    belt.loop.stop()
    exit_ = await belt.loop.run()
    receipts = [belt.loop.push(item) for item in LATE]
    assert [receipt.accepted for receipt in receipts] == [False, False, False]
    assert repr(receipts[0]) == "<Receipt too late>"
    return exit_


@virtual
async def test_ta_01_late_items_are_given_and_are_in_no_checkpoint() -> None:
    """What was accepted in time is in it."""
    store = MemoryStore()
    exit_ = await ended(Belt(store=store, checkpoint_id="id"))
    assert exit_.late() == LATE
    parked = unpark(store.data["id"])
    assert [bytes(item) for item in parked.unhandled] == [b'"early"']
    assert b"late" not in store.data["id"]


@virtual
async def test_ta_02_asked_again_they_are_the_same() -> None:
    """And what comes after that goes nowhere, with an error that says so."""
    belt = Belt()
    exit_ = await ended(belt)
    assert exit_.late() == exit_.late() == LATE
    with pytest.raises(LoopClosedError, match="its late items were taken: 'more' goes nowhere"):
        belt.loop.push("more")
    assert exit_.late() == LATE


@virtual
async def test_ta_04_whether_they_are_asked_for_changes_nothing_else() -> None:
    """Neither what is unhandled nor the reason."""
    asked, unasked = await ended(Belt()), await ended(Belt())
    asked.late()
    assert (asked.reason, asked.unhandled) == (unasked.reason, unasked.unhandled) == (None, ("early",))
