"""Desk: the state of one turn loop and what waits for it, behind one lock for all threads."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import count
from reprlib import repr as shown
from threading import RLock
from typing import Generic, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from andon.core import turns
from andon.core.buffer import Buffer
from andon.core.stop import Stop
from andon.core.turns import (
    Answer,
    Bound,
    CancelTurn,
    CloseBuffer,
    Preempt,
    PreemptResult,
    State,
    Step,
    TurnEnd,
    Wait,
)
from andon.errors import LoopClosedError, RunStateError
from andon.runtime.bell import Bell
from andon.runtime.isolate import Timer
from andon.runtime.later import Later
from andon.runtime.receipt import Receipt
from andon.runtime.run import Run
from andon.runtime.turn import TurnView

T = TypeVar("T")


class Entry(Struct, Generic[T], frozen=True):
    """An item, and whether it was pushed with a preempt."""

    item: T
    preempting: bool = False


class Seen(Struct, Generic[T], frozen=True):
    """What a push finds: the number of the turn, 0 for none, the turn and the phase."""

    number: int
    turn: TurnView[T] | None
    phase: turns.Phase


class Desk(Generic[T]):
    """Takes in what any thread asks, and performs what `core.turns` decides of it.

    The lock is for other threads. A signal handler may come in while this very thread holds it, so
    that each step must leave all in order.
    """

    __slots__ = (
        "_answers",
        "_delays",
        "_lock",
        "_numbers",
        "_pushing",
        "_sealed",
        "bell",
        "buffer",
        "clock",
        "given_up",
        "idle_asked",
        "now",
        "on_loop",
        "run",
        "state",
        "view",
    )

    def __init__(self) -> None:
        self._lock = RLock()
        self._numbers = count(1)
        self._answers: dict[int, Later[PreemptResult]] = {}
        self._delays: dict[int, Timer] = {}
        self._pushing = 0
        self._sealed = False
        self.state = State()
        self.buffer: Buffer[Entry[T]] = Buffer()
        self.bell = Bell()
        self.given_up = False
        self.idle_asked = 0.0
        self.clock: Callable[[], float] | None = None
        self.run: Run | None = None
        self.view: TurnView[T] | None = None
        self.now: Callable[[], float] = time.time
        self.on_loop: Callable[[Callable[[], None]], None] | None = None

    def check_new(self) -> None:
        """Refuse to run twice, or what was closed."""
        if self.state.phase is not turns.Phase.NEW:
            msg = f"the loop is {self.state.phase}: it runs once; make another"
            raise RunStateError(msg)

    def begin(
        self,
        now: Callable[[], float],
        clock: Callable[[], float],
        on_loop: Callable[[Callable[[], None]], None],
    ) -> None:
        """Bind to the event loop that runs this."""
        with self._lock:
            self.check_new()
            self.now, self.clock, self.on_loop = now, clock, on_loop
            self._do(turns.begun)

    @property
    def is_pushing(self) -> bool:
        """Whether a push is deciding in this moment."""
        return self._pushing > 0

    def restore(self, entries: list[Entry[T]]) -> None:
        """Put what was kept before all that was pushed."""
        with self._lock:
            self.buffer.push_front(entries)

    def waiting(self) -> list[T]:
        """Give what waits, without taking it."""
        with self._lock:
            entries = self.buffer.take_all()
            self.buffer.push_front(entries)
            return [entry.item for entry in entries]

    @contextmanager
    def pushing(self) -> Generator[Seen[T]]:
        """Hold the next turn back while a push decides; gives what it sees, all of one moment."""
        with self._lock:
            self._pushing += 1
            seen = Seen(self._seen(), self.view, self.state.phase)
        try:
            yield seen
        finally:
            with self._lock:
                self._pushing -= 1
            self.bell.ring()

    def push(self, item: T, preempt: Preempt | None, seen: int | None = None) -> Receipt:
        """Take an item, or refuse it, and bind its preempt to the turn that was seen."""
        with self._lock:
            if self._sealed:
                msg = f"the loop has ended and its late items were taken: {shown(item)} goes nowhere"
                raise LoopClosedError(msg)
            accepted = self.buffer.push(Entry(item, preempt is not None))
            receipt = Receipt(accepted=accepted, preempt=None if preempt is None else Later())
            if preempt is not None and receipt.preempt is not None:
                self._bind(preempt, receipt.preempt, self._seen() if seen is None else seen)
        self.bell.ring()
        return receipt

    @property
    def busy(self) -> bool:
        """Whether there is a turn, or something that waits for one."""
        with self._lock:
            return self.state.has_turn or len(self.buffer) > 0

    def push_unless_busy(self, item: T) -> Receipt:
        """Take an item only if it is the next to have a turn, at once."""
        with self._lock:
            return Receipt(accepted=False) if self.busy else self.push(item, None)

    def give_back(self, item: T) -> None:
        """Let an item wait that was accepted before, behind the others: a stop does not refuse it."""
        with self._lock:
            if self.state.phase is turns.Phase.CLOSED:
                self.buffer.push(Entry(item))
            else:
                self.buffer.push_front([*self.buffer.take_all(), Entry(item)])
        self.bell.ring()

    def stop(
        self, asked: Stop | None, *, idle: float | None = None, cause: str = "", skip_checkpoint: bool = False
    ) -> None:
        """Stop the loop."""
        with self._lock:
            asked = None if asked is None else self.from_now(asked)
            if idle is not None and self.state.idle is None and self.clock is not None:
                self.idle_asked = self.clock()
            request = partial(turns.stop, idle=idle, cause=cause, skip_checkpoint=skip_checkpoint)
            self._do(partial(request, asked=asked))
        self.bell.ring()

    def next_step(self) -> Step:
        """Say what an idle loop does next."""
        with self._lock:
            if self._pushing and turns.may_go_on(self.state):
                return Wait()
            return turns.next_step(self.state, waiting=len(self.buffer) > 0)

    def stop_if_idle(self) -> None:
        """Stop a loop that was told to when idle, unless something has come in this very moment."""
        with self._lock:
            idle = not len(self.buffer) and not self._pushing and not self.state.has_turn
            if idle and self.state.stage is turns.Stage.WAITING:
                self._do(partial(turns.stop, asked=None))
        self.bell.ring()

    def plan(self, show: Callable[[int, list[T]], TurnView[T]]) -> list[Entry[T]] | None:
        """Begin to plan a turn over all that waits; None while a push decides, or once a stop has come."""
        with self._lock:
            if self._pushing or not turns.may_go_on(self.state):
                return None
            entries = self.buffer.take_all()
            view = show(self.state.turn + 1, [entry.item for entry in entries])
            self._do(turns.planned, view)
            return entries

    def put_back(self, entries: list[Entry[T]]) -> None:
        """Abandon the turn that was being planned: its items wait again, in their order."""
        with self._lock:
            self.buffer.push_front(entries)
            self._do(turns.abandoned)

    def activate(
        self, view: TurnView[T], run: Run, consumed: list[Entry[T]], remaining: list[Entry[T]]
    ) -> bool:
        """Begin the turn, unless a stop has come; what was asked of it meanwhile reaches its run."""
        with self._lock:
            # First of all: whoever finds the turn active finds all of it, and a stop its run.
            view.consumed, view.run, self.run = tuple(entry.item for entry in consumed), run, run
            if self._do(turns.activated).phase is not turns.Phase.ACTIVE:
                view.consumed, view.run, self.run = (), None, None
                return False
            self.buffer.push_front(remaining)
            return True

    def end(self, view: TurnView[T], judge: Callable[[State], TurnEnd], again: list[Entry[T]]) -> TurnEnd:
        """End the turn as it is judged, and show for ever what it was judged by.

        It is one moment: a preempt or a stop that came in time for the turn is one that it knows of.
        The items in `again` wait once more if it was preempted.
        """
        ends: list[TurnEnd] = []

        def leave(state: State) -> turns.Decided:
            left = turns.ended(state)
            ends.append(judge(state))
            view.freeze(state)
            return left

        with self._lock:
            self._do(leave)
            self.run = None
            self.buffer.push_front(again if ends[-1] is TurnEnd.PREEMPTED else ())
            return ends[-1]

    def close(self) -> list[T]:
        """Close first, then collect: gives what was accepted and not handled."""
        with self._lock:
            self._do(turns.closed)
            return [entry.item for entry in self.buffer.take_all()]

    def give_up(self) -> bool:
        """Close a loop that has not begun, and never will; says whether it had not."""
        with self._lock:
            if self.state.phase is not turns.Phase.NEW:
                return False
            self.given_up = True
            self.close()
            return True

    def late(self) -> tuple[T, ...]:
        """Give what came too late, and refuse with an error what comes now."""
        with self._lock:
            self._sealed = True
            return tuple(entry.item for entry in self.buffer.late)

    def from_now(self, stop: Stop) -> Stop:
        """Turn a grace into a deadline: it runs from when it was asked, whenever the run is told."""
        if stop.grace is None:
            return stop
        deadline = self.now() + stop.grace
        if stop.deadline is not None:
            deadline = min(deadline, stop.deadline)
        return replace(stop, grace=None, deadline=deadline)

    def _seen(self) -> int:
        return self.state.turn if self.state.has_turn else 0

    def _bind(self, preempt: Preempt, answer: Later[PreemptResult], seen: int) -> None:
        number = next(self._numbers)
        self._answers[number] = answer
        stop = None if preempt.delay is not None else self.from_now(preempt.as_stop())
        self._do(partial(turns.preempt, receipt=number, asked=Bound(number, seen, stop)))
        if preempt.delay is not None and number in self._answers and self.on_loop is not None:
            self.on_loop(lambda: self._delay(number, preempt))

    def _delay(self, number: int, preempt: Preempt) -> None:
        with self._lock:
            if number in self._answers and preempt.delay is not None:
                self._delays[number] = Timer(preempt.delay, lambda: self._due(number, preempt))

    def _due(self, number: int, preempt: Preempt) -> None:
        with self._lock:
            self._do(partial(turns.due, receipt=number, stop=self.from_now(preempt.as_stop())))

    def _do(self, decide: Callable[[State], turns.Decided], begun: TurnView[T] | None = None) -> State:
        while True:
            before = self.state
            after, effects = decide(before)
            view = (begun or self.view) if after.has_turn else None
            if self.state is before:  # else a signal handler came in: what it asked is decided on, too
                self.state, self.view = after, view
                break
        self._perform(effects)
        return after

    def _perform(self, effects: tuple[turns.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case CancelTurn(stop, source):
                    why = self.state.cause if source == "shutdown" else None
                    # One that has ended waits, at most, for a human: no turn is to discard that.
                    if self.run is not None and not self.run.ended:
                        self.run.cancel(self._told(stop, self.run), source=source, reason=why or None)
                case Answer(number, result):
                    self._answer(number, result)
                case CloseBuffer():
                    self.buffer.close()
                case _:
                    assert_never(effect)

    def _told(self, stop: Stop, run: Run) -> Stop:
        """Say the deadline of a stop as the run counts time: on a clock of its own each begins anew."""
        if stop.deadline is None:
            return stop
        return replace(stop, deadline=stop.deadline - self.now() + run.now())

    def _answer(self, number: int, result: PreemptResult) -> None:
        timer = self._delays.pop(number, None)
        if timer is not None:
            timer.cancel()  # harmless from another thread: it finds nothing to do when it is due
        self._answers.pop(number).settle(result)  # each is answered once, as it is bound once
