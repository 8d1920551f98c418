"""Attacks with preempts: stale, upon agents that will not end, and upon agents that have ended."""

from collections.abc import AsyncGenerator, AsyncIterator

import anyio
import pytest

from andon import Agent, Call, Point, Preempt, Stop, ToolContext, tool
from andon.core.draft import Chunk
from andon.core.items import Event, Item, TurnEnded
from andon.core.turns import PreemptResult
from andon.errors import Interrupted
from andon.ports import ModelRequest
from andon.runtime.receipt import Receipt
from andon.runtime.turn import Turn, TurnView
from andon.testing import Delay, Gate, Hang, ScriptedModel, virtual
from tests.looped import Looped, answer, asked_of, asking
from tests.stores import MemoryStore


@pytest.mark.parametrize("delay", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 600])
def test_a_stale_delayed_preempt_touches_no_later_turn(delay: float) -> None:
    """Due in the turn after, while that is planned, at the very moment of a change, or after the exit."""

    @virtual
    async def stale() -> None:
        async def prepare(*_: object) -> Agent:
            await anyio.sleep(0.5)
            return scene.agent

        scene = Looped([Delay(0.25), "One."], [Delay(2), "Two."], prepare_agent=prepare)
        async with scene.loop:
            scene.push("first")
            await anyio.sleep(0.6)
            receipt = scene.loop.push("second", preempt=Preempt(Point.STREAM, grace=0.001, delay=delay))
        assert await answer(receipt) is PreemptResult.TURN_ENDED
        assert [await asked_of(run) for run in scene.runs] == [[], []]
        assert scene.ends == ["completed", "completed"]
        await anyio.sleep(1_000)

    stale()


@virtual
async def test_a_delayed_preempt_is_due_while_its_turn_is_still_planned() -> None:
    """It waits for the turn that it is for, and is submitted to that."""
    planning = Gate("planning")

    async def prepare(*_: object) -> Agent:
        await planning
        return scene.agent

    scene = Looped("One.", prepare_agent=prepare)
    async with scene.loop:
        scene.push("first")
        await planning.reached()
        receipt = scene.loop.push("second", preempt=Preempt(Point.STREAM, delay=1))
        await anyio.sleep(5)
        planning.open()
        assert await answer(receipt) is PreemptResult.SUBMITTED
    assert scene.ends == ["preempted", "completed"]


@virtual
async def test_an_agent_whose_tool_ignores_its_cancellation_is_left_behind() -> None:
    """The preempt's grace ends, the tool is abandoned, and the next turn begins; so it is with a stop."""
    ignored: list[str] = []
    gates = [Gate("tool"), Gate("tool")]

    @tool
    async def stubborn(which: int) -> str:
        """Never let go."""
        while True:
            try:
                await gates[which]
                return "ended after all"
            except BaseException as error:  # noqa: BLE001 — that is the attack
                ignored.append(type(error).__name__)

    scene = Looped(Call("stubborn", {"which": 0}), Call("stubborn", {"which": 1}), tools=[stubborn])
    async with scene.loop:
        scene.push("first")
        await gates[0].reached()
        scene.loop.push("second", preempt=Preempt(Point.ANY, grace=1))
        await gates[1].reached()
        scene.loop.stop(Stop.now())
    exit_ = await scene.loop.wait()
    assert scene.ends == ["preempted", "stopped"]
    assert exit_.interrupted == ("second",)
    for run in scene.runs:
        report = (await run.outcome()).cancelled
        assert report is not None
        assert [one.name for one in report.abandoned] == ["stubborn"]
    assert ignored == ["CancelledError"] * 2
    for gate in gates:
        gate.open()


