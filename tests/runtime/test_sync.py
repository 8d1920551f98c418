"""run_sync: for callers without an event loop; it returns, whatever was abandoned."""

import asyncio
import subprocess
import sys
from textwrap import dedent

import anyio
import pytest

from andon import Agent, Call, Stop, tool
from andon.errors import RunStateError, UserError
from andon.runtime.hooks import Moment
from andon.testing import Gate, ScriptedModel


def test_it_runs_to_the_end() -> None:
    """One line for a script."""
    outcome = Agent(ScriptedModel("Done.")).run_sync("go")
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Done.")


async def test_inside_a_running_loop_it_says_what_to_write_instead() -> None:
    """It would block that loop."""
    with pytest.raises(RunStateError, match=r"called inside a running event loop: use `await agent.run"):
        Agent(ScriptedModel("Done.")).run_sync("go")


def test_errors_of_the_caller_are_raised() -> None:
    """And the loop is closed all the same."""
    with pytest.raises(UserError, match="the prompt is a int: give text"):
        Agent(ScriptedModel("Done.")).run_sync(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def soon(moment: Moment) -> None:
    """Cancel the run, in a moment."""
    moment.run.cancel(Stop.graceful(grace=0.01))


def test_it_returns_although_a_thread_was_abandoned() -> None:
    """The thread is a daemon, and nobody joins it."""
    gate = Gate("tool")

    @tool
    def deaf() -> str:
        """Hear nothing."""
        gate.wait()
        return "late"

    agent = Agent(ScriptedModel(Call("deaf")), tools=[deaf], tool_grace=0.01)
    agent.on("before_tool", soon)
    outcome = agent.run_sync("go")
    assert outcome.cancelled is not None
    assert [gone.name for gone in outcome.cancelled.abandoned] == ["deaf"]
    gate.open()


def test_it_returns_although_a_task_was_abandoned() -> None:
    """What swallows its cancellation is asked once more, and then left."""
    gate = Gate("tool")

    @tool
    async def stubborn() -> str:
        """Hear nothing."""
        while not gate.opened:
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                continue
        return "late"

    agent = Agent(ScriptedModel(Call("stubborn")), tools=[stubborn], tool_grace=0.01)
    agent.on("before_tool", soon)
    outcome = agent.run_sync("go")
    assert outcome.cancelled is not None
    assert [gone.name for gone in outcome.cancelled.abandoned] == ["stubborn"]


PROGRAM = """
    import threading
    from andon import Agent, Call, Stop, tool

    @tool
    def deaf() -> str:
        "Hear nothing."
        threading.Event().wait()
        return "never"

    async def model(request):
        yield Call("deaf")

    agent = Agent(model, tools=[deaf], tool_grace=0.01)
    agent.on("before_tool", lambda moment: moment.run.cancel(Stop.graceful(grace=0.01)) and None)
    print(agent.run_sync("go").stop_reason)
"""


def test_a_program_ends_although_a_thread_of_it_never_does() -> None:
    """The interpreter waits for no abandoned tool."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", dedent(PROGRAM)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "cancelled\n", "")
