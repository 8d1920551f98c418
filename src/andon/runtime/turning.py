"""Turning: carries the turns of a loop out, one after the other, until something ends it."""

import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, assert_never

from msgspec import Struct

from andon.core import turns
from andon.core.checkpoint import Checkpoint
from andon.core.messages import Message
from andon.core.outcome import Outcome
from andon.core.parked import Parked
from andon.core.stop import Stop, Where
from andon.core.turns import Leave, Plan, TurnEnd, Wait
from andon.errors import Cancelled, Interrupted, UserError
from andon.runtime.agent import Agent
from andon.runtime.desk import Desk, Entry
from andon.runtime.isolate import Cut, Job, Timer, clock, current_task, turn
from andon.runtime.nested import suspension
from andon.runtime.parking import Parking, bounded
from andon.runtime.run import Run
from andon.runtime.turn import Planning, Turn, TurnView, check_turn

if TYPE_CHECKING:
    from andon.runtime.loop import TurnLoop

T = TypeVar("T")
CALLBACK_GRACE = 2.0  # seconds a callback has to end when the task of the loop is cancelled


class Callbacks(Struct, frozen=True):
    """The functions that a loop calls, plain or async."""

    gen_input: Callable[..., Any]
    prepare_agent: Callable[..., Any]
    on_events: Callable[..., Any] | None = None
    gen_resume: Callable[..., Any] | None = None


class Planned(Struct, Generic[T], frozen=True):
    """A turn that may begin."""

    run: Run
    context: Context
    consumed: list[Entry[T]]
    remaining: list[Entry[T]]
    resumes: bool