@virtual
async def test_an_agent_whose_model_ignores_its_cancellation_is_left_behind() -> None:
    """A provider that swallows it is abandoned, too."""
    hold, asked = Gate("hold"), Gate("asked", opened=True)

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        while not hold.opened:
            try:
                await asked
                await hold
            except BaseException:  # noqa: BLE001, S110 — that is the attack
                pass
        yield "late"

    scene = Looped(agent=Agent(model))
    async with scene.loop:
        scene.push("first")
        await hold.reached()
        scene.loop.push("second", preempt=Preempt(Point.STREAM))
        await scene.over(1)
        scene.loop.stop(Stop.now())
    exit_ = await scene.loop.wait()
    assert scene.ends[0] == "preempted"
    assert (*exit_.interrupted, *exit_.unhandled) == ("second",)
    hold.open()


@pytest.mark.parametrize("ask", ["preempt", "stop"])
def test_what_comes_after_the_agents_question_does_not_discard_it(ask: str) -> None:
    """The callback is still busy when it comes; the question is stored, and the next loop answers it."""

    @virtual
    async def asked() -> None:
        store, busy = MemoryStore(), Gate("callback")
        log: list[object] = []
        agent = Agent(ScriptedModel(Call("ask"), "Asked."), tools=[asking(log=log)])

        async def watch(_: TurnView[str], events: AsyncGenerator[Event]) -> None:
            async for _event in events:
                pass
            await busy

        scene = Looped(agent=agent, store=store, on_events=watch)
        async with scene.loop:
            scene.push("first")
            await busy.reached()
            if ask == "preempt":
                scene.loop.push("second", preempt=Preempt(Point.STREAM))
            else:
                scene.loop.stop(Stop.now())
            busy.open()
        exit_ = await scene.loop.wait()
        assert isinstance(exit_.reason, Interrupted)
        assert exit_.interrupted == ("first",)
        (question,) = exit_.reason.interrupts

        def resume(_: object, interrupted: list[str], *rest: list[str]) -> Turn[str]:
            dropped = [item for items in rest for item in items]
            return Turn(consumed=interrupted, dropped=dropped, answers={question.id: "yes"})

        again = Looped(agent=agent, store=store, gen_resume=resume)
        exit_ = await again.to_the_end()
        assert (exit_.reason, log, store.data) == (None, ["yes"], {})

    asked()


@virtual
async def test_a_preempt_that_comes_when_its_turn_has_just_ended_is_answered() -> None:
    """Pushed by the observer that is told of the end: no turn is there any more."""
    receipts: list[Receipt] = []

    class Pusher:
        def observe(self, _name: str, item: Item, /) -> None:
            if isinstance(item, TurnEnded) and not receipts:
                receipts.append(scene.loop.push("second", preempt=Preempt(Point.STREAM)))

    scene = Looped("One.", "Two.", observers=[Pusher()])
    exit_ = await scene.to_the_end("first")
    assert (exit_.reason, exit_.unhandled, scene.prompts) == (None, (), ["first", "second"])
    assert [await answer(one) for one in receipts] == [PreemptResult.NO_TURN]


@virtual
async def test_a_tool_of_the_agent_preempts_its_own_turn() -> None:
    """It pushes from inside: its turn makes way at its next point, and the loop goes on with the item."""

    @tool
    async def again(ctx: ToolContext) -> str:
        """Make way."""
        receipt = scene.loop.push("from inside", preempt=Preempt(Point.ANY))
        assert await answer(receipt) is PreemptResult.SUBMITTED
        assert not ctx.cancelled
        return "made way"

    scene = Looped(Call("again"), "Done.", tools=[again])
    exit_ = await scene.to_the_end("first")
    assert exit_.reason is None
    assert scene.batches == [["first"], ["from inside"]]
    assert scene.ends == ["preempted", "completed"]


@virtual
async def test_a_flood_of_preempts_upon_a_hanging_turn_is_one_cut() -> None:
    """A thousand ask; the agent is cut once, and each has its answer."""
    scene = Looped([Hang()], "Done.", gen_input="all")
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        receipts = scene.push(*map(str, range(1_000)), preempt=Preempt(Point.TOOLS, grace=1))
        assert [await answer(one) for one in receipts] == [PreemptResult.SUBMITTED] * 1_000
    assert scene.ends == ["preempted", "completed"]
    assert scene.batches[1] == list(map(str, range(1_000)))
    assert len(scene.about[1].preempting) == 1_000
