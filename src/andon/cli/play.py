"""Play: carry a run in this process to its end, and turn the signals it gets into stops."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

import anyio

from andon.cli.leave import CUT_SHORT, LEFT, leave_at_once
from andon.cli.screen import Screen
from andon.cli.signals import hearing
from andon.cli.streams import CANCELLED, FAILED, OK, complain, is_gone, output_failed
from andon.core.outcome import Outcome
from andon.core.stop import Source, Stop, StopReport
from andon.runtime.agent import Agent
from andon.runtime.isolate import run_to_end
from andon.runtime.run import Run
from andon.runtime.ticket import Ticket

SHUTDOWN_GRACE = 5.0  # of a SIGTERM or SIGHUP, where nobody said another
HEARS_WITHIN = 0.3  # a loop that has not heard of a signal for longer is blocked
LAST_WORDS = 1.0  # for a reader of the output that has stalled, once somebody wants to leave
TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

FIRST = "stopping at the next safe point; Ctrl-C again to stop now"
SECOND = "stopping now"
THIRD = "still ending: what was cut has its grace to clean up, and a tool that must finish does"
TERM = "asked to end: stopping at the next safe point, within {grace:g} s"
DEAF = "something blocks the event loop, so nothing can be stopped; Ctrl-C again to leave without a report"


Echo = SimpleQueue[None]  # what the loop puts into it, it has heard


def play(agent: Agent, prompt: str, screen: Screen, *, grace: float | None = None) -> int:
    """Run to the end, and give the exit code."""
    code, teller = run_to_end(lambda: _play(agent.start(prompt), screen, grace))
    if teller.failure is not None:
        output_failed(teller.failure)
        code = FAILED
    if not teller.finished:
        leave_at_once(code)
    return code


async def _play(run: Run, screen: Screen, grace: float | None) -> tuple[int, "Teller"]:
    teller = Teller()
    cord = Cord(run, teller.put, screen, grace)
    teller.start(cord.nobody_reads)
    with hearing(TAKEN, cord.came):
        async with run:
            async for event in run:
                teller.put(partial(screen.show, event))
            outcome = await run.outcome()
        report = outcome.cancelled or await cord.report()
        teller.put(partial(screen.end, outcome, report))
        await cord.last_words(teller.finish)
    return code_of(outcome, cut_short=cord.pulls > 1), teller


def code_of(outcome: Outcome, *, cut_short: bool = False) -> int:
    """Give the exit code that tells how a run ended."""
    match outcome.stop_reason:
        case "end_turn":
            return OK
        case "cancelled":
            return CUT_SHORT if cut_short else CANCELLED
        case "error" | "limit" | "interrupt":
            return FAILED


class Cord:
    """Turns Ctrl-C, SIGTERM and SIGHUP into stops of one run."""

    def __init__(
        self, run: Run, tell: Callable[[Callable[[], None]], None], screen: Screen, grace: float | None
    ) -> None:
        self._run = run
        self._tell = tell
        self._screen = screen
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._echo: Echo | None = None  # of the signals that the loop has not heard of yet
        self._warned_of: Echo | None = None
        self._ticket: Ticket | None = None
        self._shut_down_by: str | None = None
        self._patience = anyio.CancelScope()
        self.pulls = 0

    async def report(self) -> StopReport | None:
        """Give the report of the requests that came in, if any did."""
        return None if self._ticket is None else await self._ticket

    async def last_words(self, say: Callable[[], Awaitable[None]]) -> None:
        """Wait until all has been shown; not for ever, if somebody is in a hurry and nobody reads."""
        with self._patience:
            if self._shut_down_by is not None or self.pulls > 1:
                self._hurry()
            await say()

    def nobody_reads(self) -> None:
        """End the run, unless the terminal was closed: then it has been asked to end, within its grace."""
        if self._shut_down_by != signal.SIGHUP.name:
            self._run.cancel(source="disconnect", reason="nobody reads the output any more")

    def came(self, number: signal.Signals) -> None:
        """Take one signal; in the thread that hears them."""
        before = self._echo if self._echo is not None and self._echo.empty() else None
        self._echo = before or SimpleQueue()
        self._loop.call_soon_threadsafe(self._answer, self._echo)
        if number is not signal.SIGINT:
            self._shut_down(number.name)
        elif before is not None and before is self._warned_of:
            complain(LEFT)
            leave_at_once(CUT_SHORT)
        else:
            self._pulled(before)

    def _answer(self, echo: Echo) -> None:
        echo.put(None)
        if self._run.ended:
            self._hurry()

    def _pulled(self, unheard: "Echo | None") -> None:
        self.pulls += not self._run.ended
        if self.pulls == 1:
            self._ask(FIRST, Stop.graceful(grace=self._grace), "user", "Ctrl-C")
        elif self.pulls == 2:  # noqa: PLR2004 - twice
            self._ask(SECOND, Stop.now(), "user", "Ctrl-C, twice")
        if self._run.ended or self.pulls > 2:  # noqa: PLR2004 - what more could be asked has been
            self._tell(partial(self._tell_why, unheard))

    def _tell_why(self, unheard: "Echo | None") -> None:
        """Say why it still takes time; in the thread that shows things, which may wait for the loop."""
        try:
            if unheard is not None:
                unheard.put(unheard.get(timeout=HEARS_WITHIN))
        except Empty:
            if self._warned_of is not unheard:
                self._warned_of = unheard
                self._screen.notice(DEAF)
            return
        if not self._run.ended:
            self._screen.notice(THIRD)

    def _shut_down(self, name: str) -> None:
        grace = self._grace or SHUTDOWN_GRACE
        if self._shut_down_by is None:
            self._shut_down_by = name
            self._ask(TERM.format(grace=grace), Stop.graceful(grace=grace), "shutdown", name)
        elif name == signal.SIGTERM.name:  # of SIGHUP a shell and the terminal may each send one
            self._ask(SECOND, Stop.now(), "shutdown", f"{name}, again")

    def _ask(self, notice: str, stop: Stop, source: Source, reason: str) -> None:
        if not self._run.ended:
            self._tell(partial(self._screen.notice, notice))  # first: what it brings about is shown after it
            self._ticket = self._run.cancel(stop, source=source, reason=reason)

    def _hurry(self) -> None:
        self._patience.deadline = min(self._patience.deadline, self._loop.time() + LAST_WORDS)


class Teller:
    """Shows things in a thread of its own: an output that nobody reads stalls neither run nor signals."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._finished = anyio.Event()
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.failure: Exception | None = None

    def start(self, gone: Callable[[], None]) -> None:
        """Begin to show things; `gone` is called when nobody reads them any more."""
        Thread(target=self._tell, args=(gone,), name="andon-teller", daemon=True).start()

    def put(self, act: Callable[[], None]) -> None:
        """Show something, after all that was put before."""
        self._queue.put(act)

    @property
    def finished(self) -> bool:
        """Whether everything has been shown."""
        return self._finished.is_set()

    async def finish(self) -> None:
        """Wait until everything has been shown."""
        self._queue.put(None)
        await self._finished.wait()

    def _tell(self, gone: Callable[[], None]) -> None:
        try:
            while (act := self._queue.get()) is not None:
                act()
        except Exception as error:  # noqa: BLE001 - whatever it is, a run that nobody sees must not go on
            if not (isinstance(error, OSError) and is_gone(error)):
                self.failure = error
            gone()
            while self._queue.get() is not None:
                continue
        finally:
            with suppress(RuntimeError):  # the loop is gone, and nobody waits
                self._loop.call_soon_threadsafe(self._finished.set)
