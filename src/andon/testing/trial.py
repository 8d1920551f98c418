"""Trial: one run of a scenario, stopped once at one exact place, and all that was seen of it."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import anyio
from msgspec import Struct

from andon.core.checkpoint import Checkpoint
from andon.core.items import Delta, Event, Item, RunEnded, StopRequested
from andon.core.outcome import Outcome
from andon.core.stop import Abandoned, Bond, Point, Stop, StopReport, StopResult
from andon.core.tree import interrupts
from andon.runtime.isolate import THREAD_NAME
from andon.runtime.plan import Plan
from andon.runtime.record import Record
from andon.runtime.run import Run
from andon.runtime.steering import SteerReceipt
from andon.runtime.ticket import Ticket
from andon.testing.clock import VirtualLoop, run_virtual, tasks_of, waits_for
from andon.testing.scene import Mode, Scenario, Scene

LONGEST = 3_600.0  # virtual seconds after which a run counts as one that never ends
A_MOMENT = 5.0  # seconds for what has to be there at once
NEXT_ANSWER = "All is well."
SAID = "By the way."


class Seen(Struct, kw_only=True):
    """What one trial saw; `family` has the items of the run and of all inside it, by their ids."""

    scenario: Scenario
    mode: Mode
    scene: Scene
    saved: Checkpoint | None = None
    hung: str = ""
    events: Sequence[Event] = ()
    family: Mapping[str, Sequence[Item]] = {}
    bonds: Mapping[str, Bond] = {}
    alive_at_end: Sequence[str] = ()
    outcome: Outcome | None = None
    outcomes: Sequence[Outcome] = ()
    abandoned: Sequence[Abandoned] = ()
    cancel_text: str = ""
    tickets: Mapping[str, Ticket] = {}
    reports: Sequence[StopReport] = ()
    child_report: StopReport | None = None
    open_tickets: Sequence[str] = ()
    receipt: SteerReceipt | None = None
    made_at_stop: int | None = None
    made: int = 0
    asked: int = 0
    open_at_end: int = 0
    task_told: bool = False
    task_cancelled: bool = False
    left: Sequence[str] = ()
    loop_errors: Sequence[str] = ()
    next_outcome: Outcome | str = ""
    nothing_running: bool = False
    steps: int = 0
    boundaries: Sequence[str] = ()


class Trial:
    """Runs a scene once, and stops it at one step of the loop, at one boundary, or never.

    With `saved` the run goes on from a checkpoint, in its fresh scene; of its open questions the
    first is answered, so that the others are asked again.
    """

    def __init__(
        self,
        scenario: Scenario,
        mode: Mode,
        *,
        at_step: int | None = None,
        at_boundary: int | None = None,
        saved: Checkpoint | None = None,
    ) -> None:
        self._at_step = at_step
        self._at_boundary = at_boundary
        self._loop = VirtualLoop()
        self._scene = scenario.make()
        self._run = _begin(self._scene, saved)
        self._task: asyncio.Task[Outcome] | None = None
        self._first_step: int | None = None
        self._boundaries: list[str] = []
        self._tickets: dict[str, Ticket] = {}
        self._childs: dict[str, Ticket] = {}
        self._errors: list[str] = []
        self._old_threads = set(threading.enumerate())
        self._family = _Family(self._run)
        self._seen = Seen(
            scenario=scenario,
            mode=mode,
            scene=self._scene,
            saved=saved,
            family=self._family.items,
            bonds=self._family.bonds,
        )

    def go(self) -> Seen:
        """Do it, and tell what was seen."""
        self._loop.set_exception_handler(self._loop_failed)
        self._loop.before_step = self._before_step
        record = record_of(self._run)
        record.events = _Log(self._appended)
        record._observed.append(self._family)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        for model in self._scene.models:
            model.on_step = self._boundary
        return run_virtual(self._main, loop=self._loop)

    async def _main(self) -> Seen:
        self._first_step = self._loop.steps
        self._task = self._loop.create_task(_carry(self._run), name="agent.run")
        await asyncio.wait([self._task], timeout=LONGEST)
        self._seen.steps = self._loop.steps - self._first_step
        self._first_step = None
        if not self._task.done():
            self._seen.hung = "; ".join(
                f"{task.get_name()} waits {waits_for(task)}" for task in self._others()
            )
        else:
            await self._look()
        self._scene.let_go()
        return self._seen

    async def _look(self) -> None:
        """See all that is there once the run is over, then let the same agent go on."""
        seen, run, task = self._seen, self._run, self._task
        seen.task_cancelled = task is not None and task.cancelled()
        await run.close()  # the task may have been cancelled before it began the run
        record = record_of(run)
        seen.abandoned = tuple(record.abandoned)
        seen.outcome = await run.outcome()
        seen.outcomes = [await run.outcome(), *([task.result()] if task and not task.cancelled() else [])]
        seen.left = [*self._tasks_left(), *self._threads_left(), *self._children_left()]
        if seen.outcome.stop_reason != "interrupt":  # it would discard what the run waits for
            self._tickets["late"] = run.cancel(reason="late")
        seen.tickets = self._tickets
        await self._read_tickets()
        with anyio.move_on_after(A_MOMENT):
            idle = await self._scene.agent.cancel(arm=False)
            seen.nothing_running = idle.result is StopResult.NOTHING_RUNNING
        seen.made = sum(model.made for model in self._scene.models)
        seen.asked = sum(len(model.requests) for model in self._scene.models)
        seen.boundaries = tuple(self._boundaries)
        seen.events = tuple(record.events)
        seen.cancel_text = record.config.cancel_text
        self._family.over = True
        seen.next_outcome = await self._next_run(seen.outcome)
        seen.loop_errors = tuple(self._errors)

    async def _read_tickets(self) -> None:
        reports: list[StopReport] = []
        missing: list[str] = []
        for name, ticket in {**self._tickets, **self._childs}.items():
            with anyio.move_on_after(A_MOMENT):
                reports.append(await ticket)
                continue
            missing.append(name)
        self._seen.open_tickets = missing
        self._seen.reports = reports[: len(reports) - len(self._childs)] if self._childs else reports
        self._seen.child_report = next((ticket.report for ticket in self._childs.values()), None)

    async def _next_run(self, outcome: Outcome) -> Outcome | str:
        for model in self._scene.models:
            model.on_step = None
            model.script(NEXT_ANSWER)
        with anyio.move_on_after(LONGEST):
            return await self._scene.agent.run("And now?", messages=outcome.messages)
        return "it never ended"

    def _before_step(self, step: int) -> None:
        if self._first_step is None or self._at_step is None:
            return
        self._stop_if_due(step - self._first_step, self._at_step)

    def _appended(self, event: Event) -> None:
        self._boundary(f"{'its child: ' * len(event.path)}{type(event).__name__} is in the log")
        stop = event.stop if isinstance(event, StopRequested) and not event.path else None
        if stop is not None and self._cuts_all(stop) and self._seen.made_at_stop is None:
            self._seen.made_at_stop = sum(model.made for model in self._scene.models)
        if isinstance(event, RunEnded):
            self._seen.open_at_end = sum(model.live for model in self._scene.models)
            self._seen.alive_at_end = self._family.alive(but=self._run.id)

    def _cuts_all(self, stop: Stop) -> bool:
        return stop.immediate or (Point.STREAM in stop.points and len(self._family.items) == 1)

    def _boundary(self, what: str) -> None:
        number = len(self._boundaries)
        self._boundaries.append(what)
        if self._at_boundary is not None:
            self._stop_if_due(number, self._at_boundary)

    def _stop_if_due(self, here: int, there: int) -> None:
        mode = self._seen.mode
        if mode.by_task:
            if here == there and self._task is not None:
                self._seen.task_told = self._task.cancel()
            return
        if mode.steer is not None and here == there:
            self._say()
        first = there + (mode.apart if mode.steer is not None else 0)
        for number, stop in enumerate(mode.stops):
            if here == first + number * mode.apart:
                self._ask(f"request {number}", stop)

    def _ask(self, why: str, stop: Stop) -> None:
        if self._seen.mode.whom == "root":
            self._tickets[why] = self._run.cancel(stop, reason=why)
        elif self._run.children:
            self._childs[why] = self._deepest().cancel(stop, reason=why)

    def _say(self) -> None:
        plan = isinstance(record_of(self._run).config.models[0], Plan)
        run = self._deepest() if plan else self._run
        if not isinstance(record_of(run).config.models[0], Plan):
            self._seen.receipt = run.steer(SAID, when=self._seen.mode.steer or "next")

    def _deepest(self) -> Run:
        run = self._run
        while run.children:
            run = run.children[-1]
        return run

    def _others(self) -> "list[asyncio.Task[Any]]":
        return [task for task in tasks_of(self._loop) if task is not asyncio.current_task()]

    def _tasks_left(self) -> list[str]:
        others = [one for one in self._others() if not (self._seen.scenario.foreign and _closes(one))]
        left = [f"task {task.get_name()} waits {waits_for(task)}" for task in others]
        return left if len(left) > len(self._seen.abandoned) else []

    def _threads_left(self) -> list[str]:
        left = [
            thread
            for thread in threading.enumerate()
            if thread.name.startswith(THREAD_NAME) and thread not in self._old_threads
        ]
        if len(left) <= len(self._seen.abandoned):
            return []
        for thread in left:
            thread.join(0.1)  # what has reported needs a moment to end
        alive = [thread.name for thread in left if thread.is_alive()]
        return [f"thread {name}" for name in alive] if len(alive) > len(self._seen.abandoned) else []

    def _children_left(self) -> list[str]:
        running = [child.get_pid() for child in self._loop.children if child.get_returncode() is None]
        groups = [child.get_pid() for child in self._loop.children if _group_lives(child.get_pid())]
        return [f"child process {pid}" for pid in running] + [f"process group {pid}" for pid in groups]

    def _loop_failed(self, _loop: object, context: dict[str, Any]) -> None:
        self._errors.append(f"{context.get('message')}: {context.get('exception')!r}")


class _Log(list[Event]):
    """A log that tells of each event after it was appended."""

    def __init__(self, told: Callable[[Event], None]) -> None:
        super().__init__()
        self._told = told

    def append(self, event: Event) -> None:
        super().append(event)
        self._told(event)


class _Family:
    """Observes a run and all that are started inside it."""

    def __init__(self, root: Run) -> None:
        self._root = root
        self.items: dict[str, list[Item]] = {}
        self.bonds: dict[str, Bond] = {}
        self.over = False

    def observe(self, run_id: str, item: Item, /) -> None:
        if self.over:
            return
        if run_id not in self.items:
            self.items[run_id] = []
            self.bonds.update(_bonds(self._root))
        self.items[run_id].append(item)

    def alive(self, *, but: str) -> list[str]:
        return [
            run_id
            for run_id, items in self.items.items()
            if run_id != but and not isinstance(items[-1], RunEnded)
        ]


def _bonds(run: Run) -> Iterator[tuple[str, Bond]]:
    place = record_of(run).place
    if place is not None:
        yield run.id, place.bond
    for child in run.children:
        yield from _bonds(child)


def record_of(run: Run) -> Record:
    """Give the record behind a run: the kit looks where users do not."""
    return run._record  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _closes(task: "asyncio.Task[Any]") -> bool:
    """Say whether the loop itself closes, in a step of its own, what a library has left to the collector."""
    return type(task.get_coro()).__name__ == "async_generator_athrow"


def is_delta(event: Event) -> bool:
    """Say whether an event has no number."""
    return isinstance(event, Delta)


def _begin(scene: Scene, saved: Checkpoint | None) -> Run:
    if saved is None:
        return scene.agent.start(scene.prompt, messages=scene.messages)
    answers = {asked.id: scene.answer(asked) for asked in islice(interrupts(saved), 1)}
    return scene.agent.start_from(saved, answers=answers)


async def _carry(run: Run) -> Outcome:
    # What `agent.run` does, with a handle on the run.
    async with run:
        return await run.outcome()


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
