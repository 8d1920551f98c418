"""GX: turns and their callbacks, where the model leaves it open or gets it wrong."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Cancelled, ModelError, Point, Preempt, Stop, StopResult, Turn
from andon.core.items import Event
from andon.core.stop import Where
from andon.core.turns import Phase, PreemptResult
from andon.errors import CheckpointError, Interrupted, UserError
from andon.runtime.isolate import Cut
from andon.runtime.turn import Planning, TurnView
from andon.testing import Gate, Hang, virtual
from tests.looped import ID, Looped, answer, asked_of, asking, held
from tests.stores import MemoryStore


async def asked_a_human(store: MemoryStore) -> Interrupted:
    """Leave a turn in a store that waits for a human."""
    exit_ = await Looped(Call("ask"), tools=[asking()], store=store).to_the_end("msg1")
    assert isinstance(exit_.reason, Interrupted)
    return exit_.reason


def failing(*_: object) -> Turn[str]:
    """Resume nothing."""
    msg = "no idea how to go on"
    raise LookupError(msg)


def nothing(*_: object) -> None:
    """Return nothing."""


def preempting(_turn: TurnView[str] | None, _phase: Phase) -> Preempt:
    """Preempt whatever there is."""
    return Preempt(Point.ANY)


def wrong(_: object, interrupted: Sequence[str], *_rest: Sequence[str]) -> Turn[str]:
    """Answer a question that nobody asked."""
    return Turn(consumed=interrupted, answers={"no such question": 1})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"gen_resume": failing}, LookupError),
        ({}, UserError),
        ({"gen_resume": nothing}, UserError),
        ({"gen_resume": wrong}, UserError),
        ({"gen_resume": "on", "prepare_agent": failing}, LookupError),
    ],
    ids=["raises", "is missing", "gives nothing", "answers another", "has no agent"],
)
def test_gx_03_a_resume_that_fails_deletes_nothing(options: dict[str, Any], error: type[Exception]) -> None:
    """Whatever goes wrong before the turn goes on, the checkpoint is as it was, and can be used later."""

    @virtual
    async def kept() -> None:
        store = MemoryStore()
        asked = await asked_a_human(store)
        before = dict(store.data)
        exit_ = await Looped(store=store, **options).to_the_end("msg2")
        assert isinstance(exit_.reason, error)
        assert store.data == before
        assert exit_.unhandled == ("msg2",)
        assert not exit_.checkpoint_attempted

        def resume(_: object, interrupted: Sequence[str], *_rest: Sequence[str]) -> Turn[str]:
            return Turn(consumed=interrupted, answers={asked.interrupts[0].id: "yes"})

        again = Looped("Asked.", tools=[asking()], store=store, gen_resume=resume)
        assert (await again.to_the_end()).reason is None
        assert store.data == {}

    kept()


@virtual
async def test_gx_03_a_resumed_agent_that_fails_deletes_nothing() -> None:
    """The provider is down: the loop ends with that error, and the turn in flight can be resumed again."""
    store, gate = MemoryStore(), Gate("model")
    left = Looped([gate], store=store)
    async with left.loop:
        left.push("msg1")
        await gate.reached()
        left.loop.stop(Stop.now())
    before = dict(store.data)
    error = ModelError("the provider is down")
    exit_ = await Looped(error, store=store, gen_resume="on", on_events=None).to_the_end()
    assert (exit_.reason, exit_.failed) == (error, ("msg1",))
    assert store.data == before
    again = Looped("Whole.", store=store, gen_resume="on")
    assert (await again.to_the_end()).reason is None
    assert (again.resumes, store.data) == ([(["msg1"], [], [])], {})


@pytest.mark.parametrize("data", [b"\xff\xfe", b"{}", b'{"version":1,"turn":{"version":1}}'])
def test_gx_03_what_is_corrupt_is_neither_run_nor_deleted(data: bytes) -> None:
    """The loop says that it cannot read it."""

    @virtual
    async def refused() -> None:
        store = MemoryStore()
        store.data[ID] = data
        exit_ = await (scene := Looped(store=store, gen_resume="on")).to_the_end("msg1")
        assert isinstance(exit_.reason, CheckpointError)
        assert (scene.batches, scene.resumes, store.data) == ([], [], {ID: data})

    refused()


@virtual
async def test_gx_04_an_error_of_the_callback_goes_before_a_preempt() -> None:
    """The loop ends with it, though the turn was preempted, too; its item failed."""
    error = LookupError("my own mistake")

    async def watch(_: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for _event in events:
            pass
        raise error

    scene = Looped([Hang()], on_events=watch)
    async with scene.loop:
        scene.push("first")
        await anyio.sleep(1)
        scene.loop.push("second", preempt=Preempt(Point.STREAM))
    exit_ = await scene.loop.wait()
    assert exit_.reason is error
    assert (exit_.failed, exit_.unhandled, exit_.interrupted) == (("first",), ("second",), ())


@virtual
async def test_gx_04_an_error_of_a_preempted_agent_is_reported() -> None:
    """It failed before it could be stopped: its item is among the failed."""
    gate = Gate("model")
    scene = Looped([gate, ModelError("no such luck")], "Done.")
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        scene.loop.push("second", preempt=Preempt(Point.TOOLS))
        gate.open()
    exit_ = await scene.loop.wait()
    assert scene.ends == ["failed", "completed"]
    assert (exit_.reason, exit_.failed) == (None, ("first",))


@virtual
async def test_gx_06_a_callback_that_does_not_drain_its_events_ends_the_agent() -> None:
    """The agent is cancelled and has ended when the turn is left; its tool cleaned up."""
    began, cleaned = Gate("tool"), Gate("cleaned", opened=True)

    async def work() -> str:
        """Work."""
        try:
            await began
        finally:
            await cleaned
        return "done"

    async def watch(*_: object) -> None:
        await began.reached()

    scene = Looped(Call("work"), tools=[work], on_events=watch)
    exit_ = await scene.to_the_end("first")
    assert (exit_.reason, cleaned.arrived, scene.ends) == (None, 1, ["completed"])


@pytest.mark.parametrize("end", ["an error", "an interrupt", "a stop"])
def test_gx_07_the_buffer_is_closed_before_it_is_collected(end: str) -> None:
    """What is pushed while the loop ends is refused, also by a strategy, and never accepted and lost."""

    @virtual
    async def conserved() -> None:
        saving = Gate("save")

        class SlowStore(MemoryStore):
            async def set(self, checkpoint_id: str, data: bytes, /) -> None:
                await saving
                await super().set(checkpoint_id, data)

        gate = Gate("model")
        last = {"an error": ModelError("no"), "an interrupt": Call("ask"), "a stop": Hang()}[end]
        scene = Looped([gate, last], tools=[asking()], store=SlowStore(), on_events=None)
        async with scene.loop:
            scene.push("first", "second")
            await gate.reached()
            gate.open()
            if end == "a stop":
                scene.loop.stop(Stop.now())
            while scene.loop.turn is not None:
                scene.push("meanwhile")
                await anyio.lowlevel.checkpoint()
            if end != "an error":
                await saving.reached()
            receipts = [
                *scene.push("late", preempt=Preempt(Point.ANY)),
                scene.loop.push("later", strategy=preempting),
            ]
            saving.open()
        exit_ = await scene.loop.wait()
        accepted = exit_.unhandled.count("meanwhile") if isinstance(exit_.unhandled, tuple) else 0
        assert exit_.unhandled == ("second", *["meanwhile"] * accepted)
        assert exit_.late()[-2:] == ("late", "later")
        assert [one.accepted for one in receipts] == [False, False]
        assert [one.preempt.wait(0) for one in receipts if one.preempt] == [PreemptResult.LOOP_CLOSED] * 2
        assert exit_.failed if end == "an error" else exit_.interrupted

    conserved()


@virtual
async def test_gx_08_a_turn_that_ends_by_itself_tells_so() -> None:
    """The preempt was submitted, but a final answer is no safe point: the turn is completed, and seen so."""
    gate = Gate("model")
    seen: list[tuple[bool, str, StopResult | None]] = []

    async def watch(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        async for _event in events:
            pass
        assert turn.run is not None
        outcome = await turn.run.outcome()
        seen.append((turn.preempted, outcome.stop_reason, outcome.cancelled and outcome.cancelled.result))

    scene = Looped([gate, "An answer."], "Done.", on_events=watch)
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        receipt = scene.loop.push("second", preempt=Preempt(Point.TOOLS))
        assert await answer(receipt) is PreemptResult.SUBMITTED
        gate.open()
    assert seen == [(True, "end_turn", None), (False, "end_turn", None)]
    assert scene.ends == ["completed", "completed"]
    assert [list(about.preempted) for about in scene.about] == [[], []]


@pytest.mark.parametrize("watched", [True, False])
def test_gx_09_the_items_of_a_turn_that_failed_are_reported(*, watched: bool) -> None:
    """Watched, the loop goes on, and they are in the exit; without a callback the loop ends, and they are."""

    @virtual
    async def reported() -> None:
        error = ModelError("no such luck")
        options: dict[str, Any] = {} if watched else {"on_events": None}
        exit_ = await Looped(error, "Done.", **options).to_the_end("first", "second")
        assert exit_.failed == ("first",)
        assert (exit_.reason, exit_.unhandled) == ((None, ()) if watched else (error, ("second",)))

    reported()


@virtual
async def test_gx_09_the_items_of_a_turn_that_was_torn_away_are_reported() -> None:
    """The task of the loop is cancelled: the turn in flight failed, and no stop interrupted it."""
    scene = Looped([Hang()])
    async with anyio.create_task_group() as group:
        scene.push("first", "second")
        group.start_soon(scene.loop.run)
        await anyio.sleep(1)
        group.cancel_scope.cancel()
    exit_ = await scene.loop.wait()
    assert isinstance(exit_.reason, Cut)
    assert (exit_.failed, exit_.unhandled, exit_.interrupted) == (("first",), ("second",), ())
    assert scene.model.live == 0


@virtual
async def test_gx_11_nothing_of_a_preempted_turn_leaks_into_the_exit() -> None:
    """The turn after it cannot be planned while a stop is committed: nothing was interrupted."""
    gate, planning = Gate("tool"), Gate("planning")
    store = MemoryStore()
    error = LookupError("no agent")

    async def prepare(about: Planning[str], _: Sequence[str]) -> Agent:
        if about.turn == 1:
            return scene.agent
        await planning
        raise error

    scene = Looped(Call("work"), tools=[held(gate)], prepare_agent=prepare, store=store)
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        scene.loop.push("second", preempt=Preempt(Point.ANY))
        gate.open()
        await planning.reached()
        turn = scene.loop.turn
        assert turn is not None
        assert (turn.number, turn.preempted, turn.stopped) == (2, False, False)
        scene.loop.stop(Stop.now(), cause="deploy")
        planning.open()
    exit_ = await scene.loop.wait()
    assert exit_.reason is error
    assert (exit_.interrupted, exit_.unhandled, exit_.failed) == ((), ("second",), ())
    assert (exit_.stop_cause, exit_.checkpoint_attempted, store.data) == ("deploy", False, {})


@virtual
async def test_gx_18_a_grace_that_ends_while_the_turn_is_planned_keeps_its_provenance() -> None:
    """The report says that it was the time-out that escalated, and who asked for what."""
    planning = Gate("planning")

    async def prepare(*_: object) -> Agent:
        await planning
        return scene.agent

    scene = Looped("Done.", prepare_agent=prepare)
    async with scene.loop:
        scene.push("first")
        await planning.reached()
        scene.loop.push("second", preempt=Preempt(Point.MODEL, grace=1))
        await anyio.sleep(2)
        planning.open()
        await scene.over(1)
    report = (await scene.runs[0].outcome()).cancelled
    assert report is not None
    assert (report.result, report.escalated_by, report.stopped_at) == (
        StopResult.ESCALATED,
        "timeout",
        Where.BEFORE_START,
    )
    (cause,) = report.causes
    assert cause.source == "preempt"
    assert cause.asked is not None
    assert cause.asked.points is Point.MODEL


@pytest.mark.parametrize(
    "make",
    [
        lambda: Preempt(Point.ANY, grace=0),
        lambda: Preempt(Point.ANY, grace=-1),
        lambda: Preempt(Point.ANY, delay=-1),
        lambda: Preempt(Point.ANY, grace=float("nan")),
        lambda: Preempt(Point(0)),
        lambda: Stop.graceful(grace=0),
    ],
)
def test_gx_19_what_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    """When it is made, so that nothing was pushed."""
    with pytest.raises(ValueError, match=r"give|name"):
        make()


@virtual
async def test_gx_20_a_plan_that_consumes_nothing_is_refused() -> None:
    """It would be asked for ever: the loop ends, says why, and gives the items back."""

    def plan(_: object, items: Sequence[str]) -> Turn[str]:
        return Turn("go", remaining=items)

    scene = Looped(gen_input=plan)
    exit_ = await scene.to_the_end("first", "second")
    assert isinstance(exit_.reason, UserError)
    assert "consumed and dropped nothing" in str(exit_.reason)
    assert exit_.unhandled == ("first", "second")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Turn("go", consumed=["never pushed"], remaining=["first", "second"]), "not given"),
        (Turn("go", consumed=["first", "second"], remaining=["first"]), "twice"),
        (Turn("go", consumed=["first"]), "left items out"),
    ],
)
def test_gx_21_each_item_is_dealt_with_once(plan: Turn[str], words: str) -> None:
    """What was not given, is named twice, or is left out, ends the loop with words and the items back."""

    @virtual
    async def strict() -> None:
        def given(*_: object) -> Turn[str]:
            return plan

        scene = Looped(gen_input=given)
        exit_ = await scene.to_the_end("first", "second")
        assert isinstance(exit_.reason, UserError)
        assert words in str(exit_.reason)
        assert exit_.unhandled == ("first", "second")

    strict()


@virtual
async def test_gx_21_what_is_dropped_is_named_and_gone() -> None:
    """Some items are dropped, the others have their turn; where all are dropped, no agent runs."""

    def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        spam = [item for item in items if item == "spam"]
        ham = [item for item in items if item != "spam"]
        scene.note(about, items)
        return Turn(ham[0] if ham else None, consumed=ham[:1], remaining=ham[1:], dropped=spam)

    scene = Looped("One.", "Two.", gen_input=plan)
    async with scene.loop:
        scene.push("spam")
        await scene.over(1)
        scene.push("spam", "first", "spam", "second")
    exit_ = await scene.loop.wait()
    assert exit_.reason is None
    assert scene.batches == [["spam"], ["spam", "first", "spam", "second"], ["second"]]
    assert (scene.prompts, exit_.unhandled, exit_.failed) == (["first", "second"], (), ())


@pytest.mark.parametrize("callback", ["gen_input", "gen_resume", "prepare_agent"])
def test_gx_23_an_exception_of_a_callback_is_the_reason(callback: str) -> None:
    """Whatever it is, plain or async, the loop ends with it and the items are given back."""

    @virtual
    async def reason() -> None:
        store, gate = MemoryStore(), Gate("model")
        if callback == "gen_resume":
            left = Looped([gate], store=store)
            async with left.loop:
                left.push("msg1")
                await gate.reached()
                left.loop.stop(Stop.now())
        error = ZeroDivisionError()

        async def fail(*_: object) -> Turn[str]:
            raise error

        callbacks: dict[str, Any] = {callback: fail}
        exit_ = await Looped(store=store, **callbacks).to_the_end("msg2")
        assert exit_.reason is error
        assert exit_.unhandled == ("msg2",)
        assert exit_.interrupted == (("msg1",) if callback == "gen_resume" else ())

    reason()


@virtual
async def test_gx_23_an_exception_of_a_strategy_goes_to_the_pusher() -> None:
    """Nothing was pushed, and the loop goes on."""
    gate = Gate("model")
    scene = Looped([gate, "Done."])

    def fail(_turn: TurnView[str] | None, _phase: Phase) -> None:
        raise ZeroDivisionError

    async with scene.loop:
        scene.push("first")
        await gate.reached()
        with pytest.raises(ZeroDivisionError):
            scene.loop.push("second", strategy=fail)
        gate.open()
    exit_ = await scene.loop.wait()
    assert (exit_.reason, scene.batches, exit_.late()) == (None, [["first"]], ())


@virtual
async def test_gx_33_a_bare_stop_during_a_turn_can_be_seen_by_the_callback() -> None:
    """`stop_requested`, and its cause; the turn is not stopped by it."""
    gate = Gate("model")
    scene = Looped([gate, "Done."])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        (turn,) = scene.turns
        assert (turn.stop_requested, turn.stop_cause) == (False, "")
        scene.loop.stop(cause="deploy")
        assert (turn.stop_requested, turn.stopped, turn.stop_cause) == (True, False, "deploy")
        gate.open()
    assert (scene.ends, (await scene.loop.wait()).stop_cause) == (["completed"], "deploy")


@virtual
async def test_gx_34_a_bare_stop_escalates_to_graceful_and_to_now() -> None:
    """In the middle of a turn: first it would end, then at its point, then it is cut."""
    gate = Gate("tool")
    scene = Looped(Call("work"), tools=[held(gate)])
    async with scene.loop:
        scene.push("first")
        await gate.reached()
        scene.loop.stop()
        assert not scene.turns[0].stopped
        scene.loop.stop(Stop.graceful(grace=60))
        await anyio.sleep(1)
        scene.loop.stop(Stop.now())
    exit_ = await scene.loop.wait()
    assert isinstance(exit_.reason, Cancelled)
    assert exit_.reason.report is not None
    assert (exit_.reason.report.stopped_at, exit_.reason.report.escalated_by) == (Where.TOOLS, "request")
    stops = await asked_of(scene.runs[0])
    assert [(stop.points, stop.immediate, stop.recursive) for stop in stops] == [
        (Point.ANY, False, True),
        (Point(0), True, True),
    ]
    assert exit_.interrupted == ("first",)
