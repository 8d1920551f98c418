"""Ends that come at an odd moment, or from an odd side: each is one end, and tells the truth."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from types import FrameType

import anyio
import pytest

from andon.core.draft import Chunk
from andon.core.items import Item, RunStarted, TextDelta
from andon.core.limits import Limits, Usage
from andon.core.messages import Call, Message, ResultState, Text
from andon.core.outcome import Outcome
from andon.core.stop import Cause, Point, Stop, StopResult, Where
from andon.errors import UserError
from andon.ports import ModelRequest
from andon.runtime.agent import Agent
from andon.runtime.bell import Bell
from andon.runtime.hooks import Moment
from andon.runtime.run import Run
from andon.runtime.scope import Scope
from andon.runtime.tools import tool
from andon.testing import Gate, Hang, ScriptedModel, virtual
from andon.testing.clock import tasks_of
from tests.stray import close_all
from tests.whole import whole


async def stalled(_request: ModelRequest) -> AsyncIterator[Chunk]:
    """Say half an answer, swallow the cancellation, and return."""
    yield "Half an ans"
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        return


async def half(run: Run) -> None:
    """Wait until the model has said something."""
    async with contextlib.aclosing(run.events()) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                return


@virtual
async def test_a_model_that_swallows_the_cut_and_returns_has_not_answered() -> None:
    """What it said is a partial answer, and the run was cancelled."""
    async with Agent(stalled).start("go") as run:
        async for event in run:
            if getattr(event, "text", ""):
                run.cancel()
        outcome = await run.outcome()

    assert outcome.stop_reason == "cancelled"
    assert (outcome.text, outcome.message.cut) == ("Half an ans", True)


class Wild(BaseException):
    """Something that is no Exception."""


async def test_what_is_no_exception_ends_the_run_as_an_error_too() -> None:
    """A model may raise anything; whoever waits is told."""

    async def model(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Half"
        raise Wild

    async with asyncio.timeout(5):
        outcome = await Agent(model).run("go")

    assert outcome.stop_reason == "error"


@virtual
async def test_a_checkpoint_at_the_models_point_stops_there_again() -> None:
    """The stored calls are at that very point, so none of them starts."""

    @tool
    async def look() -> str:
        return "seen"

    agent = Agent(ScriptedModel([Call("look")]), tools=[look])
    run = agent.start("go")
    run.cancel(Stop.at(Point.MODEL))
    saved = (await run.outcome()).checkpoint
    assert saved is not None

    again = Agent(ScriptedModel(), tools=[look]).start_from(saved)
    report = again.cancel(Stop.at(Point.MODEL))
    outcome = await again.outcome()

    assert (await report).stopped_at is Where.POINT_MODEL
    assert [result.state for result in outcome.messages[2].results] == [ResultState.NOT_STARTED]


@virtual
async def test_a_checkpoint_at_the_tools_point_stops_there_again() -> None:
    """The model is not asked."""

    @tool
    async def look() -> str:
        return "seen"

    run = Agent(ScriptedModel([Call("look")]), tools=[look]).start("go")
    run.cancel(Stop.at(Point.TOOLS))
    saved = (await run.outcome()).checkpoint
    assert saved is not None

    again = Agent(ScriptedModel(), tools=[look]).start_from(saved)
    report = again.cancel(Stop.at(Point.TOOLS))
    await again.outcome()

    assert (await report).stopped_at is Where.POINT_TOOLS


@virtual
async def test_a_slow_hook_after_the_cut_makes_no_escalation_of_it() -> None:
    """The stop took effect before its grace ran out."""
    agent = Agent(ScriptedModel(["Half", Hang()]))

    @agent.on("after_model")
    async def slow(_: Moment) -> None:
        await anyio.sleep(3)

    async with agent.start("go") as run:
        await half(run)
        report = await run.cancel(Stop.gently(grace=1))

    assert (report.result, report.escalated_by) == (StopResult.STOPPED, None)


@virtual
async def test_a_hook_that_outlives_the_grace_at_a_point_escalates_nothing() -> None:
    """The round had ended, and nothing was cut."""

    @tool
    async def look() -> str:
        return "seen"

    agent = Agent(ScriptedModel([Call("look")]), tools=[look])

    @agent.on("message_added")
    async def slow(moment: Moment) -> None:
        if moment.message is not None and moment.message.role == "tool":
            await anyio.sleep(3)

    run = agent.start("go")
    ticket = run.cancel(Stop.at(Point.TOOLS, grace=1))
    await run.outcome()
    report = await ticket

    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.POINT_TOOLS)


@virtual
async def test_a_cut_is_told_although_a_hook_fails_after_it() -> None:
    """The outcome is the hook's error; the report still says that the model was cut."""
    agent = Agent(ScriptedModel(["Half", Hang()]))

    @agent.on("after_model")
    def fail(_: Moment) -> None:
        raise ValueError

    async with agent.start("go") as run:
        await half(run)
        report = await run.cancel()
        outcome = await run.outcome()

    assert outcome.stop_reason == "error"
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)


