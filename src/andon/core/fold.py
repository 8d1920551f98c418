"""Fold: the state of a run is what its items add up to, and nothing else.

    start ──► ASK ──► (answer) ──► FINISH
               ▲          │
               │          ▼ with calls
            COLLECT ◄── USE

Running, resuming, replaying and looking at a run all fold the same items.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Self, TypeVar, cast

from msgspec.structs import replace

from andon.core.checkpoint import VERSION, Asked, Checkpoint
from andon.core.items import (
    Answered,
    Event,
    Interrupted,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    RunEnded,
    RunStarted,
    Steered,
    StopRequested,
    ToolEnded,
    ToolStarted,
)
from andon.core.limits import NOTHING, Usage
from andon.core.messages import Call, Message, Result, ResultState, size
from andon.core.outcome import Outcome
from andon.core.repair import repair, unknown
from andon.core.stop import Stop
from andon.core.tree import answered, answered_inside, before_tool_site, tool_site, with_shared

NO_IDS: frozenset[str] = frozenset()


class Next(Enum):
    """What a run does next."""

    ASK = "ask the model"
    USE = "run the open calls"
    COLLECT = "put the results of the round in the history"
    FINISH = "nothing: the last word is a final answer"
    ENDED = "nothing: the run is over"


class State:
    """What a run's items add up to; `apply` is the only way it changes."""

    __slots__ = (
        "_sized",
        "_sized_to",
        "again",
        "asked",
        "call_ids",
        "calls",
        "child_calls",
        "ended",
        "failing",
        "heard",
        "messages",
        "results",
        "run_id",
        "started",
        "steps",
        "stop",
        "tool_calls",
        "usage",
    )

    def __init__(self) -> None:
        self.run_id = ""
        self.messages: list[Message] = []
        self.call_ids: AbstractSet[str] = NO_IDS
        self.calls: tuple[Call, ...] = ()
        self.results: dict[str, Result] = {}
        self.started: set[str] = set()
        self.steps = 0
        self.child_calls = 0
        self.tool_calls = 0
        self.usage = NOTHING
        self.again: dict[str, tuple[Checkpoint, ...]] = {}
        self.asked: tuple[Asked, ...] = ()
        self.failing: tuple[Call, int] | None = None
        self.heard: tuple[Message, ...] = ()
        self.stop: Stop | None = None
        self.ended: Outcome | None = None
        self._sized = 0
        self._sized_to = 0

    def apply(self, event: Event) -> Self:
        """Take one event in; deltas change nothing."""
        # The history of a child run is its own; what it spends is spent by its parent, too.
        effect = (_OF_A_CHILD if event.path else _EFFECTS).get(type(event))
        if effect is not None:
            effect(self, event)
        return self

    @property
    def pending(self) -> list[Call]:
        """The calls of the open round that have not ended, in order."""
        return [call for call in self.calls if call.id not in self.results]

    @property
    def new_calls(self) -> int | None:
        """How many calls of the open round will begin for the first time; None if no round is open."""
        return sum(not self.begun(call.id) for call in self.pending) if self.calls else None

    @property
    def next(self) -> Next:
        """What comes next."""
        if self.ended is not None:
            return Next.ENDED
        if self.calls:
            return Next.COLLECT if len(self.results) == len(self.calls) else Next.USE
        if self.messages and self.messages[-1].role == "assistant":
            return Next.FINISH
        return Next.ASK

    def begun(self, call_id: str) -> bool:
        """Say whether a call that is still open had begun before the run was resumed."""
        return call_id in self.again

    def goes_on(self, call_id: str) -> bool:
        """Say whether a call that will be made again has begun: one that waits before its start has not."""
        ended = self.results.get(call_id)
        return ended is None or ended.state is not ResultState.NOT_STARTED

    def characters(self) -> int:
        """Count the characters of the history; what was counted once is not counted again."""
        for message in self.messages[self._sized_to :]:
            self._sized += size(message)
        self._sized_to = len(self.messages)
        return self._sized

    def repeats(self, call: Call, state: ResultState) -> int:
        """Count how often this very call has failed in a row, this time included."""
        if state is not ResultState.FAILED:
            return 0
        last, times = self.failing or (call, 0)
        return times + 1 if (last.name, last.arguments) == (call.name, call.arguments) else 1

    @property
    def repeated(self) -> int:
        """How often in a row the call that failed last has failed."""
        return 0 if self.failing is None else self.failing[1]

    def spent(self) -> Usage:
        """The usage so far, with the number of calls."""
        calls = self.steps + self.child_calls
        return replace(self.usage, model_calls=calls, tool_calls=self.tool_calls)


def fold(events: Iterable[Event]) -> State:
    """Add events up from the beginning."""
    state = State()
    for event in events:
        state.apply(event)
    return state


def going_on(item: RunStarted, messages: list[Message]) -> State:
    """Begin a run of a session: it goes on with the session's own list of messages, which is not copied.

    A run that is resumed begins with the history of its checkpoint, which shares what it can with that list.
    Only who asks models needs the ids of all calls so far, which are not gathered here.
    """
    state = State()
    state.run_id = item.run_id
    if item.checkpoint is None:
        state.messages = messages
    else:
        _restore(state, with_shared(item.checkpoint, messages))
    return state


