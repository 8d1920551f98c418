"""What a tool wants to be told by `on_cancel` is told once, on the run's loop, whatever thread asked."""

from collections.abc import Callable
from functools import partial
from threading import Event, current_thread

import pytest

from andon import Agent, Call, Outcome, ToolContext, tool
from andon.core.stop import Cause
from andon.runtime.nested import Place
from andon.runtime.tools import Signal
from andon.testing import Gate, ScriptedModel, virtual
from tests.runtime.test_tools_cut import contents, cut


async def told_of(callback: object) -> Outcome:
    """Let a tool ask to be told by something."""

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.on_cancel(callback)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        return "done"

    return await Agent(ScriptedModel(Call("work"), "Done."), tools=[work]).run("go")


class Awaits:
    """An object that is called like an async function."""

    async def __call__(self) -> None:
        """Await nothing."""


async def awaits() -> None:
    """Await nothing."""


@virtual
@pytest.mark.parametrize("callback", [awaits, Awaits(), partial(awaits)])
async def test_an_async_function_is_refused(callback: Callable[[], object]) -> None:
    """Nobody would await it; where to await is in the words."""
    outcome = await told_of(callback)
    (told,) = contents(outcome)
    assert told.startswith("UserError: on_cancel was given an async function: give a plain function;")


@virtual
async def test_what_is_no_function_is_refused() -> None:
    """In words, and in the tool that gave it."""
    assert "on_cancel was given 5: give a plain function" in contents(await told_of(5))[0]


@virtual
async def test_a_function_that_gives_a_coroutine_is_told_off(caplog: pytest.LogCaptureFixture) -> None:
    """It is closed, and the log says so."""
    gate = Gate("tool")

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.on_cancel(lambda: awaits())  # noqa: PLW0108 — a lambda hides what it calls
        await gate
        return "done"

    await cut(Agent(ScriptedModel(Call("work")), tools=[work]), gate)
    assert "an on_cancel callback gave a coroutine, which nobody awaits" in caplog.text


async def test_a_thread_that_asks_late_is_told_on_the_runs_loop() -> None:
    """Once, by the loop's own thread, and never by the one that asked."""
    began, cancelled, over = Gate("began", opened=True), Event(), Event()
    told_in: list[str] = []

    def tell() -> None:
        told_in.append(current_thread().name)
        over.set()

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        context.on_cancel(cancelled.set)
        began.wait()
        assert cancelled.wait(30)
        context.on_cancel(tell)
        assert over.wait(30)
        return "done"

    _, outcome, _ = await cut(Agent(ScriptedModel(Call("work")), tools=[work]), began)
    assert contents(outcome) == ["done"]
    assert told_in == [current_thread().name]


class Interleaved(list[Callable[[], object]]):
    """Callbacks that are overtaken by a stop just after one was added."""

    def __init__(self, signal: Signal) -> None:
        super().__init__()
        self._signal = signal

    def append(self, callback: Callable[[], object], /) -> None:
        """Add one; before whoever adds it goes on, the call is told to stop."""
        super().append(callback)
        self._signal.tell(Cause("user"))


@virtual
async def test_a_stop_that_comes_while_a_tool_asks_is_told_once() -> None:
    """Both sides see the callback, and one of them calls it."""
    signal, heard = Signal(), list[str]()
    signal.callbacks = Interleaved(signal)
    record = Agent(ScriptedModel()).start("go")._record  # pyright: ignore[reportPrivateUsage]
    context = ToolContext(Call("work"), "run", signal, heard.append, signal.call_back, Place(record))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    context.on_cancel(lambda: heard.append("told"))

    assert heard == ["told"]
