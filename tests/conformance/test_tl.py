"""TL: the life of a turn loop."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from threading import Barrier

import anyio
import pytest

from andon import Agent, Turn, TurnLoop
from andon.core.items import Event, RunEnded, RunStarted
from andon.errors import LoopClosedError, RunStateError
from andon.runtime.hooks import Moment
from andon.runtime.turn import Exit, Planning, TurnView
from andon.testing import Gate, ScriptedModel, virtual
from tests.belt import Belt

PLACE: ContextVar[str] = ContextVar("PLACE", default="outside")


@virtual
async def test_tl_01_what_was_pushed_before_the_run_is_processed() -> None:
    """Both are accepted, both get their turn, and a bare stop afterwards is a clean exit."""
    belt = Belt()
    receipts = [belt.loop.push("msg1"), belt.loop.push("msg2")]
    assert belt.given == []
    async with belt.loop:
        await belt.until("2 completed")
        belt.loop.stop()
        exit_ = await belt.loop.wait()
    assert [receipt.accepted for receipt in receipts] == [True, True]
    assert belt.consumed == ["msg1", "msg2"]
    assert (exit_.reason, exit_.unhandled) == (None, ())


@virtual
async def test_tl_02_wait_before_run_waits_for_it() -> None:
    """It does not return before the loop has run, and then says what became of the item."""
    belt = Belt()
    exits: list[Exit[str]] = []

    async def wait() -> None:
        exits.append(await belt.loop.wait())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.sleep(1)
        belt.loop.push("msg1")
        belt.loop.stop()
        await anyio.sleep(1)
        assert exits == []
        await belt.loop.run()
    assert (exits[0].reason, exits[0].unhandled) == (None, ("msg1",))


@virtual
async def test_tl_02_wait_for_a_loop_that_was_closed_unrun_raises() -> None:
    """Whoever waits already is told so, too."""
    loop = Belt().loop

    async def wait() -> None:
        with pytest.raises(LoopClosedError, match="closed before it ran: there is no exit to wait for"):
            await loop.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.sleep(1)
        loop.close()
    await wait()


@virtual
async def test_tl_03_a_second_run_raises() -> None:
    """One loop processes, and each item is planned once."""
    gate = Gate("model")
    belt = Belt([gate, "Done."])
    belt.loop.push("msg1")
    async with belt.loop:
        await gate.reached()
        with pytest.raises(RunStateError, match="the loop is active: it runs once; make another"):
            await belt.loop.run()
        with pytest.raises(RunStateError, match="runs once"):
            async with belt.loop:
                pytest.fail("it was entered twice")
        gate.open()
    assert belt.given == [["msg1"]]
    with pytest.raises(RunStateError, match="the loop is closed: it runs once"):
        await belt.loop.run()


async def test_tl_04_producers_in_threads_lose_nothing_and_double_nothing() -> None:
    """Ten push ten items each while the loop begins; what was processed or is left is what was pushed."""
    belt = Belt()
    barrier = Barrier(11)

    def produce(who: int) -> list[bool]:
        barrier.wait(30)
        return [belt.loop.push(f"{who}-{k}").accepted for k in range(10)]

    with ThreadPoolExecutor(10) as pool:
        futures = [pool.submit(produce, who) for who in range(10)]
        barrier.wait(30)
        async with asyncio.timeout(30), belt.loop:
            while len(belt.ended) < 20:
                await anyio.lowlevel.checkpoint()
            belt.loop.stop()
            exit_ = await belt.loop.wait()
        accepted = [taken for future in futures for taken in future.result(30)]
    pushed = Counter(f"{who}-{k}" for who in range(10) for k in range(10))
    assert exit_.reason is None
    assert Counter([*belt.consumed, *exit_.unhandled, *exit_.late()]) == pushed
    assert accepted.count(False) == len(exit_.late())
    for who in range(10):
        mine = [item for item in (*belt.consumed, *exit_.unhandled, *exit_.late()) if item[0] == str(who)]
        assert mine == [f"{who}-{k}" for k in range(10)]


@virtual
async def test_tl_05_all_who_wait_get_the_same() -> None:
    """Three wait, and one more comes after the end."""
    belt = Belt()
    exits: list[Exit[str]] = []

    async def wait() -> None:
        exits.append(await belt.loop.wait())

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(wait)
        async with belt.loop:
            await anyio.sleep(1)
    await wait()
    assert len(exits) == 4
    assert all(exit_ is exits[0] for exit_ in exits)


@virtual
async def test_tl_06_each_turn_is_planned_over_all_that_waits() -> None:
    """In push order; what is kept for later comes back at the front."""
    gate = Gate("model")
    belt = Belt([gate, "Done."])
    for item in ("a", "b", "c"):
        belt.loop.push(item)
    async with belt.loop:
        await gate.reached()
        belt.loop.push("d")
        gate.open()
    assert belt.given == [["a", "b", "c"], ["b", "c", "d"], ["c", "d"], ["d"]]


@virtual
async def test_tl_07_the_callback_is_called_once_a_turn_with_its_items_and_events() -> None:
    """The events go from the start of the run to its end, and end with it."""
    seen: list[tuple[tuple[str, ...], list[Event]]] = []

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        seen.append((tuple(turn.consumed), [event async for event in events]))

    belt = Belt(on_events=watch)
    belt.loop.push("a")
    belt.loop.push("b")
    async with belt.loop:
        pass
    assert [consumed for consumed, _ in seen] == [("a",), ("b",)]
    for _, events in seen:
        assert isinstance(events[0], RunStarted)
        assert isinstance(events[-1], RunEnded)


@virtual
async def test_tl_08_callbacks_push_and_stop() -> None:
    """The first turn asks for a second, the second stops the loop: exactly two."""
    numbers: list[int] = []

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        numbers.append(turn.number)
        async for _ in events:
            pass
        if turn.number == 1:
            turn.loop.push("follow-up")
        else:
            turn.loop.stop()

    belt = Belt(on_events=watch)
    belt.loop.push("first")
    exit_ = await belt.loop.run()
    assert numbers == [1, 2]
    assert belt.given == [["first"], ["follow-up"]]
    assert (exit_.reason, exit_.unhandled) == (None, ())


@virtual
async def test_tl_09_a_context_holds_for_its_turn_only() -> None:
    """The agent is prepared and run, and its events are watched, in the context of the turn."""
    seen: list[tuple[str, str]] = []

    def plan(_about: Planning[str], items: Sequence[str]) -> Turn[str]:
        seen.append(("plan", PLACE.get()))
        context = copy_context()
        if items[0] == "a":
            context.run(PLACE.set, "inside")
        return Turn(items[0], consumed=items[:1], remaining=items[1:], context=context)

    def prepare(_about: Planning[str], _consumed: Sequence[str]) -> Agent:
        seen.append(("prepare", PLACE.get()))
        agent = Agent(ScriptedModel("Done."))

        @agent.on("before_model")
        def look(_moment: Moment) -> None:
            seen.append(("model", PLACE.get()))

        return agent

    async def watch(_turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        seen.append(("watch", PLACE.get()))
        async for _ in events:
            pass

    loop = TurnLoop[str](gen_input=plan, prepare_agent=prepare, on_events=watch)
    loop.push("a")
    loop.push("b")
    async with loop:
        pass
    first, second = seen[:4], seen[4:]
    assert first[0] == second[0] == ("plan", "outside")
    assert sorted(first[1:]) == [("model", "inside"), ("prepare", "inside"), ("watch", "inside")]
    assert sorted(second[1:]) == [("model", "outside"), ("prepare", "outside"), ("watch", "outside")]


@virtual
async def test_tl_10_a_plain_push_leaves_the_running_agent_alone() -> None:
    """It is not cancelled, and the item gets a second turn."""
    gate = Gate("model")
    belt = Belt([gate, "Done."])
    belt.loop.push("a")
    async with belt.loop:
        await gate.reached()
        belt.loop.push("b")
        await anyio.sleep(60)
        assert belt.ended == []
        gate.open()
        await belt.until("2 completed")
        belt.loop.stop()
        exit_ = await belt.loop.wait()
    assert belt.ended == ["end_turn", "end_turn"]
    assert [view.preempted for view in belt.views] == [False, False]
    assert len(belt.model.requests) == 2
    assert exit_.reason is None
