"""Log: what holds of the items of one run, be it the root or a child, and of the history they make."""

from collections import Counter
from collections.abc import Iterator, Sequence

from andon.core.fold import State, fold
from andon.core.items import (
    Event,
    Item,
    MessageAdded,
    ModelStarted,
    RunStarted,
    Steered,
    StopRequested,
    ToolEnded,
    ToolStarted,
)
from andon.core.messages import Message, ResultState, Text
from andon.core.outcome import Outcome
from andon.core.repair import repair
from andon.core.stop import Point
from andon.testing.conversation import problems


def one_run(items: Sequence[Item], outcome: Outcome) -> Iterator[str]:
    """Name what does not hold of one run, be it the root or a child; items from inside have a path."""
    own = [item for item in items if not item.path]
    yield from _numbers(items)
    yield from _fold(items, outcome)
    yield from history(outcome.messages)
    yield from _messages(own, outcome)
    yield from _tools(own, outcome)
    yield from _heeded(own)


def _numbers(items: Sequence[Event]) -> Iterator[str]:
    numbers = [item.n for item in items if isinstance(item, Item)]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"items are numbered from 1 without a gap: {numbers}"


def _fold(items: Sequence[Event], outcome: Outcome) -> Iterator[str]:
    state = fold(items)
    if tuple(state.messages) != outcome.messages:
        yield "the fold over the items gives the outcome's messages: it gives others"
    if state.ended != outcome:
        yield "the fold over the items gives the outcome: it gives another"
    if state.spent() != outcome.usage:
        yield f"the fold over the items gives the usage: {state.spent()} is not {outcome.usage}"


def history(messages: Sequence[Message]) -> Iterator[str]:
    """Name what no provider would take of a history; the house's own rules come first."""
    if not messages or messages[0].role != "user":
        yield "the history begins with the user"
    if not messages or messages[-1].role != "assistant" or messages[-1].calls:
        yield "the history ends with words of the assistant"
    if repair(messages) != list(messages):
        yield "the history needs no repair"
    before: Message | None = None
    for place, message in enumerate(messages):
        yield from _turn(place, before, message)
        before = message
    yield from (f"providers take the history: {one}" for one in problems(messages))


def _turn(place: int, before: Message | None, message: Message) -> Iterator[str]:
    if message.role == "assistant" and before is not None and before.role == "assistant":
        yield f"no assistant after an assistant: message {place}"
    if not message.parts or any(isinstance(one, Text) and not one.text.strip() for one in message.parts):
        yield f"no blank text: message {place}"
    wanted = [call.id for call in before.calls] if before is not None else []
    given = [result.call_id for result in message.results]
    if wanted != given:
        yield f"each call has one result, in order: message {place} answers {given}, asked were {wanted}"


def _messages(own: Sequence[Item], outcome: Outcome) -> Iterator[str]:
    before = State().apply(own[0]).messages if own and isinstance(own[0], RunStarted) else []
    added = [item.message for item in own if isinstance(item, MessageAdded | Steered)]
    if outcome.messages != (*before, *added):
        yield "the messages of the events are those of the outcome, in that order, and no others"


def _tools(own: Sequence[Item], outcome: Outcome) -> Iterator[str]:
    started = Counter(item.call_id for item in own if isinstance(item, ToolStarted))
    ended = [item for item in own if isinstance(item, ToolEnded)]
    calls = [call for item in own if isinstance(item, MessageAdded) for call in item.message.calls]
    calls += State().apply(own[0]).pending if own else []  # a resumed run goes on with those
    if Counter(item.call_id for item in ended) != Counter(call.id for call in calls):
        yield "each call ends exactly once"
    if started and max(started.values()) > 1:
        yield "each tool starts at most once"
    for item in ended:
        if item.state is ResultState.COMPLETED and item.call_id not in started:
            yield f"a tool that is reported as {item.state} was started: {item.name}"
        if item.state is ResultState.UNKNOWN and not item.again and item.call_id not in started:
            yield f"a tool that is reported as {item.state} was started: {item.name}"
    told = {result.call_id: result for message in outcome.messages for result in message.results}
    for item in ended:
        result = told.get(item.call_id)
        if result is not None and (result.state, result.content) != (item.state, item.content):
            yield f"a result is never replaced: {item.name} was {item.state}, the history says {result.state}"


def _heeded(own: Sequence[Item]) -> Iterator[str]:
    """After a request nothing is begun that it forbids."""
    now = stream = model = tools = answered = collected = False
    for item in own:
        match item:
            case StopRequested(stop=stop):
                now = stop.immediate
                stream = now or Point.STREAM in stop.points
                model = model or Point.MODEL in stop.points
                tools = tools or Point.TOOLS in stop.points
            case MessageAdded(message=message):
                answered = answered or ((now or model or stream) and bool(message.calls))
                collected = collected or ((now or tools or stream) and message.role == "tool")
            case ModelStarted() if stream or collected:
                yield "no model is asked after a stop that forbids it"
            case ToolStarted() if now or answered:
                yield f"no tool is started after a stop that forbids it: {item.name}"
            case _:
                pass
