"""Record: what has happened in one run: its items, the state they add up to, and who reads along."""

import logging
import os
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from msgspec import Struct
from msgspec.structs import replace

from andon.core.fold import State
from andon.core.items import (
    Delta,
    Event,
    Item,
    MessageAdded,
    RunEnded,
    StopRequested,
    ToolProgress,
)
from andon.core.messages import Message
from andon.core.stop import Abandoned, Cause, Stop, Where
from andon.errors import HookError, RunStateError
from andon.ports import Journal, Observer
from andon.runtime.bell import Bell
from andon.runtime.budget import Budget, charge
from andon.runtime.config import Config
from andon.runtime.hooks import Moment, MomentName
from andon.runtime.isolate import Cut, Job
from andon.runtime.later import Later
from andon.runtime.nested import Place, at
from andon.runtime.scope import LOST, Scope
from andon.runtime.steering import Steering

if TYPE_CHECKING:
    from andon.core.outcome import Outcome
    from andon.runtime.run import Run
    from andon.runtime.running import Running

logger = logging.getLogger("andon")

MARGIN = 0.5  # seconds by which what holds a child may outlast that child
SYNC_GRACE = 1.0  # seconds that a journal has to let go of whoever waits for it and was cut


class Late(Struct, frozen=True):
    """What abandoned work gave after nobody waited for it any more."""

    call_id: str
    name: str
    value: object = None
    error: BaseException | None = None


