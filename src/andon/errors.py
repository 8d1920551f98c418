"""Every error of Andon, and whose fault it is.

AndonError
├── UserError               the calling code asked for something that cannot be
│   ├── ToolDefinitionError     a function cannot become a tool as it is written
│   ├── UnknownModelError       no provider answers to that model string
│   ├── MissingExtraError       an optional package is not installed
│   ├── RunStateError           a verb does not fit the state of the run
│   ├── LoopClosedError         a turn loop that has ended was asked for more
│   ├── SessionError            a session cannot do what it was asked; `kind` says why
│   └── CheckpointError         there is nothing here that could be resumed
├── ServerError             a server could not be reached, or failed
├── ModelError              the model or its provider failed
├── ToolError               a tool failed; raised by tools, its text is what the model reads
├── HookError               a hook failed, so the run could not be trusted to go on
├── Interrupted             the work waits for an answer of a human
└── Cancelled               the work was stopped on request; let it pass
"""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from andon.core.outcome import Interrupt
    from andon.core.stop import StopReport

__all__ = [
    "AndonError",
    "Cancelled",
    "CheckpointError",
    "HookError",
    "Interrupted",
    "LoopClosedError",
    "MissingExtraError",
    "ModelError",
    "RunStateError",
    "ServerError",
    "SessionError",
    "SessionProblem",
    "ToolDefinitionError",
    "ToolError",
    "UnknownModelError",
    "UserError",
    "tell",
]


def tell(error: BaseException) -> str:
    """Say what an error is, also of one that cannot say it itself."""
    try:
        words = str(error)
    except Exception as failure:  # noqa: BLE001 — the boundary: it is foreign code that is described
        words = f"(its text cannot be shown: {type(failure).__name__})"
    return f"{type(error).__name__}: {words}"


class AndonError(Exception):
    """Catch this to catch whatever Andon raises."""


class UserError(AndonError):
    """The calling code asked for something that cannot be; the message says what to write instead."""


class ToolDefinitionError(UserError):
    """A function cannot become a tool as it is written."""

    def __init__(self, tool: str, problem: str, remedy: str) -> None:
        super().__init__(f"tool {tool!r}: {problem}; {remedy}")
        self.tool = tool


class UnknownModelError(UserError):
    """No provider answers to that model string."""

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(
            f"unknown model {model!r}: {problem}; write 'provider:name', for example "
            "'anthropic:claude-sonnet-5', or give an async generator function"
        )
        self.model = model


class MissingExtraError(UserError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package; install it with: pip install 'andon[{extra}]'")
        self.extra = extra


class RunStateError(UserError):
    """A verb does not fit the state of the run; the message names the right one."""


class LoopClosedError(UserError):
    """A turn loop that has ended, and whose late items were taken, was asked for more."""


SessionProblem = Literal["missing", "conflict", "full", "busy", "fenced", "newer", "broken", "closed"]


class SessionError(UserError):
    """A session cannot do what it was asked.

    `kind` says why: it is `missing`; what was asked is in `conflict` with what it has become; it is `full`
    for now, or no worker is free and it is `busy`: try again; this worker was `fenced`, as another one has
    the session; its journal is `newer` than this Andon, or `broken`; or the substrate is `closed`.
    """

    def __init__(self, problem: str, kind: SessionProblem) -> None:
        super().__init__(problem)
        self.kind: SessionProblem = kind


class CheckpointError(UserError):
    """There is nothing here that could be resumed; the checkpoint is left as it was."""


class ServerError(AndonError):
    """A server could not be reached, or failed; whether it has done what was asked is not known."""


class ModelError(AndonError):
    """The model or its provider failed."""

    def __init__(self, problem: str, *, transient: bool = False, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.transient = transient
        self.retry_after = retry_after


class ToolError(AndonError):
    """A tool failed; raise it in a tool, and the model reads its text as the result."""


class HookError(AndonError):
    """A hook failed, and it was not registered as safe."""

    def __init__(self, hook: str, error: BaseException) -> None:
        super().__init__(f"hook {hook!r} failed with {tell(error)}")
        self.hook = hook


class Interrupted(AndonError):  # noqa: N818 — it is no failure
    """The work waits for an answer of a human; `interrupts` are its questions."""

    def __init__(self, words: str, interrupts: "tuple[Interrupt, ...]" = ()) -> None:
        super().__init__(words)
        self.interrupts = interrupts


class Cancelled(AndonError):  # noqa: N818 — it is no failure
    """The work was stopped on request; clean up and let it pass. `report` says how, where that is known."""

    def __init__(self, words: str = "", report: "StopReport | None" = None) -> None:
        super().__init__(words)
        self.report = report
