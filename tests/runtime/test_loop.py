"""A turn loop and whoever runs it: its block, its task, its waiters and its observers."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from andon import Agent, Call, ModelError, Stop, ToolContext, Turn, TurnLoop, tool
from andon.core.items import Event, Item, TurnEnded, TurnStarted
from andon.errors import LoopClosedError, RunStateError
from andon.runtime.turn import Exit, Planning, TurnView
from andon.testing import Gate, Hang, ScriptedModel, virtual
from tests.belt import Belt
from tests.stores import BrokenStore, HangingStore, MemoryStore

PLACE: ContextVar[str] = ContextVar("PLACE", default="outside")


def now() -> float:
    """The virtual time."""
    return asyncio.get_running_loop().time()


# The block


@virtual
async def test_leaving_the_block_deals_with_what_was_pushed() -> None:
    """And with what its turns push; nobody has to stop the loop."""
    belt = Belt()
    async with belt.loop as loop:
        assert loop is belt.loop
        loop.push("a")
        loop.push("b")
    exit_ = await belt.loop.wait()
    assert belt.consumed == ["a", "b"]
    assert (exit_.reason, exit_.unhandled, exit_.late()) == (None, (), ())


@virtual
async def test_leaving_the_block_leaves_a_stop_as_it_was_asked() -> None:
    """A bare one before the items are dealt with, and one that waits for idleness for its time."""
    belt = Belt()
    async with belt.loop:
        belt.loop.push("a")
        belt.loop.stop()
    assert (await belt.loop.wait()).unhandled == ("a",)

    idle = Belt()
    began = now()
    async with idle.loop:
        idle.loop.push("a")
        idle.loop.stop(when_idle_for=5)
    assert now() == pytest.approx(began + 5)
    assert idle.consumed == ["a"]


class OwnError(Exception):
    """The caller's own."""


@virtual
async def test_an_exception_in_the_block_ends_the_loop() -> None:
    """It comes out as it is; the turn is cut, and its items failed."""
    gate = Gate("model")
    belt = Belt([gate])
    belt.loop.push("a")
    belt.loop.push("b")

    async def block() -> None:
        async with belt.loop:
            await gate.reached()
            raise OwnError

    with pytest.raises(OwnError):
        await block()
    exit_ = await belt.loop.wait()
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert (exit_.failed, exit_.unhandled, exit_.interrupted) == (("a",), ("b",), ())
    assert belt.ended == ["cancelled"]
    assert belt.model.live == 0
    assert belt.turns == ["1 began", "1 failed"]


@virtual
async def test_an_exception_before_the_loop_has_taken_a_step_ends_it_too() -> None:
    """Nothing was planned, and there is an exit to wait for."""
    belt = Belt()
    belt.loop.push("a")
    with pytest.raises(OwnError):
        async with belt.loop:
            raise OwnError
    exit_ = await belt.loop.wait()
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert (exit_.unhandled, belt.given) == (("a",), [])


@virtual
async def test_cancelling_the_task_of_the_block_cuts_the_turn() -> None:
    """Inside the block, or while it waits for the loop at its end; the cancellation goes on."""
    for inside in (True, False):
        gate = Gate("model")
        belt = Belt([gate])
        belt.loop.push("a")

        async def block(belt: Belt = belt, *, inside: bool = inside) -> None:
            async with belt.loop:
                if inside:
                    await anyio.sleep_forever()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(block())
            await gate.reached()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert task.cancelled()
        exit_ = await belt.loop.wait()
        assert isinstance(exit_.reason, asyncio.CancelledError)
        assert (exit_.failed, belt.ended, belt.model.live) == (("a",), ["cancelled"], 0)


@virtual
async def test_leaving_a_block_that_was_never_entered_waits_for_nothing() -> None:
    """As somebody does whose entering failed."""
    await Belt().loop.__aexit__(None, None, None)


# The task that runs it


@virtual
async def test_run_gives_the_exit_and_so_does_wait() -> None:
    """In the task that calls it."""
    belt = Belt()
    belt.loop.push("a")
    belt.loop.stop(when_idle_for=1)
    exit_ = await belt.loop.run()
    assert exit_ is await belt.loop.wait()
    assert (exit_.reason, belt.consumed) == (None, ["a"])


