"""Invariants: what holds after every run, wherever and however it was stopped."""

from collections.abc import Iterator, Sequence

from andon.core.items import (
    Event,
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    ReasoningDelta,
    RunEnded,
    Steered,
    StopRequested,
    TextDelta,
    ToolEnded,
    ToolStarted,
    from_json,
    to_json,
)
from andon.core.messages import Message, ResultState
from andon.core.outcome import Outcome
from andon.runtime.carrier import STEERED
from andon.testing.family import family
from andon.testing.log import history, one_run
from andon.testing.reports import told
from andon.testing.trial import NEXT_ANSWER, SAID, Seen


def broken(seen: Seen) -> Iterator[str]:
    """Name each invariant that does not hold, and what was seen instead."""
    if seen.hung:
        yield f"the run never ended: {seen.hung}"
        return
    outcome = seen.outcome
    if outcome is None:
        yield "the run has no outcome"
        return
    items = [event for event in seen.events if isinstance(event, Item)]
    own = [event for event in seen.events if not event.path]
    yield from _one_end(seen, outcome)
    yield from one_run(items, outcome)
    yield from _round_trip(seen.events)
    yield from _answers(seen, own)
    yield from _tally(seen)
    yield from _tickets(seen, outcome)
    yield from told(seen, [event for event in own if isinstance(event, Item)], outcome)
    yield from _chunks(seen)
    yield from _promptness(seen)
    yield from _steered(seen, outcome)
    yield from _nothing_left(seen)
    yield from _next_run(seen, outcome)
    yield from family(seen, outcome)


def _one_end(seen: Seen, outcome: Outcome) -> Iterator[str]:
    ends = [event for event in seen.events if isinstance(event, RunEnded)]
    if len(ends) != 1:
        yield f"one terminal event: there are {len(ends)}"
    elif seen.events[-1] is not ends[0]:
        yield f"the terminal event is last: after it came {type(seen.events[-1]).__name__}"
    if any(other != outcome for other in [*seen.outcomes, *(end.outcome for end in ends)]):
        yield "one outcome: two of them differ"


