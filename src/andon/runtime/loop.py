"""Loop: runs an agent turn after turn over the items that are pushed to it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Generic, Literal, Self, TypeGuard, TypeVar, cast

from andon.core.items import Event, Item, TurnEnded, TurnStarted
from andon.core.parked import Codec, codec_of
from andon.core.stop import Cause, Stop, as_stop, check_seconds
from andon.core.turns import Phase, Preempt, Stage
from andon.errors import LoopClosedError, RunStateError
from andon.ports import Observer, Store
from andon.runtime.agent import Agent
from andon.runtime.bell import Bell, wall_clock
from andon.runtime.desk import Desk
from andon.runtime.isolate import Cut, Job, clock, on_loop
from andon.runtime.nested import Suspended, suspension
from andon.runtime.parking import Parking
from andon.runtime.receipt import Receipt
from andon.runtime.record import logger
from andon.runtime.turn import Exit, Planning, Turn, TurnView
from andon.runtime.turning import Callbacks, Turning

T = TypeVar("T")
GenInput = Callable[[Planning[T], Sequence[T]], Turn[T] | Awaitable[Turn[T]]]
GenResume = Callable[[Planning[T], Sequence[T], Sequence[T], Sequence[T]], Turn[T] | Awaitable[Turn[T]]]
PrepareAgent = Callable[[Planning[T], Sequence[T]], Agent | Awaitable[Agent]]
OnEvents = Callable[[TurnView[T], AsyncGenerator[Event]], Awaitable[None] | None]
Strategy = Callable[[TurnView[T] | None, Phase], Preempt | None]
MOST_ID = 200


class TurnLoop(Generic[T]):
    """Runs a turn of an agent over what has been pushed, again and again; `async with loop:` runs it.

    Callbacks may be plain or async. An error in one ends the loop, with its items put back.

    Args:
        gen_input: Says what the next turn is about: it sees all items that wait, in order, and
            returns a `Turn` that consumes some, keeps some for later and may drop some.
        prepare_agent: Gives the agent for the items that were consumed.
        on_events: Watches the events of a turn, as `on_events(turn, events)`. It should not deal with
            cancellation: raise only for failures of its own, and return normally when the turn was
            stopped or preempted. Returning early cancels the agent, and waits for it. Without it, an
            error of the agent ends the loop.
        gen_resume: Says how a turn goes on that a stop or an interrupt has ended; called at most once.
        store: Where the loop keeps what it leaves behind, and finds it again.
        checkpoint_id: Under which name. One loop at a time runs for it.
        codec: The type of the items, if it is one that msgspec knows, or what writes and reads them;
            any JSON by default.
        on_preempt: What becomes of the items of a preempted turn: "discard" or "requeue". The next
            `gen_input` is told of them either way.
        observers: Who is told of turns and stops.
        name: What the loop is called in records.
    """

    def __init__(
        self,
        *,
        gen_input: GenInput[T],
        prepare_agent: PrepareAgent[T],
        on_events: OnEvents[T] | None = None,
        gen_resume: GenResume[T] | None = None,
        store: Store | None = None,
        checkpoint_id: str | None = None,
        codec: Codec[T] | type[T] | None = None,
        on_preempt: Literal["discard", "requeue"] = "discard",
        observers: Sequence[Observer] = (),
        name: str = "loop",
    ) -> None:
        _check(gen_input=gen_input, prepare_agent=prepare_agent, on_events=on_events, gen_resume=gen_resume)
        if on_preempt not in {"discard", "requeue"}:
            msg = f'on_preempt is {on_preempt!r}: it is "discard" or "requeue"'
            raise ValueError(msg)
        if checkpoint_id is not None and not 0 < len(checkpoint_id) <= MOST_ID:
            msg = f"checkpoint_id has {len(checkpoint_id)} characters: give 1 to {MOST_ID}"
            raise ValueError(msg)
        self.name = name
        writes = codec_of(codec)
        self._parking: Parking[T] | None = None
        if store is not None and checkpoint_id is not None:
            self._parking = Parking(store, checkpoint_id, writes)
        self._desk: Desk[T] = Desk()
        callbacks = Callbacks(gen_input, prepare_agent, on_events, gen_resume)
        self._turning = Turning(self, callbacks, self._desk, self._parking, requeue=on_preempt == "requeue")
        self._observers = list(observers)
        self._items = 0
        self._over = Bell()
        self._exit: Exit[T] | None = None
        self._job: Job | None = None

    def push(
        self, item: T, *, preempt: Preempt | None = None, strategy: Strategy[T] | None = None
    ) -> Receipt:
        """Put an item in; from any thread, at any time, never blocking.

        Args:
            item: What a later turn is about.
            preempt: Cancel the turn that is there now, at a safe point, to make way for this.
            strategy: Called with that turn (None without one) and the loop's phase, to decide on the
                preempt; the next turn is not planned meanwhile. If it raises, nothing was pushed.
        """
        if preempt is not None and strategy is not None:
            msg = (
                "a push has a preempt or a strategy that decides on one: give one of them; nothing was pushed"
            )
            raise ValueError(msg)
        _check_preempt(preempt, "preempt")
        if self._parking is not None:
            self._parking.check(item)
        if strategy is None:
            return self._desk.push(item, preempt)
        with self._desk.pushing() as seen:
            preempt = strategy(seen.turn, seen.phase)
            _check_preempt(preempt, "what the strategy returned")
            return self._desk.push(item, preempt, seen.number)

    def stop(
        self,
        stop: Stop | None = None,
        *,
        when_idle_for: float | None = None,
        cause: str | None = None,
        skip_checkpoint: bool = False,
    ) -> None:
        """Let the loop shut down; from any thread, at any time, never blocking.

        It may be called several times, and is not idempotent: a later call can only ask for more.

        Args:
            stop: How the current turn is cancelled; without it, the loop shuts down after that turn.
            when_idle_for: Shut down once there was nothing to do for so many seconds in a row. It
                touches no turn, the first duration counts, and any other stop overrides it.
            cause: Why; the first that is given stays.
            skip_checkpoint: Leave nothing behind to go on from; once said, it stays said.
        """
        if when_idle_for is not None and stop is not None:
            msg = (
                "when_idle_for waits for the turns to end, and a stop cancels one: give one of them; "
                "nothing was asked"
            )
            raise ValueError(msg)
        check_seconds("when_idle_for", when_idle_for)
        asked = None if stop is None else as_stop(stop)
        Cause("shutdown", reason=cause)  # refuses what is no cause
        self._desk.stop(asked, idle=when_idle_for, cause=cause or "", skip_checkpoint=skip_checkpoint)

    async def run(self) -> Exit[T]:
        """Run the loop in this task, and say how it ended; `async with loop:` runs it beside the block."""
        self._begin()
        return await self._run()

    async def _run(self) -> Exit[T]:
        reason: BaseException | None = None
        try:
            reason = await self._turning.serve()
        except GeneratorExit as error:  # the event loop is gone, and nothing can be waited for
            self._finish(error, self._desk.close())
            raise
        except BaseException as error:  # noqa: BLE001 — the loop's edge: its exit says what ended it
            reason = error
        left = suspension(reason)
        exit_ = await self._leave(reason if left is None else self._turning.torn or reason)
        if _ends_the_program(reason):
            raise reason
        if self._turning.torn is not None:
            raise self._turning.torn  # whatever ended the loop: whoever cancels its task waits for this
        if left is not None:
            raise left  # the run that this loop is in is left; both begin again when that is resumed
        return exit_

    async def wait(self) -> Exit[T]:
        """Wait until the loop has ended, also before it has begun; any number may wait."""
        await self._until_over()
        if self._exit is None:
            msg = "the loop was closed before it ran: there is no exit to wait for"
            raise LoopClosedError(msg)
        return self._exit

    def close(self) -> None:
        """Give up a loop that was never run: whoever waits for it is told so."""
        if not self._desk.give_up():
            msg = "the loop has been run: stop() it instead, and wait() for its exit"
            raise RunStateError(msg)
        self._over.ring()

    async def __aenter__(self) -> Self:
        self._begin()
        self._job = Job().start(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        job = self._job
        if job is None:
            return
        if kind is not None:
            job.cancel()
        elif self._desk.state.stage is Stage.OPEN:
            self._desk.stop(None, idle=0.0)  # what was pushed is dealt with
        cut = await job.wait(job.cancel)
        ended_by = job.error
        if _ends_the_program(ended_by) and not isinstance(ended_by, KeyboardInterrupt):
            raise ended_by
        if cut is not None:
            raise cut
        # A Ctrl-C has gone through the event loop already: it is not to disturb how that is shut down.
        if kind is None and isinstance(ended_by, KeyboardInterrupt | Suspended):
            raise ended_by

    @property
    def turn(self) -> TurnView[T] | None:
        """The turn that is being planned or active, if there is one."""
        return self._desk.view

    @property
    def busy(self) -> bool:
        """Whether there is a turn, or something that waits for one."""
        return self._desk.busy

    def push_unless_busy(self, item: T) -> Receipt:
        """Put an item in if there is no turn and nothing waits for one; else it is not taken, nor late."""
        if self._parking is not None:
            self._parking.check(item)
        return self._desk.push_unless_busy(item)

    def give_back(self, item: T) -> None:
        """Let an item wait that was accepted before, also after a stop; in a closed loop it is late."""
        self._desk.give_back(item)

    def tell_started(self, turn: int) -> None:
        """Tell observers that a turn began."""
        self._tell(TurnStarted(n=self._items + 1, at=self._desk.now(), turn=turn))

    def tell_ended(self, turn: int, end: str) -> None:
        """Tell observers that a turn is over."""
        self._tell(TurnEnded(n=self._items + 1, at=self._desk.now(), turn=turn, end=str(end)))

    def _begin(self) -> None:
        self._desk.begin(wall_clock(), clock(), on_loop(_act))

    async def _until_over(self) -> None:
        while self._exit is None and not self._was_given_up:
            await self._over.wait(lambda: self._exit is not None or self._was_given_up)

    @property
    def _was_given_up(self) -> bool:
        return self._desk.given_up

    async def _leave(self, reason: BaseException | None) -> Exit[T]:
        """Close first, then collect, then keep what there is to go on from, whoever cancels meanwhile."""
        unhandled = self._desk.close()
        attempted = await self._turning.park(unhandled)
        return self._finish(reason, unhandled, attempted=attempted)

    def _finish(
        self, reason: BaseException | None, unhandled: Sequence[T], *, attempted: bool = False
    ) -> Exit[T]:
        turning = self._turning
        self._exit = Exit(
            reason=reason,
            unhandled=tuple(unhandled),
            interrupted=tuple(turning.interrupted),
            failed=tuple(turning.failed),
            stop_cause=self._desk.state.cause,
            checkpoint_attempted=attempted,
            checkpoint_error=turning.checkpoint_error,
            late_items=self._desk.late,
        )
        self._over.ring()
        return self._exit

    def _tell(self, item: Item) -> None:
        self._items += 1
        for observer in tuple(self._observers):
            try:
                observer.observe(self.name, item)
            except (Exception, Cut):  # noqa: BLE001 — the process edge: it must not change what it watches
                self._observers.remove(observer)
                logger.exception("observer %r failed and is no longer told of %r", observer, self.name)

    def __repr__(self) -> str:
        state = self._desk.state
        words = [f"{state.phase}", f"turn {state.turn}", f"{len(self._desk.buffer)} waiting"]
        if state.stage is not Stage.OPEN:
            words.append(f"stop {state.stage}")
        return f"<TurnLoop {self.name}, {', '.join(words)}>"


def _ends_the_program(error: BaseException | None) -> TypeGuard[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_ends_the_program, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, KeyboardInterrupt | SystemExit)


def _act(act: Callable[[], None]) -> None:
    act()


def _check(**callbacks: object) -> None:
    for name, callback in callbacks.items():
        required = name in {"gen_input", "prepare_agent"}
        if not callable(callback) and (required or callback is not None):
            msg = f"{name} is {callback!r}: give a function, plain or async"
            raise TypeError(msg)


def _check_preempt(preempt: object, what: str) -> None:
    if preempt is not None and not isinstance(preempt, Preempt):
        msg = f"{what} is {preempt!r:.80}: give a Preempt, such as Preempt(Point.TOOLS); nothing was pushed"
        raise TypeError(msg)
