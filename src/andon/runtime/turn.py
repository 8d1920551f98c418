"""Turn: what is planned for one turn of a loop, what its callbacks see of it, and how a loop ended."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct, field

from andon.core.messages import Message
from andon.core.turns import Phase, Stage, State
from andon.errors import UserError
from andon.runtime.prompt import Prompt
from andon.runtime.run import Run

if TYPE_CHECKING:
    from andon.runtime.loop import TurnLoop

T = TypeVar("T")


class Turn(Struct, Generic[T], frozen=True):
    """What a turn is about: each item that was given is in exactly one of the three lists.

    `input` is what the agent is told: a prompt, or a conversation that ends with the user's. It may
    be left out when a turn is resumed, whose `answers` are those to its interrupts. What is
    `remaining` comes first in the next turn, and what is `dropped` is done with. In `context` the
    agent is prepared and run, and its events are watched.
    """

    input: Prompt | Sequence[Message] | None = None
    consumed: Sequence[T] = ()
    remaining: Sequence[T] = ()
    dropped: Sequence[T] = ()
    context: Context | None = None
    answers: Mapping[str, object] = {}


class Planning(Struct, Generic[T], frozen=True):
    """What is known when a turn is planned.

    `preempting` are those of its items that were pushed with a preempt, and `preempted` are the
    items of the turn before, if that was preempted.
    """

    loop: "TurnLoop[T]"
    turn: int
    preempting: Sequence[T] = ()
    preempted: Sequence[T] = ()


class TurnView(Generic[T]):
    """What `on_events` and push strategies see of a turn, while it lasts and afterwards.

    `run` is that of its agent, once it is active.
    """

    __slots__ = ("_last", "_look", "consumed", "items", "loop", "number", "run")

    def __init__(
        self, loop: "TurnLoop[T]", number: int, items: Sequence[T], look: Callable[[], State]
    ) -> None:
        self.loop = loop
        self.number = number
        self.items = tuple(items)
        self.consumed: tuple[T, ...] = ()
        self.run: Run | None = None
        self._look = look
        self._last: State | None = None

    @property
    def phase(self) -> Phase:
        """Whether it is being planned, or active."""
        return self._state.phase

    @property
    def preempted(self) -> bool:
        """Whether a preempt was submitted to it."""
        return self._state.preempted

    @property
    def stopped(self) -> bool:
        """Whether a stop of the loop cancels it."""
        return self._state.stopped

    @property
    def stop_requested(self) -> bool:
        """Whether the loop stops after it, or with it."""
        return self._state.stage is not Stage.OPEN

    @property
    def stop_cause(self) -> str:
        """The cause that was given for the stop of the loop."""
        return self._state.cause

    @property
    def _state(self) -> State:
        return self._look() if self._last is None else self._last

    def freeze(self, last: State) -> None:
        """Show from now on what was so when it ended."""
        self._last = last

    def __repr__(self) -> str:
        flags = [name for name in ("preempted", "stopped", "stop_requested") if getattr(self, name)]
        return f"<Turn {self.number} {self.phase}{''.join(f', {flag}' for flag in flags)}>"


class Exit(Struct, Generic[T], frozen=True, kw_only=True):
    """How a loop ended, and where each item that it did not handle is.

    `reason` is None for a clean end; else the `Cancelled` of a turn that a stop cut, the
    `Interrupted` of an agent that asks a human, the error of a callback or an agent, or the
    cancellation of the task that ran the loop. `unhandled` were never consumed, `interrupted` are
    those of the turn that a stop or an interrupt ended, `failed` those of turns that failed. What ends
    the program, or the run that the loop is in, is the reason, too, and passes whoever runs the loop.
    """

    reason: BaseException | None = None
    unhandled: Sequence[T] = ()
    interrupted: Sequence[T] = ()
    failed: Sequence[T] = ()
    stop_cause: str = ""
    checkpoint_attempted: bool = False
    checkpoint_error: BaseException | None = None
    late_items: Callable[[], Sequence[T]] = field(default=tuple)

    def late(self) -> Sequence[T]:
        """Give the items whose push came too late; from now on a push raises LoopClosedError."""
        return self.late_items()


def check_turn(turn: Turn[T] | None, items: Sequence[T], *, name: str) -> Turn[T]:
    """Hold a planned turn to its rule: it deals with each item once, and with no others."""
    if not isinstance(turn, Turn):
        msg = f"{name} returned {turn!r:.80}: return a Turn, with what is consumed, remaining or dropped"
        raise UserError(msg)
    left = _Left(items)
    foreign = [item for item in (*turn.consumed, *turn.remaining, *turn.dropped) if not left.take(item)]
    if foreign:
        msg = f"{name} returned items that it was not given, or twice: {foreign!r:.200}"
        raise UserError(msg)
    forgotten = left.rest()
    if forgotten:
        msg = (
            f"{name} left items out: {forgotten!r:.200}; name them in consumed, remaining or dropped, "
            "so that none is lost in silence"
        )
        raise UserError(msg)
    if items and not turn.consumed and not turn.dropped:
        msg = f"{name} consumed and dropped nothing of {len(items)} items, and would be asked for ever"
        raise UserError(msg)
    return turn


class _Left(Generic[T]):
    """The items still to be dealt with: the same object is found at once, an equal one by looking."""

    def __init__(self, items: Sequence[T]) -> None:
        self._by_id: dict[int, list[T]] = {}
        for item in items:
            self._by_id.setdefault(id(item), []).append(item)

    def take(self, item: T) -> bool:
        same = self._by_id.get(id(item))
        if same is None:
            same = next((group for group in self._by_id.values() if group[0] == item), None)
        if same is None:
            return False
        gone = same.pop()
        if not same:
            del self._by_id[id(gone)]
        return True

    def rest(self) -> list[T]:
        return [item for group in self._by_id.values() for item in group]