def _round_trip(events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        back = from_json(to_json(event))
        if back != event:
            yield f"JSON gives an event back: {event!r:.200} became {back!r:.200}"


def _answers(seen: Seen, own: Sequence[Event]) -> Iterator[str]:
    """What the model has said is in the history, to the last word that readers saw."""
    words, thoughts, ended = "", "", False
    for event in own:
        match event:
            case ModelStarted():
                words, thoughts, ended = "", "", False
            case TextDelta(text):
                words += text
            case ReasoningDelta(text):
                thoughts += text
            case ModelEnded():
                ended = True
            case MessageAdded(message=message) if ended and message.role == "assistant":
                if words.strip() and message.text != words:
                    yield f"what the model said is kept: {words!r:.80} became {message.text!r:.80}"
                if message.reasoning != thoughts:
                    yield f"reasoning is kept: {thoughts!r:.80} became {message.reasoning!r:.80}"
                if message.cut and not words.strip() and message.text != seen.cancel_text:
                    yield from _note(seen, message)
                ended = False
            case _:
                pass


def _note(seen: Seen, message: Message) -> Iterator[str]:
    steered = seen.mode.steer is not None and message.text == STEERED
    if seen.outcome is not None and seen.outcome.stop_reason == "cancelled" and not steered:
        yield f"where no words had come, the history says {seen.cancel_text!r}: it says {message.text!r}"


def _tally(seen: Seen) -> Iterator[str]:
    """What a tool did is what is reported of it; one that was abandoned may end unseen."""
    tally, left = seen.scene.tally, seen.abandoned
    own = [item for items in seen.family.values() for item in items if not item.path]
    started = {item.call_id for item in own if isinstance(item, ToolStarted)}
    ended = [item for item in own if isinstance(item, ToolEnded) and item.call_id in started]
    for name, begun in tally.begun.items():
        states = [item.state for item in ended if item.name == name]
        ran = len(states) - states.count(ResultState.NOT_STARTED)
        completed = states.count(ResultState.COMPLETED)
        late = sum(one.name == name for one in left)
        asks = sum(
            item.name == name and item.again for item in ended
        )  # it may not have got further than that
        if not ran - late - asks <= begun <= ran:
            yield f"what has begun is told: {name} began {begun} times, and {ran} are reported"
        if not completed <= tally.ended[name] <= completed + late:
            yield f"finished work is kept: {name} ended {tally.ended[name]} times, {completed} are reported"
    unknown = {item.call_id for item in ended if item.state is ResultState.UNKNOWN}
    if any(one.call_id and one.call_id not in unknown for one in left if not one.path):
        yield "what was abandoned is unknown"


def _chunks(seen: Seen) -> Iterator[str]:
    """A stop that cuts lets each model make one more chunk at most."""
    now = any(isinstance(one, StopRequested) and one.stop.immediate and not one.path for one in seen.events)
    if seen.made_at_stop is None or not (now or len(seen.family) == 1):
        return
    models = 1 if len(seen.family) == 1 else len(seen.scene.models)
    if seen.made - seen.made_at_stop > models:
        yield f"at most one chunk is made after a stop: {seen.made - seen.made_at_stop} were"


def _steered(seen: Seen, outcome: Outcome) -> Iterator[str]:
    """What was said to a run is heard once if the receipt says so, and else never."""
    if seen.receipt is None:
        return
    told = seen.receipt.delivery
    if told is None:
        yield "every receipt of a steer resolves: it did not"
        return
    heard = sum(
        isinstance(item, Steered) and not item.path for items in seen.family.values() for item in items
    )
    if heard != told.delivered:
        yield f"what is said is heard once: the receipt says {told.delivered}, it was heard {heard} times"
    if told.delivered and seen.outcome is outcome and heard == 1:
        yield from _heard(seen, outcome)


def _heard(seen: Seen, outcome: Outcome) -> Iterator[str]:
    own = any(isinstance(event, Steered) and event.above >= len(event.path) for event in seen.events)
    read = sum(message.role == "user" and message.text == SAID for message in outcome.messages)
    if read != own:
        yield f"what is said to a run is in its own history, once: it is there {read} times"


def _tickets(seen: Seen, outcome: Outcome) -> Iterator[str]:
    if seen.open_tickets:
        yield f"every ticket resolves: {', '.join(seen.open_tickets)} did not"
    if any(report != seen.reports[0] for report in seen.reports):
        yield "every ticket resolves with the same report"
    if seen.reports and outcome.cancelled is not None and seen.reports[0] != outcome.cancelled:
        yield "the ticket's report is the outcome's"
    for name, ticket in seen.tickets.items():
        asked = any(cause.reason == name for report in seen.reports[:1] for cause in report.causes)
        if ticket.accepted is not asked:
            yield f"accepted is told truly: {name} is {ticket.accepted}, its cause is there: {asked}"
    if seen.task_told and not seen.task_cancelled:
        yield "a cancellation of the task propagates: it was swallowed"


def _promptness(seen: Seen) -> Iterator[str]:
    for items in seen.family.values():
        own = [item for item in items if not item.path]
        asked = next((one.at for one in own if isinstance(one, StopRequested) and one.stop.immediate), None)
        ended = next((one.at for one in own if isinstance(one, RunEnded)), None)
        if asked is not None and ended is not None and ended - asked > seen.scene.within:
            yield f"a stop now ends the run within {seen.scene.within:g} s: it took {ended - asked:.3f}"


def _nothing_left(seen: Seen) -> Iterator[str]:
    yield from (f"nothing is left running: {one}" for one in seen.left)
    yield from (f"nothing fails unseen: {one}" for one in seen.loop_errors)
    stuck = sum(not one.call_id for one in seen.abandoned)
    if seen.open_at_end > stuck:
        yield f"the model is closed before the run has ended: {seen.open_at_end} were open"
    if not seen.nothing_running:
        yield "a run that has ended is no longer live"


def _next_run(seen: Seen, outcome: Outcome) -> Iterator[str]:
    after = seen.next_outcome
    if isinstance(after, str):
        yield f"the next run works: {after}"
        return
    if after.stop_reason != "end_turn" or NEXT_ANSWER not in after.text:
        yield f"the next run works: it ended as {after.stop_reason} ({after.error or after.text!r})"
    if after.messages[: len(outcome.messages)] != outcome.messages:
        yield "the next run goes on from the same history"
    yield from (f"after the next run: {one}" for one in history(after.messages))
