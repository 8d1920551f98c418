"""What the machine of tests/machine has found in turn loops, each with as little as shows it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from andon import Agent, ModelError, Point, Preempt, Run, Stop, Turn, TurnLoop
from andon.core.items import Event
from andon.core.parked import unpark
from andon.errors import Cancelled
from andon.runtime.turn import Planning, TurnView
from andon.testing import Gate, ScriptedModel, virtual
from tests.looped import ID, Looped
from tests.stores import MemoryStore


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


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("asked", ["by the callback", "by a preempt"])
def test_a_cancelled_is_a_return_only_if_it_is_of_the_turns_own_agent(asked: str, *, own: bool) -> None:
    """Whoever has cancelled that; the one of another agent is an error like any other."""

    @virtual
    async def told() -> None:
        gates = Gate("own"), Gate("other")

        async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
            if turn.number > 1:
                return
            assert turn.run is not None
            await gates[0].reached()
            if asked == "by a preempt":
                loop.push("more", preempt=Preempt(Point.STREAM))
            else:
                turn.run.cancel()
            async for _ in events:
                pass
            run = turn.run if own else await another(gates[1])
            raise Cancelled(report=(await run.outcome()).cancelled)

        agent = Agent(ScriptedModel([gates[0], "never"], "Done."))
        loop = TurnLoop(gen_input=one_by_one, prepare_agent=lambda _, __: agent, on_events=watch)
        loop.push("work")
        async with loop:
            pass
        ended = await loop.wait()
        assert (ended.reason is None) == own
        assert own or isinstance(ended.reason, Cancelled)
        assert (ended.failed, ended.interrupted) == (() if own else ("work",), ())

    told()


async def another(gate: Gate) -> Run:
    """Cancel an agent that has nothing to do with the turn."""
    async with Agent(ScriptedModel([gate, "never"])).start("go") as run:
        await gate.reached()
        run.cancel()
    return run


@virtual
async def test_a_resumed_turn_that_fails_is_consumed_once_the_loop_goes_on_without_it() -> None:
    """Its items are told as failed, and nothing of it is left in the store."""
    gate, store = Gate(), MemoryStore()
    before = Looped([gate, "never"], store=store)
    async with before.loop:
        before.push("first", "second")
        await gate.reached()
        before.loop.stop(Stop.now())
    assert store.data
    later = Gate()
    scene = Looped(ModelError("no"), [later, "Done."], store=store, gen_resume="on")
    async with scene.loop:
        await later.reached()
        assert unpark(store.data[ID]).turn is None  # at once: a crash now must not bring it back
        later.open()
    exit_ = await scene.loop.wait()
    assert (exit_.reason, exit_.failed, scene.ends) == (None, ("first",), ["failed", "completed"])
    assert store.data == {}


@virtual
async def test_a_turn_that_is_cut_with_the_task_of_its_loop_leaves_the_store_as_it_was() -> None:
    """What it had taken from there has not been dealt with: a later loop may try it again."""
    store = MemoryStore()
    before = Looped(store=store)
    before.loop.stop()
    before.loop.give_back("first")
    await before.loop.run()
    kept, gate = dict(store.data), Gate()
    scene = Looped([gate, "never"], store=store)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(scene.loop.run())
        await gate.reached()
        task.cancel()
    assert (await scene.loop.wait()).failed == ("first",)
    assert store.data == kept != {}