class Turning(Generic[T]):
    """The one task of a loop; what is left when it ends is in its attributes.

    `kept` is the state of a turn in flight, and `interrupted` are its items; `failed` are the items
    of turns that failed. `parks` says whether the loop ended so that it can be gone on with, and
    `torn` is the cancellation of its task, if that was cancelled.
    """

    def __init__(
        self,
        loop: "TurnLoop[T]",
        callbacks: Callbacks,
        desk: Desk[T],
        parking: Parking[T] | None,
        *,
        requeue: bool,
    ) -> None:
        self._loop = loop
        self._callbacks = callbacks
        self._desk = desk
        self._parking = parking
        self._requeue = requeue
        self._idle_since = 0.0
        self._cancels = 0
        self._preempted: tuple[T, ...] = ()
        self.torn: Cut | None = None
        self.kept: Checkpoint | None = None
        self.interrupted: tuple[T, ...] = ()
        self.failed: list[T] = []
        self.parks = False
        self.checkpoint_error: BaseException | None = None

    async def serve(self) -> BaseException | None:
        """Run turns until there is nothing more to do; gives what ended the loop, if it was no plain stop."""
        self._cancels = current_task().cancelling()
        await self._let_in()  # who was cancelled before the first step plans nothing
        stored = await self._load()
        if self.kept is not None:
            reason = await self._turn(stored)
            if reason is not None:
                return reason
        self._idle_since = clock()()
        while True:
            step = self._desk.next_step()
            match step:
                case Leave():
                    self.parks = True
                    return None
                case Plan():
                    reason = await self._turn()
                    if reason is not None:
                        return reason
                    self._idle_since = clock()()
                case Wait():
                    await self._wait(step)
                case _:
                    assert_never(step)

    async def _load(self) -> int:
        """Take up what the loop before has left; gives how many of the items that wait were its."""
        if self._parking is None:
            return 0
        job = await self._at_store(self._parking.load(), patient=False)
        if self.torn is not None:
            raise self.torn
        if job.error is not None:
            raise job.error
        parked: Parked | None = job.value
        if parked is None:
            return 0
        unhandled = self._parking.items(parked.unhandled)
        interrupted = self._parking.items(parked.interrupted)
        if parked.turn is not None and self._callbacks.gen_resume is None:
            msg = (
                "gen_resume is required for resume: the checkpoint of the loop has a turn in flight; "
                "give gen_resume, which says how it goes on; the checkpoint was left as it was"
            )
            raise UserError(msg)
        self.kept = parked.turn
        self.interrupted = tuple(interrupted)
        self._desk.restore([Entry(item) for item in unhandled])
        return len(unhandled)

    async def _taken(self) -> list[Entry[T]] | None:
        """Take all that waits for a turn, once no push decides; None when a stop has come first."""
        show = partial(TurnView, self._loop, look=lambda: self._desk.state)
        while turns.may_go_on(self._desk.state):
            entries = self._desk.plan(show)
            if entries is not None:
                return entries
            await self._rung(lambda: not self._desk.is_pushing)
        return None

    async def _wait(self, step: Wait) -> None:
        """Wait until there is something to do; the clock of idleness goes on while nothing comes."""
        timer: Timer | None = None
        if step.idle is not None:
            idle_for = clock()() - max(self._idle_since, self._desk.idle_asked)
            timer = Timer(max(0.0, step.idle - idle_for), self._desk.stop_if_idle)
        try:
            await self._rung(lambda: self._desk.next_step() != step)
        finally:
            if timer is not None:
                timer.cancel()

    async def _let_in(self) -> None:
        """Let in a cancellation that is on its way, so that nothing more is begun."""
        try:
            await turn()
        except Cut as cut:
            self.note(cut)
            raise

    async def _rung(self, ready: Callable[[], bool]) -> None:
        try:
            await self._desk.bell.wait(ready)
        except Cut as cut:
            self.note(cut)
            raise

    async def _turn(self, stored: int | None = None) -> BaseException | None:
        """Plan a turn over all that waits, and carry it out; with `stored`, resume the one that is kept."""
        entries, view = await self._taken(), self._desk.view
        if entries is None or view is None:
            return None
        try:
            self._loop.tell_started(view.number)
            planned = await self._planned(entries, view.number, stored)
        except BaseException:
            self._abandon(entries, view)
            raise
        if isinstance(planned, list):
            self._abandon(planned, view)
            return None
        if not self._desk.activate(view, planned.run, planned.consumed, planned.remaining):
            self._abandon(entries, view)
            return None
        return await self._carry_out(planned, view)

    def _abandon(self, entries: list[Entry[T]], view: TurnView[T]) -> None:
        view.freeze(self._desk.state)
        self._desk.put_back(entries)
        self._loop.tell_ended(view.number, "abandoned")

    async def _planned(
        self, entries: list[Entry[T]], number: int, stored: int | None
    ) -> Planned[T] | list[Entry[T]]:
        """Ask what the turn is about, and for its agent; without a turn, give what is to wait again.

        That is all of it when a stop has come meanwhile, and what was not dropped when there is nothing else.
        """
        items = [entry.item for entry in entries]
        preempting = [entry.item for entry in entries if entry.preempting]
        about = Planning(self._loop, number, preempting, self._preempted)
        resume = self._callbacks.gen_resume
        if stored is None or resume is None:
            given = await self._call(copy_context(), self._callbacks.gen_input, about, items)
            plan = check_turn(given, items, name="gen_input")
        else:
            interrupted = list(self.interrupted)
            asked = about, interrupted, items[:stored], items[stored:]
            given = await self._call(copy_context(), resume, *asked)
            plan = check_turn(given, [*interrupted, *items], name="gen_resume")
        if not turns.may_go_on(self._desk.state):
            return entries
        consumed, remaining = again(plan.consumed, entries), again(plan.remaining, entries)
        if stored is None and plan.dropped and not plan.consumed and plan.input is None:
            return remaining
        context = plan.context or copy_context()
        agent = await self._call(context, self._callbacks.prepare_agent, about, list(plan.consumed))
        run = self._start(agent, plan, resumes=stored is not None)
        return Planned(run, context, consumed, remaining, resumes=stored is not None)

    def _start(self, agent: object, plan: Turn[T], *, resumes: bool) -> Run:
        if not isinstance(agent, Agent):
            msg = f"prepare_agent returned {agent!r:.80}: return an Agent"
            raise UserError(msg)
        if resumes and self.kept is not None:
            return agent.start_from(self.kept, answers=plan.answers)
        given = plan.input
        if isinstance(given, Sequence) and given and all(isinstance(part, Message) for part in given):
            return agent.start(messages=[part for part in given if isinstance(part, Message)])
        return agent.start(given)  # type: ignore[arg-type] — a prompt, or refused with words

    async def _carry_out(self, planned: Planned[T], view: TurnView[T]) -> BaseException | None:
        self._preempted = ()
        try:
            outcome, broken = await self._carried(planned, view)
        except BaseException as error:  # the event loop is gone, or the run that this loop is in is left
            self._leave(view, error)
            raise
        flags = {"broken": broken is not None, "torn": self.torn is not None}
        judge = partial(turns.verdict, stop_reason=outcome.stop_reason, **flags)
        end = self._desk.end(view, judge, planned.consumed if self._requeue else [])
        reason = self._conclude(end, view, planned.run, outcome, broken)
        self._loop.tell_ended(view.number, end)
        if not self._may_go_on_later(end, resumed=planned.resumes, reason=reason):
            await self._tidy()
        if self.torn is not None:
            raise broken or self.torn
        return reason

    def _leave(self, view: TurnView[T], error: BaseException) -> None:
        """Leave a turn that nobody waits for, or that goes on when the run that this loop is in does."""
        left, end = suspension(error), TurnEnd.FAILED
        if left is not None and self.torn is None:
            end = TurnEnd.INTERRUPTED if left.where is Where.PAUSED else TurnEnd.STOPPED
        self._desk.end(view, lambda _: end, [])
        if end is TurnEnd.FAILED:
            self.failed.extend(view.consumed)
        else:
            self.interrupted = view.consumed
        self._loop.tell_ended(view.number, end)

    def _may_go_on_later(self, end: TurnEnd, *, resumed: bool, reason: BaseException | None) -> bool:
        """Say whether what is stored of a turn is not consumed by it, for it has failed and the loop ends."""
        if end not in {TurnEnd.FAILED, TurnEnd.BROKEN}:
            return False
        return self.torn is not None or (resumed and reason is not None)

    async def _carried(self, planned: Planned[T], view: TurnView[T]) -> tuple[Outcome, BaseException | None]:
        run = planned.run
        job = Job().start(self._watch(run, view), planned.context)
        self.note(await job.wait(partial(self._tear_away, job, run)))
        try:
            await run.close()  # what its watcher has left, because it was torn away
        except Cut as cut:
            self.note(cut)
        left = suspension(job.error)
        if left is not None:
            raise left
        return await run.outcome(), job.error

    async def _watch(self, run: Run, view: TurnView[T]) -> None:
        """Run the agent, and have its events watched; whoever returns early ends it."""
        async with run:
            if self._callbacks.on_events is None:
                await run.outcome()
                return
            try:
                await _result(self._callbacks.on_events(view, run.events()))
            except Cancelled as error:
                if not await self._is_of_the_turn(error, run, view):
                    raise

    async def _is_of_the_turn(self, error: Cancelled, run: Run, view: TurnView[T]) -> bool:
        """Say whether a callback tells by it that the agent of its own turn was cancelled, by whomever."""
        own = (await run.outcome()).cancelled if run.ended else None
        if error.report is not None:
            return error.report == own
        return own is not None or view.preempted or view.stopped or self.torn is not None

    def _conclude(
        self, end: TurnEnd, view: TurnView[T], run: Run, outcome: Outcome, broken: BaseException | None
    ) -> BaseException | None:
        """Say where the items of a turn are now, and what, if anything, ends the loop with it."""
        self.kept, self.interrupted = None, ()
        stopped = view.stopped and outcome.stop_reason == "cancelled" and self.torn is None
        if end is TurnEnd.INTERRUPTED or stopped:
            self.kept, self.interrupted, self.parks = outcome.checkpoint, view.consumed, True
        match end:
            case TurnEnd.BROKEN:
                if not stopped:
                    self.failed.extend(view.consumed)
                return broken
            case TurnEnd.STOPPED:
                cause = f": {view.stop_cause}" if view.stop_cause else ""
                return Cancelled(
                    f"turn {view.number} was cancelled by a stop of the loop{cause}", outcome.cancelled
                )
            case TurnEnd.INTERRUPTED:
                return Interrupted(f"turn {view.number} waits for an answer of a human", outcome.interrupts)
            case TurnEnd.FAILED:
                self.failed.extend(view.consumed)
                return run.error if self._callbacks.on_events is None else None
            case TurnEnd.PREEMPTED:
                self._preempted = view.consumed
            case TurnEnd.COMPLETED:
                pass
            case _:
                assert_never(end)
        return None

    async def _tidy(self) -> None:
        """Take out of the store what has been consumed since it was read there."""
        if self._parking is None or not self._parking.holds or self.kept is not None:
            return
        await self._keep(self._parking, None, (), self._desk.waiting())

    async def park(self, unhandled: Sequence[T]) -> bool:
        """Keep what there is to go on from, whoever cancels meanwhile; says whether there was anything."""
        if self._parking is None or not self.parks or self._desk.state.skip_checkpoint:
            return False
        await self._keep(self._parking, self.kept, self.interrupted, unhandled)
        return bool(self.kept is not None or self.interrupted or unhandled)

    async def _keep(
        self,
        parking: Parking[T],
        turn: Checkpoint | None,
        interrupted: Sequence[T],
        unhandled: Sequence[T],
    ) -> None:
        job = await self._at_store(parking.keep(turn, interrupted, unhandled), patient=True)
        self.checkpoint_error = job.error  # the last one counts: what it has kept is all there is

    async def _at_store(self, work: Coroutine[Any, Any, Any], *, patient: bool) -> Job:
        job, cut = await bounded(work, patient=patient)
        self.note(cut)
        return job

    async def _call(self, context: Context, callback: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 — the callback's
        """Call a callback; an async one is a task of its own, and the contextvars of both are their own."""
        value = context.run(callback, *arguments)
        if not inspect.isawaitable(value):
            if current_task().cancelling() > self._cancels:
                await self._let_in()
            return value
        job = Job().start(_result(value), context)
        self.note(await job.wait(partial(job.end_within, CALLBACK_GRACE, cancel=True)))
        if self.torn is not None and (job.error is None or isinstance(job.error, Cut)):
            raise self.torn
        if job.error is not None:
            raise job.error
        return job.value

    def note(self, cut: Cut | None) -> None:
        """Note that the task of the loop was cancelled; the first time counts."""
        self.torn = self.torn or cut

    def _tear_away(self, job: Job, run: Run) -> None:
        """Take a cancellation of the loop's task: the agent is cut, and its events end."""
        run.cancel(Stop.now(), source="code", reason="the task of the loop was cancelled")
        patience = run.patience() + CALLBACK_GRACE
        job.after(patience, partial(job.end_within, CALLBACK_GRACE, cancel=True))


def again(items: Sequence[T], entries: Sequence[Entry[T]]) -> list[Entry[T]]:
    """Make entries of planned items, which stay what they were: pushed with a preempt, or without."""
    preempting = {id(entry.item) for entry in entries if entry.preempting}
    return [Entry(item, id(item) in preempting) for item in items]


async def _result(value: Any) -> object:  # noqa: ANN401 — what a plain or an async function gives
    return await value if inspect.isawaitable(value) else value
