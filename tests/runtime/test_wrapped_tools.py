"""Tools behind plain functions: a wrapper around an async tool works as what it wraps."""

import functools
from collections.abc import AsyncIterator, Callable
from threading import Event, current_thread
from typing import Any

import anyio

from andon import Agent, Call, tool
from andon.core.items import ToolProgress
from andon.testing import Gate, ScriptedModel
from tests.runtime.process_tools import wrapped_double
from tests.runtime.test_tools_cut import contents, cut, states
from tests.whole import whole

ANSWERS = (Call("work", {"number": 2}), "Done.")


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as most decorators do: plainly."""

    @functools.wraps(function)
    def wrapper(*args: object, **kwargs: object) -> Any:  # noqa: ANN401 — whatever is wrapped gives
        return function(*args, **kwargs)

    return wrapper


async def test_a_wrapped_async_tool_runs_on_the_loop() -> None:
    """What the wrapper gives is awaited where all async tools are."""

    async def work(number: int) -> str:
        """Work."""
        await anyio.lowlevel.checkpoint()
        return f"{number} in {current_thread().name}"

    outcome = await Agent(ScriptedModel(*ANSWERS), tools=[wrapped(work)]).run("go")
    assert contents(outcome) == [f"2 in {current_thread().name}"]


async def test_a_wrapped_streaming_tool_streams() -> None:
    """What it yields is progress, and the last value is the result."""

    async def work(number: int) -> AsyncIterator[int]:
        """Work."""
        for one in range(number):
            yield one

    async with Agent(ScriptedModel(*ANSWERS), tools=[wrapped(work)]).start("go") as run:
        outcome = await whole(run)
        shown = [event.value async for event in run if isinstance(event, ToolProgress)]
    assert (contents(outcome), shown) == (["1"], [0, 1])


async def test_a_wrapped_tool_is_cancelled_as_an_async_one() -> None:
    """It hears of it at its await, and is not abandoned."""
    gate, heard = Gate("tool"), list[str]()

    async def work(number: int) -> str:
        """Work."""
        try:
            await gate
        finally:
            heard.append(f"cleaned up {number}")
        return "done"

    agent = Agent(ScriptedModel(*ANSWERS), tools=[wrapped(work)])
    _, outcome, report = await cut(agent, gate)
    assert heard == ["cleaned up 2"]
    assert (states(outcome), report.abandoned) == (["unknown"], ())


async def test_what_a_wrapper_gives_after_the_stop_does_not_begin() -> None:
    """It is closed, without a word of a coroutine that was never awaited."""
    began, go_on, begun = Gate("began", opened=True), Event(), list[str]()

    async def inner(number: int) -> str:
        begun.append(f"{number}")
        return "done"

    @functools.wraps(inner)
    def work(number: int) -> object:
        began.wait()
        assert go_on.wait(30)
        return inner(number)

    agent = Agent(ScriptedModel(*ANSWERS), tools=[tool(name="work")(work)])
    async with agent.start("go") as run:
        await began.reached()
        ticket = run.cancel()
        await anyio.lowlevel.checkpoint()
        go_on.set()
        outcome = await whole(run)
        report = await ticket
    assert (states(outcome), report.abandoned, begun) == (["unknown"], (), [])


async def test_a_wrapped_tool_works_in_a_process_of_its_own() -> None:
    """There is no loop until there is something to await."""
    calls = Call("wrapped_double", {"number": 2})
    outcome = await Agent(ScriptedModel(calls, "Done."), tools=[wrapped_double]).run("go")
    assert contents(outcome) == ["4"]
