"""Pause: a run that waits for a human, until it goes on or is given up: whichever comes first, for good."""

from collections.abc import Callable

from andon.core.stop import Stop, StopReport
from andon.runtime.ticket import Ticket

Discard = Callable[[Stop, Callable[[StopReport], None]], None]


class Pause:
    """Both may come from any thread; every request gets the report of the one that came first."""

    __slots__ = ("_discards", "_over", "_report")

    def __init__(self, report: StopReport, discard: Discard) -> None:
        self._report = report
        self._discards = [discard]  # taken once: `pop` is atomic
        self._over = Ticket()

    def go_on(self) -> bool:
        """Let the run be resumed, unless it was given up."""
        if self._take() is None:
            return False
        self._over.settle(self._report)
        return True

    def answer(self, stop: Stop, ticket: Ticket) -> None:
        """Answer a request to stop; the first gives up what the run waits for."""
        discard = self._take()
        ticket.accept(accepted=discard is not None)
        self._over.when_settled(lambda: ticket.settle(self._over.report or self._report))
        if discard is not None:
            discard(stop, self._over.settle)

    def _take(self) -> Discard | None:
        try:
            return self._discards.pop()
        except IndexError:
            return None
