"""SX: further cases of the turn loop: callbacks that return early, and pushes close to its end."""

from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import anyio
import pytest

from andon import Call, Cancelled, Point, Preempt, Stop, Turn
from andon.core.items import Event, ModelStarted
from andon.core.turns import PreemptResult
from andon.runtime.turn import Planning, TurnView
from andon.testing import Gate, Hang, virtual
from tests.looped import Looped, answer
from tests.stores import MemoryStore


@virtual
async def test_sx_19_a_callback_that_returns_early_ends_its_agent_first() -> None:
    """The agent is cancelled, and joined, before the next turn is planned."""
    live: list[int] = []

    def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        live.append(scene.model.live)
        return scene.first(about, items)

    async def watch(_: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for event in events:
            if isinstance(event, ModelStarted):
                return

    scene = Looped([Hang()], [Hang()], gen_input=plan, on_events=watch)
    exit_ = await scene.to_the_end("first", "second")
    assert exit_.reason is None
    assert scene.batches == [["first", "second"], ["second"]]
    assert (scene.model.opened, scene.model.live, live) == (2, 0, [0, 0])
    assert scene.ends == ["completed", "completed"]


@virtual
async def test_sx_19_on_a_stop_the_turn_is_interrupted() -> None:
    """A callback that returns when it sees the stop: Cancelled, its item interrupted, a later push late."""
    seen = Gate("callback")

    async def watch(turn: TurnView[str], _: object) -> None:
        await seen
        assert turn.stopped

    scene = Looped([Hang()], on_events=watch)
    async with scene.loop:
        scene.push("msg1")
        await seen.reached()
        scene.loop.stop(Stop.now())
        seen.open()
        assert not scene.loop.push("later").accepted
    exit_ = await scene.loop.wait()
    assert isinstance(exit_.reason, Cancelled)
    assert (exit_.interrupted, exit_.unhandled, exit_.late()) == (("msg1",), (), ("later",))
    assert scene.model.live == 0


@virtual
async def test_sx_19_on_a_preempt_the_next_turn_waits_for_the_old_agent() -> None:
    """The old agent cleans up for a while; nothing is planned before it has ended."""
    at_work, cleaning, seen = Gate("tool"), Gate("cleaning"), Gate("callback")
    planned: list[bool] = []

    async def slow_to_end() -> str:
        """Work, and take a while to clean up."""
        try:
            await at_work
        finally:
            await cleaning
        return "cleaned"

    async def watch(turn: TurnView[str], _: object) -> None:
        if turn.number == 1:
            await seen
        elif turn.run is not None:
            await turn.run.outcome()

    scene = Looped(Call("slow_to_end"), "Done.", tools=[slow_to_end], on_events=watch)
    async with scene.loop:
        scene.push("first")
        await at_work.reached()
        await seen.reached()
        receipt = scene.loop.push("second", preempt=Preempt(Point.TOOLS))
        assert await answer(receipt) is PreemptResult.SUBMITTED
        seen.open()
        await cleaning.reached()
        planned.append(len(scene.batches) > 1)
        cleaning.open()
    assert planned == [False]
    assert scene.batches == [["first"], ["second"]]
    assert scene.ends == ["preempted", "completed"]


async def test_sx_20_500_pushes_that_race_with_the_exit_are_all_accounted_for() -> None:
    """Each that was accepted is handled or unhandled, each that was refused is late; the save is blocked."""
    saving = Gate("save")

    class SlowStore(MemoryStore):
        async def set(self, checkpoint_id: str, data: bytes, /) -> None:
            await saving
            await super().set(checkpoint_id, data)

    store, model = SlowStore(), Gate("model")
    scene = Looped([model], store=store)
    barrier = Barrier(6)

    def push(number: int) -> list[tuple[str, bool]]:
        barrier.wait(30)
        names = [f"{number}-{n}" for n in range(100)]
        return [(name, scene.loop.push(name).accepted) for name in names]

    def stop() -> None:
        barrier.wait(30)
        scene.loop.stop(Stop.now())

    with ThreadPoolExecutor(6) as pool:
        async with scene.loop:
            scene.push("first")
            await model.reached()
            pushes = [pool.submit(push, number) for number in range(5)]
            pool.submit(stop)
            await saving.reached()
            told = [one for push in pushes for one in await anyio.to_thread.run_sync(push.result, 30)]
            saving.open()
        exit_ = await scene.loop.wait()
    assert len(told) == 500
    assert sorted(exit_.unhandled) == sorted(name for name, accepted in told if accepted)
    assert sorted(exit_.late()) == sorted(name for name, accepted in told if not accepted)
    assert exit_.interrupted == ("first",)
    assert exit_.checkpoint_error is None


@pytest.mark.parametrize("before", [-0.002, -0.001, 0.0, 0.001, 0.002])
def test_sx_21_a_push_close_to_the_idle_deadline_is_processed_or_late(before: float) -> None:
    """A moment before, after, and at the deadline: never accepted and lost."""

    @virtual
    async def close() -> None:
        scene = Looped("Done.")
        async with scene.loop:
            scene.loop.stop(when_idle_for=1)
            await anyio.sleep(1 + before)
            accepted = scene.loop.push("close").accepted
        exit_ = await scene.loop.wait()
        assert (scene.prompts, exit_.late()) == ((["close"], ()) if accepted else ([], ("close",)))
        assert accepted or before >= 0
        assert exit_.unhandled == ()
        assert exit_.reason is None

    close()


async def test_sx_21_threads_that_push_close_to_the_idle_deadline_lose_nothing() -> None:
    """Real threads, real time: what is accepted is processed."""
    for _ in range(10):
        scene = Looped(*["Done."] * 200)
        barrier = Barrier(4)

        def push(number: int, scene: Looped = scene, barrier: Barrier = barrier) -> list[tuple[str, bool]]:
            barrier.wait(30)
            names = [f"{number}-{n}" for n in range(50)]
            return [(name, scene.loop.push(name).accepted) for name in names]

        with ThreadPoolExecutor(4) as pool:
            pushes = [pool.submit(push, number) for number in range(4)]
            async with scene.loop:
                scene.loop.stop(when_idle_for=0.0001)
                exit_ = await scene.loop.wait()
            told = [one for push in pushes for one in await anyio.to_thread.run_sync(push.result, 30)]
        assert sorted(scene.prompts) == sorted(name for name, accepted in told if accepted)
        assert sorted(exit_.late()) == sorted(name for name, accepted in told if not accepted)
        assert exit_.unhandled == ()