@virtual
async def test_a_deadline_around_a_turn_cuts_it() -> None:
    """Whoever set it gets it back; the run is cut and not left behind."""
    belt = Belt(["Half", Hang()])
    belt.loop.push("a")
    with anyio.move_on_after(3) as scope:
        await belt.loop.run()
    assert scope.cancelled_caught
    exit_ = await belt.loop.wait()
    assert (exit_.failed, belt.ended, belt.model.live) == (("a",), ["cancelled"], 0)
    assert belt.views[0].run is not None
    report = (await belt.views[0].run.outcome()).cancelled
    assert report is not None
    assert report.cause is not None
    assert (report.cause.source, report.cause.reason) == ("code", "the task of the loop was cancelled")


@virtual
async def test_a_scope_around_the_block_gets_its_own_cancellation_back() -> None:
    """Whether the block still works then, or waits for the loop; the time it takes is bounded."""
    for inside in (True, False):
        belt = Belt([Hang()])
        belt.loop.push("a")
        began = now()
        with anyio.move_on_after(3) as scope:
            async with belt.loop:
                if inside:
                    await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert now() == pytest.approx(began + 3)
        assert (await belt.loop.wait()).failed == ("a",)


async def cancelled_in(belt: Belt, gate: Gate, *, times: int = 1) -> Exit[str]:
    """Run a loop as a task, and cancel that once somebody is at the gate."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        await gate.reached()
        for _ in range(times):
            task.cancel()
            await anyio.sleep(0.1)
        with pytest.raises(asyncio.CancelledError):
            await task
    return await belt.loop.wait()


@pytest.mark.parametrize("times", [1, 3])
@virtual
async def test_a_callback_that_swallows_its_cancellation_is_abandoned(times: int) -> None:
    """After its grace, however often it is cancelled; its items are unhandled."""
    gate, never = Gate("plan"), Gate("never")

    async def plan(_about: Planning[str], items: Sequence[str]) -> Turn[str]:
        await swallows(gate)
        await never
        return Turn("go", consumed=items)

    belt = Belt(gen_input=plan)
    belt.loop.push("a")
    began = now()
    exit_ = await cancelled_in(belt, gate, times=times)
    assert now() == pytest.approx(began + 2)
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert exit_.unhandled == ("a",)


async def swallows(gate: Gate) -> None:
    """Wait at a gate, and take no notice of a cancellation."""
    try:
        await gate
    except asyncio.CancelledError:
        return


@virtual
async def test_a_callback_that_answers_its_cancellation_with_an_error_ends_the_loop_with_that() -> None:
    """The task of the loop is cancelled all the same."""
    gate = Gate("plan")

    async def plan(_about: Planning[str], _items: Sequence[str]) -> Turn[str]:
        try:
            await gate
        except asyncio.CancelledError:
            raise OwnError from None
        raise AssertionError

    belt = Belt(gen_input=plan)
    belt.loop.push("a")
    exit_ = await cancelled_in(belt, gate)
    assert isinstance(exit_.reason, OwnError)
    assert exit_.unhandled == ("a",)


@virtual
async def test_on_events_that_does_not_end_is_cancelled_and_then_abandoned() -> None:
    """The agent is cut at once; its watcher has time to see that, then a grace, and no longer."""
    gate, noted = Gate("watch"), list[str]()

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for _ in events:
            pass
        assert turn.run is not None
        noted.append((await turn.run.outcome()).stop_reason)
        await gate

    belt = Belt("Done.", on_events=watch)
    belt.loop.push("a")
    began = now()
    exit_ = await cancelled_in(belt, gate)
    assert noted == ["end_turn"]
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert exit_.failed == ("a",)
    assert now() - began < 10

    gate = Gate("hold")

    async def hold(_turn: TurnView[str], _events: AsyncGenerator[Event]) -> None:
        await swallows(gate)
        await anyio.sleep_forever()

    stubborn = Belt([Hang()], on_events=hold)
    stubborn.loop.push("a")
    exit_ = await cancelled_in(stubborn, gate, times=2)
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert exit_.failed == ("a",)
    assert stubborn.model.live == 0


@virtual
async def test_a_turn_that_is_done_when_the_task_is_cancelled_is_no_failure() -> None:
    """Its agent had answered, and its watcher ends well."""
    gate = Gate("watch")

    async def watch(_turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for _ in events:
            pass
        await gate

    belt = Belt(on_events=watch)
    belt.loop.push("a")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        await gate.reached()
        task.cancel()
        await anyio.lowlevel.checkpoint()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task
    exit_ = await belt.loop.wait()
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert (exit_.failed, exit_.unhandled) == ((), ())
    assert belt.turns == ["1 began", "1 completed"]


@virtual
async def test_a_stop_that_is_overtaken_by_a_cancellation_keeps_nothing() -> None:
    """It waited for a safe point; the turn was cut before, and its items failed, in one place only."""
    gate = Gate("model")
    store = MemoryStore()
    belt = Belt([gate], store=store, checkpoint_id="id")
    belt.loop.push("a")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        await gate.reached()
        belt.loop.stop(Stop.graceful(grace=60))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    exit_ = await belt.loop.wait()
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert (exit_.failed, exit_.interrupted, exit_.checkpoint_attempted) == (("a",), (), False)
    assert belt.turns == ["1 began", "1 failed"]


@virtual
async def test_a_question_that_was_asked_when_the_task_is_cancelled_is_kept() -> None:
    """It waits for its answer, and its item with it."""
    gate = Gate("watch")
    store = MemoryStore()

    async def watch(_turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for _ in events:
            pass
        await gate

    belt = Belt(Call("ask"), tools=[ask], on_events=watch, store=store, checkpoint_id="id")
    belt.loop.push("a")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        await gate.reached()
        task.cancel()
        await anyio.lowlevel.checkpoint()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task
    exit_ = await belt.loop.wait()
    assert (exit_.interrupted, exit_.failed, exit_.checkpoint_attempted) == (("a",), (), True)
    assert list(store.data) == ["id"]


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask a human."""
    return str(await ctx.interrupt("may I?"))


