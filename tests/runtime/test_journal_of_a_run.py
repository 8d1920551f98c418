"""The journal of a run: nothing takes effect before it is written down, and a cut never waits for storage."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Outcome, Run, Stop, ToolContext, tool
from andon.core.draft import Chunk
from andon.core.items import Item, ModelEnded, ModelStarted, RunEnded, ToolEnded, ToolStarted
from andon.core.messages import ResultState
from andon.core.stop import StopResult, Where
from andon.errors import SessionError
from andon.ports import Model, ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.ticket import Ticket
from andon.runtime.tools import Tool
from andon.testing import Gate, Hang, ScriptedModel, VirtualLoop, run_virtual, virtual
from tests.ledger import Ledger, fence
from tests.whole import whole

STEPS = 4  # of the loop: the run, the tool, and the two that they wake


class Story:
    """A run of one tool and two model calls, each of which looks into the journal as it begins."""

    def __init__(self, *replies: Chunk) -> None:
        self.ledger = Ledger()
        self.asked = 0
        self.used = 0
        self._replies = [*(replies or (Call("look", {}, id="c1"), "Done."))]
        self.agent = Agent(self.model, tools=[self.look()], durable_timeout=5)

    async def model(self, _: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer, if that this was asked is durable."""
        self.asked += 1
        assert self.ledger.begun(ModelStarted) >= self.asked
        yield self._replies[self.asked - 1]

    def look(self) -> Tool[..., Any]:
        """Make the tool."""

        @tool
        async def look() -> str:
            """Look, if that is durable."""
            self.used += 1
            assert self.ledger.begun(ToolStarted) == self.used
            return "seen"

        return look

    def start(self) -> Run:
        """Make the run."""
        return self.agent.start("Go.", journal=self.ledger)


def results(outcome: Outcome) -> list[ResultState]:
    """Give what became of the calls."""
    return [result.state for message in outcome.messages for result in message.results]


@virtual
async def test_no_model_and_no_tool_begins_before_that_is_durable() -> None:
    """Each looks into the journal itself; all is there in order, without the end, which comes apart."""
    story = Story()
    run = story.start()
    outcome = await run.outcome()
    assert (outcome.stop_reason, story.asked, story.used) == ("end_turn", 2, 1)
    assert results(outcome) == [ResultState.COMPLETED]
    items = [event async for event in run.events() if isinstance(event, Item)]
    assert items[:-1] == story.ledger.taken
    assert story.ledger.ended is not None
    assert isinstance(items[-1], RunEnded)
    assert story.ledger.ended.outcome == items[-1].outcome


@virtual
async def test_the_end_is_durable_before_any_reader_or_ticket_is_told() -> None:
    """While the journal has not written it, the run has not ended."""
    story = Story("Done.")
    gate = story.ledger.hold(2)
    run = story.start()
    told: list[Outcome] = []

    async def wait() -> None:
        told.append(await run.outcome())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await gate.reached()
        ticket = run.cancel()
        await anyio.sleep(1)
        assert (run.ended, told, story.ledger.ended) == (False, [], None)
        with anyio.move_on_after(1) as early:
            await ticket
        assert early.cancelled_caught
        gate.open()
        report = await ticket
        assert (report.result, ticket.accepted, report.durable) == (StopResult.FINISHED_FIRST, False, True)
    assert [outcome.stop_reason for outcome in told] == ["end_turn"]


@virtual
async def test_an_end_that_cannot_be_written_in_time_says_so() -> None:
    """After `durable_timeout` whoever waits is told, and that it may be lost."""
    story = Story("Done.")
    story.ledger.hold(2)
    began = anyio.current_time()
    outcome = await story.start().outcome()
    assert 5 <= anyio.current_time() - began < 7
    assert outcome.checkpoint_error == "its end was not written down within 5 s"


@virtual
async def test_the_report_of_a_stop_that_cannot_be_written_is_not_durable() -> None:
    """The same is said to whoever has stopped it."""
    ledger = Ledger()
    agent = Agent(ScriptedModel(["Well, ", Hang()]), durable_timeout=5)
    async with agent.start("Go.", journal=ledger) as run:
        await anyio.sleep(1)
        ledger.hold(2)
        report = await run.cancel()
    assert (report.result, report.durable) == (StopResult.STOPPED, False)


@virtual
async def test_a_journal_that_fails_at_the_end_is_told_of() -> None:
    """The words of its error are in the report and the outcome."""
    story = Story("Done.")
    fence(story.ledger, 2)
    outcome = await story.start().outcome()
    assert outcome.checkpoint_error == "SessionError: another worker has the session now"


