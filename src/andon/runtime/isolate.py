"""Isolate: unknown code runs as a task or thread of its own, which can be cut and, at worst, abandoned.

A task that swallows its cancellation is left alone after its grace: it is not cancelled again and
again, nobody waits for it, and what it may still return is handed to `on_late`.
"""

import asyncio
import contextvars
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from threading import Thread
from typing import Any, ParamSpec, TypeVar

import anyio

from andon.errors import RunStateError, tell
from andon.runtime.bell import rouse, running_loop

P = ParamSpec("P")
T = TypeVar("T")

THREAD_NAME = "andon-tool"
Cut = asyncio.CancelledError


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Let the loop do one round of whatever else there is."""
    yield


def current_task() -> "asyncio.Task[Any]":
    """Give the task that runs this."""
    task = asyncio.current_task()
    if task is None:
        msg = "this must run in a task"
        raise RunStateError(msg)
    return task


async def nap(seconds: float) -> None:
    """Wait, as a retry does before it tries again."""
    await asyncio.sleep(seconds)


class Timer:
    """Does something later, unless it is cancelled.

    Most are in the very next turn of the loop, and those never come among the loop's timers.
    """

    __slots__ = ("_act", "_handle", "_loop", "_seconds")

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._seconds = seconds
        self._act = act
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_soon(self._arm)

    def _arm(self) -> None:
        self._handle = self._loop.call_later(self._seconds, self._act)

    def cancel(self) -> None:
        """Do it never."""
        self._handle.cancel()


def clock() -> Callable[[], float]:
    """Give the clock of the running loop."""
    return asyncio.get_running_loop().time


class Job:
    """One piece of unknown code, running."""

    __slots__ = (
        "_cancel_first",
        "_on_late",
        "_over",
        "_task",
        "_then",
        "_timers",
        "_waiter",
        "_work",
        "abandoned",
        "began",
        "cut",
        "error",
        "value",
    )

    _work: Coroutine[Any, Any, Any]

    def __init__(self, on_late: "Callable[[Job], None] | None" = None) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.began = False
        self.cut = False
        self.abandoned = False
        self._over = False
        self._cancel_first = False
        self._on_late = on_late
        self._timers: list[asyncio.TimerHandle] = []
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._then: Callable[[], None] | None = None

    def start(self, work: Coroutine[Any, Any, Any], context: contextvars.Context | None = None) -> "Job":
        """Run the work as a task; in a context of its own, or in a copy of this one."""
        self._work = work
        self._task = asyncio.create_task(self._run(work), context=context)
        return self

    def cancel(self) -> None:
        """Cancel the work, as often as it is asked; whoever waits for it waits on."""
        if self._task is None or self._over:
            return
        if self.began:
            self._task.cancel()
        else:  # a task that is cancelled before its first step ends unseen: this one is where it first waits
            self._cancel_first = True

    def if_never_begun(self, act: Callable[[], None]) -> None:
        """Do something if the loop cancels the task before its first step, which no code in it sees."""

        def look(_: "asyncio.Task[None]") -> None:
            if not self.began:
                self._close_unbegun()
                act()

        if self._task is not None:
            self._task.add_done_callback(look)

    def when_over(self, act: Callable[[], None]) -> None:
        """Do something once the work has ended or was abandoned, with nobody waiting for it."""
        self._then = act

    async def wait(self, on_cancelled: Callable[[], None]) -> Cut | None:
        """Wait until the work has ended or was abandoned, even if the one who waits is cancelled.

        Gives the first cancellation that came meanwhile: whoever is to pass it on must raise that very
        one, because a scope around it knows its own.
        """
        first: Cut | None = None
        while not self._over:
            if self._task is not None and self._task.done():
                self._close_unbegun()
                break
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await (self._waiter if first is None else _shielded(self._waiter))
            except Cut as cut:
                first = first or cut
                on_cancelled()
        return first

    def end_within(self, grace: float, *, cancel: bool) -> None:
        """Cancel the work, once, if it can be; abandon it if it has not ended after `grace` seconds."""
        if self._over or self.cut or self._task is None:
            return
        self.cut = True
        if self._task.done():
            self._close_unbegun()
            return
        # What has not begun is not cancelled: `_run` looks at `cut`, and the work is closed unstarted.
        if cancel and self.began:
            self._task.cancel()
        self.after(grace, self.abandon)

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something later, unless the work has ended by then."""
        if not self._over:
            self._timers.append(asyncio.get_running_loop().call_later(seconds, act))

    def abandon(self) -> None:
        """Wait no longer for the work: it goes on alone."""
        if not self._over:
            self.abandoned = True
            self._end()

    async def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        if self.cut:
            work.close()
            self._end()
            return
        self.began = True
        if self._cancel_first:
            self.cancel()
        try:
            self.value = await work
        except KeyboardInterrupt as error:
            self.error = error
            raise
        except BaseException as error:  # noqa: BLE001 — the boundary: whatever it raises is its result
            self.error = error
        finally:
            late, self._on_late = self._on_late, None  # it leads back to who holds this: no ring is left
            if not self.abandoned:
                self._end()
            elif late is not None:
                late(self)

    def _close_unbegun(self) -> None:
        # The loop cancelled the task before its first step, which no code in it sees.
        self._work.close()
        self._end()

    def _end(self) -> None:
        self._over = True
        for timer in self._timers:
            timer.cancel()
        if self._waiter is not None and not self._waiter.done():
            _tell(self._waiter)
        if self._then is not None:
            self._then()


