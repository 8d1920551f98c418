"""Attacks on the task of a turn loop: cancelled at every step, twice, by every kind of scope."""

import asyncio
from collections.abc import Callable, Sequence

import anyio
import pytest

from andon import Agent, Call, Point, Preempt, Stop, Turn, tool
from andon.core.items import RunEnded
from andon.core.turns import Phase
from andon.runtime.isolate import Cut
from andon.runtime.turn import Planning
from andon.testing import Delay, Gate, ScriptedModel, VirtualLoop, Yield, run_virtual, virtual
from andon.testing.clock import tasks_of
from tests.looped import Looped, items_of, state_of
from tests.stores import MemoryStore
from tests.whole import complaints

Cancel = Callable[[], object]


class Scene(Looped):
    """Two items, of which the first makes way for a third; callbacks are async, and the tool cleans up."""

    def __init__(self) -> None:
        @tool
        async def work() -> str:
            """Work a while, and clean up a while."""
            try:
                await anyio.sleep(0.5)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.1)
            return "done"

        half = ["Half", Yield(), Delay(0.3), " and whole."]
        model = ScriptedModel([Yield(), Call("work")], *[half] * 9)
        super().__init__(
            agent=Agent(model, tools=[work]),
            store=MemoryStore(),
            on_preempt="requeue",
            gen_input=self.plan_slowly,
            prepare_agent=self.prepare_slowly,
        )
        self.model = model
        self.pushed: list[str] = []

    async def plan_slowly(self, about: Planning[str], items: Sequence[str]) -> Turn[str]:
        """Plan, with a step in between."""
        await anyio.lowlevel.checkpoint()
        return self.first(about, items)

    async def prepare_slowly(self, about: Planning[str], items: Sequence[str]) -> Agent:
        """Prepare, with a step in between."""
        await anyio.lowlevel.checkpoint()
        return self.prepare(about, items)

    def say(self, *items: str, preempt: Preempt | None = None) -> None:
        """Push, and note it."""
        self.pushed.extend(items)
        self.push(*items, preempt=preempt)

    async def live(self) -> None:
        """Push, and stop when idle."""
        self.say("a", "b")
        self.loop.stop(when_idle_for=1)
        await self.loop.run()


def by_task(scene: Scene) -> tuple[asyncio.Task[None], Cancel]:
    """Live in a task, which is cancelled."""
    task = asyncio.ensure_future(scene.live())  # noqa: TID251 — the task is the test
    return task, task.cancel


def by_scope(scene: Scene) -> tuple[asyncio.Task[None], Cancel]:
    """Live in a scope, which is cancelled, and must know its own cancellation again."""
    scope = anyio.CancelScope()

    async def inside() -> None:
        with scope:
            await scene.live()

    return asyncio.ensure_future(inside()), scope.cancel  # noqa: TID251 — the task is the test


Way = Callable[[Scene], tuple[asyncio.Task[None], Cancel]]


