"""What a model raises, when it counts as its failure and when it is part of a cut."""

import asyncio
from collections.abc import AsyncIterator

from andon.core.draft import Chunk
from andon.core.messages import Call, ResultState
from andon.ports import ModelRequest
from andon.runtime.agent import Agent
from andon.runtime.tools import tool
from andon.testing import ScriptedModel


async def test_an_error_that_a_model_raises_while_it_is_cut_is_part_of_the_cut() -> None:
    """A client library may turn the cancellation into an error of its own; the run was still cancelled."""
    asked = asyncio.Event()

    async def clumsy(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Half an ans"
        asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            msg = "the stream was closed"
            raise ConnectionError(msg) from None

    async with Agent(clumsy).start("Go on.") as run:
        await asked.wait()
        run.cancel()
        outcome = await run.outcome()

    assert outcome.stop_reason == "cancelled"
    assert outcome.error is None
    assert outcome.text == "Half an ans"


async def test_an_error_of_a_model_that_nobody_cut_is_the_runs_own() -> None:
    """The outcome says what failed, keeps what had come, and can be sent again."""

    async def failing(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Half an ans"
        msg = "out of order"
        raise RuntimeError(msg)

    outcome = await Agent(failing).run("Go on.")

    assert outcome.stop_reason == "error"
    assert outcome.error == "RuntimeError: out of order"
    assert (outcome.text, outcome.message.cut) == ("Half an ans", True)


async def test_a_model_that_leaves_the_program_fails() -> None:
    """A library that calls sys.exit() does not take the program, or the outcome, with it."""
    outcome = await Agent(ScriptedModel(SystemExit(3))).run("Go on.")

    assert (outcome.stop_reason, outcome.error) == ("error", "SystemExit: 3")


async def test_a_tool_that_leaves_the_program_fails() -> None:
    """Its call ends like any other that failed, and the run goes on."""

    @tool
    async def leave() -> str:
        raise SystemExit(3)

    outcome = await Agent(ScriptedModel([Call("leave")], "Done."), tools=[leave]).run("Go on.")

    assert outcome.stop_reason == "end_turn"
    assert outcome.messages[2].results[0].state is ResultState.FAILED
    assert outcome.messages[2].results[0].content == "SystemExit: 3"
