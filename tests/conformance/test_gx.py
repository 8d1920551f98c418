"""GX: where the model leaves it open or gets it wrong, as far as it is about runs."""

import time

import anyio
import pytest

from andon import Agent, Call, Point, Run, Stop, StopReport, StopResult, ToolContext, tool
from andon.core.checkpoint import Checkpoint
from andon.core.items import Interrupted, RunEnded
from andon.core.repair import UNKNOWN
from andon.core.stop import Where
from andon.errors import CheckpointError, RunStateError
from andon.testing import Gate, Hang, ScriptedModel, VirtualLoop, run_virtual, virtual
from tests.stores import BrokenStore, MemoryStore
from tests.whole import whole


class AfterChild:
    """A root whose child has ended: it streams its own model now, or is in a tool of its own."""

    def __init__(self, *, in_tool: bool = False) -> None:
        self.gate = Gate("here")
        self.store = MemoryStore()
        self.child = ScriptedModel("The child's answer.", name="child")
        child = Agent(self.child, name="child", instructions="Help.")

        @tool
        async def hold() -> str:
            """Hold."""
            await self.gate
            return "held"

        after = [Call("hold", id="c2")] if in_tool else ["Half an ans", self.gate]
        self.model = ScriptedModel(Call("child", {"request": "help"}, id="c1"), after, Hang())
        self.agent = Agent(self.model, tools=[child.as_tool(), hold], store=self.store)


@virtual
@pytest.mark.parametrize(
    "stop",
    [
        Stop.now(),
        Stop.now(recursive=True),
        Stop.gently(),
        Stop.at(Point.STREAM, recursive=True),
        Stop.at(Point.TOOLS, grace=1),
        Stop.graceful(grace=1),
    ],
    ids=repr,
)
async def test_gx_12_a_child_that_ran_earlier_does_not_matter_to_a_cut_in_the_roots_model(stop: Stop) -> None:
    """In every mode: STOPPED or, after the grace, ESCALATED; a cancelled end, no error, a checkpoint."""
    scene = AfterChild()
    async with scene.agent.start("go") as run:
        await scene.gate.reached()
        report = await run.cancel(stop)
        outcome = await whole(run)
        ends = [event.outcome for event in [e async for e in run] if isinstance(event, RunEnded)]
    assert report.result is (StopResult.ESCALATED if stop.grace else StopResult.STOPPED)
    assert report.stopped_at is Where.MODEL
    assert [(end.stop_reason, end.error) for end in ends] == [("cancelled", None)]
    assert Checkpoint.from_json(scene.store.data[run.id]) == outcome.checkpoint
    assert (outcome.text, scene.model.live, scene.child.live) == ("Half an ans", 0, 0)


@virtual
async def test_gx_13_only_live_children_count_and_the_canceller_is_never_blocked() -> None:
    """NOW+recursive after the child ended: nothing is waited for, nobody is signalled, no time passes."""
    scene = AfterChild(in_tool=True)
    async with scene.agent.start("go") as run:
        await scene.gate.reached()
        assert run.children == ()
        began = anyio.current_time()
        ticket = run.cancel(Stop.now(recursive=True))
        report = await ticket
        outcome = await whole(run)
        assert anyio.current_time() == began
    assert (report.result, report.stopped_at, report.abandoned) == (StopResult.STOPPED, Where.TOOLS, ())
    assert outcome.messages[2].results[0].content == "The child's answer."
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.children == {}


class SlowStore(MemoryStore):
    """Takes its time to write, and to forget."""

    async def set(self, checkpoint_id: str, data: bytes, /) -> None:
        """Store, after five seconds."""
        await anyio.sleep(5)
        await super().set(checkpoint_id, data)


@virtual
async def test_gx_14_who_resumes_at_once_when_the_ticket_answers_finds_the_checkpoint() -> None:
    """The ticket resolves after the checkpoint is durable, however slow the store."""
    store, answer = SlowStore(), Gate("model")
    model = ScriptedModel([answer], "Done.")
    agent = Agent(model, store=store)
    async with agent.start("go", checkpoint_id="chat") as run:
        await answer.reached()
        ticket = run.cancel()
        await anyio.sleep(4)
        assert (ticket.report, store.data) == (None, {})
        report = await ticket
        outcome = await agent.resume(store.data["chat"])
    assert (report.result, report.checkpoint, report.durable) == (StopResult.STOPPED, "chat", True)
    assert outcome.text == "Done."


@virtual
async def test_gx_15_a_checkpoint_that_could_not_be_stored_is_told_by_the_handle() -> None:
    """By every ticket of the agent's cancel, and by the outcome, which still has the checkpoint."""
    answer = Gate("model")
    agent = Agent(ScriptedModel([answer]), store=BrokenStore())
    async with agent.start("go") as run:
        await answer.reached()
        report = await agent.cancel()
        outcome = await whole(run)
    assert (report.result, report.durable) == (StopResult.STOPPED, False)
    assert (report.checkpoint, report.checkpoint_error) == (None, "OSError: the disk is full")
    assert outcome.cancelled is not None
    assert outcome.cancelled.checkpoint_error == report.checkpoint_error
    assert outcome.checkpoint is not None


