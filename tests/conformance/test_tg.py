"""TG: a push whose strategy decides on its preempt."""

from collections.abc import Sequence

import anyio
import pytest

from andon import Call, Point, Preempt, Stop, Turn
from andon.core.turns import Phase, PreemptResult
from andon.runtime.receipt import Receipt
from andon.runtime.turn import TurnView
from andon.testing import Gate, Hang, virtual
from tests.looped import Looped, answer, held
from tests.stores import MemoryStore

Seen = tuple[tuple[str, ...] | None, Phase]


class Strategy:
    """Gives what it was made with, and notes what it is shown."""

    def __init__(self, gives: Preempt | None = None) -> None:
        self.gives = gives
        self.seen: list[Seen] = []

    def __call__(self, turn: TurnView[str] | None, phase: Phase) -> Preempt | None:
        """Decide."""
        self.seen.append((None if turn is None else turn.consumed, phase))
        return self.gives


@virtual
async def test_tg_01_a_strategy_is_shown_the_turn_and_preempts_it() -> None:
    """It is asked once, with the turn of the first item; the agent is cancelled, and the loop plans again."""
    gate = Gate("tool")
    scene = Looped(Call("work"), "Done.", tools=[held(gate)])
    strategy = Strategy(Preempt(Point.ANY))
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("second", strategy=strategy)
        assert await answer(receipt) is PreemptResult.SUBMITTED
        gate.open()
    assert strategy.seen == [(("first",), Phase.ACTIVE)]
    assert scene.batches == [["first"], ["second"]]
    assert list(scene.about[1].preempting) == ["second"]
    assert scene.ends == ["preempted", "completed"]


@virtual
async def test_tg_02_without_a_turn_a_strategy_is_shown_none() -> None:
    """What it answers makes a plain push, or one that finds no turn; it is asked once each time."""
    scene = Looped("One.", "Two.")
    plain, preempts = Strategy(), Strategy(Preempt(Point.ANY))
    before = scene.loop.push("first", strategy=plain)
    assert (before.accepted, before.preempt) == (True, None)
    async with scene.loop:
        await scene.over(1)
        receipt = scene.loop.push("second", strategy=preempts)
        assert await answer(receipt) is PreemptResult.NO_TURN
    assert plain.seen == [(None, Phase.NEW)]
    assert preempts.seen == [(None, Phase.IDLE)]
    assert scene.ends == ["completed", "completed"]


@pytest.mark.parametrize("task", ["low-priority-task", "high-priority-task"])
def test_tg_05_a_strategy_decides_by_what_the_turn_is_about(task: str) -> None:
    """A turn of low priority makes way, another does not."""

    @virtual
    async def turn() -> None:
        scene = Looped([Gate(opened=True), Hang()], "Done.")

        def only_low(turn: TurnView[str] | None, _phase: Phase) -> Preempt | None:
            assert turn is not None
            return Preempt(Point.STREAM) if turn.consumed[0] == "low-priority-task" else None

        async with scene.loop:
            scene.push(task)
            await anyio.sleep(1)
            receipt = scene.loop.push("urgent-task", strategy=only_low)
            assert receipt.accepted
            await anyio.sleep(1)
            preempted = scene.turns[0].preempted
            scene.loop.stop(Stop.now())
        low = task == "low-priority-task"
        assert preempted == low
        assert scene.batches == ([[task], ["urgent-task"]] if low else [[task]])
        assert (await scene.loop.wait()).unhandled == (() if low else ("urgent-task",))

    turn()


async def test_tg_07_a_resume_waits_for_a_push_that_still_decides() -> None:
    """`gen_resume` is not asked before the push has ended, and is given its item; its error ends the loop."""
    store = MemoryStore()
    hang = Gate("model")
    left = Looped([hang], store=store)
    async with left.loop:
        left.push("first")
        await hang.reached()
        left.loop.stop(Stop.now())
    assert store.data

    deciding = Gate("strategy")
    error = LookupError("no idea how to go on")
    given: list[tuple[Sequence[str], ...]] = []

    def resume(_about: object, *lists: Sequence[str]) -> Turn[str]:
        given.append(tuple(map(list, lists)))
        raise error

    scene = Looped(store=store, gen_resume=resume)
    receipts: list[Receipt] = []

    def decide(turn: TurnView[str] | None, _phase: Phase) -> None:
        assert turn is None
        deciding.wait()

    scene.push("pre-existing")

    def push() -> None:
        receipts.append(scene.loop.push("during-resume", strategy=decide))

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, push)
        await deciding.reached()
        async with scene.loop:
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert given == []
            deciding.open()
    exit_ = await scene.loop.wait()
    assert given == [(["first"], [], ["pre-existing", "during-resume"])]
    assert exit_.reason is error
    assert [(one.accepted, one.preempt) for one in receipts] == [(True, None)]
    assert exit_.unhandled == ("pre-existing", "during-resume")
    assert exit_.interrupted == ("first",)
    assert store.data
