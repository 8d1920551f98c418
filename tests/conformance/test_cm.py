"""CM: cancel modes on one agent."""

from collections.abc import AsyncIterator

import pytest

from andon import Agent, Call, Outcome, Point, Run, Stop, StopReport, StopResult, sequence, tool
from andon.core.items import (
    Event,
    Item,
    MessageAdded,
    ModelStarted,
    RunEnded,
    StopRequested,
    ToolEnded,
    ToolStarted,
)
from andon.core.stop import Where
from andon.runtime.ticket import Ticket
from andon.testing import Gate, Reply, ScriptedModel, virtual
from tests.whole import whole


class Scene:
    """An agent with one tool that is held at a gate, and a model that calls it again and again."""

    def __init__(self, *replies: Reply) -> None:
        self.model = ScriptedModel(*replies)
        self.gate = Gate("tool")
        self.called = 0

        @tool
        async def work() -> str:
            """Work."""
            self.called += 1
            await self.gate
            return "done"

        self.agent = Agent(self.model, tools=[work])


async def stopped(run: Run, *tickets: Ticket) -> tuple[Outcome, StopReport]:
    """Hold the run to a clean stop: STOPPED for every ticket, one terminal event that says cancelled."""
    outcome = await whole(run)
    reports = [await ticket for ticket in tickets]
    assert all(report == outcome.cancelled for report in reports)
    assert reports[0].result is StopResult.STOPPED
    assert outcome.stop_reason == "cancelled"
    return outcome, reports[0]


def test_cm_01_a_fresh_scope_does_not_stop_and_one_asked_now_does() -> None:
    """Given a fresh scope nothing is to be cancelled; asked NOW, it is, and the mode reads NOW."""
    run = Agent(ScriptedModel()).start("go")
    scope = run._record.scope  # pyright: ignore[reportPrivateUsage]
    assert (scope.stop, scope.cuts, scope.due(Where.MODEL)) == (None, False, False)
    assert "<Scope open>" in repr(run)
    run.cancel(Stop.now())
    assert scope.cuts
    assert scope.due(Where.MODEL)
    assert "<Scope stopping, now>" in repr(run)


@virtual
async def test_cm_02_cancel_without_options_cuts_a_blocked_model() -> None:
    """Given a blocked model call, cancel() stops the run long before it would end; the tool never ran."""
    answer = Gate("model")
    scene = Scene([answer, Call("work")])
    async with scene.agent.start("go") as run:
        await answer.reached()
        outcome, report = await stopped(run, run.cancel())
    assert report.stopped_at is Where.MODEL
    assert scene.called == 0
    assert not answer.opened
    assert scene.model.live == 0
    assert outcome.text == "Cancelled by user"


@virtual
async def test_cm_03_model_asked_inside_a_tool_stops_after_the_next_model_call() -> None:
    """The running tool ends, the next model call ends, and its tool calls do not run."""
    scene = Scene(Call("work"), Call("work"))
    async with scene.agent.start("go") as run:
        await scene.gate.reached()
        ticket = run.cancel(Stop.at(Point.MODEL))
        scene.gate.open()
        _, report = await stopped(run, ticket)
        seen = [event async for event in run]
    assert report.stopped_at is Where.POINT_MODEL
    assert (scene.called, len(scene.model.requests)) == (1, 2)
    assert [e.state for e in seen if isinstance(e, ToolEnded)] == ["completed", "not_started"]
    spoken = [e.message.role for e in seen if isinstance(e, MessageAdded)]
    assert spoken == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


@virtual
async def test_cm_04_tools_asked_inside_a_tool_lets_it_end_and_asks_no_model() -> None:
    """The tool runs to its end, no further model call is made, what came before is delivered."""
    scene = Scene(Call("work"), "never asked")
    async with scene.agent.start("go") as run:
        await scene.gate.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        scene.gate.open()
        outcome, report = await stopped(run, ticket)
        seen = [event async for event in run]
    assert report.stopped_at is Where.POINT_TOOLS
    assert (scene.called, len(scene.model.requests)) == (1, 1)
    assert [e.content for e in seen if isinstance(e, ToolEnded)] == ["done"]
    assert outcome.messages[2].results[0].content == "done"