@pytest.mark.parametrize(("at", "asked", "used"), [(1, 0, 0), (2, 1, 0), (3, 1, 1)])
@virtual
async def test_a_fenced_run_begins_nothing_more(at: int, asked: int, used: int) -> None:
    """Whichever sync finds out, neither a model nor a tool begins behind it."""
    story = Story()
    fence(story.ledger, at)
    run = story.start()
    outcome = await run.outcome()
    assert (outcome.stop_reason, story.asked, story.used) == ("error", asked, used)
    assert isinstance(run.error, SessionError)
    assert results(outcome) == [ResultState.COMPLETED if used else ResultState.NOT_STARTED] * asked
    begun = [item for item in story.ledger.taken if isinstance(item, ModelStarted | ToolStarted)]
    ended = [item for item in story.ledger.taken if isinstance(item, ModelEnded | ToolEnded)]
    assert len(begun) == len(ended)


@virtual
async def test_a_fenced_run_does_not_try_its_other_models() -> None:
    """No retry and no fallback: the journal is lost, not the model."""
    ledger = Ledger()
    fence(ledger, 1)
    models = ScriptedModel("One."), ScriptedModel("Two.")
    seen: list[str] = []
    agent = Agent(models[0], fallback=[models[1]], retries=3)

    @agent.on("before_model")
    def before(_: Moment) -> None:
        seen.append("before")

    @agent.on("after_model")
    def after(moment: Moment) -> None:
        seen.append(f"after, cut {moment.cut}")

    outcome = await agent.start("Go.", journal=ledger).outcome()
    assert outcome.stop_reason == "error"
    assert (models[0].requests, models[1].requests, ledger.syncs) == ([], [], 2)
    assert seen == ["before", "after, cut True"]


@pytest.mark.parametrize("stop", [Stop.now(), Stop.gently(), Stop.gently(grace=1)])
@virtual
async def test_a_cut_while_the_model_waits_for_the_journal_does_not_wait(stop: Stop) -> None:
    """A storage that hangs holds no run: the model was not asked, and nothing was used."""
    story = Story()
    gate = story.ledger.hold(1)
    async with story.start() as run:
        await gate.reached()
        began = anyio.current_time()
        report = await run.cancel(stop)
        outcome = await run.outcome()
    assert anyio.current_time() - began < 0.1
    assert (report.result, report.stopped_at, report.durable) == (StopResult.STOPPED, Where.MODEL, True)
    assert (story.asked, outcome.usage.input_tokens, outcome.usage.estimated) == (0, 0, False)
    await whole(run)


@virtual
async def test_a_steer_now_while_the_model_waits_for_the_journal_is_heard() -> None:
    """The call is begun anew with what was said, and asked once."""
    story = Story("Done.")
    gate = story.ledger.hold(1)
    async with story.start() as run:
        await gate.reached()
        receipt = run.steer("And?", when="now")
        outcome = await run.outcome()
    assert (await receipt).delivered
    assert (story.asked, outcome.stop_reason) == (1, "end_turn")


@virtual
async def test_a_cut_while_a_tool_waits_for_the_journal_leaves_it_not_started() -> None:
    """It did not run, and the history says so."""
    story = Story()
    gate = story.ledger.hold(2)
    async with story.start() as run:
        await gate.reached()
        began = anyio.current_time()
        report = await run.cancel()
        outcome = await run.outcome()
    assert anyio.current_time() - began < 0.1
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.TOOLS)
    assert (story.used, results(outcome)) == (0, [ResultState.NOT_STARTED])
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.results == ()
    await whole(run)


@virtual
async def test_a_stop_of_the_model_only_lets_a_tool_wait_for_the_journal() -> None:
    """It cuts no tool, so it does not cut its intent."""
    story = Story()
    gate = story.ledger.hold(2)
    async with story.start() as run:
        await gate.reached()
        ticket = run.cancel(Stop.gently())
        await anyio.sleep(1)
        gate.open()
        report = await ticket
    assert (story.used, report.stopped_at) == (1, Where.POINT_TOOLS)


@virtual
async def test_a_cancellation_from_outside_while_it_syncs_is_passed_on() -> None:
    """The run ends as cancelled by code, nothing begins, and the scope gets its cancellation."""
    for number in (1, 2):
        story = Story()
        gate = story.ledger.hold(number)
        run = story.start()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def leave(scope: anyio.CancelScope = scope, gate: Gate = gate) -> None:
                    await gate.reached()
                    scope.cancel()

                group.start_soon(leave)
                async with run:
                    await run.outcome()
        assert scope.cancelled_caught
        outcome = await run.outcome()
        assert (outcome.stop_reason, story.used, story.asked) == ("cancelled", 0, number - 1)
        assert outcome.cancelled is not None
        assert [cause.source for cause in outcome.cancelled.causes] == ["code"]