def checkpoint(state: State, agent: str, model: str = "", tools: Iterable[str] = ()) -> Checkpoint:
    """Write down what a run that ended before its answer goes on from."""
    messages = state.messages
    partial = None
    while messages and messages[-1].role == "assistant" and (messages[-1].synthetic or messages[-1].cut):
        partial = messages[-1] if messages[-1].cut and not messages[-1].synthetic else partial
        messages = messages[:-1]
    # A call that was never started is simply still to do; one that is unknown is not.
    lost = [unknown(call) for call in state.pending if call.id in state.started]
    results = tuple(
        result
        for result in (*state.results.values(), *lost)
        if result.state is not ResultState.NOT_STARTED and result.call_id not in state.again
    )
    return Checkpoint(
        version=VERSION,
        run_id=state.run_id,
        agent=agent,
        model=model,
        tools=tuple(tools),
        messages=tuple(messages),
        results=results,
        steps=state.steps,
        usage=state.spent(),
        children={call_id: inside for call_id, inside in state.again.items() if state.goes_on(call_id)},
        asked=state.asked,
        partial=partial,
        heard=state.heard,
    )


def _begin(state: State, item: RunStarted) -> None:
    state.run_id = item.run_id
    if item.checkpoint is None:
        state.messages = repair(item.history)
    else:
        _restore(state, item.checkpoint)
    for message in state.messages:
        _note_ids(state, message.calls)


def _restore(state: State, given: Checkpoint) -> None:
    state.messages = list(given.messages)
    state.steps = given.steps
    state.child_calls = given.usage.model_calls - given.steps
    state.tool_calls = given.usage.tool_calls
    state.usage = replace(given.usage, model_calls=0, tool_calls=0)
    last = state.messages[-1] if state.messages else None
    if last is not None and last.role == "assistant":
        state.calls = last.calls
        state.results = {result.call_id: result for result in given.results}
        state.heard = given.heard
    state.again = dict(given.children)
    state.asked = given.asked


def _hear(state: State, item: Steered) -> None:
    state.messages.append(item.message)  # what was asked and answered before this step stays


def _overhear(state: State, item: Steered) -> None:
    if item.above >= len(item.path):  # said to this run: it is told of it where the round ends
        state.heard = (*state.heard, item.message)


def _add(state: State, item: MessageAdded) -> None:
    message = item.message
    state.messages.append(message)
    if message.role == "assistant":
        state.calls = message.calls
        if state.calls:
            _note_ids(state, state.calls)
    elif message.role == "tool":
        state.calls = ()
        state.results = {}
        state.started.clear()
        state.heard = ()
    if state.again or state.asked:  # they belonged to the step that has just ended
        state.again = {}
        state.asked = ()


def _note_ids(state: State, calls: Iterable[Call]) -> None:
    # A run without calls keeps no set: it would cost every run more than all the rest of this.
    known: set[str] = state.call_ids if isinstance(state.call_ids, set) else set()
    known.update([call.id for call in calls])
    state.call_ids = known


def _ask(state: State, item: ModelStarted) -> None:
    state.steps = item.step


def _spend(state: State, item: ModelEnded) -> None:
    if item.usage is not NOTHING:
        state.usage += item.usage


def _use(state: State, item: ToolStarted) -> None:
    state.tool_calls += not (item.step or item.again)
    if not item.path:
        state.started.add(item.call_id)


def _result(state: State, item: ToolEnded) -> None:
    if item.state is ResultState.COMPLETED or item.state is ResultState.FAILED:
        failed = [call for call in state.calls if call.id == item.call_id] if item.repeats else ()
        state.failing = (failed[0], item.repeats) if failed else None
    state.results[item.call_id] = Result(item.call_id, item.name, item.content, item.state)
    if item.again:
        state.again[item.call_id] = item.children
    elif state.again or state.asked:
        state.again.pop(item.call_id, None)
        done = (tool_site(item.call_id), before_tool_site(item.call_id))
        state.asked = tuple(asked for asked in state.asked if asked.site not in done)


def _wait_for_answer(state: State, item: Interrupted) -> None:
    others = (asked for asked in state.asked if (asked.site, asked.k) != (item.site, item.k))
    state.asked = (*others, Asked(item.id, item.site, item.k, item.payload))


def _take_answer(state: State, item: Answered) -> None:
    state.asked = answered(state.asked, item.id, item.answer)
    state.again = answered_inside(state.again, item.id, item.answer)


def _count_child_call(state: State, item: ModelStarted) -> None:
    state.child_calls += item.attempt == 1


def _stop(state: State, item: StopRequested) -> None:
    state.stop = item.stop if state.stop is None else state.stop.join(item.stop)


def _end(state: State, item: RunEnded) -> None:
    state.ended = item.outcome


E = TypeVar("E", bound=Event)


def _effect(
    kind: type[E], effect: Callable[[State, E], None]
) -> tuple[type[Event], Callable[[State, Event], None]]:
    return kind, cast("Callable[[State, Event], None]", effect)


# A table and not a `match`: this is on the way of every item, and a look-up is several times as fast.
_EFFECTS = dict(
    (
        _effect(RunStarted, _begin),
        _effect(MessageAdded, _add),
        _effect(Steered, _hear),
        _effect(ModelStarted, _ask),
        _effect(ModelEnded, _spend),
        _effect(ToolStarted, _use),
        _effect(ToolEnded, _result),
        _effect(Interrupted, _wait_for_answer),
        _effect(Answered, _take_answer),
        _effect(StopRequested, _stop),
        _effect(RunEnded, _end),
    )
)
_OF_A_CHILD = dict(
    (
        _effect(ModelStarted, _count_child_call),
        _effect(ModelEnded, _spend),
        _effect(ToolStarted, _use),
        _effect(Steered, _overhear),
    )
)
