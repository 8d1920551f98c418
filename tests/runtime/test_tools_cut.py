"""Tools and a stop that is now: told, cut, shielded, abandoned; each call ends in one true word."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Cancelled, Outcome, Run, Stop, StopReport, ToolContext, tool
from andon.core.items import ToolEnded, ToolStarted
from andon.runtime.tools import Tool
from andon.testing import Gate, Hang, ScriptedModel, virtual
from tests.whole import whole


def states(outcome: Outcome) -> list[str]:
    """How the calls of the round ended."""
    return [result.state.value for result in outcome.messages[2].results]


def contents(outcome: Outcome) -> list[str]:
    """What the results of the round say."""
    return [result.content for result in outcome.messages[2].results]


async def cut(agent: Agent, *gates: Gate) -> tuple[Run, Outcome, StopReport]:
    """Cancel a run, now, when its tools have come to their gates."""
    async with agent.start("go") as run:
        for gate in gates:
            await gate.reached()
        report = await run.cancel(reason="enough")
        return run, await whole(run), report


@virtual
async def test_an_async_tool_is_cancelled_once_and_may_clean_up() -> None:
    """It is told who and why; what it does in its grace is waited for."""
    gate, heard = Gate("tool"), list[str]()

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.on_cancel(lambda: heard.append("told"))
        try:
            await gate
        except asyncio.CancelledError:
            heard.append(f"{context.cancelled} {context.cause and context.cause.reason}")
            await anyio.sleep(1)
            heard.append("clean")
            raise
        return "done"

    _, outcome, report = await cut(Agent(ScriptedModel(Call("work")), tools=[work]), gate)
    assert heard == ["told", "True enough", "clean"]
    assert states(outcome) == ["unknown"]
    assert report.abandoned == ()
    assert report.latency == pytest.approx(1, abs=1e-3)


@virtual
async def test_what_a_tool_returns_while_cleaning_up_is_its_result() -> None:
    """It knows how it ended, so its call does."""
    gate = Gate("tool")

    @tool
    async def work() -> str:
        """Work."""
        try:
            await gate
        except asyncio.CancelledError:
            return "half done"
        return "done"

    _, outcome, _ = await cut(Agent(ScriptedModel(Call("work")), tools=[work]), gate)
    assert (states(outcome), contents(outcome)) == (["completed"], ["half done"])


@virtual
async def test_sequential_tools_after_the_current_one_are_not_started() -> None:
    """One sequential tool among them makes the whole round go in turn."""
    gate, began = Gate("tool"), list[str]()

    @tool(sequential=True)
    async def first() -> str:
        """Wait."""
        began.append("first")
        await gate
        return "done"

    @tool
    async def second() -> str:
        """Never."""
        began.append("second")
        return "done"

    model = ScriptedModel([Call("first"), Call("second"), Call("first")])
    _, outcome, _ = await cut(Agent(model, tools=[first, second]), gate)
    assert states(outcome) == ["unknown", "not_started", "not_started"]
    assert began == ["first"]


def paying(gate: Gate, paid: list[str]) -> Tool[..., Any]:
    """A tool that is shielded."""

    @tool(finish=True)
    async def pay(context: ToolContext) -> str:
        """Pay."""
        await gate
        paid.append(f"told {context.cancelled}")
        return "paid"

    return pay


@virtual
@pytest.mark.parametrize("stop", [Stop.now(), Stop.graceful(grace=1)])
async def test_a_tool_that_must_finish_is_shielded_and_the_run_ends_after_it(stop: Stop) -> None:
    """From now and from escalation; the other tool of the round is cut."""
    gate, other, paid = Gate("pay"), Gate("other"), list[str]()

    @tool
    async def work() -> str:
        """Work."""
        await other
        return "done"

    model = ScriptedModel([Call("pay"), Call("work")])
    agent = Agent(model, tools=[paying(gate, paid), work], tool_grace=1, finish_timeout=100)
    async with agent.start("go") as run:
        await gate.reached()
        await other.reached()
        ticket = run.cancel(stop)
        await anyio.sleep(50)
        assert not run.ended
        run.cancel()
        await anyio.sleep(10)
        assert not run.ended
        gate.open()
        outcome = await whole(run)
        report = await ticket
    assert paid == ["told False"]
    assert (states(outcome), contents(outcome)[0]) == (["completed", "unknown"], "paid")
    assert report.abandoned == ()


@virtual
async def test_a_tool_that_must_finish_and_does_not_is_abandoned_in_the_end() -> None:
    """After `finish_timeout`, counted from the stop; its call is unknown."""
    gate, paid = Gate("pay"), list[str]()
    agent = Agent(ScriptedModel(Call("pay")), tools=[paying(gate, paid)], finish_timeout=100)
    run, outcome, report = await cut(agent, gate)
    assert states(outcome) == ["unknown"]
    assert report.latency == pytest.approx(100, abs=1e-3)
    assert [gone.name for gone in report.abandoned] == ["pay"]
    gate.open()
    await anyio.sleep(1)
    assert [(late.name, late.value) for late in run.late] == [("pay", "paid")]


def test_check_says_nothing_while_nobody_asks() -> None:
    """And `Cancelled` names the tool and the reason when somebody does."""
    heard: list[str] = []

    @virtual
    async def scene() -> None:
        gate = Gate("tool")

        @tool
        async def work(context: ToolContext) -> str:
            """Work."""
            context.check()
            assert (context.cancelled, context.cause) == (False, None)
            heard.append(repr(context).replace(context.call_id, "id"))
            try:
                await gate
            finally:
                try:
                    context.check()
                except Cancelled as error:
                    heard.append(str(error))
                heard.append(repr(context).replace(context.call_id, "id"))
                context.on_cancel(lambda: heard.append("at once"))
            return "done"

        await cut(Agent(ScriptedModel(Call("work")), tools=[work]), gate)

    scene()
    assert heard == [
        "<ToolContext work id>",
        "work was told to stop: enough",
        "<ToolContext work id cancelled>",
        "at once",
    ]


@virtual
async def test_a_tool_that_swallows_is_abandoned_without_spinning() -> None:
    """It is cancelled once and then left alone: it wakes up once."""
    gate, woken = Gate("tool"), list[str]()

    @tool
    async def stubborn() -> str:
        """Hear nothing."""
        while not gate.opened:
            try:
                await gate
            except asyncio.CancelledError:
                woken.append("up")
        msg = "too late"
        raise OSError(msg)

    agent = Agent(ScriptedModel(Call("stubborn")), tools=[stubborn], tool_grace=5)
    run, outcome, report = await cut(agent, gate)
    assert woken == ["up"]
    assert (states(outcome), [gone.name for gone in report.abandoned]) == (["unknown"], ["stubborn"])
    assert report.latency == pytest.approx(5, abs=1e-3)
    gate.open()
    await anyio.sleep(1)
    assert [repr(late.error) for late in run.late] == ["OSError('too late')"]


@virtual
async def test_a_tool_that_takes_too_long_is_cut_and_the_run_goes_on() -> None:
    """Its call is unknown and says why; the model reads it, and answers."""
    gate, heard = Gate("tool"), list[str]()

    @tool(timeout=3)
    async def slow(context: ToolContext) -> str:
        """Wait."""
        try:
            await gate
        finally:
            heard.append(f"{context.cause and context.cause.source}")
        return "done"

    async with Agent(ScriptedModel(Call("slow"), "Never mind."), tools=[slow]).start("go") as run:
        outcome = await whole(run)
    assert heard == ["timeout"]
    assert contents(outcome) == ["Timed out after 3 s; whether it took effect is not known"]
    assert (states(outcome), outcome.text) == (["unknown"], "Never mind.")


@virtual
async def test_a_stop_during_a_timeouts_grace_does_not_cut_twice() -> None:
    """And the call says what came first."""
    gate, cleaning, cuts = Gate("tool"), Gate("cleaning"), list[str]()

    @tool(timeout=3)
    async def slow() -> str:
        """Wait."""
        try:
            await gate
        finally:
            cuts.append("cut")
            await cleaning
            cuts.append("clean")
        return "done"

    async with Agent(ScriptedModel(Call("slow")), tools=[slow], tool_grace=9).start("go") as run:
        await cleaning.reached()
        ticket = run.cancel()
        await anyio.sleep(1)
        cleaning.open()
        await ticket
        outcome = await whole(run)
    assert cuts == ["cut", "clean"]
    assert contents(outcome)[0].startswith("Timed out")


@virtual
async def test_an_on_cancel_callback_that_fails_does_not_keep_the_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged."""
    gate, heard = Gate("tool"), list[str]()

    def fail() -> None:
        msg = "no"
        raise OSError(msg)

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.on_cancel(fail)
        context.on_cancel(lambda: heard.append("told"))
        await gate
        return "done"

    _, outcome, _ = await cut(Agent(ScriptedModel(Call("work")), tools=[work]), gate)
    assert heard == ["told"]
    assert states(outcome) == ["unknown"]
    assert "an on_cancel callback failed" in caplog.text


