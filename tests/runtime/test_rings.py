"""Rings: what holds each other is left to the collector, and nothing of a run that has ended does."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager

import pytest

from andon import Agent, Call, Run, ToolContext, tool
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.isolate import turn


@tool
async def look(query: str, context: ToolContext) -> str:
    """Look it up."""
    context.progress("looking")
    return f"nothing about {query}"


@tool
def read(query: str) -> str:
    """Read it, in a thread."""
    return f"nothing about {query}"


async def words(_: object) -> AsyncGenerator[str]:
    """Answer."""
    yield "Done."


async def hung(_: object) -> AsyncGenerator[str]:
    """Say a word, and then nothing any more."""
    yield "Do"
    await asyncio.get_running_loop().create_future()


def calling(*calls: Call) -> Callable[[ModelRequest], AsyncGenerator[str | Call]]:
    """Make a model that makes these calls, and then answers."""

    async def model(request: ModelRequest) -> AsyncGenerator[str | Call]:
        if request.messages[-1].role == "tool":
            yield "Done."
            return
        for call in calls:
            yield call

    return model


CALLS = (Call("look", {"query": "cord"}), Call("read", {"query": "cord"}))


async def to_the_end(agent: Agent) -> None:
    """Run an agent to its end, and read along."""
    async with agent.start("go") as run:
        assert [event async for event in run]
        outcome = await run.outcome()
    assert outcome.text == "Done."


async def cut(agent: Agent) -> None:
    """Cancel an agent in the middle of its answer."""
    async with agent.start("go") as run:
        async for event in run:
            if type(event).__name__ == "TextDelta":
                break
        report = await run.cancel()
        outcome = await run.outcome()
    assert (outcome.stop_reason, report.result) == ("cancelled", "STOPPED")


def hooked() -> Agent:
    """Make an agent with a hook at its end, which is shown the run."""
    agent = Agent(words)

    def seen(moment: Moment) -> None:
        assert isinstance(moment.run, Run)

    agent.on("run_ended", seen)
    return agent


@contextmanager
def nothing_left() -> Generator[None]:
    """Keep the collector away from the block, and let it find nothing after it."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        assert Counter(type(one).__name__ for one in gc.garbage) == {}
    finally:
        gc.garbage.clear()
        gc.set_debug(0)
        gc.enable()


SCENES: dict[str, tuple[Agent, Callable[[Agent], Awaitable[None]]]] = {
    "words": (Agent(words), to_the_end),
    "tools": (Agent(calling(*CALLS), tools=[look, read]), to_the_end),
    "a hook": (hooked(), to_the_end),
    "a cut": (Agent(hung), cut),
}


@pytest.mark.parametrize(("agent", "scene"), SCENES.values(), ids=SCENES)
async def test_a_run_that_has_ended_leaves_nothing_to_the_collector(
    agent: Agent, scene: Callable[[Agent], Awaitable[None]]
) -> None:
    """What it held is free when it is dropped: a thousand runs cost the collector no more than one."""
    await scene(agent)  # what is made once, is made now
    with nothing_left():
        await scene(agent)
        await turn()  # the loop lets its last callbacks go