@virtual
async def test_cm_05_model_asked_while_the_model_is_in_flight_runs_none_of_its_tools() -> None:
    """The call in flight is not cut; when it returns tool calls the run stops before them."""
    answer = Gate("model")
    scene = Scene([answer, "Let me.", Call("work")])
    async with scene.agent.start("go") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.MODEL))
        answer.open()
        outcome, report = await stopped(run, ticket)
        seen = [event async for event in run]
    assert report.stopped_at is Where.POINT_MODEL
    assert scene.called == 0
    assert not any(isinstance(event, ToolStarted) for event in seen)
    assert sum(isinstance(event, RunEnded) for event in seen) == 1
    assert outcome.messages[1].text == "Let me."
    assert not outcome.messages[1].cut


@virtual
async def test_cm_06_tools_waits_for_all_tools_of_the_round() -> None:
    """With two tools under way, nothing happens while only one has ended; each is called once."""
    gates = {"a": Gate("a"), "b": Gate("b")}

    @tool
    async def work(name: str) -> str:
        """Work."""
        await gates[name]
        return name

    model = ScriptedModel([Call("work", {"name": "a"}), Call("work", {"name": "b"})])
    async with Agent(model, tools=[work]).start("go") as run:
        await gates["a"].reached()
        await gates["b"].reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        gates["a"].open()
        events = run.events()
        first = [event async for event in _until(events, ToolEnded)]
        assert isinstance(first[-1], ToolEnded)
        assert not run.ended
        assert ticket.report is None
        gates["b"].open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_TOOLS
    assert [gate.arrived for gate in gates.values()] == [1, 1]
    assert [result.content for result in outcome.messages[2].results] == ["a", "b"]


async def _until(events: AsyncIterator[Event], kind: type[Item]) -> AsyncIterator[Event]:
    async for event in events:
        yield event
        if isinstance(event, kind):
            return


@virtual
@pytest.mark.parametrize("point", [Point.TOOLS, Point.MODEL, Point.ANY])
async def test_cm_07_a_final_answer_is_no_safe_point(point: Point) -> None:
    """The request is accepted, the run ends with its answer, nothing says cancelled."""
    answer = Gate("model")
    async with Agent(ScriptedModel([answer, "Done."])).start("go") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(point))
        answer.open()
        outcome = await whole(run)
        report = await ticket
    assert (report.result, ticket.accepted) == (StopResult.FINISHED_FIRST, True)
    assert (outcome.stop_reason, outcome.text, outcome.cancelled) == ("end_turn", "Done.", None)


@virtual
async def test_cm_08_cancel_before_the_run_calls_neither_model_nor_tool() -> None:
    """Asked before the run, the stop is there when it begins; the ticket does not hang."""
    scene = Scene(Call("work"))
    run = scene.agent.start("go")
    ticket = run.cancel()
    async with run:
        _, report = await stopped(run, ticket)
        seen = [event async for event in run]
    assert report.stopped_at is Where.BEFORE_START
    assert (scene.called, scene.model.requests) == (0, [])
    assert not any(isinstance(event, ModelStarted) for event in seen)


@virtual
async def test_cm_08_cancel_of_the_agent_before_its_first_run() -> None:
    """The same through the agent's short form."""
    scene = Scene(Call("work"))
    ticket = scene.agent.cancel()
    async with scene.agent.start("go") as run:
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.BEFORE_START
    assert (scene.called, scene.model.requests, outcome.usage.total_tokens) == (0, [], 0)


@virtual
async def test_cm_11_without_a_store_a_cut_model_is_no_error() -> None:
    """NOW mid-model, no store: STOPPED, cancelled, no error, nothing written, no interrupt."""
    answer = Gate("model")
    scene = Scene(["Half an ans", answer])
    async with scene.agent.start("go") as run:
        await answer.reached()
        outcome, report = await stopped(run, run.cancel())
        seen = [event async for event in run]
    assert (outcome.error, report.checkpoint, report.checkpoint_error) == (None, None, None)
    assert report.durable
    assert outcome.text == "Half an ans"
    assert sum(isinstance(event, StopRequested) for event in seen) == 1


@virtual
async def test_cm_13_one_terminal_event_ends_a_sequence_that_is_cancelled_in_its_first_step() -> None:
    """The second step's model is never called."""
    answer = Gate("model")
    first, second = ScriptedModel(["Half", answer]), ScriptedModel("never")
    async with sequence(Agent(first, name="a1"), Agent(second, name="a2")).start("go") as run:
        await answer.reached()
        await stopped(run, run.cancel())
        terminal = [event async for event in run if isinstance(event, RunEnded)]
    assert [event.outcome.stop_reason for event in terminal] == ["cancelled"]
    assert (len(first.requests), first.live, second.requests) == (1, 0, [])
