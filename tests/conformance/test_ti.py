"""TI: what becomes of the items when a turn cannot be planned."""

from collections.abc import Sequence

import anyio

from andon import Agent, Turn
from andon.runtime.turn import Planning
from andon.testing import Gate, virtual
from tests.belt import Belt
from tests.stores import MemoryStore


class PlanError(Exception):
    """A callback's own."""


def failing(*_: object) -> Agent:
    """Prepare no agent."""
    raise PlanError


@virtual
async def test_ti_01_gen_input_fails_and_all_items_are_unhandled() -> None:
    """The error ends the loop, and nothing is kept for later."""
    store = MemoryStore()

    def plan(*_: object) -> Turn[str]:
        raise PlanError

    belt = Belt(gen_input=plan, store=store, checkpoint_id="id")
    belt.loop.push("msg1")
    belt.loop.push("msg2")
    exit_ = await belt.loop.run()
    assert isinstance(exit_.reason, PlanError)
    assert exit_.unhandled == ("msg1", "msg2")
    assert (exit_.interrupted, exit_.failed) == ((), ())
    assert (exit_.checkpoint_attempted, exit_.checkpoint_error, store.data) == (False, None, {})
    assert belt.turns == ["1 began", "1 abandoned"]


@virtual
async def test_ti_02_prepare_agent_fails_and_the_consumed_items_come_back_too() -> None:
    """The turn was never active: what it consumed and what it kept for later are both unhandled."""
    belt = Belt(prepare_agent=failing)
    belt.loop.push("msg1")
    belt.loop.push("msg2")
    exit_ = await belt.loop.run()
    assert belt.given == [["msg1", "msg2"]]
    assert isinstance(exit_.reason, PlanError)
    assert exit_.unhandled == ("msg1", "msg2")
    assert belt.model.requests == []


@virtual
async def test_ti_03_what_comes_back_is_in_the_order_of_the_pushes() -> None:
    """Not with what was consumed first, and what was dropped is back as well."""

    def plan(_about: Planning[str], items: Sequence[str]) -> Turn[str]:
        return Turn("go", consumed=[items[1]], remaining=[items[0]], dropped=[items[2]])

    belt = Belt(gen_input=plan, prepare_agent=failing)
    for item in ("msg1", "urgent", "msg2"):
        belt.loop.push(item)
    exit_ = await belt.loop.run()
    assert isinstance(exit_.reason, PlanError)
    assert exit_.unhandled == ("msg1", "urgent", "msg2")


async def stopped_while_planning(*items: str) -> Belt:
    """Stop a loop while gen_input runs, and hold it to a turn that is abandoned."""
    gate = Gate("plan")

    async def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        belt.note(about, items)
        await gate
        return Turn("go", consumed=items[-1:], remaining=items[:-1])

    belt = Belt(gen_input=plan)
    for item in items:
        belt.loop.push(item)
    async with belt.loop:
        await gate.reached()
        belt.loop.stop()
        gate.open()
        exit_ = await belt.loop.wait()
    assert exit_.reason is None
    assert exit_.unhandled == items
    assert belt.turns == ["1 began", "1 abandoned"]
    return belt


@virtual
async def test_ti_04_a_stop_while_gen_input_runs_abandons_the_turn() -> None:
    """It returns, no agent is prepared, and all its items are unhandled, in order."""
    belt = await stopped_while_planning("msg1", "msg2", "msg3")
    assert belt.prepared == []


@virtual
async def test_ti_05_the_same_with_one_item() -> None:
    """The agent never runs."""
    belt = await stopped_while_planning("msg1")
    assert belt.model.requests == []


@virtual
async def test_ti_04_a_stop_while_the_agent_is_prepared_abandons_the_turn_as_well() -> None:
    """The agent that was prepared is not run."""
    gate = Gate("prepare")

    async def prepare(_about: Planning[str], _consumed: Sequence[str]) -> Agent:
        await gate
        return belt.agent

    belt = Belt(prepare_agent=prepare)
    belt.loop.push("msg1")
    belt.loop.push("msg2")
    async with belt.loop:
        await gate.reached()
        belt.loop.stop()
        gate.open()
        exit_ = await belt.loop.wait()
    assert (exit_.reason, exit_.unhandled) == (None, ("msg1", "msg2"))
    assert belt.model.requests == []


@virtual
async def test_ti_07_gen_input_itself_stops_the_loop() -> None:
    """No deadlock: the turn is abandoned, and the agent never runs."""

    def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        about.loop.stop()
        return Turn(items[0], consumed=items)

    belt = Belt(gen_input=plan)
    belt.loop.push("msg1")
    exit_ = await belt.loop.run()
    assert (exit_.reason, exit_.unhandled) == (None, ("msg1",))
    assert (belt.prepared, belt.model.requests) == ([], [])


@virtual
async def test_ti_08_an_agent_that_has_finished_interrupts_nothing() -> None:
    """A stop of the idle loop finds no turn to cut."""
    belt = Belt(store=MemoryStore(), checkpoint_id="id")
    belt.loop.push("msg1")
    async with belt.loop:
        await belt.until("1 completed")
        await anyio.sleep(1)
        belt.loop.stop()
        exit_ = await belt.loop.wait()
    assert (exit_.reason, exit_.interrupted, exit_.failed, exit_.unhandled) == (None, (), (), ())


@virtual
async def test_ti_08_an_agent_that_finishes_during_a_bare_stop_interrupts_nothing() -> None:
    """Its turn is completed."""
    gate = Gate("model")
    belt = Belt([gate, "Done."])
    belt.loop.push("msg1")
    async with belt.loop:
        await gate.reached()
        belt.loop.stop()
        gate.open()
        exit_ = await belt.loop.wait()
    assert (exit_.reason, exit_.interrupted, exit_.failed, exit_.unhandled) == (None, (), (), ())
    assert belt.turns == ["1 began", "1 completed"]