class Record:
    """The log of one run, and the state it adds up to; only the run's own thread appends."""

    __slots__ = (
        "_observed",
        "_run",
        "abandoned",
        "above",
        "bell",
        "budgets",
        "children",
        "config",
        "events",
        "failure",
        "items",
        "journal",
        "late",
        "place",
        "run_id",
        "running",
        "scope",
        "state",
        "steering",
        "torn",
    )

    def __init__(self, run: "Run", config: Config, journal: Journal | None = None) -> None:
        self._run = ref(run)  # which holds this: two that hold each other are left to the collector
        self.journal = journal  # of a root run; those inside it are written down with it
        self.run_id = os.urandom(10).hex() if journal is None else journal.run_id
        self.config = config
        self.scope = Scope(self.run_id, self._stop_requested)
        self.state = State()
        self.events: list[Event] = []
        self.items = 0
        self.bell = Bell()
        self.abandoned: list[Abandoned] = []
        self.late: list[Late] = []
        self.torn = False
        self.failure: BaseException | None = None
        self.place: Place | None = None
        self.children: dict[str, Run] = {}
        self.running: list[Running] = []
        self.budgets: tuple[Budget, ...] = ()
        self.steering = Steering()
        self.above: tuple[Record, ...] = ()
        self._observed = list(config.observers)

    def belong(self, place: Place) -> None:
        """Become a child of the run at a place; who observes that observes this, too."""
        self.place = place
        self.budgets = place.record.budgets
        if place.bond == "step" and self.config.plan is None:  # it was handed the conversation, and can hear
            self.above = (place.record, *place.record.above)
        self._observed += [one for one in place.record.observers if one not in self._observed]

    @property
    def top(self) -> "Record":
        """The record of the root run: this one, or that of the run above all."""
        return self if self.place is None else self.place.record.top

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who is told of the items."""
        return tuple(self._observed)

    def add(self, item: Item) -> None:
        """Add an item; after the terminal one nothing is added any more."""
        if self.state.ended is not None:
            return
        self.state.apply(item)  # first: an item that cannot be applied leaves no gap in the numbers
        self.items += 1
        self.events.append(item)
        if self.bell.waiters:
            self.bell.ring()
        if self.budgets and not item.path:
            charge(self, item)
        if self.journal is not None and not isinstance(item, RunEnded):
            self.journal.take(item)
        if self._observed:
            self._tell_observers(item)
        if self.place is not None and not isinstance(item, RunEnded):
            self.place.take(self, item)

    async def sync(self) -> None:
        """Wait until what has happened is written down, as far as there is a journal.

        It is asked for on the way that items take: what a child in another thread has told was taken before.
        """
        above = None if self.place is None else self.place.record
        if above is None:
            if self.journal is not None:
                await self.journal.sync()
        elif above.scope.is_here():
            await above.sync()
        else:
            await above.sync_from_afar()

    async def sync_from_afar(self) -> None:
        """Let this run's own loop do that, and wait for it in another one."""
        written: Later[BaseException | bool] = Later()
        job = Job()

        def begin() -> None:
            job.start(self.sync()).when_over(lambda: written.settle(job.error or True))

        if not self.scope.soon(begin):
            raise RunStateError(LOST)
        try:
            error = await written
        finally:
            self.scope.soon(job.cancel)  # nobody waits for it any more
        if isinstance(error, BaseException):
            raise error

    def show(self, delta: Delta) -> None:
        """Show what passes by; the hot path of a root run appends by itself."""
        if self.state.ended is None:
            self.events.append(delta)
            if self.bell.waiters:
                self.bell.ring()
            if self.place is not None:
                self.place.show(self, delta)

    def take(self, child_id: str, item: Item) -> None:
        """Take an item of a child: it becomes one of this run's, with the way to it."""
        self.add(replace(item, path=(child_id, *item.path), n=self.items + 1))

    def show_of(self, child_id: str, delta: Delta) -> None:
        """Show what passes by in a child, with the way to it."""
        self.show(replace(delta, path=(child_id, *delta.path)))

    @property
    def spoken_to(self) -> bool:
        """Whether something waits to be heard: by this run, or by one that handed its conversation over."""
        return bool(self.steering.waiting) or any(run.steering.waiting for run in self.above)

    def add_message(self, message: Message) -> None:
        """Add a message to the history."""
        self.add(MessageAdded(n=self.items + 1, at=self.scope.now(), message=message))

    async def tell_of_message(self, message: Message) -> None:
        """Tell the hooks of a message that was added."""
        if "message_added" in self.config.hooks.named:
            await self.hook("message_added", message=message)

    async def hook(self, name: MomentName, site: str = "", **what: Any) -> str | None:  # noqa: ANN401 — fields of Moment
        """Call the hooks of a moment; at a site they may ask a human."""
        place = Place(self, site=site)
        moment = Moment(name=name, run=cast("Run", self._run()), **what)  # there, for who works here holds it
        try:
            with at(place):
                return await self.config.hooks.call(moment, self.tear)
        except HookError as error:
            if self.torn and isinstance(error.__cause__, Cut):
                return None  # the loop is shut down, and took the hook along
            raise
        finally:
            place.site = ""  # what a hook leaves behind cannot ask any more

    def abandon(self, work: Abandoned) -> None:
        """Note what would not stop, for the report of this run and of each one above it."""
        self.abandoned.append(work)
        if self.place is not None:
            self.place.record.abandon(replace(work, path=(self.run_id, *work.path)))

    def harm(self) -> None:
        """Note, for every call on the way up, that something begins which must not begin twice."""
        place = self.place
        while place is not None:
            place.harmful = True
            place = place.record.place

    def patience(self) -> float:
        """Give the seconds that the run may take to end after a cut."""
        inside = (run.patience() + MARGIN for run in tuple(self.children.values()) if run.aside)
        tools = (running.patience() for running in tuple(self.running))
        return max([self.config.tool_grace, *inside, *tools])

    def left_at(self, ending: "Outcome | None" = None) -> Where | None:
        """Say where this child was left, if it ended, or is `ending`, to go on when its parent is resumed."""
        ended, place = ending or self.state.ended, self.place
        if ended is None or place is None:
            return None
        if not place.call_id:  # aside, in a hook or a model: nothing of it is kept
            return None
        if ended.stop_reason == "interrupt":
            return Where.PAUSED
        report = ended.cancelled
        told = [] if report is None else [one.asked for one in report.causes if one.source == "parent"]
        # In another thread a child may end before its parent has joined what both were asked.
        stops = (place.record.scope.stop, *told) if told else ()
        if report is None or not any(stop is not None and stop.keeps(place.bond) for stop in stops):
            return None
        if report.stopped_at is not Where.BEFORE_START:
            return report.stopped_at
        return Where.POINT_STEP if place.bond == "step" else Where.TOOLS  # the parent has begun

    def progress(self, call_id: str, value: object) -> None:
        """Show what a running tool tells."""
        self.show(ToolProgress(call_id, value))

    def tear(self) -> None:
        """Take a cancellation that came from outside as what it is: a stop, now."""
        if self.torn:  # a loop that is shut down cancels every task of the run
            return
        self.torn = True
        self.scope.request(Stop.now(), Cause("code", reason="the task was cancelled from outside"))

    async def read(self, after: int = 0) -> AsyncGenerator[Event, None]:
        """Iterate the events that follow item number `after`, until the terminal one."""
        events = self.events
        position = 0
        skipped = 0
        while True:
            if position == len(events):
                await self.bell.wait(partial(self._has, position))
                continue
            event = events[position]
            position += 1
            if skipped < after:
                skipped += isinstance(event, Item)
            else:
                yield event
            if isinstance(event, RunEnded):
                return

    def _has(self, position: int) -> bool:
        return position < len(self.events)

    def _stop_requested(self, stop: Stop) -> None:
        self.add(StopRequested(n=self.items + 1, at=self.scope.now(), stop=stop))

    def _tell_observers(self, item: Item) -> None:
        for observer in self.observers:
            try:
                observer.observe(self.run_id, item)
            except (Exception, Cut):  # the process edge: telemetry must not change what it watches
                self._observed.remove(observer)
                logger.exception("observer %r failed and is no longer told of run %s", observer, self.run_id)
