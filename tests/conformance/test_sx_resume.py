"""SX: further cases, those of failover at a cut, and of interrupts that are answered one by one."""

from andon import Agent, Call, ModelError, Outcome, Stop, StopResult, ToolContext, tool
from andon.core.checkpoint import Checkpoint
from andon.core.items import ModelEnded, ModelStarted, ToolEnded
from andon.core.outcome import Interrupt
from andon.core.stop import Where
from andon.testing import Gate, Hang, ScriptedModel, virtual
from tests.stores import MemoryStore
from tests.whole import whole


@virtual
async def test_sx_02_a_cut_is_never_failed_over() -> None:
    """Given a fallback and retries, NOW in the model: one model call, which ends as cut."""
    answer = Gate("model")
    first, second = ScriptedModel(["Half", answer], name="first"), ScriptedModel("never", name="second")
    async with Agent(first, fallback=[second], retries=3).start("go") as run:
        await answer.reached()
        report = await run.cancel()
        outcome = await whole(run)
        seen = [event async for event in run]
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert (len(first.requests), second.requests, first.live) == (1, [], 0)
    assert [event.model for event in seen if isinstance(event, ModelStarted)] == ["first"]
    assert [(event.end, event.error) for event in seen if isinstance(event, ModelEnded)] == [("cut", None)]
    assert (outcome.error, outcome.text) == (None, "Half")


@virtual
async def test_sx_02_a_failure_that_the_cut_caused_is_not_failed_over_either() -> None:
    """A model that turns its cancellation into a transient error is not asked again."""
    answer = Gate("model")
    second = ScriptedModel("never", name="second")

    async def first(_request: object) -> object:
        try:
            await answer
        finally:
            raise ModelError("connection lost", transient=True)
        yield ""

    async with Agent(first, fallback=[second], retries=3).start("go") as run:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await answer.reached()
        report = await run.cancel(Stop.now())
        outcome = await whole(run)
    assert report.result is StopResult.STOPPED
    assert (answer.arrived, second.requests, outcome.usage.model_calls) == (1, [], 1)


def stored(store: MemoryStore, name: str) -> Checkpoint:
    """What a new process would find."""
    return Checkpoint.from_json(store.data[name])


@virtual
async def test_sx_07_asked_answered_asked_again_answered_on_one_checkpoint_id() -> None:
    """Each pause replaces the checkpoint before it under the same id; then the run completes."""
    store, told = MemoryStore(), list[object]()

    @tool
    async def book(context: ToolContext) -> str:
        """Book, with two questions."""
        where = await context.interrupt("where?")
        when = await context.interrupt("when?")
        told.append((where, when))
        return f"{where} at {when}"

    model = ScriptedModel(Call("book", id="c1"), "Booked.")
    agent = Agent(model, tools=[book], store=store)
    first = await agent.run("go", checkpoint_id="chat")
    assert (first.stop_reason, [one.payload for one in first.interrupts]) == ("interrupt", ["where?"])

    second = await agent.resume(
        stored(store, "chat"), answers={first.interrupts[0].id: "Lyon"}, checkpoint_id="chat"
    )
    assert (second.stop_reason, [one.payload for one in second.interrupts]) == ("interrupt", ["when?"])
    assert list(store.data) == ["chat"]
    assert stored(store, "chat") == second.checkpoint != first.checkpoint

    third = await agent.resume(
        stored(store, "chat"), answers={second.interrupts[0].id: "noon"}, checkpoint_id="chat"
    )
    assert (third.stop_reason, third.text, third.checkpoint) == ("end_turn", "Booked.", None)
    assert told == [("Lyon", "noon")]
    assert len(model.requests) == 2


class Two:
    """Two tools that run beside each other and ask; each notes what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

        @tool
        async def ask(context: ToolContext, name: str) -> str:
            """Ask."""
            answer = await context.interrupt(name)
            self.told.append((name, answer))
            return f"{name}: {answer}"

        self.model = ScriptedModel(
            [Call("ask", {"name": "A"}, "a"), Call("ask", {"name": "B"}, "b")], "Done.", Hang()
        )
        self.agent = Agent(self.model, tools=[ask])

    def asked(self, outcome: Outcome) -> dict[str, Interrupt]:
        """The open questions, by who asked."""
        assert outcome.stop_reason == "interrupt"
        return {str(one.payload): one for one in outcome.interrupts}


@virtual
async def test_sx_16_of_two_questions_the_one_without_an_answer_comes_again_under_a_new_id() -> None:
    """A completes and is not run again; B is asked once more; its answer continues the run."""
    scene = Two()
    both = scene.asked(first := await scene.agent.run("go"))
    assert sorted(both) == ["A", "B"]
    assert [one.path for one in both.values()] == [("agent", "ask"), ("agent", "ask")]
    assert first.checkpoint is not None

    run = scene.agent.start_from(first.checkpoint, answers={both["A"].id: "yes"})
    async with run:
        rest = scene.asked(second := await whole(run))
        ended = [event async for event in run if isinstance(event, ToolEnded)]
    assert [(event.call_id, event.state) for event in ended] == [("b", "unknown"), ("a", "completed")]
    assert list(rest) == ["B"]
    assert rest["B"].id not in {both["A"].id, both["B"].id}
    assert scene.told == [("A", "yes")]
    assert second.checkpoint is not None

    third = await scene.agent.resume(second.checkpoint, answers={rest["B"].id: "no"})
    assert (third.stop_reason, third.text) == ("end_turn", "Done.")
    assert [result.content for result in third.messages[2].results] == ["A: yes", "B: no"]
    assert scene.told == [("A", "yes"), ("B", "no")]
    assert len(scene.model.requests) == 2
