"""Scope: the stop state of one run, and its one door for other threads.

A plain flag beside a callback: the flag alone would miss a hung model, the callback alone a burst
of chunks that never waits. Requests come in by a queue that any thread may append to; they are
joined on the run's own loop, so nothing here needs a lock.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Literal

from msgspec.structs import replace

from andon.core.stop import Bond, Cause, Point, Stop, StopReport, StopResult, Where, describe, join_all
from andon.runtime.bell import running_loop, wall_clock, wall_now
from andon.runtime.pause import Discard, Pause
from andon.runtime.ticket import Ticket

AN_INSTANT = 0.001
LOST = "the event loop of the run was closed before the run ended: nothing of it runs any more"


class Scope:
    """The joined request, whether it cuts what is in flight, and what to call when it does."""

    __slots__ = (
        "_children",
        "_count",
        "_cutter",
        "_due",
        "_inbox",
        "_loop",
        "_name",
        "_on_stop",
        "_pause",
        "_settled",
        "_tickets",
        "_timer",
        "cuts",
        "cuts_model",
        "escalated_by",
        "final",
        "lost",
        "now",
        "stop",
    )

    def __init__(self, name: str, on_stop: Callable[[Stop], None]) -> None:
        self._name = name
        self._count = count(1)
        self.now: Callable[[], float] = wall_now
        self.stop: Stop | None = None
        self.cuts = False
        self.cuts_model = False
        self.final = False
        self.escalated_by: Literal["timeout", "request"] | None = None
        self._on_stop = on_stop
        self._inbox: deque[tuple[Stop, Ticket]] = deque()
        self._tickets: list[Ticket] = []
        self._settled: StopReport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self.lost = False
        self._cutter: Callable[[], None] | None = None
        self._children: dict[str, tuple[Scope, Bond]] = {}
        self._pause: Pause | None = None

    def begin(self) -> None:
        """Bind to the loop that runs this."""
        loop = asyncio.get_running_loop()
        self.now = wall_clock()
        self._loop = loop  # what was asked before is drained once the run has its first item

    def request(self, stop: Stop, cause: Cause, ticket: Ticket | None = None) -> Ticket:
        """Ask for a stop, from any thread; never blocks."""
        ticket = ticket or Ticket()
        named = cause if cause.id else replace(cause, id=f"{self._name}-{next(self._count)}")
        bound = stop.bind(self.now(), named)
        # Queue first, flag second: whoever sees the flag finds the request.
        self._inbox.append((bound, ticket))
        self._raise_flags(bound)
        self._ring()
        if not self.final:
            self._pass_on(bound)
        return ticket

    def join(self, stop: Stop) -> None:
        """Take a stop that is bound already; from any thread."""
        self._inbox.append((stop, Ticket()))
        self._raise_flags(stop)
        self._ring()
        if not self.final:
            self._pass_on(stop)

    def adopt(self, name: str, child: "Scope", bond: Bond) -> None:
        """Pass stops on to a child run, also the one that is already there; from any thread."""
        if child._loop is self._loop:  # noqa: SLF001 — one of ours
            child.now = self.now  # one clock for a tree, so that its deadlines come in one moment
        self._children[name] = (child, bond)
        if self.stop is not None:
            child.inherit(self.stop, bond)

    def release(self, name: str) -> None:
        """Leave a child alone that has ended."""
        self._children.pop(name, None)

    def inherit(self, stop: Stop, bond: Bond) -> None:
        """Take over from the parent what of its stop is for this run."""
        told = stop.passed_on(bond)
        if told is not None:
            self.join(told)

    def _pass_on(self, stop: Stop) -> None:
        """Tell the whole tree at once; once it is joined here, what it has become is passed on again."""
        for child, bond in tuple(self._children.values()):
            child.inherit(stop, bond)

    def on_loop(self, act: Callable[[], None]) -> bool:
        """Do something on the run's own loop, at once if this is it; False if that loop is closed."""
        if self._loop is None or self.is_here():
            act()
            return True
        return self.soon(act)

    def is_here(self) -> bool:
        """Say whether this is the run's own loop."""
        return running_loop() is self._loop

    def soon(self, act: Callable[[], None]) -> bool:
        """Let the run's own loop do something; False if that is closed, or the run has not begun."""
        loop = self._loop
        if loop is None:
            return False
        if running_loop() is loop and asyncio.current_task(loop) is not None:
            loop.call_soon(act)  # a task is at work, so the loop is awake
            return True
        try:  # another thread, or a signal handler, which may have come while the loop sleeps
            loop.call_soon_threadsafe(act)
        except RuntimeError:
            return False
        return True

    def hear(self) -> None:
        """Cut the model call in flight to let it hear something new; nobody asked for a stop."""
        self.cuts_model = True
        if self._cutter is not None:
            self._cutter()

    def heard(self) -> None:
        """Go on from there: only a stop cuts the model from here on."""
        self.cuts_model = False
        if self.stop is not None:
            self._raise_flags(self.stop)
        self.drain()  # after the flag was lowered: whoever has raised it since has put a request in first

    def drain(self) -> None:
        """Join what has come in; on the run's own loop, or once nothing runs any more."""
        if not self._inbox:
            return
        come: list[Stop] = []
        while True:
            try:
                stop, ticket = self._inbox.popleft()
            except IndexError:
                break
            if self._settled is not None:
                self._answer(stop, ticket, self._settled)
                continue
            ticket.accept(accepted=not self.final)
            self._tickets.append(ticket)
            if not self.final:
                come.append(stop)
        if come:
            self._join(come)

    def due(self, where: Where) -> bool:
        """Say whether a stop takes effect here."""
        if self._inbox:
            self.drain()
        return self.stop is not None and self.stop.due(where)

    def cutting(self, cutter: Callable[[], None] | None) -> None:
        """Name what to call, once, when what is in flight must be cut; None when nothing may be."""
        self._cutter = cutter

    def settle(self, report: StopReport) -> None:
        """Give the report to every ticket, now and later; the first that is given is the one."""
        if self._settled is not None:
            return
        self.final = True
        self.drain()
        self._settled = report
        if self._timer is not None:
            self._timer.cancel()
        for ticket in self._tickets:
            ticket.settle(report)
        self._tickets.clear()
        self.drain()
        self._on_stop = _to_nobody  # it leads back to who holds this: no ring is left

    def pause(self, report: StopReport, discard: Discard) -> None:
        """Let the first request that comes after the end discard what the run waits for."""
        self._pause = Pause(report, discard)

    def resumed(self) -> bool:
        """End the pause, as the run goes on as another one; False if it was given up before."""
        return self._pause is None or self._pause.go_on()

    def _answer(self, stop: Stop, ticket: Ticket, report: StopReport) -> None:
        """Answer a request that came after the end."""
        if self._pause is not None:
            self._pause.answer(stop, ticket)
            return
        ticket.accept(accepted=False)
        ticket.settle(report)

    def _join(self, come: list[Stop]) -> None:
        """Join what has come in, once, with what was asked before."""
        before = self.stop
        immediate = before is not None and before.immediate
        first = before is None
        for stop in come:
            if immediate:
                break
            late = stop.deadline is not None and stop.deadline <= self.now()
            if late or (stop.immediate and not first):
                self.escalated_by = "timeout" if late else "request"
            immediate = late or stop.immediate
            first = False
            if not immediate:
                self._bring_forward(stop)
        asked = come if before is None else [before, *come]
        joined = join_all([*asked, Stop.now()] if self.escalated_by == "timeout" else asked)
        if joined is not None and joined != before:
            self._take_effect(joined)

    def _bring_forward(self, stop: Stop) -> None:
        # Each grace is counted on the loop's own clock, from when it came in: the wall clock may be set back.
        if stop.deadline is not None and self._loop is not None:
            due = self._loop.time() + stop.deadline - self.now()
            self._due = due if self._due is None else min(due, self._due)

    def _take_effect(self, stop: Stop) -> None:
        self.stop = stop
        self._raise_flags(stop)
        self._on_stop(stop)
        self._set_timer()
        self._pass_on(stop)
        if self.cuts_model and self._cutter is not None:
            self._cutter()

    def _raise_flags(self, stop: Stop) -> None:
        if stop.immediate:
            self.cuts = self.cuts_model = True
        elif Point.STREAM in stop.points:
            self.cuts_model = True

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loop is not None and self._due is not None and not self.cuts:
            self._timer = self._loop.call_at(self._due, self._expire)

    def grace_is_over(self) -> None:
        """Hear from a child that the grace, which is one for the whole tree, is over.

        Each run has a timer of its own, in whatever thread it runs, and they differ by an instant.
        """
        if self._loop is not None and self._due is not None and self._loop.time() >= self._due - AN_INSTANT:
            self._expire()

    def _expire(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.stop is not None and not (self.final or self.stop.immediate):
            self.escalated_by = "timeout"
            self._take_effect(self.stop.join(Stop.now()))

    def _ring(self) -> None:
        if self._settled is not None:
            self.drain()
            return
        # A run that has not begun drains when it begins, or when it is closed.
        if self.soon(self.drain) or self._loop is None:
            return
        if self._settled is None:
            self.lost = True
            self.settle(StopReport(result=StopResult.FINISHED_FIRST, durable=False, checkpoint_error=LOST))
        self.drain()

    def __repr__(self) -> str:
        if self.stop is None:
            return "<Scope open>"
        return f"<Scope {'final' if self.final else 'stopping'}, {describe(self.stop)}>"


def _to_nobody(_: Stop) -> None:
    """Nothing: the run has ended."""
