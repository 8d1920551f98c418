"""What the machine of tests/machine has found in turn loops, each with as little as shows it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from andon import Agent, Turn, TurnLoop
from andon.core.items import Event
from andon.errors import Cancelled
from andon.runtime.turn import Planning, TurnView
from andon.testing import Gate, ScriptedModel, virtual


def one_by_one(_: Planning[str], items: Sequence[str]) -> Turn[str]:
    """Take the first of the items."""
    return Turn(items[0], consumed=items[:1], remaining=items[1:])


@virtual
async def test_a_callback_that_raises_its_agents_cancelled_does_not_hide_who_cancelled_the_loop() -> None:
    """The exit names the cancellation of the task, and no stop, which nobody has asked for."""
    gate = Gate()

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for _ in events:
            pass
        assert turn.run is not None
        outcome = await turn.run.outcome()
        msg = "as the agent says it"
        raise Cancelled(msg, outcome.cancelled)

    agent = Agent(ScriptedModel([gate, "done"]))
    loop = TurnLoop(gen_input=one_by_one, prepare_agent=lambda _, __: agent, on_events=watch)
    loop.push("work")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(loop.run())
        await gate.reached()
        task.cancel()
    ended = await loop.wait()
    assert isinstance(ended.reason, asyncio.CancelledError)
    assert list(ended.failed) == ["work"]
    with pytest.raises(asyncio.CancelledError):
        task.result()