@virtual
async def test_a_streaming_tool_that_is_cut_closes_what_it_holds() -> None:
    """Its generator is over before the run says stopped."""
    gate, closed = Gate("tool"), list[str]()

    @tool
    async def stream() -> AsyncIterator[str]:
        """Stream."""
        try:
            yield "one"
            await gate
        finally:
            closed.append("closed")

    _, outcome, _ = await cut(Agent(ScriptedModel(Call("stream")), tools=[stream]), gate)
    assert closed == ["closed"]
    assert states(outcome) == ["unknown"]


@virtual
async def test_of_parallel_tools_each_ends_as_it_did() -> None:
    """One had ended, one is cut, one fails while it cleans up, one was never begun."""
    gate, failing = Gate("tool"), Gate("failing")

    @tool
    async def fast() -> str:
        """End."""
        return "done"

    @tool
    async def slow() -> str:
        """Wait."""
        await gate
        return "done"

    @tool
    async def bad() -> str:
        """Fail when cut."""
        try:
            await failing
        finally:
            msg = "broken on the way out"
            raise OSError(msg)

    model = ScriptedModel([Call("fast"), Call("slow"), Call("bad"), Call("slow")])
    agent = Agent(model, tools=[fast, slow, bad], tool_concurrency=2)
    async with agent.start("go") as run:
        await gate.reached()
        await failing.reached()
        run.cancel()
        outcome = await whole(run)
        seen = [event async for event in run]
    assert states(outcome) == ["completed", "unknown", "unknown", "not_started"]
    assert len([event for event in seen if isinstance(event, ToolStarted)]) == 3
    assert len([event for event in seen if isinstance(event, ToolEnded)]) == 4


@virtual
async def test_a_model_that_hangs_after_the_tools_is_cut_as_any_other() -> None:
    """The results of the round stay as they are."""

    @tool
    async def fast() -> str:
        """End."""
        return "done"

    async with Agent(ScriptedModel(Call("fast"), [Hang()]), tools=[fast]).start("go") as run:
        async for event in run:
            if isinstance(event, ToolEnded):
                break
        await anyio.sleep(1)
        run.cancel()
        outcome = await whole(run)
    assert (states(outcome), outcome.text) == (["completed"], "Cancelled by user")