class Tree:
    """An agent in a tool in an agent, each perhaps in a thread of its own, that looks into one journal."""

    def __init__(self, *, outer: bool, inner: bool) -> None:
        self.ledger = Ledger()
        self.asked = 0
        self.used = 0
        deepest = Agent(self._model("leaf", {}), tools=[self._leaf()], name="deepest")
        middle = Agent(self._model("ask", {}), tools=[_asking(deepest, thread=inner)], name="middle")
        self.agent = Agent(self._model("ask", {}), tools=[_asking(middle, thread=outer)], name="top")

    def _model(self, name: str, arguments: dict[str, object]) -> Model:
        async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
            self.asked += 1
            assert self.ledger.begun(ModelStarted) >= self.asked
            yield Call(name, arguments) if request.messages[-1].role == "user" else "Done."

        return model

    def _leaf(self) -> Tool[..., Any]:
        @tool
        async def leaf() -> str:
            """Look into the journal."""
            self.used += 1
            assert self.ledger.begun(ToolStarted) == 3
            return "seen"

        return leaf


def _asking(agent: Agent, *, thread: bool) -> Tool[..., Any]:
    @tool
    async def ask() -> str:
        """Ask the agent inside, on this loop."""
        return (await agent.run("Go.")).message.text

    @tool(name="ask")
    def ask_in_thread() -> str:
        """Ask the agent inside, on a loop of this thread's own."""
        return agent.run_sync("Go.").message.text

    return ask_in_thread if thread else ask


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("outer", [False, True])
@virtual
async def test_children_in_any_loop_are_written_down_before_they_act(outer: bool, inner: bool) -> None:  # noqa: FBT001
    """Also those that are two threads away, whose items take two steps to the journal."""
    for _ in range(5):
        tree = Tree(outer=outer, inner=inner)
        outcome = await tree.agent.start("Go.", journal=tree.ledger).outcome()
        assert (outcome.stop_reason, tree.used, tree.asked) == ("end_turn", 1, 6), outcome.error


@virtual
async def test_a_child_in_a_thread_that_waits_for_the_journal_is_cut_with_the_tree() -> None:
    """Its loop does not wait for what the other loop cannot write."""
    tree = Tree(outer=True, inner=True)
    gate = tree.ledger.hold(4)  # model, tool, model, tool of the middle
    async with tree.agent.start("Go.", journal=tree.ledger) as run:
        await gate.reached()
        report = await run.cancel()
    assert report.result is StopResult.STOPPED
    assert (tree.used, report.abandoned) == (0, ())


@virtual
async def test_a_child_in_a_thread_hears_that_the_journal_is_fenced() -> None:
    """The error goes the whole way back, and ends the tree."""
    tree = Tree(outer=True, inner=True)
    fence(tree.ledger, 6)
    outcome = await tree.agent.start("Go.", journal=tree.ledger).outcome()
    assert (outcome.stop_reason, tree.used) == ("error", 0)


async def steps_of(journal: Ledger | None, loop: VirtualLoop) -> int:
    """Count the steps of the loop that a run takes."""
    before = loop.steps
    await (
        Agent(ScriptedModel(Call("look", {}), "Done."), tools=[_look]).start("Go.", journal=journal).outcome()
    )
    return loop.steps - before


def test_a_run_without_a_journal_pays_nothing_for_it() -> None:
    """Not one step of the loop: as many as there were before there were journals."""
    loop = VirtualLoop()

    async def main() -> tuple[int, int]:
        return await steps_of(None, loop), await steps_of(Ledger(delay=0), loop)

    run_virtual(main)  # the tool is made ready with its first use
    without, with_one = run_virtual(main, loop=loop)
    assert without == STEPS
    assert with_one > without


@tool(name="look")
async def _look(context: ToolContext) -> str:
    """Look."""
    return context.call_id


def test_what_a_loop_that_is_torn_down_leaves_is_not_called_durable() -> None:
    """There was no time to write the end down."""
    ledger = Ledger()
    tickets: list[Ticket] = []

    async def main() -> None:
        run = Agent(ScriptedModel("Done.")).start("Go.", journal=ledger)
        tickets.append(run.cancel())
        run.events()

    run_virtual(main)
    report = tickets[0].report
    assert report is not None
    assert (report.durable, ledger.ended) == (False, None)
