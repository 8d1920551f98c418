"""Ending: how one run ends: what stopped or failed it, its history made whole, its report and outcome."""

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from andon.core.checkpoint import Checkpoint
from andon.core.fold import checkpoint
from andon.core.items import RunEnded, ToolEnded
from andon.core.messages import Call, Message, Result
from andon.core.outcome import Outcome, StopReason
from andon.core.repair import NOT_STARTED, UNKNOWN, answer, not_started, seal, unknown
from andon.core.stop import Stop, StopReport, StopResult, Where, verdict
from andon.core.text import in_words
from andon.core.tree import interrupts
from andon.ports import Store
from andon.runtime.isolate import Job
from andon.runtime.record import Record
from andon.runtime.running import WAITS_UNKNOWN

NOT_REACHED = "Not started: the run failed before"
LOST_SIGHT = "The run failed while this was running; whether it took effect is not known"
NOT_REACHED_AGAIN = "The run failed before this went on; whether it took effect so far is not known"
NOT_YET = "Paused: was not started"
FAILED = "(no answer: the run failed)"
PAUSED = "(no answer yet: the run waits for an answer of yours)"
LIMITED = "(no answer: a limit was reached)"
GONE = "its stored checkpoint could not be deleted: the event loop of the run is closed"
NO_TIME = "there was no time to store it: the loop was shut down"
STORE_GRACE = 1.0