@virtual
async def test_cancelled_while_it_stores_what_is_left_it_stores_that_first() -> None:
    """Bounded; the cancellation is not lost meanwhile."""
    gate = Gate("store")

    class SlowStore(MemoryStore):
        async def set(self, checkpoint_id: str, data: bytes, /) -> None:
            await gate
            await super().set(checkpoint_id, data)

    store = SlowStore()
    belt = Belt(store=store, checkpoint_id="id")
    belt.loop.push("a")
    belt.loop.stop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(belt.loop.run())
        await gate.reached()
        task.cancel()
        await anyio.sleep(1)
        assert not task.done()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task
    exit_ = await belt.loop.wait()
    assert (exit_.reason, exit_.unhandled, exit_.checkpoint_error) == (None, ("a",), None)
    assert list(store.data) == ["id"]


@virtual
async def test_a_store_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    """The exit says that what is left was not stored."""
    belt = Belt(store=HangingStore(), checkpoint_id="id")
    belt.loop.push("a")
    belt.loop.stop()
    began = now()
    exit_ = await belt.loop.run()
    assert now() == pytest.approx(began + 30)
    assert (exit_.reason, exit_.unhandled, exit_.checkpoint_attempted) == (None, ("a",), True)
    assert str(exit_.checkpoint_error) == "it was not stored within 30 s"


@virtual
async def test_a_store_that_fails_hides_no_reason() -> None:
    """The exit is what it is, and tells of the failure beside it."""
    belt = Belt(store=BrokenStore(), checkpoint_id="id")
    belt.loop.push("a")
    belt.loop.stop()
    exit_ = await belt.loop.run()
    assert (exit_.reason, exit_.unhandled, exit_.checkpoint_attempted) == (None, ("a",), True)
    assert isinstance(exit_.checkpoint_error, OSError)