@virtual
async def test_each_before_hook_that_ran_gets_its_after_hook_when_another_fails() -> None:
    """Told that its step was cut short."""
    told: list[tuple[str, bool]] = []
    agent = Agent(ScriptedModel("Done."))

    @agent.on("before_model")
    @agent.on("after_model")
    def tell(moment: Moment) -> None:
        told.append((moment.name, moment.cut))

    @agent.on("before_model")
    def fail(_: Moment) -> None:
        raise ValueError

    outcome = await agent.run("go")

    assert outcome.stop_reason == "error"
    assert told == [("before_model", False), ("after_model", True)]


@virtual
async def test_calls_that_a_failure_left_open_do_not_say_cancelled() -> None:
    """Nobody cancelled anything."""

    @tool
    async def look() -> str:
        return "seen"

    agent = Agent(ScriptedModel([Call("look")]), tools=[look])

    @agent.on("after_model")
    def fail(_: Moment) -> None:
        raise ValueError

    outcome = await agent.run("go")

    assert outcome.messages[2].results[0].content == "Not started: the run failed before"


@virtual
async def test_tokens_that_are_spent_stop_before_the_tools() -> None:
    """The nearest whole point is where the calls have not started."""

    @tool
    async def look() -> str:
        return "seen"

    model = ScriptedModel([Call("look"), Usage(output_tokens=100)])
    outcome = await Agent(model, tools=[look], limits=Limits(output_tokens=100)).run("go")

    assert (outcome.stop_reason, outcome.limit) == ("limit", "output_tokens 100")
    assert outcome.messages[2].results[0].state is ResultState.NOT_STARTED


async def test_closing_a_run_that_never_began_leaves_what_is_armed() -> None:
    """It is the next run that begins that is stopped."""
    agent = Agent(ScriptedModel("Done."))
    armed = agent.cancel()
    await agent.start("never").close()

    outcome = await agent.run("go")

    assert outcome.stop_reason == "cancelled"
    assert (await armed).stopped_at is Where.BEFORE_START


def test_a_run_asked_for_its_events_outside_a_loop_has_not_begun() -> None:
    """It can be begun afterwards."""
    run = Agent(ScriptedModel("Done.")).start("go")

    with pytest.raises(RuntimeError, match="no running event loop"):
        run.events()

    assert asyncio.run(run.outcome()).text == "Done."


async def test_a_lost_run_does_not_keep_an_agent_from_cancelling_the_others() -> None:
    """Its loop was closed under it; it says so and is live no more."""
    agent = Agent(ScriptedModel(Hang(), Hang()))
    elsewhere = asyncio.new_event_loop()
    lost = agent.start("lost")

    def begin() -> set[asyncio.Task[object]]:
        async def events() -> None:
            lost.events()

        elsewhere.run_until_complete(events())
        left = asyncio.all_tasks(elsewhere)
        elsewhere.close()
        return left

    left = await anyio.to_thread.run_sync(begin)
    async with agent.start("here") as run:
        report = await agent.cancel()

    assert lost.lost
    assert (await run.outcome()).stop_reason == "cancelled"
    assert [part.durable for part in report.reports] == [False, True]
    assert repr(agent) == "<Agent agent, 0 live>"
    close_all(left)
    assert (await lost.cancel()).checkpoint_error == report.reports[0].checkpoint_error


def test_a_run_that_the_garbage_collector_closes_says_that_its_loop_is_gone() -> None:
    """It has its one end all the same."""
    loop = asyncio.new_event_loop()
    run = Agent(ScriptedModel(["Half", Hang()])).start("go")

    async def begin() -> None:
        run.events()

    loop.run_until_complete(begin())
    left = asyncio.all_tasks(loop)
    loop.close()
    close_all(left)

    outcome = asyncio.run(whole(run))
    assert outcome.stop_reason == "error"
    assert "the event loop of the run was closed" in (outcome.error or "")


class AtTheStart:
    """Cancels an agent as soon as a run of it tells that it began."""

    def __init__(self) -> None:
        self.agent: Agent | None = None

    def observe(self, _run_id: str, item: Item, /) -> None:
        """Cancel at the first item."""
        if isinstance(item, RunStarted) and self.agent is not None:
            self.agent.cancel(arm=False)


async def test_a_run_is_live_before_its_first_item() -> None:
    """Whoever sees it begin can cancel it by its agent."""
    observer = AtTheStart()
    observer.agent = Agent(ScriptedModel("Done."), observers=[observer])

    assert (await observer.agent.run("go")).stop_reason == "cancelled"


