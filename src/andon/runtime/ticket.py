"""Ticket: one request to stop, and the wait for its report, in a task or a thread."""

from collections.abc import Sequence
from threading import Lock

from andon.core.stop import StopReport, summarise
from andon.runtime.later import Later


class Ticket(Later[StopReport]):
    """One request to stop; wait for its report with `await ticket`, or `ticket.wait()` in a thread."""

    __slots__ = ("_accepted", "_parts")

    def __init__(self) -> None:
        super().__init__()
        self._accepted: bool | None = None
        self._parts: Sequence[Ticket] = ()

    @property
    def accepted(self) -> bool | None:
        """Whether this request was joined before the run was final; None while that is open."""
        if self._parts:
            return any(part.accepted for part in self._parts)
        return self._accepted

    @property
    def report(self) -> StopReport | None:
        """The report, once it is there."""
        return self._given

    def accept(self, *, accepted: bool) -> None:
        """Say whether the request was joined in time."""
        self._accepted = accepted

    @classmethod
    def of(cls, tickets: Sequence["Ticket"]) -> "Ticket":
        """Make one ticket that is settled when all of `tickets` are."""
        whole = cls()
        whole._parts = tuple(tickets)
        left = [len(tickets)]
        lock = Lock()  # the last two parts may settle in two threads at once

        def one_settled() -> None:
            with lock:
                left[0] -= 1
                last = not left[0]
            if last:
                whole.settle(summarise(tuple(part.report for part in tickets if part.report is not None)))

        for part in tickets:
            part.when_settled(one_settled)
        if not tickets:
            whole.accept(accepted=False)
            whole.settle(summarise(()))
        return whole

    def __repr__(self) -> str:
        return f"<Ticket {'open' if self.report is None else self.report.result}>"
