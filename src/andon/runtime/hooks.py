"""Hooks: the user's functions that a run calls at named moments; bounded, and never cut by a stop."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from andon.core.messages import Call, Message, Result
from andon.core.outcome import Outcome
from andon.core.stop import check_flag, check_seconds
from andon.errors import HookError, RunStateError, UserError
from andon.ports import ModelRequest
from andon.runtime.isolate import Cut, Job
from andon.runtime.later import Later
from andon.runtime.nested import HERE, suspension

if TYPE_CHECKING:
    from andon.runtime.run import Run

MomentName = Literal[
    "run_started", "before_model", "after_model", "before_tool", "after_tool", "message_added", "run_ended"
]
NAMES: tuple[str, ...] = get_args(MomentName)
IN_REVERSE = {"after_model", "after_tool", "run_ended"}


class Moment(Struct, frozen=True, kw_only=True):
    """What a hook is told: a read-only view of the moment; `run` has the verbs.

    `cut` says that a stop cut what the `before_…` hook announced.
    """

    name: MomentName
    run: "Run"
    request: ModelRequest | None = None
    message: Message | None = None
    call: Call | None = None
    result: Result | None = None
    outcome: Outcome | None = None
    cut: bool = False

    async def interrupt(self, payload: object = None) -> Any:  # noqa: ANN401 — whatever was answered
        """Ask a human, in `before_tool` or `before_model`; see `ToolContext.interrupt`.

        The hooks of the moment are called again with the answer at hand.
        """
        place = HERE.get()
        if place is None:
            msg = "interrupt() was called outside of the hook: await it there"
            raise RunStateError(msg)
        return place.ask(payload)


Hook = Callable[[Moment], Any]


class Hooks:
    """The hooks of one agent; `named` is looked at before any of them is called, on every run's way."""

    __slots__ = ("_timeout", "named")

    def __init__(self, timeout: float) -> None:
        check_seconds("hook_timeout", timeout)
        self.named: dict[str, list[tuple[Hook, bool]]] = {}
        self._timeout = timeout

    def add(self, name: str, hook: Hook, *, safe: bool) -> None:
        """Register one; `safe` means that its errors do not matter."""
        if name not in NAMES:
            msg = f"there is no hook {name!r}: use one of {', '.join(NAMES)}"
            raise UserError(msg)
        if not callable(hook):
            msg = f"the hook for {name!r} is {hook!r:.80}: give a function of one argument, the Moment"
            raise UserError(msg)
        check_flag("safe", safe)
        added = (hook, safe)
        existing = self.named.get(name, [])
        self.named[name] = [added, *existing] if name in IN_REVERSE else [*existing, added]

    async def call(self, moment: Moment, on_cancelled: Callable[[], None]) -> str | None:
        """Call the hooks of a moment; the first text that `before_tool` returns refuses the call."""
        for hook, safe in self.named.get(moment.name, ()):
            value, error = await self._one(hook, moment, on_cancelled)
            if error is not None and not safe:
                raise HookError(moment.name, error) from error
            if moment.name == "before_tool" and isinstance(value, str):
                return value
        return None

    async def _one(
        self, hook: Hook, moment: Moment, on_cancelled: Callable[[], None]
    ) -> tuple[object, BaseException | None]:
        try:
            value = hook(moment)
        except (Exception, Cut) as error:  # noqa: BLE001 — the boundary: the caller decides whether it matters
            return None, error
        work = _work(value)
        if work is None:
            return value, None
        job = Job().start(work)
        job.after(self._timeout, lambda: job.end_within(1.0, cancel=True))
        await job.wait(on_cancelled)
        if job.cut:
            return None, TimeoutError(f"it took longer than {self._timeout:g} s")
        left = suspension(job.error)
        if left is not None:
            raise left
        return job.value, job.error


def _work(value: object) -> Coroutine[Any, Any, object] | None:
    """Give what is to be awaited, if anything is."""
    if inspect.iscoroutine(value):
        return value
    # A ticket may be awaited as well, but not by the very run that it waits for.
    return _wait_for(value) if inspect.isawaitable(value) and not isinstance(value, Later) else None


async def _wait_for(value: Awaitable[object]) -> object:
    return await value
