"""Live: which runs of an agent are live, and what is armed for its next one."""

from threading import RLock
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from andon.core.stop import Cause, Stop
from andon.errors import CheckpointError
from andon.runtime.ticket import Ticket

if TYPE_CHECKING:
    from andon.runtime.run import Run

Armed = tuple[Stop, Cause, Ticket]

REMEMBERED = 10_000  # discarded runs, whose checkpoints are refused
DISCARDED = (
    "run {} was cancelled while it waited for an answer, which discarded its checkpoint: "
    "go on from outcome.messages"
)


class Live:
    """Entered by a run when it begins, left when it ends; any thread may ask."""

    __slots__ = ("_armed", "_discarded", "_ever", "_lock", "_paused", "_runs")

    def __init__(self) -> None:
        self._lock = RLock()  # a signal handler may cancel while this very thread is inside
        self._runs: dict[str, Run] = {}
        self._armed: list[Armed] = []
        self._ever = False
        self._paused: WeakValueDictionary[str, Run] = WeakValueDictionary()
        self._discarded: dict[str, None] = {}  # in order, so that the oldest can be forgotten

    def enter(self, run: "Run") -> list[Armed]:
        """Note a run, which takes what was armed."""
        with self._lock:
            self._ever = True
            self._runs[run.id] = run
            armed, self._armed = self._armed, []
            return armed

    def leave(self, run: "Run", *, paused: bool = False) -> None:
        """Note that a run has ended, or waits for a human."""
        with self._lock:
            self._runs.pop(run.id, None)
            if paused:
                self._paused[run.id] = run

    def discard(self, run_id: str) -> None:
        """Note that a run was cancelled while it waited for a human."""
        with self._lock:
            self._paused.pop(run_id, None)
            self._discarded[run_id] = None
            if len(self._discarded) > REMEMBERED:
                del self._discarded[next(iter(self._discarded))]

    def check(self, run_id: str) -> None:
        """Refuse to go on from a run that was discarded."""
        if run_id in self._discarded:
            raise CheckpointError(DISCARDED.format(run_id))

    def resume(self, run_id: str) -> None:
        """Go on from a run, unless that was discarded; what comes for it later comes too late."""
        with self._lock:
            self.check(run_id)
            paused = self._paused.pop(run_id, None)
        if paused is not None and not paused.resumed():
            raise CheckpointError(DISCARDED.format(run_id))

    def cancel(self, stop: Stop, cause: Cause, *, arm: bool | None) -> Ticket:
        """Cancel every live run; with none, perhaps the next one."""
        with self._lock:
            runs = list(self._runs.values())
            armed = not runs and (arm or (arm is None and not self._ever))
            if armed:
                ticket = Ticket()
                self._armed.append((stop, cause, ticket))
                return ticket
        tickets = [run.cancel(stop, source=cause.source, by=cause.by, reason=cause.reason) for run in runs]
        for run in runs:
            if run.lost:
                self.leave(run)
        return Ticket.of(tickets)

    def __len__(self) -> int:
        return len(self._runs)