@pytest.mark.parametrize("where", ["plan", "model"])
def test_an_event_loop_that_is_closed_under_it_leaves_an_exit(where: str) -> None:
    """The items are where they were: unhandled, or failed with their turn."""
    gate = Gate(where)

    async def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        if where == "plan":
            await gate
        return Belt.plan(belt, about, items)

    belt = Belt([gate], gen_input=plan)
    belt.loop.push("a")
    belt.loop.push("b")
    loop = asyncio.new_event_loop()
    running: Coroutine[Any, Any, Exit[str]] = belt.loop.run()
    task = loop.create_task(running)
    loop.run_until_complete(gate.reached())
    loop.set_exception_handler(lambda _loop, _context: None)
    left = asyncio.all_tasks(loop) - {task}
    loop.close()
    running.close()  # as the garbage collector does
    for other in left:
        inner = other.get_coro()
        assert isinstance(inner, Coroutine)
        inner.close()
    exit_ = asyncio.run(belt.loop.wait())
    assert isinstance(exit_.reason, GeneratorExit)
    assert (exit_.unhandled, exit_.failed) == ((("a", "b"), ()) if where == "plan" else (("b",), ("a",)))
    assert not belt.loop.push("c").accepted


# Who waits


@virtual
async def test_whoever_waits_can_be_cancelled_and_the_loop_goes_on() -> None:
    """The others get the exit."""
    belt = Belt()
    exits: list[Exit[str]] = []

    async def wait() -> None:
        exits.append(await belt.loop.wait())

    async with asyncio.TaskGroup() as group:
        impatient = group.create_task(wait())
        group.create_task(wait())
        await anyio.sleep(1)
        impatient.cancel()
        async with belt.loop:
            belt.loop.push("a")
    assert exits == [await belt.loop.wait()]
    assert belt.ended == ["end_turn"]


@virtual
async def test_closing_is_for_a_loop_that_was_never_run() -> None:
    """Its items are late from then on; one that was run is stopped instead."""
    belt = Belt()
    belt.loop.push("a")
    assert belt.loop.busy
    belt.loop.close()
    assert repr(belt.loop) == "<TurnLoop loop, closed, turn 0, 0 waiting>"
    assert not belt.loop.push("b").accepted
    with pytest.raises(LoopClosedError, match="there is no exit to wait for"):
        await belt.loop.wait()
    with pytest.raises(RunStateError, match=r"the loop has been run: stop\(\) it instead"):
        belt.loop.close()
    with pytest.raises(RunStateError, match="the loop is closed: it runs once; make another"):
        await belt.loop.run()

    other = Belt()
    async with other.loop:
        with pytest.raises(RunStateError, match=r"stop\(\) it instead, and wait\(\) for its exit"):
            other.loop.close()
    assert (await other.loop.wait()).reason is None


# What it shows