@virtual
async def test_gx_16_a_run_and_its_stop_are_never_used_for_a_second_run() -> None:
    """Beginning it again raises; the run that goes on from it knows nothing of its stop."""
    answer = Gate("model")
    agent = Agent(ScriptedModel([answer], "Done."))
    async with agent.start("go") as run:
        await answer.reached()
        ticket = run.cancel()
        saved = (await whole(run)).checkpoint
    with pytest.raises(RunStateError, match=r"has begun already: start another with agent\.start\(\)"):
        async with run:
            pytest.fail("it began again")
    assert saved is not None
    resumed = agent.start_from(saved)
    async with resumed:
        late = run.cancel()
        outcome = await whole(resumed)
    assert outcome.stop_reason == "end_turn"
    assert await late == await ticket
    assert late.accepted is False


@virtual
async def test_gx_17_a_late_cancel_after_an_escalation_gets_the_same_report() -> None:
    """All handles of a run tell the same."""
    answer = Gate("model")
    async with Agent(ScriptedModel([answer])).start("go") as run:
        await answer.reached()
        early = run.cancel(Stop.at(Point.MODEL, grace=2))
        await anyio.sleep(3)
        late = [run.cancel(), run.cancel(Stop.graceful())]
        outcome = await whole(run)
        reports = [await ticket for ticket in (early, *late)]
    assert reports == [outcome.cancelled] * 3
    assert (reports[0].result, reports[0].escalated_by) == (StopResult.ESCALATED, "timeout")
    assert [ticket.accepted for ticket in (early, *late)] == [True, False, False]


@virtual
@pytest.mark.parametrize("begun", [False, True])
async def test_gx_18_a_grace_that_was_over_before_the_request_arrived_says_so(*, begun: bool) -> None:
    """It is *now*, by timeout: before the run begins, and while it runs."""
    answer = Gate("model")
    model = ScriptedModel([answer])
    late = Stop(points=Point.TOOLS, deadline=time.time() - 1)
    run = Agent(model).start("go")
    ticket = None if begun else run.cancel(late)
    async with run:
        if begun:
            await answer.reached()
        report = await (ticket or run.cancel(late))
        outcome = await whole(run)
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")
    assert report.stopped_at is (Where.MODEL if begun else Where.BEFORE_START)
    assert report.causes[0].asked == Stop.at(Point.TOOLS)
    assert outcome.cancelled == report
    assert len(model.requests) == begun