def _tell(waiter: "asyncio.Future[None]") -> None:
    try:
        waiter.set_result(None)
    except RuntimeError:
        return  # the loop is closed, and nobody waits any more


async def _shielded(waiter: "asyncio.Future[None]") -> None:
    # A scope of anyio cancels again and again what waits inside of it, and would make it spin.
    with anyio.CancelScope(shield=True):
        await waiter


def on_loop(act: Callable[P, None]) -> Callable[P, None]:
    """Make a function that acts on this loop, whatever thread it is called in."""
    loop = asyncio.get_running_loop()

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if running_loop() is loop:
            act(*args, **kwargs)
            rouse(loop)
        else:
            _call(loop, partial(act, *args, **kwargs))

    return call


async def in_thread(work: Callable[[], object]) -> object:
    """Run blocking code in a daemon thread: the interpreter never waits for one that was abandoned."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: object, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(value)
        else:
            ended.set_exception(error)

    def body() -> None:
        value, error = None, None
        try:
            value = context.run(work)
        except BaseException as raised:  # noqa: BLE001 — the boundary: it belongs to whoever waits
            error = _catchable(raised)
        _call(loop, partial(deliver, value, error))

    Thread(target=body, name=THREAD_NAME, daemon=True).start()
    return await ended


def _catchable(error: BaseException) -> BaseException:
    # A Future refuses StopIteration, and an exit raised in a thread must not end the whole program.
    if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt):
        return RuntimeError(tell(error))
    return error


def _call(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(act)
    except RuntimeError:
        return  # the loop is closed, and with it everybody is gone who could be told


def run_to_end(main: Callable[[], Coroutine[Any, Any, T]], *, grace: float = 1.0) -> T:
    """`asyncio.run`, except that it does not wait for ever for what was abandoned."""
    if running_loop() is not None:
        msg = "run_sync() was called inside a running event loop: use `await agent.run(…)` there"
        raise RunStateError(msg)
    runner = asyncio.Runner()
    try:
        return runner.run(main())
    finally:
        _close(runner.get_loop(), grace)


def _close(loop: asyncio.AbstractEventLoop, grace: float) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=grace))
    loop.run_until_complete(asyncio.wait([loop.create_task(loop.shutdown_asyncgens())], timeout=grace))
    # What is still pending has been reported as abandoned; asyncio need not tell it again.
    loop.set_exception_handler(lambda _loop, _context: None)
    asyncio.set_event_loop(None)
    loop.close()