class Ending:
    """What is known of a run's end, from the moment that something stops it."""

    __slots__ = (
        "_checkpoint_id",
        "_closed",
        "_discarded",
        "_escalated_by",
        "_named",
        "_record",
        "_when_done",
        "failure",
        "limit",
        "paused",
        "saved",
        "stopped_at",
    )

    def __init__(
        self,
        record: Record,
        checkpoint_id: str | None,
        when_done: Callable[[], None],
        discarded: Callable[[str], None],
    ) -> None:
        self._record = record
        self._checkpoint_id = checkpoint_id or record.run_id
        self._named = checkpoint_id is not None  # under a new id of its own nothing else can be stored
        self._when_done = when_done
        self._discarded = discarded
        self._closed = record.scope.now()
        self._escalated_by: Literal["timeout", "request"] | None = None
        self.stopped_at: Where | None = None
        self.limit: str | None = None
        self.failure: BaseException | None = None
        self.paused = False
        self.saved: Checkpoint | None = None

    @property
    def near(self) -> bool:
        """Whether something has stopped the run, or failed in it."""
        return self.stopped_at is not None or self.failure is not None or self.paused

    def halt(self, where: Where, limit: str | None = None) -> None:
        """Let the stop take effect: what is asked from here on is joined, and changes nothing any more."""
        self.stopped_at = where
        self.limit = limit
        self._escalated_by = self._record.scope.escalated_by

    def close(self) -> list[Message]:
        """Take the checkpoint, then make the history whole: from here on no request is joined."""
        record = self._record
        state = record.state
        record.scope.drain()
        record.scope.final = True
        record.steering.close()
        self._closed = record.scope.now()
        if not self.near:
            return []
        self.saved = checkpoint(state, record.config.name, record.config.model, record.config.tools)
        if record.journal is not None:
            stopped = self.stopped_at is not None and self.limit is None
            record.journal.seal(record.scope.stop if stopped else None)
        sealed: list[Message] = []
        for call in state.pending:
            result = self._left_open(call)
            record.add(
                ToolEnded(
                    n=record.items + 1,
                    at=record.scope.now(),
                    call_id=call.id,
                    name=call.name,
                    state=result.state,
                    content=result.content,
                )
            )
        if state.calls:
            sealed += answer(state.calls, state.results), *state.heard
            for message in sealed:
                record.add_message(message)
        note = seal(state.messages[-1], self._note())
        if note is not None:
            sealed.append(note)
            record.add_message(note)
        return sealed

    def _left_open(self, call: Call) -> Result:
        """Tell what became of a call without a result; it may have begun, in this run or the one before."""
        state = self._record.state
        if call.id in state.started:
            return unknown(call, UNKNOWN if self.failure is None else LOST_SIGHT)
        if state.begun(call.id):
            words = WAITS_UNKNOWN if self.paused else UNKNOWN
            return unknown(call, words if self.failure is None else NOT_REACHED_AGAIN)
        words = NOT_YET if self.paused else NOT_STARTED
        return not_started(call, words if self.failure is None else NOT_REACHED)

    def bury(self) -> None:
        """End the run at once: there is no time left for hooks, the store and the journal."""
        self.close()
        record = self._record
        lost = record.journal is not None or (self.saved is not None and record.config.store is not None)
        error = NO_TIME if lost else None
        self.finish(self.report(durable=not lost, error=error))

    async def written(self, report: StopReport) -> StopReport:
        """Write the terminal item down before anybody is told; one that takes too long is not waited for."""
        record = self._record
        if record.journal is None:
            return report
        timeout = record.config.durable_timeout
        job = Job().start(record.journal.end(self._last(report)))
        job.after(timeout, lambda: job.end_within(STORE_GRACE, cancel=True))
        await job.wait(record.tear)
        if job.cut or not job.began:
            error = f"its end was not written down within {timeout:g} s" if job.cut else NO_TIME
            return replace(report, durable=False, checkpoint_error=error)
        if job.error is not None:
            return replace(report, durable=False, checkpoint_error=in_words(job.error))
        return report

    def _last(self, report: StopReport) -> RunEnded:
        record = self._record
        return RunEnded(n=record.items + 1, at=record.scope.now(), outcome=self.outcome(report))

    def finish(self, report: StopReport) -> None:
        """Add the terminal item, and let everybody know."""
        record = self._record
        record.add(self._last(report))
        record.failure = self.failure
        record.scope.settle(report)
        record.steering.close()
        if self.paused and self.failure is None and record.left_at() is None:  # a child waits with its parent
            record.scope.pause(report, self._discard)
        self._when_done()

    def _note(self) -> str:
        if self.failure is not None:
            return FAILED
        if self.paused:
            return PAUSED
        return LIMITED if self.limit is not None else self._record.config.cancel_text

    def outcome(self, report: StopReport) -> Outcome:
        """Tell how the run ended."""
        record = self._record
        why: StopReason = "end_turn"
        if self.failure is not None:
            why = "error"
        elif self.limit is not None:
            why = "limit"
        elif self.stopped_at is not None:
            why = "cancelled"
        elif self.paused:
            why = "interrupt"
        return Outcome(
            run_id=record.run_id,
            stop_reason=why,
            messages=tuple(record.state.messages),
            usage=record.state.spent(),
            cancelled=report if why == "cancelled" else None,
            limit=self.limit,
            error=None if self.failure is None else in_words(self.failure),
            checkpoint=self.saved,
            checkpoint_error=report.checkpoint_error,
            interrupts=() if self.saved is None else tuple(interrupts(self.saved)),
        )

    def report(
        self, stored: str | None = None, *, durable: bool = True, error: str | None = None
    ) -> StopReport:
        """Tell what became of the requests to stop."""
        record = self._record
        stop = record.scope.stop
        if stop is None:
            return StopReport(
                result=StopResult.FINISHED_FIRST,
                checkpoint=stored,
                durable=durable,
                checkpoint_error=error,
                run_id=record.run_id,
            )
        stopped = self.stopped_at is not None and self.limit is None
        return StopReport(
            result=verdict(stopped=stopped, escalated_by=self._escalated_by),
            accepted=True,
            stopped_at=self.stopped_at,
            escalated_by=self._escalated_by if stopped else None,
            causes=stop.causes,
            latency=max(0.0, self._closed - stop.causes[0].at),
            abandoned=tuple(record.abandoned),
            checkpoint=stored,
            durable=durable,
            checkpoint_error=error,
            run_id=record.run_id,
        )

    async def stored(self) -> StopReport:
        """Store the checkpoint before anybody is told, or forget what an answer has used up.

        A store that takes too long is not waited for.
        """
        record = self._record
        store = record.config.store
        if store is None or (self.saved is None and not self._named) or self._goes_on():
            return self.report()
        timeout = record.config.durable_timeout
        if self.saved is None:
            job, done = (
                Job().start(_delete(store, self._checkpoint_id)),
                "what it has used up was not deleted",
            )
        else:
            job, done = Job().start(_set(store, self._checkpoint_id, self.saved)), "it was not stored"
        job.after(timeout, lambda: job.end_within(STORE_GRACE, cancel=True))
        await job.wait(record.tear)
        if job.cut:
            return self.report(durable=False, error=f"{done} within {timeout:g} s")
        if job.error is not None:
            return self.report(durable=False, error=in_words(job.error))
        return self.report(None if self.saved is None else self._checkpoint_id)

    def _goes_on(self) -> bool:
        """Say whether this goes on with the run above, whose checkpoint holds its own: one is enough."""
        record = self._record
        return record.place is not None and record.left_at(self.outcome(self.report())) is not None

    def _discard(self, stop: Stop, settle: Callable[[StopReport], None]) -> None:
        """Give up what a paused run waits for: its checkpoint is deleted, and cannot be resumed any more."""
        record = self._record
        self._discarded(record.run_id)
        report = StopReport(
            result=StopResult.STOPPED,
            accepted=True,
            stopped_at=Where.PAUSED,
            causes=stop.causes,
            run_id=record.run_id,
        )
        store = record.config.store
        if store is None:
            settle(report)
            return
        job = Job()

        def answer_now() -> None:
            error = job.error if not job.cut else TimeoutError("the store did not answer in time")
            told = None if error is None else in_words(error)
            settle(replace(report, durable=error is None, checkpoint_error=told))

        def begin() -> None:
            job.start(_delete_own(store, self._checkpoint_id, record.run_id)).when_over(answer_now)
            job.after(record.config.durable_timeout, lambda: job.end_within(STORE_GRACE, cancel=True))

        if not record.scope.on_loop(begin):
            settle(replace(report, durable=False, checkpoint_error=GONE))


async def _delete(store: Store, checkpoint_id: str) -> None:
    await store.delete(checkpoint_id)


async def _delete_own(store: Store, checkpoint_id: str, run_id: str) -> None:
    # Meanwhile another run may have been left there, as where the user went on without an answer.
    found = await store.get(checkpoint_id)
    if found is not None and Checkpoint.from_json(found).run_id == run_id:
        await store.delete(checkpoint_id)


async def _set(store: Store, checkpoint_id: str, saved: Checkpoint) -> None:
    # In a coroutine of ours: what is raised before the store has made one of its own is caught, too.
    await store.set(checkpoint_id, saved.to_json())
