"""Tools: functions that a model may call, and what a running one is told."""

import importlib
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from andon.core.calls import NAME
from andon.core.messages import Call
from andon.core.stop import Bond, Cause, check_flag, check_seconds
from andon.errors import Cancelled, ToolDefinitionError, UserError
from andon.ports import ToolSpec
from andon.runtime.function import body, is_async, name_of
from andon.runtime.isolate import Cut
from andon.runtime.nested import Place, at

if TYPE_CHECKING:
    from pydantic import BaseModel

    from andon.runtime import schema

logger = logging.getLogger("andon")

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["async", "stream", "thread", "process"]


class Signal:
    """Tells one call to stop; the round holds it, and the tool's context only reads it."""

    __slots__ = ("callbacks", "cause")

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self.callbacks: list[Callable[[], object]] = []

    def tell(self, cause: Cause) -> None:
        """Tell, once."""
        if self.cause is None:
            self.cause = cause
            self.call_back()

    def call_back(self) -> None:
        """Call what wants to be told, each once; one that fails is the tool's own affair, and is logged."""
        while self.callbacks:  # this is the only one who takes them out
            callback = self.callbacks.pop(0)
            try:
                given = callback()
            except (Exception, Cut):  # the tool boundary: the others must be told too
                logger.exception("an on_cancel callback failed")
                continue
            if inspect.iscoroutine(given):
                given.close()
                logger.error("an on_cancel callback gave a coroutine, which nobody awaits: %r", callback)


class ToolContext:
    """What a running tool may know and say; ask for it with a parameter annotated `ToolContext`."""

    __slots__ = ("_call_back", "_emit", "_place", "_signal", "call_id", "run_id", "tool")

    def __init__(
        self,
        call: Call,
        run_id: str,
        signal: Signal,
        emit: Callable[[object], None],
        call_back: Callable[[], None],
        place: Place,
    ) -> None:
        self.tool = call.name
        self.call_id = call.id
        self.run_id = run_id
        self._signal = signal
        self._emit = emit
        self._call_back = call_back
        self._place = place

    @property
    def cancelled(self) -> bool:
        """Whether this call was told to stop; good to read from any thread."""
        return self._signal.cause is not None

    @property
    def cause(self) -> Cause | None:
        """Who told it to stop, and why."""
        return self._signal.cause

    def check(self) -> None:
        """Raise `Cancelled` if this call was told to stop; for code that never awaits."""
        cause = self._signal.cause
        if cause is not None:
            msg = f"{self.tool} was told to stop: {cause.reason or cause.source}"
            raise Cancelled(msg)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call a plain function, once, when this call is told to stop; at once if it was already.

        It is called on the run's loop, wherever this is: from another thread a moment later.
        """
        if not callable(callback) or is_async(callback):
            what = "an async function" if callable(callback) else repr(callback)
            msg = f"on_cancel was given {what:.80}: give a plain function; to await something, use `finally`"
            raise UserError(msg)
        self._signal.callbacks.append(callback)
        if self._signal.cause is not None:  # looked at after the append: either this or `tell` calls it
            self._call_back()

    async def interrupt(self, payload: object = None) -> Any:  # noqa: ANN401 — whatever was answered
        """Ask a human: the run ends with this question, and `resume(answers={id: …})` answers it.

        The tool then runs again from its top, and its k-th `interrupt` returns the k-th answer, so
        that what it does before must be fit to be done twice. The payload is kept as JSON.
        """
        return self._place.ask(payload)

    def child(self) -> AbstractContextManager[None]:
        """Make agents that are started inside the block children of this call.

        They are anyway, but in a foreign executor or thread, which does not carry our context.
        """
        return at(self._place)

    def progress(self, value: object) -> None:
        """Show readers of the run how far the tool is; from any thread."""
        self._emit(value)

    def __repr__(self) -> str:
        return f"<ToolContext {self.tool} {self.call_id}{' cancelled' if self.cancelled else ''}>"


class Tool(Generic[P, R]):
    """A function with a name, a description and a schema; call it to call the function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        isolate: Literal["process"] | None = None,
        finish: bool = False,
        idempotent: bool = False,
        sequential: bool = False,
        timeout: float | None = None,
        agent: bool = False,
        bond: Bond = "tool",
        final: bool = False,
        input_model: "type[BaseModel] | None" = None,
    ) -> None:
        if not callable(function):
            raise ToolDefinitionError(repr(function), "it is no function", "write @tool above a function")
        self.function = function
        self.name = name or name_of(function)
        if not NAME.fullmatch(self.name):
            where = "Agent(name=…) or as_tool(name=…)" if agent else "@tool(name=…)"
            raise ToolDefinitionError(
                self.name,
                "no provider takes this name",
                f"give one of letters, digits, _ and -: {where}",
            )
        check_seconds("timeout", timeout)
        for flag, given in (("finish", finish), ("idempotent", idempotent), ("sequential", sequential)):
            check_flag(flag, given)
        # Loaded here and not above: pydantic takes longer to import than all the rest.
        module: schema = importlib.import_module("andon.runtime.schema")  # type: ignore[valid-type]
        self._to_text: Callable[[str, object], str] = module.to_text
        self.arguments: schema.Arguments = (
            module.Arguments(self.name, function, ToolContext)
            if input_model is None
            else module.ModelArguments(self.name, input_model)
        )
        self.description = description or self.arguments.description
        self.kind: Kind = _kind(self.name, function, isolate)
        self.finish = finish
        self.idempotent = idempotent
        self.sequential = sequential
        self.timeout = timeout
        self.agent = agent
        self.bond: Bond = bond
        self.final = final
        if self.kind == "process" and self.arguments.context is not None:
            raise ToolDefinitionError(
                self.name, "a process of its own cannot be given a ToolContext", "drop that parameter"
            )

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""
        return ToolSpec(self.name, self.description, self.arguments.parameters)

    def text(self, value: object) -> str:
        """Write a result down for the model."""
        return self._to_text(self.name, value)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, past all that a run would do."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        marks = [mark for mark in ("finish", "idempotent", "sequential") if getattr(self, mark)]
        return f"<Tool {self.name} ({', '.join([self.kind, *marks])})>"