@virtual
@pytest.mark.parametrize("payload", [None, "", [], {}])
async def test_gx_22_a_question_without_words_is_a_question(payload: object) -> None:
    """What ended the run is told by its reason, and an answer of nothing is an answer."""
    told: list[object] = []

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask for nothing in particular."""
        told.append(await context.interrupt(payload))
        return "told"

    agent = Agent(ScriptedModel(Call("ask", id="c1"), "Done."), tools=[ask])
    async with agent.start("go") as run:
        outcome = await whole(run)
        asked = [event.payload async for event in run if isinstance(event, Interrupted)]
    assert outcome.stop_reason == "interrupt"
    assert [one.payload for one in outcome.interrupts] == asked == [payload]
    assert outcome.checkpoint is not None
    resumed = await agent.resume(outcome.checkpoint.to_json(), answers={outcome.interrupts[0].id: None})
    assert (resumed.text, told) == ("Done.", [None])


class Clinging:
    """A tool that does not stop when told to, and does what it does after all."""

    def __init__(self, *, idempotent: bool) -> None:
        self.gate = Gate("tool")
        self.ids: list[str] = []

        @tool(idempotent=idempotent)
        async def charge(context: ToolContext) -> str:
            """Charge a card, whatever comes."""
            self.ids.append(context.call_id)
            try:
                await self.gate
            except anyio.get_cancelled_exc_class():
                await self.gate
            return "charged"

        self.model = ScriptedModel(Call("charge"), "Done.")  # the run gives the call its id
        self.agent = Agent(self.model, tools=[charge])

    async def left_behind(self) -> Checkpoint:
        """Stop the run, which leaves the tool behind; then the tool ends."""
        async with self.agent.start("go") as run:
            await self.gate.reached()
            report = await run.cancel()
            outcome = await whole(run)
            assert [left.name for left in report.abandoned] == ["charge"]
            assert outcome.messages[2].results[0].content == UNKNOWN
            self.gate.open()
            await anyio.sleep(1)
            assert [(late.call_id, late.value) for late in run.late] == [(self.ids[0], "charged")]
            assert outcome.messages[2] == run.messages[2]
        assert outcome.checkpoint is not None
        return outcome.checkpoint


@virtual
async def test_gx_29_a_tool_that_ended_after_the_stop_is_not_run_again_on_resume() -> None:
    """Nobody may charge twice: the model is told that the outcome is not known."""
    scene = Clinging(idempotent=False)
    outcome = await scene.agent.resume((await scene.left_behind()).to_json())
    assert len(scene.ids) == 1
    assert outcome.messages[2].results[0].content == UNKNOWN
    assert outcome.text == "Done."


@virtual
async def test_gx_29_one_that_may_be_repeated_has_the_same_call_id_again() -> None:
    """At least once: the id of the call is the key by which it knows itself."""
    scene = Clinging(idempotent=True)
    outcome = await scene.agent.resume((await scene.left_behind()).to_json())
    assert len(scene.ids) == 2
    assert len(set(scene.ids)) == 1
    assert scene.ids[0]
    assert outcome.messages[2].results[0].content == "charged"


async def test_gx_30_a_ticket_of_a_run_that_never_begins_can_be_waited_for_with_a_bound() -> None:
    """`wait` gives up after its time-out, and closing the run resolves it."""
    model = ScriptedModel("never")
    run = Agent(model).start("go")
    ticket = run.cancel(reason="changed my mind")
    with pytest.raises(TimeoutError, match="the request stands, wait again"):
        await anyio.to_thread.run_sync(ticket.wait, 0.01)
    await run.close()
    report = await ticket
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.BEFORE_START)
    assert report.causes[0].reason == "changed my mind"
    assert model.requests == []


class Racing:
    """A run that asks, and a stop that comes at one exact step of the loop."""

    def __init__(self, stop: Stop, step: int) -> None:
        self.stop, self.step = stop, step
        self.loop = VirtualLoop()
        self.report: StopReport | None = None

        @tool
        async def ask(context: ToolContext) -> str:
            """Ask."""
            return f"{await context.interrupt('well?')}"

        self.agent = Agent(ScriptedModel(Call("ask", id="c1"), "Done."), tools=[ask], store=MemoryStore())

    def go(self) -> str:
        """Run it, hold what comes to its word, and say which of the legal ends it was."""
        return run_virtual(self._go, loop=self.loop)

    async def _go(self) -> str:
        run = self.agent.start("go")
        first = self.loop.steps
        tickets = [run.cancel(self.stop)] if self.step < 0 else []
        self.loop.before_step = lambda step: (
            tickets.append(run.cancel(self.stop)) if step == first + self.step else None
        )
        async with run:
            outcome = await whole(run)
            if not tickets:
                tickets.append(run.cancel(self.stop))
            self.report = await tickets[0]
            asked = [event.payload async for event in run if isinstance(event, Interrupted)]
        assert [one.payload for one in outcome.interrupts] == asked
        assert outcome.checkpoint is not None
        if outcome.stop_reason == "cancelled":
            assert self.report == outcome.cancelled
            await self._comes_again(outcome.checkpoint)
            return f"cancelled, {len(asked)} open"
        assert (outcome.stop_reason, asked) == ("interrupt", ["well?"])
        return await self._paused(run, outcome.checkpoint)

    async def _paused(self, run: Run, saved: Checkpoint) -> str:
        assert self.report is not None
        if self.report.result is StopResult.FINISHED_FIRST:
            await self._comes_again(saved)
            return "paused"
        assert (self.report.result, self.report.stopped_at) == (StopResult.STOPPED, Where.PAUSED)
        with pytest.raises(CheckpointError, match=f"run {run.id} was cancelled while it waited"):
            await self.agent.resume(saved)
        return "paused, given up"

    async def _comes_again(self, saved: Checkpoint) -> None:
        again = await self.agent.resume(saved.to_json())
        assert (again.stop_reason, [one.payload for one in again.interrupts]) == ("interrupt", ["well?"])
        assert again.checkpoint is not None
        answers = {again.interrupts[0].id: "yes"}
        assert (await self.agent.resume(again.checkpoint, answers=answers)).text == "Done."


@pytest.mark.parametrize(
    ("stop", "ends"),
    [
        (Stop.now(), {"cancelled, 0 open", "cancelled, 1 open", "paused", "paused, given up"}),
        (
            Stop.at(Point.TOOLS),
            {"cancelled, 1 open", "paused", "paused, given up"},
        ),
    ],
    ids=repr,
)
def test_gx_32_an_interrupt_and_a_stop_race_and_nothing_is_lost(stop: Stop, ends: set[str]) -> None:
    """At every step: absorbed with its question, or paused, or given up; what is kept asks again."""
    seen = {Racing(stop, step).go() for step in range(-1, 40)}
    assert seen == ends


@virtual
async def test_gx_32_a_stop_that_is_accepted_first_keeps_the_question() -> None:
    """TOOLS pending, then the tool asks: cancelled, where it waits, with the question listed."""
    gate = Gate("tool")

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask late."""
        await gate
        return f"{await context.interrupt('well?')}"

    agent = Agent(ScriptedModel(Call("ask", id="c1"), "Done."), tools=[ask])
    async with agent.start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        gate.open()
        outcome = await whole(run)
        report = await ticket
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.PAUSED)
    assert outcome.stop_reason == "cancelled"
    assert [(one.payload, one.path) for one in outcome.interrupts] == [("well?", ("agent", "ask"))]
    assert outcome.checkpoint is not None
    answers = {outcome.interrupts[0].id: "yes"}  # it may even be answered at once
    resumed = await agent.resume(outcome.checkpoint, answers=answers)
    assert (resumed.text, resumed.messages[2].results[0].content) == ("Done.", "yes")
