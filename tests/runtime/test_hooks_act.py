"""Hooks that act: one may cancel its run at every moment, and the stop takes effect where the run then is."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Point, Stop, StopReport, StopResult, tool
from andon.core.stop import Where
from andon.runtime.hooks import NAMES, Hook, Moment
from andon.runtime.ticket import Ticket
from andon.testing import Gate, ScriptedModel, virtual
from tests.whole import whole


@tool
async def work() -> str:
    """Work."""
    return "done"


class Canceller:
    """A hook that cancels the run, once, at the n-th of its moments."""

    def __init__(self, stop: Stop, nth: int = 1) -> None:
        self.stop = stop
        self.nth = nth
        self.tickets: list[Ticket] = []

    def at_once(self, moment: Moment) -> None:
        """Cancel, as a plain function."""
        self.nth -= 1
        if not self.nth:
            self.tickets.append(moment.run.cancel(self.stop, reason=moment.name))

    async def later(self, moment: Moment) -> None:
        """Cancel after a while, and go on for another while."""
        await anyio.sleep(1)
        self.at_once(moment)
        await anyio.sleep(1)


async def cancelled_at(name: str, hook: Hook, model: ScriptedModel) -> Agent:
    """Make an agent with a hook, and run it."""
    agent = Agent(model, tools=[work])
    agent.on(name, hook)
    async with agent.start("go") as run:
        await whole(run)
    return agent


async def reported(canceller: Canceller) -> tuple[StopReport, bool | None]:
    """Give the report of the one request there was, and whether it was accepted."""
    (ticket,) = canceller.tickets
    return await ticket, ticket.accepted


NOW, POINTS, GENTLY = Stop.now(), Stop.graceful(), Stop.gently()


@virtual
@pytest.mark.parametrize("kind", ["at_once", "later"])
@pytest.mark.parametrize(
    ("name", "stop", "where", "asked"),
    [
        ("run_started", NOW, Where.BEFORE_START, 0),
        ("message_added", NOW, Where.BEFORE_START, 0),
        ("before_model", NOW, Where.MODEL, 0),
        ("after_model", NOW, Where.POINT_MODEL, 1),
        ("before_tool", NOW, Where.TOOLS, 1),
        ("run_started", POINTS, Where.POINT_MODEL, 1),
        ("message_added", POINTS, Where.POINT_MODEL, 1),
        ("before_model", POINTS, Where.POINT_MODEL, 1),
        ("after_model", POINTS, Where.POINT_MODEL, 1),
        ("before_tool", POINTS, Where.POINT_TOOLS, 1),
        ("after_tool", POINTS, Where.POINT_TOOLS, 1),
        ("run_started", GENTLY, Where.MODEL, 0),
        ("message_added", GENTLY, Where.MODEL, 0),
        ("before_model", GENTLY, Where.MODEL, 0),
        ("after_model", GENTLY, Where.POINT_MODEL, 1),
        ("before_tool", GENTLY, Where.POINT_TOOLS, 1),
        ("after_tool", GENTLY, Where.POINT_TOOLS, 1),
    ],
)
async def test_a_hook_may_cancel_its_run_at_each_moment(
    name: str, stop: Stop, where: Where, asked: int, kind: str
) -> None:
    """Now, at points or gently: as if anybody else had asked at that moment; the hook is not cut."""
    canceller, model = Canceller(stop), ScriptedModel(Call("work"), "never")
    await cancelled_at(name, getattr(canceller, kind), model)
    report, accepted = await reported(canceller)
    assert (report.result, report.stopped_at, accepted) == (StopResult.STOPPED, where, True)
    assert [(cause.source, cause.reason) for cause in report.causes] == [("user", name)]
    assert len(model.requests) == asked


@virtual
@pytest.mark.parametrize(("kind", "where"), [("at_once", Where.POINT_TOOLS), ("later", Where.TOOLS)])
async def test_a_hook_after_the_last_tool_is_still_in_the_round(kind: str, where: Where) -> None:
    """While it waits the round is cut, else the stop takes effect behind it; the results are kept."""
    canceller, model = Canceller(NOW), ScriptedModel([Call("work")], "never")
    agent = Agent(model, tools=[work])
    agent.on("after_tool", getattr(canceller, kind))
    async with agent.start("go") as run:
        outcome = await whole(run)
    report, accepted = await reported(canceller)
    assert (report.result, report.stopped_at, accepted) == (StopResult.STOPPED, where, True)
    assert [(one.state.value, one.content) for one in outcome.messages[2].results] == [("completed", "done")]


@virtual
@pytest.mark.parametrize(
    ("nth", "where"), [(1, Where.BEFORE_START), (2, Where.POINT_MODEL), (3, Where.POINT_TOOLS), (4, None)]
)
async def test_a_hook_may_cancel_at_each_message(nth: int, where: Where | None) -> None:
    """The prompt, the call, the results; with the answer, the run has finished first."""
    canceller = Canceller(NOW, nth)
    await cancelled_at("message_added", canceller.at_once, ScriptedModel(Call("work"), "Done."))
    report, accepted = await reported(canceller)
    result = StopResult.FINISHED_FIRST if where is None else StopResult.STOPPED
    assert (report.result, report.stopped_at, accepted) == (result, where, True)


@virtual
@pytest.mark.parametrize("stop", [NOW, POINTS, GENTLY])
@pytest.mark.parametrize("name", ["after_model", "message_added"])
async def test_a_hook_that_cancels_when_the_answer_is_there_comes_too_late(name: str, stop: Stop) -> None:
    """A final answer is no safe point; the request was joined, and changed nothing."""
    canceller = Canceller(stop, 1 if name == "after_model" else 2)
    agent = await cancelled_at(name, canceller.at_once, ScriptedModel("Done.", "Again."))
    report, accepted = await reported(canceller)
    assert (report.result, accepted) == (StopResult.FINISHED_FIRST, True)
    assert (await agent.run("go")).text == "Again."


@virtual
@pytest.mark.parametrize("stop", [NOW, POINTS])
async def test_a_hook_that_cancels_at_the_very_end_is_told_so(stop: Stop) -> None:
    """The run was final: the request was not accepted, and the next run is not touched."""
    canceller = Canceller(stop)
    agent = await cancelled_at("run_ended", canceller.at_once, ScriptedModel("Done.", "Again."))
    report, accepted = await reported(canceller)
    assert (report.result, accepted) == (StopResult.FINISHED_FIRST, False)
    assert (await agent.run("go")).text == "Again."


@virtual
async def test_a_hook_that_cancels_a_run_that_is_being_stopped_gets_the_same_report() -> None:
    """It is told of the messages that seal the history, when nothing can be joined any more."""
    gate, tickets = Gate("tool"), list[Ticket]()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate
        return "done"

    agent = Agent(ScriptedModel(Call("wait")), tools=[wait])

    @agent.on("message_added")
    def cancel(moment: Moment) -> None:
        if moment.message is not None and moment.message.synthetic:
            tickets.append(moment.run.cancel(reason="too late"))

    async with agent.start("go") as run:
        await gate.reached()
        report = await run.cancel(reason="first")
        await whole(run)
    assert [await ticket for ticket in tickets] == [report]
    assert [ticket.accepted for ticket in tickets] == [False]
    assert [cause.reason for cause in report.causes] == ["first"]


@virtual
async def test_a_hook_cancels_no_run_but_its_own() -> None:
    """That of a child ends the child; the parent reads it, and goes on. Each agent has its own hooks."""
    log: list[str] = []
    child = Agent(ScriptedModel("never"), name="child")
    agent = Agent(
        ScriptedModel(Call("child", {"request": "help"}), "Done."),
        tools=[child.as_tool(description="Help.")],
        name="parent",
    )

    @child.on("before_model")
    def cancel(moment: Moment) -> None:
        moment.run.cancel(reason="not today")

    for one in (child, agent):

        def note(moment: Moment, one: Agent = one) -> None:
            assert (moment.run is run) is (one is agent)
            log.append(f"{one.name} {moment.name}")

        one.on("before_model", note)
    run = agent.start("go")
    async with run:
        outcome = await whole(run)
    assert log == ["parent before_model", "child before_model", "parent before_model"]
    assert (outcome.text, outcome.messages[2].results[0].state.value) == ("Done.", "failed")
    assert outcome.messages[2].results[0].content == "The agent child was cancelled by user: not today"


@virtual
async def test_a_safe_hook_that_fails_refuses_nothing() -> None:
    """Its error does not matter, so its words would not either; the next one is asked."""
    agent = Agent(ScriptedModel([Call("work")], "Done."), tools=[work])
    asked: list[str] = []

    @agent.on("before_tool", safe=True)
    def broken(_: Moment) -> str:
        asked.append("broken")
        raise OSError("no")

    @agent.on("before_tool")
    async def allow(_: Moment) -> None:
        asked.append("allow")

    outcome = await agent.run("go")
    assert asked == ["broken", "allow"]
    assert outcome.messages[2].results[0].content == "done"


@virtual
@pytest.mark.parametrize("name", NAMES)
async def test_hooks_of_one_moment_go_in_order_and_after_hooks_in_reverse(name: str) -> None:
    """Plain and async ones take their turns, each when the one before it has ended."""
    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work])
    log: list[str] = []

    def plain(number: int) -> Hook:
        def hook(_: Moment) -> None:
            log.append(f"{number}")

        return hook

    def slow(number: int) -> Callable[[Moment], Awaitable[Any]]:
        async def hook(_: Moment) -> None:
            log.append(f"{number}…")
            await anyio.sleep(1)
            log.append(f"…{number}")

        return hook

    for number, make in enumerate((plain, slow, plain, slow)):
        agent.on(name, make(number))
    await agent.run("go")
    forth, back = ["0", "1…", "…1", "2", "3…", "…3"], ["3…", "…3", "2", "1…", "…1", "0"]
    once = back if name in {"after_model", "after_tool", "run_ended"} else forth
    assert log[: len(once)] == once
    assert len(log) % len(once) == 0


@virtual
@pytest.mark.parametrize("name", ["before_model", "before_tool"])
async def test_the_after_hook_comes_also_where_the_before_hook_has_failed(name: str) -> None:
    """What was opened by the hooks that did run is closed."""
    agent = Agent(ScriptedModel(Call("work"), "never"), tools=[work])
    log: list[str] = []

    def opened(_: Moment) -> None:
        log.append("opened")

    def broken(_: Moment) -> None:
        raise OSError("no")

    def closed(moment: Moment) -> None:
        log.append(f"closed {moment.name}")

    agent.on(name, opened)
    agent.on(name, broken)
    agent.on(name.replace("before", "after"), closed)
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert outcome.stop_reason == "error"
    assert log == ["opened", f"closed {name.replace('before', 'after')}"]


@virtual
@pytest.mark.parametrize("stop", [NOW, POINTS, Stop.at(Point.TOOLS), GENTLY])
@pytest.mark.parametrize("place", ["model", "tools"])
async def test_every_before_hook_that_ran_has_its_after_hook(stop: Stop, place: str) -> None:
    """Wherever the run is stopped; calls that were never begun were never announced."""
    gate, log = Gate(place), list[str]()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate
        return "done"

    agent = Agent(
        ScriptedModel(
            [gate, Call("work"), Call("work")] if place == "model" else [Call("wait")] * 2, "Done."
        ),
        tools=[work, wait],
    )

    def note(moment: Moment) -> None:
        log.append(moment.name)

    for name in ("before_model", "after_model", "before_tool", "after_tool"):
        agent.on(name, note)
    async with agent.start("go") as run:
        await gate.reached()
        ticket = run.cancel(stop)
        await anyio.wait_all_tasks_blocked()
        gate.open()
        await ticket
        await whole(run)
    assert log.count("before_model") == log.count("after_model") > 0
    assert log.count("before_tool") == log.count("after_tool")
    assert (log.count("before_tool") > 0) is (place == "tools" or stop == Stop.at(Point.TOOLS))
