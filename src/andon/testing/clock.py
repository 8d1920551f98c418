"""Clock: an event loop on which time is virtual, so that a test never waits for a timer."""

import asyncio
import functools
import gc
import inspect
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context
from multiprocessing import active_children
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack

import anyio

from andon.runtime.bell import running_loop

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START = 1_000.0  # not 0, which some code takes for "never"
LOOK_AGAIN = 0.01  # a foreign thread may end without a word
POOL = "virtual-loop-pool"
LAST_GRACE = 1.0  # virtual seconds that tasks have to end when the loop is closed


class DeadlockError(AssertionError):
    """Nothing can ever happen on this loop again; the message names who waits, and for what."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer whenever there is nothing else to do.

    It waits in real time, and never jumps, while anything outside of it may still report: a thread
    that was started since the loop was made, a call in an executor, a child process, a file
    descriptor. `steps` counts the callbacks that were run; `before_step`, if set, is called with
    that number before each of them.
    """

    def __init__(self) -> None:
        self._now = START
        self.epoch = time.time() - START  # one wall clock for all that runs on this loop
        self._jobs: set[Future[Any]] = set()
        self._pool: Executor | None = None
        self._outside = 0
        self._old_threads = set(threading.enumerate())
        self._old_children = {child.pid for child in active_children()}
        self.children: list[asyncio.SubprocessTransport] = []
        self.steps = 0
        self.jumps = 0
        self.before_step: Callable[[int], None] | None = None
        self._selector_of_ours = _Selector(self._idle)
        super().__init__(self._selector_of_ours)
        self._own_descriptors = len(self._selector_of_ours.get_map())

    def time(self) -> float:
        """Virtual seconds: all jumps, and the real time that was spent waiting for the outside."""
        return self._now

    def foreign(self) -> list[str]:
        """Name what outside of the loop may still report to it."""
        threads = [thread for thread in threading.enumerate() if thread not in self._old_threads]
        descriptors = len(self._selector_of_ours.get_map()) - self._own_descriptors
        counts = {
            "call in an executor": len(self._jobs),
            "file descriptor": descriptors,
            "child process": sum(child.get_returncode() is None for child in self.children),
            "outside job": self._outside,
        }
        return [
            *(f"thread {thread.name!r}" for thread in threads if _at_work(thread)),
            *(f"{count} x {what}" for what, count in counts.items() if count),
            *(f"process {child.name}" for child in active_children() if child.pid not in self._old_children),
        ]

    @contextmanager
    def outside(self) -> Generator[None]:
        """Hold the clock to real time inside this block, for work that the loop cannot see."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback with the next round, as one step."""
        return super().call_soon(self._step, callback, args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback with the next round, as one step; from any thread."""
        return super().call_soon_threadsafe(self._step, callback, args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time, as one step."""
        return super().call_at(when, self._step, callback, args, context=context)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread or process of a pool; the clock waits for it."""
        if executor is None and self._pool is None:
            self.set_default_executor(ThreadPoolExecutor(thread_name_prefix=POOL))
        pool = executor or self._pool
        assert pool is not None  # noqa: S101 — set two lines above
        job = pool.submit(func, *args)
        self._jobs.add(job)
        result = asyncio.wrap_future(job, loop=self)
        # Called after the loop was told, because it was added after: there is no gap to jump in.
        job.add_done_callback(self._jobs.discard)
        return result

    def set_default_executor(self, executor: Executor) -> None:
        """Name the pool that `run_in_executor(None, …)` uses."""
        self._pool = executor
        super().set_default_executor(executor)  # type: ignore[arg-type]

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 — as asyncio has it
        """Start a child process, and keep an eye on it."""
        transport, protocol = await super().subprocess_exec(*args, **options)
        self.children.append(transport)
        return transport, protocol

    async def subprocess_shell(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 — as asyncio has it
        """Start a shell, and keep an eye on it."""
        transport, protocol = await super().subprocess_shell(*args, **options)
        self.children.append(transport)
        return transport, protocol

    def _step(self, callback: Callable[[Unpack[Ts]], object], args: tuple[*Ts]) -> None:
        if self.before_step is not None:
            self.before_step(self.steps)
        self.steps += 1
        callback(*args)

    def _idle(self, poll: "_Poll", timeout: float | None) -> "_Ready":
        """Decide what to do when no callback is ready: look, wait, jump, or say that all is lost."""
        if self.foreign():
            began = time.monotonic()
            ready = poll(LOOK_AGAIN if timeout is None else min(timeout, LOOK_AGAIN))
            self._now += time.monotonic() - began
            return ready
        # Looked at only now: what was foreign and has just ended has written to the loop before.
        ready = poll(0)
        if ready:
            return ready
        if timeout is None:
            raise DeadlockError(_lost(self))
        self._now += timeout
        self.jumps += 1
        return ready


_Ready = list[tuple[selectors.SelectorKey, int]]
_Poll = Callable[[float | None], _Ready]


class _Selector(selectors.DefaultSelector):
    """Asks the loop what to do instead of waiting."""

    def __init__(self, idle: Callable[[_Poll, float | None], _Ready]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> _Ready:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        return self._idle(super().select, timeout)


def _at_work(thread: threading.Thread) -> bool:
    if thread.name.startswith(POOL):
        return False  # its calls are counted one by one
    queue = getattr(thread, "queue", None)  # an idle worker of anyio has an empty one
    return queue is None or getattr(queue, "unfinished_tasks", 1) > 0


def tasks_of(loop: asyncio.AbstractEventLoop) -> "list[asyncio.Task[Any]]":
    """Give the live tasks of a loop, in the order in which they were made where they have no names."""
    return sorted(asyncio.all_tasks(loop), key=lambda task: (len(task.get_name()), task.get_name()))


def _lost(loop: asyncio.AbstractEventLoop) -> str:
    lines = [f"  {task.get_name()} waits {waits_for(task)}" for task in tasks_of(loop)]
    return "\n".join(
        ["deadlock: no callback is ready, no timer is set, and nothing outside will report.", *lines]
    )


def waits_for(task: "asyncio.Task[Any]") -> str:
    """Tell where a suspended task is, and whose method it waits in."""
    frame = None
    inner: object = task.get_coro()
    if inspect.iscoroutine(inner) and inspect.getcoroutinestate(inner) == inspect.CORO_CREATED:
        return "for its first step"
    while inner is not None:
        frame = next((found for name in _FRAMES if (found := getattr(inner, name, None))), frame)
        inner = _inside(inner)
    if frame is None:
        return "somewhere"  # in code that is not Python
    code = frame.f_code
    owner = frame.f_locals.get("self")
    whose = "" if owner is None else f" of {owner!r:.120}"
    return f"in {code.co_qualname}{whose}, {Path(code.co_filename).name}:{frame.f_lineno}"


_WRAPPED: tuple[type, ...] = (CoroutineType, AsyncGeneratorType)
_FRAMES = ("cr_frame", "gi_frame", "ag_frame")


def _inside(outer: object) -> object:
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        if hasattr(outer, name):
            return getattr(outer, name)
    # What wraps a coroutine or an asynchronous generator does not say which: only gc knows.
    return next((one for one in gc.get_referents(outer) if isinstance(one, _WRAPPED)), None)


def run_virtual(
    main: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]], *args: *Ts, loop: VirtualLoop | None = None
) -> T:
    """Run an async function to its end on a virtual clock; what it leaves behind is cancelled."""
    if running_loop() is not None:
        msg = "run_virtual() was called inside a running event loop: call it from plain code"
        raise RuntimeError(msg)
    loop = loop or VirtualLoop()
    try:
        return loop.run_until_complete(main(*args))
    finally:
        _close(loop)


def _close(loop: VirtualLoop) -> None:
    loop.before_step = None
    try:
        left = tasks_of(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=LAST_GRACE))
        loop.run_until_complete(_end_children(loop.children))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        # What would not end was cancelled once; asyncio need not tell it again.
        loop.set_exception_handler(lambda _loop, _context: None)
        loop.close()


async def _end_children(children: list[asyncio.SubprocessTransport]) -> None:
    left = [child for child in children if child.get_returncode() is None]
    for child in left:
        child.close()  # which kills it
    while any(child.get_returncode() is None for child in left):  # noqa: ASYNC110 — a transport has no wait
        await anyio.sleep(LOOK_AGAIN)


def virtual(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make an async test a plain one that runs on a virtual clock: `@virtual async def test_…`."""

    @functools.wraps(test)
    def on_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(functools.partial(test, *args, **kwargs))

    return on_virtual_time