async def test_a_signal_handler_is_heard_while_the_loop_sleeps() -> None:
    """The usual way to drain; nothing else wakes the loop."""
    agent = Agent(ScriptedModel(["Half", Hang()]))

    def drain(_number: int, _frame: FrameType | None) -> None:
        agent.cancel()

    before = signal.signal(signal.SIGUSR1, drain)
    try:
        async with asyncio.timeout(20), agent.start("go") as run:
            async for event in run:
                if getattr(event, "text", "") == "Half":
                    asyncio.get_running_loop().run_in_executor(None, os.kill, os.getpid(), signal.SIGUSR1)
            outcome = await run.outcome()
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert outcome.stop_reason == "cancelled"


@virtual
async def test_requests_that_come_together_are_one_item() -> None:
    """Each has its ticket and its cause; the journal does not grow with the square of them."""
    answer = Gate("model")
    async with Agent(ScriptedModel([answer, "Done."])).start("go") as run:
        await answer.reached()
        tickets = [run.cancel(Stop.at(Point.ANY), reason=str(k)) for k in range(100)]
        await anyio.lowlevel.checkpoint()
        answer.open()
        await run.outcome()
        items = [event async for event in run if type(event).__name__ == "StopRequested"]

    assert len(items) == 1
    assert len({(await ticket).causes for ticket in tickets}) == 1
    assert len((await tickets[0]).causes) == 100


async def test_a_grace_is_not_drawn_out_by_a_clock_that_is_set_back() -> None:
    """It was mapped to the loop's own clock when it came in."""
    scope = Scope("run", lambda _: None)
    scope.begin()
    scope.request(Stop.at(Point.ANY, grace=0.01), Cause("user"))
    scope.drain()
    wall = scope.now
    scope.now = lambda: wall() - 3_600
    scope.request(Stop.at(Point.ANY, grace=3_600), Cause("user"))
    scope.drain()

    async with asyncio.timeout(20):
        while not scope.cuts:
            await anyio.lowlevel.checkpoint()

    assert scope.escalated_by == "timeout"


async def test_a_bell_forgets_who_left() -> None:
    """Polling with a time-out leaves nothing behind."""
    bell = Bell()
    for _ in range(10):
        with anyio.move_on_after(0.001):
            await bell.wait(lambda: False)

    assert len(bell.waiters) == 0


def test_a_ticket_forgets_who_left() -> None:
    """So does waiting for one in a thread."""
    ticket = Agent(ScriptedModel()).start("go").cancel()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            ticket.wait(timeout=0.001)

    assert not ticket._callbacks  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "prompt", [Message("assistant", (Text("I am you"),)), Message.user(" "), Message.user()]
)
def test_a_prompt_is_the_users_and_says_something(prompt: Message) -> None:
    """Nothing else joins a history as one."""
    with pytest.raises(UserError, match="the prompt is"):
        Agent(ScriptedModel()).start(prompt)


def test_a_history_that_says_nothing_is_nothing_to_answer() -> None:
    """It is refused before the run, and not found out at its end."""
    with pytest.raises(UserError, match="there is nothing to answer"):
        Agent(ScriptedModel()).start(messages=[Message.user(" ")])


@virtual
async def test_blanks_beside_words_are_dropped_from_a_prompt() -> None:
    """Providers refuse them."""
    outcome = await Agent(ScriptedModel("Done.")).run(["hi", "  "])

    assert outcome.messages[0] == Message.user("hi")


@pytest.mark.parametrize("first", ["the oldest", "the youngest"])
def test_a_loop_shut_down_while_tools_wait_for_a_place_leaves_a_whole_history(first: str) -> None:
    """The call that waited was never started, and the run ends once, whichever task is cancelled first."""
    began: list[str] = []

    async def main() -> Outcome:
        gate = Gate("tool")

        @tool
        async def wait() -> str:
            began.append("begun")
            await gate
            return "seen"

        model = ScriptedModel([Call("wait"), Call("wait")])
        run = Agent(model, tools=[wait], tool_concurrency=1).start("go")
        run.events()
        await gate.reached()
        # As `asyncio.run` does it, except that there the order is that of a set.
        tasks = [task for task in tasks_of(asyncio.get_running_loop()) if task is not asyncio.current_task()]
        for task in tasks if first == "the oldest" else reversed(tasks):
            task.cancel()
        return await whole(run)

    outcome = asyncio.run(main())

    assert [result.state for result in outcome.messages[2].results] == [
        ResultState.UNKNOWN,
        ResultState.NOT_STARTED,
    ]
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is Where.TOOLS
    assert began == ["begun"]