async def cut_at(step: int, way: Way, scene: Scene, again: int | None) -> bool:
    """Cancel a life at a step, and perhaps once more some steps later; says whether it came that far."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    task, cancel = way(scene)
    first = loop.steps
    cuts = {first + step, first + step + (again or 0)}
    came = False

    def before(n: int) -> None:
        nonlocal came
        if n == first + 12:
            scene.say("c", preempt=Preempt(Point.ANY, grace=0.2))
        if n in cuts and not task.done():
            came = True
            cancel()

    loop.before_step = before
    await asyncio.wait([task])
    loop.before_step = None
    assert task.cancelled() == (came and way is by_task)
    if not task.cancelled():
        assert task.exception() is None
    return came


async def whole(scene: Scene) -> None:
    """Hold an exit to what all exits have in common."""
    if state_of(scene).phase is Phase.NEW:  # cancelled before it began
        return
    assert state_of(scene).phase is Phase.CLOSED
    exit_ = await scene.loop.wait()
    ends = [end for end in scene.ends if end != "abandoned"]
    done = [
        item
        for turn, end in zip(scene.turns, ends, strict=True)
        for item in turn.consumed
        if end == "completed"
    ]
    assert sorted([*done, *items_of(exit_)]) == sorted(scene.pushed)
    assert list(exit_.unhandled) == sorted(exit_.unhandled)
    for run in scene.runs:
        assert run.ended
        events = [event async for event in run.events()]
        assert isinstance(events[-1], RunEnded)
        assert complaints((await run.outcome()).messages) == []
    assert scene.model.live == 0
    assert len(tasks_of(asyncio.get_running_loop())) == 1


@pytest.mark.parametrize("again", [None, 1, 2, 7], ids=["once", "again at once", "again soon", "again later"])
@pytest.mark.parametrize("way", [by_task, by_scope])
def test_cancelled_at_any_step_a_loop_ends_whole(way: Way, again: int | None) -> None:
    """One exit, every item in one place, every run ended, no task left, and the cancellation passed on."""
    for step in range(1_000):

        async def life(step: int = step) -> bool:
            scene = Scene()
            came = await cut_at(step, way, scene, again)
            await whole(scene)
            return came

        if not run_virtual(life):
            assert step > 60
            return
    raise AssertionError


@virtual
async def test_a_time_out_around_a_loop_is_a_time_out() -> None:
    """`asyncio.timeout` and `move_on_after` know their own cancellation again, wherever the loop is."""
    for seconds in (0.05, 0.2, 0.55, 0.9, 1.2, 2.0):
        scene = Scene()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await scene.live()
        await whole(scene)
        scene = Scene()
        with anyio.move_on_after(seconds) as scope:
            await scene.live()
        assert scope.cancelled_caught
        await whole(scene)


@virtual
async def test_a_cancellation_during_the_save_waits_for_it_and_is_passed_on() -> None:
    """What is stored is stored whole; then whoever runs the loop learns that it was cancelled."""
    saving = Gate("save")

    class Slow(MemoryStore):
        async def set(self, checkpoint_id: str, data: bytes, /) -> None:
            await saving
            await super().set(checkpoint_id, data)

    store = Slow()
    scene = Looped(store=store)
    scene.push("a")
    scene.loop.stop()
    task = asyncio.ensure_future(scene.loop.run())  # noqa: TID251 — the task is the test
    await saving.reached()
    task.cancel()
    await anyio.sleep(1)
    assert not task.done()
    saving.open()
    with pytest.raises(Cut):
        await task
    exit_ = await scene.loop.wait()
    assert (exit_.reason, exit_.checkpoint_error) == (None, None)
    assert list(store.data) == ["chat-42"]


@virtual
async def test_a_block_that_fails_ends_its_loop_and_keeps_its_error() -> None:
    """`async with` waits for the loop, whose task is cancelled; the error of the block is what is raised."""
    scene = Looped([Delay(100)])

    async def block() -> None:
        async with scene.loop:
            scene.push("a", "b")
            await anyio.sleep(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    exit_ = await scene.loop.wait()
    assert isinstance(exit_.reason, Cut)
    assert (exit_.failed, exit_.unhandled) == (("a",), ("b",))


@virtual
async def test_a_loop_in_a_tool_ends_with_its_run() -> None:
    """A run is cut while its tool serves a loop of its own: the loop's agent and the loop end with it."""
    inner = Looped([Delay(100)])

    @tool
    async def serve() -> str:
        """Serve a loop."""
        inner.push("a", "b")
        async with inner.loop:
            await inner.loop.wait()
        return "served"

    run = Agent(ScriptedModel(Call("serve")), tools=[serve]).start("go")
    async with run:
        await anyio.sleep(1)
        run.cancel(Stop.now())
        outcome = await run.outcome()
    assert outcome.stop_reason == "cancelled"
    exit_ = await inner.loop.wait()
    assert sorted([*exit_.failed, *exit_.unhandled, *exit_.interrupted]) == ["a", "b"]
    assert inner.model.live == 0


@virtual
async def test_a_loop_in_a_tool_whose_run_is_stopped_at_points_ends_whole() -> None:
    """A graceful stop reaches the agents of the loop: it ends, and says where each item is."""
    gate = Gate("inner tool", opened=True)

    @tool
    async def work() -> str:
        """Work."""
        await gate
        await anyio.sleep(1)
        return "done"

    inner = Looped(*[Call("work")] * 50, tools=[work])

    @tool
    async def serve() -> str:
        """Serve a loop."""
        inner.push("a", "b")
        async with inner.loop:
            pass
        return "served"

    run = Agent(ScriptedModel(Call("serve")), tools=[serve]).start("go")
    async with run:
        await gate.reached()
        run.cancel(Stop.graceful(grace=30))
        outcome = await run.outcome()
    assert outcome.stop_reason == "cancelled"
    exit_ = await inner.loop.wait()
    consumed = [item for turn in inner.turns for item in turn.consumed]
    assert sorted({*exit_.failed, *exit_.unhandled, *exit_.interrupted, *consumed}) == ["a", "b"]
    assert inner.model.live == 0