def _kind(name: str, function: Callable[..., object], isolate: str | None) -> Kind:
    inside = body(function)
    if isolate is None:
        if inspect.isasyncgenfunction(inside):
            return "stream"
        if inspect.iscoroutinefunction(inside):
            return "async"
        if inspect.isgeneratorfunction(inside):
            raise ToolDefinitionError(
                name, "a plain generator cannot stream", "make it `async def` with `yield`"
            )
        return "thread"
    if isolate != "process":
        raise ToolDefinitionError(name, f"isolate is {isolate!r}", "write isolate='process', or leave it out")
    if inspect.isasyncgenfunction(inside) or inspect.isgeneratorfunction(inside):
        raise ToolDefinitionError(name, "a process of its own cannot stream", "return a value instead")
    if "<" in getattr(function, "__qualname__", "<"):
        raise ToolDefinitionError(
            name, "a process of its own must find the function by name", "define it at the top of a module"
        )
    return "process"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    isolate: Literal["process"] | None = None,
    finish: bool = False,
    idempotent: bool = False,
    sequential: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(finish=True, …)`.

    Async functions run on the loop, others in a thread, and async generators stream: what they
    yield is shown as progress, and the last value is the result.

    Args:
        name: What the model calls it; the function's name by default.
        description: What it is for; the docstring by default.
        isolate: "process" runs it in a process group of its own, which can always be ended.
        finish: Runs to its end, whatever is asked: for payments and the like.
        idempotent: May run again when nobody knows whether it took effect.
        sequential: Never runs beside another call.
        timeout: Seconds after which it is cut, and its call ends as unknown.
    """
    if function is None:
        return partial(_make, options)
    return _make(options, function)


def _make(options: dict[str, Any], function: Callable[..., Any]) -> Tool[..., Any]:
    if isinstance(function, Tool):
        raise ToolDefinitionError(function.name, "it is a tool already", "write @tool once")
    return Tool(function, **options)


def as_tool(given: Tool[..., Any] | Callable[..., Any]) -> Tool[..., Any]:
    """Give a tool as it is, and make one of a plain function."""
    if isinstance(given, Tool):
        return cast("Tool[..., Any]", given)
    if hasattr(given, "as_tool"):
        raise ToolDefinitionError(
            getattr(given, "name", ""), "an agent is no tool as it is", "write agent.as_tool(description=…)"
        )
    return Tool(given)


def toolbox(
    tools: Iterable[Tool[..., Any] | Callable[..., Any]], *more: Tool[..., Any]
) -> dict[str, Tool[..., Any]]:
    """Gather tools by name; plain functions become tools, and two of one name are refused."""
    if isinstance(tools, str | bytes) or not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolDefinitionError(repr(tools), "it is no list of tools", "write tools=[…]")
    box: dict[str, Tool[..., Any]] = {}
    for given in (*tools, *more):
        made = as_tool(given)
        if made.name in box:
            raise ToolDefinitionError(
                made.name, "there are two tools of this name", "rename one: @tool(name=…)"
            )
        box[made.name] = made
    return box


async def drain(
    stream: AsyncGenerator[object, None], emit: Callable[[object], None], signal: Signal
) -> object:
    """Run a streaming tool: show what it yields, return the last value.

    One that was told to stop, and goes on, is closed where it yields next.
    """
    last: object = None
    try:
        async for last in stream:
            if signal.cause is not None:
                raise Cut
            emit(last)
    finally:
        await stream.aclose()
    return last


async def follow(value: object, emit: Callable[[object], None], signal: Signal) -> object:
    """Go on with what a plain function around an async tool has given; all else is the result as it is.

    Where the call was told to stop meanwhile, it does not begin.
    """
    work: Coroutine[Any, Any, object]
    if inspect.isasyncgen(value):
        work = drain(cast("AsyncGenerator[object, None]", value), emit, signal)
    elif inspect.iscoroutine(value):
        work = value
    else:
        return value
    if signal.cause is None:
        return await work
    work.close()
    raise Cut
