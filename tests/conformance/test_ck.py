"""CK: cancel, checkpoint, resume: one agent."""

from andon import Agent, Call, Point, Run, Stop, StopResult, ToolContext, tool
from andon.core.checkpoint import Checkpoint
from andon.core.items import ModelStarted, RunEnded, ToolEnded, ToolStarted
from andon.core.stop import Where
from andon.testing import Gate, ScriptedModel, virtual
from tests.stores import MemoryStore
from tests.whole import whole


@virtual
async def test_ck_01_the_checkpoint_is_in_the_store_under_the_id_that_report_and_outcome_name() -> None:
    """Given a store and NOW mid-model: STOPPED, and what is stored is what the outcome holds."""
    store, answer = MemoryStore(), Gate("model")
    async with Agent(ScriptedModel(["Half", answer]), store=store).start(
        "go", checkpoint_id="chat-42"
    ) as run:
        await answer.reached()
        report = await run.cancel()
        assert list(store.data) == ["chat-42"]  # by the time that anybody is told
        outcome = await whole(run)
    assert report.result is StopResult.STOPPED
    assert (report.checkpoint, report.durable, report.checkpoint_error) == ("chat-42", True, None)
    assert outcome.cancelled == report
    assert outcome.checkpoint == Checkpoint.from_json(store.data["chat-42"])


@virtual
async def test_ck_03_a_resumed_run_that_is_blocked_in_its_model_is_stopped_now() -> None:
    """NOW on the new run, not on the old one: one terminal event that says cancelled."""
    first, second = Gate("first"), Gate("second")
    model = ScriptedModel([first], [second])
    agent = Agent(model)
    async with agent.start("go") as run:
        await first.reached()
        run.cancel()
        saved = (await whole(run)).checkpoint
    assert saved is not None
    async with agent.start_from(saved) as resumed:
        await second.reached()
        report = await resumed.cancel()
        outcome = await whole(resumed)
        ends = [event async for event in resumed if isinstance(event, RunEnded)]
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert [end.outcome.stop_reason for end in ends] == ["cancelled"]
    assert (outcome.run_id, model.live) == (resumed.id, 0)
    assert resumed.id != run.id


@virtual
async def test_ck_06_the_stored_answer_is_used_and_its_tool_runs_before_any_model_call() -> None:
    """Given MODEL on an answer with a call: the tool runs, then one model call ends the run."""
    answer = Gate("model")
    model = ScriptedModel(["Let me.", answer, Call("work", id="c1")], "Done.")
    worked: list[int] = []

    @tool
    async def work() -> str:
        """Work."""
        worked.append(len(model.requests))
        return "worked"

    agent = Agent(model, tools=[work])
    async with agent.start("go") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.MODEL))
        answer.open()
        saved = (await whole(run)).checkpoint
    assert (await ticket).stopped_at is Where.POINT_MODEL
    assert saved is not None
    assert worked == []
    async with agent.start_from(saved) as resumed:
        outcome = await whole(resumed)
        steps = [event async for event in resumed if isinstance(event, ToolStarted | ModelStarted)]
    assert [type(step) for step in steps] == [ToolStarted, ModelStarted]
    assert (worked, len(model.requests)) == ([1], 2)
    assert [message.text for message in outcome.messages] == ["go", "Let me.", "", "Done."]


class Asking:
    """An agent whose tool asks a human; its model calls it once more, and then would end."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.model = ScriptedModel(Call("ask", id="c1"), ["Again.", Call("ask", id="c2")], "never")

        @tool
        async def ask(context: ToolContext) -> str:
            """Ask a human."""
            self.answers.append(await context.interrupt("well?"))
            return f"{self.answers[-1]}"

        self.agent = Agent(self.model, tools=[ask])

    async def paused(self) -> tuple[Checkpoint, dict[str, object]]:
        """Run until the human is asked."""
        outcome = await self.agent.run("go")
        assert outcome.stop_reason == "interrupt"
        assert outcome.checkpoint is not None
        return outcome.checkpoint, {outcome.interrupts[0].id: "yes"}

    async def stopped(self, resumed: Run) -> None:
        """Cancel at MODEL before the resumed run begins: it stops after the next answer, not before."""
        ticket = resumed.cancel(Stop.at(Point.MODEL))
        async with resumed:
            outcome = await whole(resumed)
            seen = [event async for event in resumed]
        report = await ticket
        assert ticket.accepted
        assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.POINT_MODEL)
        assert self.answers == ["yes"]
        assert (len(self.model.requests), self.model.left) == (2, 1)
        ended = [(event.call_id, event.state) for event in seen if isinstance(event, ToolEnded)]
        assert ended == [("c1", "completed"), ("c2", "not_started")]
        ends = [event.outcome for event in seen if isinstance(event, RunEnded)]
        assert [(end.stop_reason, end.error, end.interrupts) for end in ends] == [("cancelled", None, ())]
        assert outcome.messages[3].text == "Again."


@virtual
async def test_ck_07_model_asked_before_a_paused_run_is_resumed_lets_the_tool_complete() -> None:
    """A tool that had begun is past the point: the next answer with calls is the next one."""
    scene = Asking()
    saved, answers = await scene.paused()
    await scene.stopped(scene.agent.start_from(saved, answers=answers))


@virtual
async def test_ck_07_the_same_through_json() -> None:
    """Nothing fails to be read."""
    scene = Asking()
    saved, answers = await scene.paused()
    await scene.stopped(scene.agent.start_from(saved.to_json(), answers=answers))
