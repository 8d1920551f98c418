"""GX: pushes, their preempts and what is stored, where the model leaves it open or gets it wrong."""

import asyncio

import anyio
import msgspec
import pytest

from andon import Agent, Call, Point, Preempt, Stop, StopResult
from andon.core.parked import unpark
from andon.core.turns import Phase, PreemptResult
from andon.errors import UserError
from andon.runtime.turn import TurnView
from andon.testing import Gate, Hang, virtual
from tests.looped import ID, Looped, answer, asked_of, held
from tests.stores import MemoryStore


@virtual
async def test_gx_25_a_strategy_during_planning_sees_the_phase_and_the_planned_items() -> None:
    """It decides on the turn that is being planned, whose items nobody has consumed yet."""
    planning = Gate("planning")
    seen: list[tuple[Phase, Phase, tuple[str, ...], tuple[str, ...]]] = []

    async def prepare(*_: object) -> Agent:
        await planning
        return scene.agent

    def look(turn: TurnView[str] | None, phase: Phase) -> Preempt:
        assert turn is not None
        assert turn.run is None
        seen.append((phase, turn.phase, turn.items, turn.consumed))
        return Preempt(Point.STREAM)

    scene = Looped("Done.", "Done.", prepare_agent=prepare)
    async with scene.loop:
        scene.push("first", "second")
        await planning.reached()
        receipt = scene.loop.push("urgent", strategy=look)
        planning.open()
        assert await answer(receipt) is PreemptResult.SUBMITTED
    assert seen == [(Phase.PLANNING, Phase.PLANNING, ("first", "second"), ())]
    assert scene.ends == ["preempted", "completed", "completed"]


@virtual
async def test_gx_27_a_resumed_turn_that_ended_is_deleted_at_once() -> None:
    """Not at the exit: the process may crash before that, and the turn must not go on twice."""
    store, gate, second = MemoryStore(), Gate("model"), Gate("second")
    left = Looped([gate], store=store)
    async with left.loop:
        left.push("msg1")
        await gate.reached()
        left.loop.stop(Stop.now())
    scene = Looped("Whole.", [second, "Done."], store=store, gen_resume="on")
    async with scene.loop:
        scene.push("msg2")
        await second.reached()
        parked = unpark(store.data[ID]) if ID in store.data else None
        second.open()
    assert scene.ends == ["completed", "completed"]
    assert parked is None or (parked.turn is None and parked.interrupted == ())
    assert store.data == {}


@virtual
async def test_gx_27_what_still_waits_replaces_it() -> None:
    """The resumed turn has ended, and others wait: only they are stored while the loop goes on."""
    store, gate, second = MemoryStore(), Gate("model"), Gate("second")
    left = Looped([gate], store=store)
    async with left.loop:
        left.push("msg1", "msg2")
        await gate.reached()
        left.loop.stop(Stop.now())
    scene = Looped("Whole.", [second, "Done."], store=store, gen_resume="on")
    async with scene.loop:
        await scene.over(1)
        await second.reached()
        parked = unpark(store.data[ID])
        second.open()
    assert (parked.turn, parked.interrupted) == (None, ())
    assert [msgspec.json.decode(item) for item in parked.unhandled] == ["msg2"]
    assert scene.resumes == [(["msg1"], ["msg2"], [])]
    assert store.data == {}


def test_gx_28_a_store_must_be_able_to_delete() -> None:
    """It is refused when the loop is made, and not when it is too late."""

    class Hoard:
        """Keeps for ever."""

        async def get(self, _id: str, /) -> bytes | None:
            """Give nothing."""

        async def set(self, _id: str, _data: bytes, /) -> None:
            """Keep."""

    with pytest.raises(UserError, match="no delete"):
        Looped(store=Hoard())


@virtual
async def test_gx_36_gen_input_is_told_which_items_preempted() -> None:
    """Also of a backlog, and also of those that it has kept for later."""
    gate = Gate("tool")
    scene = Looped(Call("work"), *["Done."] * 3, tools=[held(gate)])
    async with scene.loop:
        scene.push("first", "b")
        await gate.reached()
        scene.push("urgent", preempt=Preempt(Point.ANY))
        scene.push("c")
        gate.open()
    assert scene.batches == [["first", "b"], ["b", "urgent", "c"], ["urgent", "c"], ["c"]]
    assert [list(about.preempting) for about in scene.about] == [[], ["urgent"], ["urgent"], []]
    assert [list(about.preempted) for about in scene.about] == [[], ["first"], [], []]


@pytest.mark.parametrize("stop", [None, Stop.now()])
def test_gx_37_a_delayed_preempt_that_is_pending_when_the_loop_ends_is_answered(stop: Stop | None) -> None:
    """It asks for nothing any more, and its timer is gone."""

    @virtual
    async def pending() -> None:
        gate = Gate("model")
        scene = Looped([gate, "Done."])
        async with scene.loop:
            scene.push("first")
            await gate.reached()
            receipt = scene.loop.push("second", preempt=Preempt(Point.STREAM, delay=60))
            scene.loop.stop(stop)
            gate.open()
        exit_ = await scene.loop.wait()
        assert await answer(receipt) is PreemptResult.TURN_ENDED
        assert exit_.unhandled == ("second",)
        assert not scene.turns[0].preempted
        timers: list[asyncio.TimerHandle] = vars(asyncio.get_running_loop())["_scheduled"]
        assert [timer for timer in timers if not timer.cancelled()] == []

    pending()


@virtual
async def test_gx_38_with_a_delay_the_grace_begins_when_that_is_over() -> None:
    """Delay 2 and grace 3: asked after 2 seconds, and cut after 5."""
    scene = Looped([Hang()], "Done.")
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        began = anyio.current_time()
        receipt = scene.loop.push("second", preempt=Preempt(Point.TOOLS, grace=3, delay=2))
        assert await answer(receipt) is PreemptResult.SUBMITTED
        assert anyio.current_time() - began == pytest.approx(2, abs=0.01)
        await scene.over(1)
        assert anyio.current_time() - began == pytest.approx(5, abs=0.01)
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")
    assert [stop.points for stop in await asked_of(scene.runs[0])] == [Point.TOOLS, Point(0)]
