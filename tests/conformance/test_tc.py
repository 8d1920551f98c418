"""TC: what a push sees, and when its preempt is submitted and answered."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import anyio

from andon import Agent, Call, Point, Preempt, Stop
from andon.core import turns
from andon.core.turns import Answer, Bound, CancelTurn, Phase, PreemptResult, State
from andon.runtime.receipt import Receipt
from andon.runtime.turn import TurnView
from andon.testing import Gate, Hang, virtual
from tests.looped import Looped, answer, asked_of, held, state_of

Seen = tuple[int, Phase, tuple[str, ...]]


@virtual
async def test_tc_02_a_push_sees_a_turn_whole_and_afterwards_none() -> None:
    """While it is active: its number, its items, its run; once it has ended: nothing."""
    gate = Gate("model")
    scene = Looped([gate, "One."], "Two.")
    seen: list[TurnView[str] | None] = []

    def look(turn: TurnView[str] | None, phase: Phase) -> None:
        seen.append(turn)
        assert (turn is None) == (phase not in {Phase.PLANNING, Phase.ACTIVE})
        if turn is not None:
            assert (turn.number, turn.consumed, turn.phase) == (1, ("first",), Phase.ACTIVE)
            assert turn.run is scene.runs[0]

    async with scene.loop:
        scene.push("first")
        await gate.reached()
        scene.loop.push("second", strategy=look)
        gate.open()
        await scene.over(2)
        scene.loop.push("third", strategy=look)
        scene.model.script("Three.")
    assert seen == [scene.turns[0], None]


async def test_tc_02_what_threads_see_is_of_one_moment() -> None:
    """Threads push while turns come and go: none sees a turn without its items, or a phase without it."""
    scene = Looped(*["Done."] * 200)
    over = Event()

    def look(turn: TurnView[str] | None, phase: Phase) -> None:
        assert (turn is None) == (phase not in {Phase.PLANNING, Phase.ACTIVE})
        if turn is not None and phase is Phase.ACTIVE:
            assert turn.consumed
            assert turn.run is not None

    def push() -> int:
        pushed = 0
        while not over.is_set() and pushed < 50:
            scene.loop.push("again", strategy=look)
            pushed += 1
        return pushed

    with ThreadPoolExecutor(4) as pool:
        async with scene.loop:
            pushes = [pool.submit(push) for _ in range(4)]
            counts = [await anyio.to_thread.run_sync(one.result, 30) for one in pushes]
            over.set()
    assert sum(len(turn.consumed) for turn in scene.turns) == sum(counts) == 200


@virtual
async def test_tc_05_a_preempt_during_planning_waits_for_the_turn_to_be_active() -> None:
    """It is answered once it was submitted to the agent, and not while there is none."""
    planning, tool = Gate("planning"), Gate("tool")

    async def prepare(*_: object) -> Agent:
        await planning
        return scene.agent

    scene = Looped(Call("work"), "Done.", tools=[held(tool)], prepare_agent=prepare)
    async with scene.loop:
        scene.push("first")
        await planning.reached()
        receipt = scene.loop.push("urgent", preempt=Preempt(Point.ANY))
        await anyio.sleep(10)
        assert not is_answered(receipt)
        planning.open()
        assert await answer(receipt) is PreemptResult.SUBMITTED
        assert scene.loop.turn is not None
        assert scene.loop.turn.phase is Phase.ACTIVE
        tool.open()
    assert scene.ends == ["preempted", "completed"]
    assert [stop.points for stop in await asked_of(scene.runs[0])] == [Point.ANY]


@virtual
async def test_tc_06_a_request_reaches_an_active_turn_once_as_it_was_asked() -> None:
    """One request, with its points; the receipt is answered after that."""
    gate = Gate("tool")
    scene = Looped(Call("work"), "Done.", tools=[held(gate)])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("urgent", preempt=Preempt(Point.TOOLS))
        assert await answer(receipt) is PreemptResult.SUBMITTED
        gate.open()
    (stop,) = await asked_of(scene.runs[0])
    assert stop.points is Point.TOOLS
    assert [cause.source for cause in stop.causes] == ["preempt"]
    assert await asked_of(scene.runs[1]) == []


@virtual
async def test_tc_07_a_preempt_of_a_turn_that_is_abandoned_is_answered() -> None:
    """A stop abandons what is being planned: the turn has ended, and nobody waits for ever."""
    planning = Gate("planning")

    async def prepare(*_: object) -> Agent:
        await planning
        return scene.agent

    scene = Looped(prepare_agent=prepare)
    async with scene.loop:
        scene.push("first")
        await planning.reached()
        receipt = scene.loop.push("urgent", preempt=Preempt(Point.ANY))
        scene.loop.stop()
        planning.open()
        assert await answer(receipt) is PreemptResult.TURN_ENDED
    assert (await scene.loop.wait()).unhandled == ("first", "urgent")
    assert scene.turns == []


def test_tc_07_what_was_not_submitted_asks_nothing_of_a_later_turn() -> None:
    """An abandoned and an ended turn answer what was bound to them, and the next turn is left alone."""
    endings: list[Callable[[State], turns.Decided]] = [turns.abandoned, turns.ended]
    for phase, end in zip((Phase.PLANNING, Phase.ACTIVE), endings, strict=True):
        bound = Bound(7, 1, Stop.now() if phase is Phase.PLANNING else None)
        state, effects = end(State(phase=phase, turn=1, bound=(bound,)))
        assert effects == (Answer(7, PreemptResult.TURN_ENDED),)
        active = State(phase=Phase.PLANNING, turn=2, bound=state.bound)
        again, effects = turns.activated(active)
        assert effects == ()
        assert not again.preempted
        assert turns.due(again, 7, Stop.now())[1] == ()


def is_answered(receipt: Receipt) -> bool:
    """Look whether a preempt has been answered."""
    told: list[bool] = []
    assert receipt.preempt is not None
    receipt.preempt.when_settled(lambda: told.append(True))
    return bool(told)


async def test_tc_11_a_hundred_pushes_that_wait_for_their_receipts_do_not_block_each_other() -> None:
    """Every thread gets its answer, and the loop goes on."""
    gate = Gate("tool")
    scene = Looped(Call("work"), *["Done."] * 101, tools=[held(gate)])
    barrier = Barrier(101)

    def push(number: int) -> PreemptResult:
        barrier.wait(30)
        receipt = scene.loop.push(
            f"{number}", preempt=Preempt(Point.ANY, delay=0.001 if number % 2 else None)
        )
        assert receipt.preempt is not None
        return receipt.preempt.wait(30)

    with ThreadPoolExecutor(100) as pool:
        async with scene.loop:
            scene.push("first")
            await gate.reached()
            pushes = [pool.submit(push, number) for number in range(100)]
            await anyio.to_thread.run_sync(barrier.wait, 30)
            answers = [await anyio.to_thread.run_sync(one.result, 30) for one in pushes]
            gate.open()
    assert set(answers) <= {PreemptResult.SUBMITTED, PreemptResult.TURN_ENDED}
    assert answers[::2] == [PreemptResult.SUBMITTED] * 50
    taken = [item for turn in scene.turns for item in turn.consumed]
    assert sorted(taken) == sorted(["first", *map(str, range(100))])


async def test_tc_13_fifty_requests_are_one_and_fifty_answers() -> None:
    """What the agent is asked is joined; each push is answered."""
    gate = Gate("tool")
    scene = Looped(Call("work"), *["Done."] * 51, tools=[held(gate)])
    barrier = Barrier(50)
    points = (Point.MODEL, Point.TOOLS, Point.STREAM)

    def push(number: int) -> PreemptResult:
        barrier.wait(30)
        receipt = scene.loop.push(f"{number}", preempt=Preempt(points[number % 3], grace=600))
        assert receipt.preempt is not None
        return receipt.preempt.wait(30)

    with ThreadPoolExecutor(50) as pool:
        async with scene.loop:
            scene.push("first")
            await gate.reached()
            pushes = [pool.submit(push, number) for number in range(50)]
            answers = [await anyio.to_thread.run_sync(one.result, 30) for one in pushes]
            gate.open()
    assert answers == [PreemptResult.SUBMITTED] * 50
    joined = (await asked_of(scene.runs[0]))[-1]
    assert joined.points == Point.MODEL | Point.TOOLS | Point.STREAM
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert len(report.causes) == 50


@virtual
async def test_tc_15_after_the_exit_a_preempt_neither_blocks_nor_raises() -> None:
    """It is answered at once, nothing is kept of it, and its item is late; also one that was delayed."""
    scene = Looped([Hang()])
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        early = scene.loop.push("early", preempt=Preempt(Point.ANY, delay=60))
        scene.loop.stop(Stop.now())
    exit_ = await scene.loop.wait()
    assert await answer(early) is PreemptResult.TURN_ENDED
    late = [
        *scene.push("late", preempt=Preempt(Point.ANY, delay=1)),
        *scene.push("later", preempt=Preempt(Point.ANY)),
    ]
    for receipt in late:
        assert not receipt.accepted
        assert receipt.preempt is not None
        assert receipt.preempt.wait(0) is PreemptResult.LOOP_CLOSED
    await anyio.sleep(120)
    assert exit_.late() == ("late", "later")
    assert state_of(scene).bound == ()


def test_tc_15_a_request_to_a_closed_loop_has_no_effect_but_its_answer() -> None:
    """Nothing is stored, nothing is cancelled."""
    closed, _ = turns.closed(State(phase=Phase.IDLE))
    state, effects = turns.preempt(closed, 3, Bound(3, 1, Stop.now()))
    assert (state, effects) == (closed, (Answer(3, PreemptResult.LOOP_CLOSED),))
    assert not any(isinstance(effect, CancelTurn) for effect in turns.due(closed, 3, Stop.now())[1])