@virtual
async def test_a_loop_shows_where_it_is() -> None:
    """Its phase, its turn, what waits, and how far a stop of it is."""
    plan, model = Gate("plan"), Gate("model")

    async def slowly(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        await plan
        return belt.plan(about, items)

    belt = Belt([model, "Done."], gen_input=slowly, name="chat")
    loop = belt.loop
    assert (repr(loop), loop.busy, loop.turn) == ("<TurnLoop chat, new, turn 0, 0 waiting>", False, None)
    async with loop:
        await anyio.sleep(1)
        assert repr(loop) == "<TurnLoop chat, idle, turn 0, 0 waiting>"
        loop.push("a")
        loop.push("b")
        await plan.reached()
        assert (repr(loop), loop.busy) == ("<TurnLoop chat, planning, turn 1, 0 waiting>", True)
        assert repr(loop.turn) == "<Turn 1 planning>"
        plan.open()
        await model.reached()
        assert repr(loop) == "<TurnLoop chat, active, turn 1, 1 waiting>"
        assert repr(loop.turn) == "<Turn 1 active>"
        loop.stop()
        assert repr(loop) == "<TurnLoop chat, active, turn 1, 1 waiting, stop committed>"
        assert repr(loop.turn) == "<Turn 1 active, stop_requested>"
        model.open()
        await loop.wait()
    assert repr(loop) == "<TurnLoop chat, closed, turn 1, 0 waiting, stop committed>"
    assert (loop.busy, loop.turn) == (False, None)


class Fragile:
    """An observer that fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.asked = 0

    def observe(self, _name: str, _item: Item, /) -> None:
        """Fail."""
        self.asked += 1
        raise self.error


@virtual
async def test_observers_are_told_of_turns() -> None:
    """In order, numbered, with the time and how each ended."""
    belt = Belt("Done.", ModelError("the model is down"))
    began = now()
    belt.loop.push("a")
    belt.loop.push("b")
    async with belt.loop:
        pass
    assert [(type(item), item.n) for item in belt.told] == [
        (TurnStarted, 1),
        (TurnEnded, 2),
        (TurnStarted, 3),
        (TurnEnded, 4),
    ]
    assert belt.turns == ["1 began", "1 completed", "2 began", "2 failed"]
    assert [item.at for item in belt.told] == sorted(item.at for item in belt.told)
    assert now() >= began


@pytest.mark.parametrize("error", [OwnError(), asyncio.CancelledError()])
@virtual
async def test_an_observer_that_fails_is_told_no_more(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop, and the others, do not notice."""
    fragile, seen = Fragile(error), list[Item]()

    class Other:
        def observe(self, _name: str, item: Item, /) -> None:
            seen.append(item)

    belt = Belt(observers=[fragile, Other()])
    belt.loop.push("a")
    with caplog.at_level(logging.ERROR):
        async with belt.loop:
            pass
    assert (fragile.asked, len(seen)) == (1, 2)
    assert "failed and is no longer told of 'loop'" in caplog.text
    assert (await belt.loop.wait()).reason is None


# Callbacks


@virtual
async def test_callbacks_are_plain_or_async() -> None:
    """Both kinds of each, and a callable object."""

    class Plans:
        async def __call__(self, _about: Planning[str], items: Sequence[str]) -> Turn[str]:
            await anyio.lowlevel.checkpoint()
            return Turn("go", consumed=items)

    async def prepare(_about: Planning[str], _consumed: Sequence[str]) -> Agent:
        await anyio.lowlevel.checkpoint()
        return Agent(ScriptedModel("Done."))

    ran: list[str] = []

    def watch(turn: TurnView[str], _events: AsyncGenerator[Event]) -> None:
        ran.append(f"watched {turn.number}")

    loop = TurnLoop[str](gen_input=Plans(), prepare_agent=prepare, on_events=watch)
    loop.push("a")
    async with loop:
        pass
    exit_ = await loop.wait()
    assert (exit_.reason, exit_.unhandled, exit_.failed) == (None, (), ())
    assert ran == ["watched 1"]


@virtual
async def test_a_callback_changes_no_context_but_its_own() -> None:
    """What gen_input sets is gone when the next one looks, and was never there for the caller."""
    seen: list[str] = []

    def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        seen.append(PLACE.get())
        PLACE.set("inside")
        return belt.plan(about, items)

    PLACE.set("caller")
    belt = Belt(gen_input=plan)
    belt.loop.push("a")
    belt.loop.push("b")
    async with belt.loop:
        pass
    assert seen == ["caller", "caller"]
    assert PLACE.get() == "caller"


@virtual
async def test_without_on_events_the_events_are_drained() -> None:
    """Turn after turn; an error of the agent ends the loop, and its items failed."""
    belt = Belt("Done.", ModelError("the model is down"), on_events=None)
    for item in ("a", "b", "c"):
        belt.loop.push(item)
    exit_ = await belt.loop.run()
    assert isinstance(exit_.reason, ModelError)
    assert (exit_.failed, exit_.unhandled) == (("b",), ("c",))
    assert len(belt.model.requests) == 2


@virtual
async def test_a_callback_that_is_cut_by_a_stop_sees_that_by_the_end_of_its_events() -> None:
    """It is not cancelled itself."""
    after: list[str] = []

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for _ in events:
            pass
        await anyio.sleep(5)
        after.append(f"{turn.stopped}")

    gate = Gate("model")
    belt = Belt([gate], on_events=watch)
    belt.loop.push("a")
    async with belt.loop:
        await gate.reached()
        belt.loop.stop(Stop.now())
    assert after == ["True"]
