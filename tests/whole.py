"""What every run keeps, however it ends: the invariants of items, history and outcome."""

from collections.abc import Iterable, Sequence

from andon import Message, Outcome, Run
from andon.core.items import Event, Item, MessageAdded, RunEnded, RunStarted, Steered
from andon.core.messages import Call, Text


async def whole(run: Run) -> Outcome:
    """Wait for the end of a run, and hold it to what all ends have in common."""
    outcome = await run.outcome()
    events = [event async for event in run.events()]
    check(events, outcome)
    return outcome


def check(events: Sequence[Event], outcome: Outcome) -> None:
    """One terminal event, the last; items numbered without a gap; a history that can be sent."""
    assert events[-1] == RunEnded(n=len(only_items(events)), at=only_items(events)[-1].at, outcome=outcome)
    assert sum(isinstance(event, RunEnded) for event in events) == 1
    assert [item.n for item in only_items(events)] == list(range(1, len(only_items(events)) + 1))
    first = events[0]
    assert isinstance(first, RunStarted)
    joined = [event for event in events if isinstance(event, MessageAdded | Steered) and not event.path]
    added = tuple(event.message for event in joined)
    assert outcome.messages[len(outcome.messages) - len(added) :] == added
    assert complaints(outcome.messages) == []
    assert outcome.message.role == "assistant"


def only_items(events: Iterable[Event]) -> list[Item]:
    """The items among events."""
    return [event for event in events if isinstance(event, Item)]


def complaints(history: Iterable[Message]) -> list[str]:
    """Say what a provider would refuse in a history."""
    found: list[str] = []
    open_calls: tuple[Call, ...] = ()
    for message in history:
        if not message.parts or any(isinstance(p, Text) and not p.text.strip() for p in message.parts):
            found.append(f"empty: {message}")
        if message.role == "tool":
            ids = [result.call_id for result in message.results]
            if not open_calls or ids != [call.id for call in open_calls]:
                found.append(f"results {ids} answer {open_calls}")
            open_calls = ()
            continue
        if open_calls:
            found.append(f"open: {open_calls}")
        open_calls = message.calls if message.role == "assistant" else ()
    return [*found, *(f"open: {call}" for call in open_calls)]
