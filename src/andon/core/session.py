"""Session: the state of a session is what the items of its journal add up to, and nothing else.

A command has its effect where its `Received` item stands. What is to be done about it follows from
the state alone, so that whichever worker has the session does the same, also after a crash:

    the state says              and so its worker
    ------------------------    ------------------------------------------------------------
    a live run, not running     lets it go on from the last item of its journal
    `live.stop`                 tells the run, which joins it
    `live.steers`               says them to the run, until each was heard
    nothing live, a queue       starts the first that waits, unless `held`, `closed` or quarantined
"""

from collections.abc import Iterable, Sequence
from typing import Self, assert_never

from msgspec.structs import replace

from andon.core.command import Answer, Cancel, Command, Halt, Key, Pause, Push, Release, Resume, Steer
from andon.core.fate import Fate, Fates
from andon.core.fold import going_on
from andon.core.items import (
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
from andon.core.journal import Entry, HandedOver, Quarantined, Received, SessionCreated, Unknown
from andon.core.live import Live, Queued, Waiting, queued_for
from andon.core.messages import Message
from andon.core.row import Row, row_of_ended, row_of_live, row_of_queued
from andon.core.stop import Cause, Point, Stop, StopReport, StopResult, Where
from andon.core.tree import with_shared

PREEMPT_GRACE = 10.0
_PROGRESS = frozenset({MessageAdded, ModelEnded, ToolEnded})
_WITHIN = _PROGRESS | {ModelStarted, ToolStarted}


class SessionState:
    """What a session's items add up to; `apply` is the only way it changes."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.n = 0
        self.cursor = 0
        self.created: SessionCreated | None = None
        self.touched = 0.0
        self.messages: list[Message] = []
        self.queue: list[Queued] = []
        self.live: Live | None = None
        self.waiting: Waiting | None = None
        self.ended: dict[str, Row] = {}
        self.said: dict[str, str] = {}
        self.fates = Fates()
        self.held = False
        self.closed = False
        self.quarantined = ""
        self.changed: set[str] = set()

    def apply(self, entry: Entry) -> Self:
        """Take one item in."""
        self.n = entry.n
        self.touched = entry.at or self.touched
        if type(entry) in _WITHIN:  # by far the most
            self._happen(entry)
            return self
        match entry:
            case Received():
                self.cursor = entry.seq
                self._receive(entry.command)
            case RunStarted(path=()):
                self._start(entry)
            case RunEnded(path=()):
                self._end(entry)
            case SessionCreated():
                self.created = entry
            case HandedOver():
                self._hand_over(entry)
            case Quarantined():
                self.quarantined = entry.why
                self._touch_live()
            case Unknown():
                pass
            case _:
                self._happen(entry)
        return self

    @property
    def exists(self) -> bool:
        """Whether there is such a session."""
        return self.n > 0

    @property
    def ready(self) -> Queued | None:
        """The run to start next, if one may be started now; one that was cancelled ends in any case."""
        if self.live is not None or self.quarantined:
            return None
        waits = self.held or self.closed or (self.waiting is not None and self.waiting.holds)
        return next((one for one in self.queue if one.stop is not None or not waits), None)

    @property
    def has_work(self) -> bool:
        """Whether a worker has something to do here, without a new command."""
        return (self.live is not None and not self.quarantined) or self.ready is not None

    def row(self, run_id: str) -> Row | None:
        """Give what the list of runs says of one."""
        if run_id in self.ended:
            return self.ended[run_id]
        if self.live is not None and self.live.run_id == run_id:
            return row_of_live(self.key, self.live, self.n, quarantined=bool(self.quarantined))
        return next(
            (row_of_queued(self.key, one, self.n) for one in self.queue if one.run_id == run_id), None
        )

    def rows(self) -> list[Row]:
        """Give the rows that have changed since they were asked for last."""
        changed, self.changed = self.changed, set()
        return [row for row in map(self.row, sorted(changed)) if row is not None]

    # Commands

    def _receive(self, command: Command) -> None:
        if command.id in self.fates:
            return
        match command:
            case Push():
                fate = self._push(command)
            case Steer():
                fate = self._steer(command)
            case Cancel():
                fate = self._cancel(command)
            case Halt():
                self.closed = True
                fate = self._stop_live(command.stop)
            case Pause():
                self.held = True
                fate = self._stop_live(command.stop)
            case Resume():
                fate = self._resume(command)
            case Answer():
                fate = self._answer(command)
            case Release():
                fate = self._release()
            case _:
                assert_never(command)
        self.fates.tell(command.id, fate)

    def _push(self, command: Push) -> Fate:
        if self.row(command.run_id) is not None:
            return Fate(run_id=command.run_id)
        if command.run_id in self.said:
            return Fate(run_id=self.said[command.run_id])
        if self.closed:
            return Fate(problem=f"session {self.key} was stopped: resume it first")
        if command.on_busy == "reject" and (self.live is not None or self.queue):
            return Fate(problem=f"session {self.key} is busy: wait, or push with another on_busy")
        if self.waiting is not None:  # whoever says something more goes on without an answer
            self.waiting = replace(self.waiting, holds=False)
        queued = queued_for(command)
        if self.live is not None and command.on_busy == "steer":
            return self._say(self.live, command, queued)
        if queued.first:
            self._make_way(command)
        self._put_behind(queued)
        return Fate(run_id=command.run_id)

    def _say(self, live: Live, command: Push, queued: Queued) -> Fate:
        live.steers[command.id] = Steer(id=command.id, at=command.at, by=command.by, message=command.message)
        live.else_queued[command.id] = queued
        self.said[command.run_id] = live.run_id
        return Fate(run_id=live.run_id)

    def _put_behind(self, queued: Queued) -> None:
        """Put a run behind all that wait, or behind those that come first as well."""
        place = len(self.queue)
        if queued.first:
            place = next((place for place, one in enumerate(self.queue) if not one.first), place)
        self.queue.insert(place, queued)
        self.changed.add(queued.run_id)

    def _make_way(self, command: Push) -> None:
        if self.live is None:
            return
        cause = Cause("preempt", command.by, f"preempted by run {command.run_id}", command.id)
        if command.on_busy == "rollback":
            self.live.rolled_back = True
            self._stop_live(Stop.now().bind(command.at, cause))
        else:
            self._stop_live(Stop.at(Point.ANY, grace=PREEMPT_GRACE).bind(command.at, cause))

    def _steer(self, command: Steer) -> Fate:
        live = self.live
        if live is None or command.run_id not in {None, live.run_id}:
            return Fate(problem="no such run is live, so nobody could hear it: push it instead")
        live.steers[command.id] = command
        return Fate(run_id=live.run_id)

    def _cancel(self, command: Cancel) -> Fate:
        if command.queued:
            self._cancel_queued(command.stop, [one.run_id for one in self.queue])
        live, waiting, wanted = self.live, self.waiting, command.run_id
        if live is not None and wanted in {None, live.run_id}:
            return self._stop_live(command.stop)
        paused = waiting is not None and (self.held or bool(waiting.interrupts))
        if waiting is not None and paused and wanted in {None, waiting.run_id}:
            return self._give_up(waiting, command.stop)
        if wanted is None and self.ready is not None:
            wanted = self.ready.run_id
        if any(one.run_id == wanted for one in self.queue):
            self._cancel_queued(command.stop, [str(wanted)])
            return Fate(run_id=wanted)
        return self._too_late(wanted)

    def _cancel_queued(self, stop: Stop, run_ids: Sequence[str]) -> None:
        """Let runs that wait end before they start: a stop that comes before takes effect before."""
        now = stop.join(Stop.now())
        for place, one in enumerate(self.queue):
            if one.run_id in run_ids:
                self.queue[place] = replace(one, stop=now if one.stop is None else one.stop.join(now))
        self.changed.update(run_ids)

    def _too_late(self, wanted: str | None) -> Fate:
        """Tell of a cancel that found nothing to stop: it never hits a run that came later."""
        if wanted is None:
            return Fate(report=StopReport(result=StopResult.NOTHING_RUNNING))
        row = self.ended.get(wanted)
        if row is None:
            return Fate(problem=f"session {self.key} has no run {wanted}")
        if self.live is not None:
            told = f"run {wanted} has ended, and run {self.live.run_id} is live now: nothing was stopped"
            return Fate(run_id=wanted, problem=told)
        report = row.cancelled or StopReport(result=StopResult.FINISHED_FIRST, run_id=wanted)
        return Fate(run_id=wanted, report=report)

    def _give_up(self, waiting: Waiting, stop: Stop) -> Fate:
        """Discard what a paused run waits for: it cannot be resumed any more."""
        self.waiting = None
        report = StopReport(
            result=StopResult.STOPPED,
            accepted=True,
            stopped_at=Where.PAUSED,
            causes=stop.causes,
            run_id=waiting.run_id,
        )
        row = self.ended[waiting.run_id]
        self._note(replace(row, state="cancelled", n=self.n, cancelled=report, interrupts=()))
        return Fate(run_id=waiting.run_id, report=report)

    def _stop_live(self, stop: Stop | None) -> Fate:
        live = self.live
        if live is None:
            return Fate(report=StopReport(result=StopResult.NOTHING_RUNNING))
        if stop is not None:
            live.join(stop)
            live.resumes = None  # who asked last has the last word
            self._touch_live()
        return Fate(run_id=live.run_id)

    def _resume(self, command: Resume) -> Fate:
        had_paused = self.held or self.closed
        self.held = self.closed = False
        live = self.live
        if live is not None and live.stop is not None:
            live.resumes = live.resumes or command
            return Fate(run_id=live.run_id)
        if self.waiting is not None and not self.waiting.interrupts:
            self._go_on(self.waiting, command, {})
            return Fate(run_id=command.run_id)
        if had_paused:
            return Fate()
        return Fate(problem=f"session {self.key} has nothing to resume: it is neither paused nor stopped")

    def _answer(self, command: Answer) -> Fate:
        waiting = self.waiting
        if waiting is None or not waiting.interrupts:
            return Fate(problem=f"session {self.key} waits for no answer")
        known = [interrupt.id for interrupt in waiting.interrupts]
        wrong = [name for name in command.answers if name not in known]
        if wrong:
            told = ", ".join(map(repr, wrong))
            return Fate(problem=f"answers has {told}, and the open interrupts are: {', '.join(known)}")
        self._go_on(waiting, command, command.answers)
        return Fate(run_id=command.run_id)

    def _go_on(self, waiting: Waiting, asked: Resume | Answer, answers: dict[str, object]) -> None:
        self.waiting = None
        self.queue.insert(0, waiting.goes_on(asked, answers))
        self.changed.add(asked.run_id)
        self._note(replace(self.ended[waiting.run_id], n=self.n, went_on_as=asked.run_id))

    def _release(self) -> Fate:
        if not self.quarantined:
            return Fate(problem=f"session {self.key} is not in quarantine")
        self.quarantined = ""
        if self.live is not None:
            self.live.deaths = 0
            self._touch_live()
        return Fate()

    # Runs

    def _start(self, item: RunStarted) -> None:
        live = self.live
        if live is not None and live.run_id == item.run_id:
            live.goes_on(item, self.messages)
            return
        queued = next((one for one in self.queue if one.run_id == item.run_id), None)
        self.queue = [one for one in self.queue if one is not queued]
        state = going_on(item, self.messages)
        self.live = Live(item.run_id, state, base=len(self.messages), began=item.at).begun_by(item)
        if queued is not None:
            self.live.take_up(queued)
        if self.live.early:  # nothing will come of it: what waits goes on from where it was
            self.live.rolled_back = self.waiting is not None
        else:
            self._go_on_without()
        self._touch_live()

    def _go_on_without(self) -> None:
        """Leave the last run as it is: from here on nobody can resume it, or answer what it has asked."""
        if self.waiting is not None and self.waiting.interrupts:
            self._note(replace(self.ended[self.waiting.run_id], n=self.n, interrupts=()))
        self.waiting = None

    def _happen(self, item: Entry) -> None:
        live = self.live
        if live is None:
            return
        live.apply(item)
        if type(item) in _PROGRESS:
            live.deaths = 0
        elif isinstance(item, Steered):
            live.hear(item.id)
        elif isinstance(item, StopRequested) and not item.path:
            live.join(item.stop)
        self.changed.add(live.run_id)

    def _end(self, item: RunEnded) -> None:
        live = self.live
        if live is None:
            return
        outcome = item.outcome
        undone = live.rolled_back and outcome.stop_reason == "cancelled"
        self._note(row_of_ended(self.key, live, item))
        history = live.state.messages
        if outcome.checkpoint is not None and not undone and not live.early:
            asks = outcome.interrupts if outcome.stop_reason == "interrupt" else ()
            kept = with_shared(outcome.checkpoint, history)
            self.waiting = Waiting(
                run_id=live.run_id, checkpoint=kept, interrupts=asks, limits=live.limits, holds=bool(asks)
            )
        self.messages = self.messages[: live.base] if undone else history
        self.live = None
        self._unheard(live)
        if live.resumes is not None and self.waiting is not None and outcome.stop_reason == "cancelled":
            self._go_on(self.waiting, live.resumes, {})
            self.fates.tell(live.resumes.id, Fate(run_id=live.resumes.run_id))

    def _unheard(self, live: Live) -> None:
        """Let what the run did not hear any more wait for its turn, or tell that it was not heard."""
        for command_id in live.steers:
            queued = live.else_queued.get(command_id)
            if queued is None:
                told = f"run {live.run_id} ended before it heard this: push it instead"
                self.fates.tell(command_id, Fate(run_id=live.run_id, problem=told))
                continue
            del self.said[queued.run_id]
            self.fates.tell(command_id, Fate(run_id=queued.run_id))
            self.changed.add(queued.run_id)
        self.queue = [*live.else_queued.values(), *self.queue]

    def _hand_over(self, item: HandedOver) -> None:
        if self.live is not None and self.live.run_id == item.run_id:
            self.live.hand_over(item, self.messages)
            self._touch_live()

    # Rows

    def _note(self, row: Row) -> None:
        self.ended[row.run_id] = row
        self.changed.add(row.run_id)

    def _touch_live(self) -> None:
        if self.live is not None:
            self.changed.add(self.live.run_id)


def fold_session(key: Key, entries: Iterable[Entry]) -> SessionState:
    """Add the items of a session up from the beginning."""
    state = SessionState(key)
    for entry in entries:
        state.apply(entry)
    return state
