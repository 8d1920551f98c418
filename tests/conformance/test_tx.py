"""TX: the task that runs a loop is cancelled from outside."""

import asyncio
from collections.abc import Sequence

import anyio
import pytest

from andon import Agent, Turn
from andon.runtime.turn import Exit, Planning
from andon.testing import Gate, virtual
from tests.belt import Belt


async def cancelled(belt: Belt, task: "asyncio.Task[Exit[str]]") -> Exit[str]:
    """Hold the task to having been cancelled, and give the exit of its loop."""
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    return await belt.loop.wait()


@virtual
async def test_tx_01_gen_input_sees_the_cancellation_and_raises_it() -> None:
    """It is the exit's reason, and the items are unhandled."""
    gate = Gate("plan")
    seen: list[type[BaseException]] = []

    async def plan(_about: Planning[str], items: Sequence[str]) -> Turn[str]:
        try:
            await gate
        except BaseException as error:
            seen.append(type(error))
            raise
        return Turn("go", consumed=items)

    belt = Belt(gen_input=plan)
    belt.loop.push("msg1")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        await gate.reached()
        task.cancel()
        exit_ = await cancelled(belt, task)
    assert seen == [asyncio.CancelledError]
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert exit_.unhandled == ("msg1",)


@virtual
async def test_tx_01_gen_input_sees_a_deadline_and_raises_it() -> None:
    """A time-out of its own is the exit's reason, and nobody was cancelled."""

    async def plan(_about: Planning[str], _items: Sequence[str]) -> Turn[str]:
        with anyio.fail_after(1):
            await anyio.sleep_forever()
        raise AssertionError

    belt = Belt(gen_input=plan)
    belt.loop.push("msg1")
    exit_ = await belt.loop.run()
    assert isinstance(exit_.reason, TimeoutError)
    assert exit_.unhandled == ("msg1",)


@virtual
async def test_tx_01_the_deadline_of_whoever_runs_the_loop() -> None:
    """The scope around it gets its cancellation back, and the exit says that it was one."""
    gate = Gate("plan")

    async def plan(_about: Planning[str], items: Sequence[str]) -> Turn[str]:
        await gate
        return Turn("go", consumed=items)

    belt = Belt(gen_input=plan)
    belt.loop.push("msg1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await belt.loop.run()
    exit_ = await belt.loop.wait()
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert exit_.unhandled == ("msg1",)


@virtual
async def test_tx_04_cancelled_inside_gen_input_no_agent_is_prepared() -> None:
    """What was consumed and what was to remain are unhandled."""

    def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        task.cancel()
        return belt.plan(about, items)

    belt = Belt(gen_input=plan)
    belt.loop.push("msg1")
    belt.loop.push("msg2")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        exit_ = await cancelled(belt, task)
    assert belt.given == [["msg1", "msg2"]]
    assert belt.prepared == []
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert exit_.unhandled == ("msg1", "msg2")


@virtual
async def test_tx_04_prepare_agent_raises_the_cancellation() -> None:
    """It is the exit's reason, and both items are unhandled."""

    async def prepare(_about: Planning[str], _consumed: Sequence[str]) -> Agent:
        task.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    belt = Belt(prepare_agent=prepare)
    belt.loop.push("msg1")
    belt.loop.push("msg2")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        exit_ = await cancelled(belt, task)
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert exit_.unhandled == ("msg1", "msg2")
    assert belt.model.requests == []


@virtual
async def test_tx_05_a_loop_that_waits_for_idleness_is_cancelled_at_once() -> None:
    """It does not sit out its ten minutes."""
    now = asyncio.get_running_loop().time
    began = now()
    belt = Belt()
    belt.loop.stop(when_idle_for=600)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        await anyio.sleep(1)
        task.cancel()
        exit_ = await cancelled(belt, task)
    assert now() - began == pytest.approx(1)
    assert isinstance(exit_.reason, asyncio.CancelledError)
