"""Tools in threads: told by their context, or abandoned with their late result kept apart."""

from threading import Event

import anyio

from andon import Agent, Call, Outcome, Run, StopReport, ToolContext, tool
from andon.core.items import RunEnded, ToolProgress
from andon.testing import Gate, ScriptedModel
from tests.runtime.test_tools_cut import contents, cut, states


async def threaded(ask: str) -> tuple[Run, Outcome, StopReport, list[str]]:
    """Cancel a thread's tool that looks at its context in one way or another."""
    began, told, heard = Gate("began", opened=True), Event(), list[str]()

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        context.on_cancel(told.set)
        began.wait()
        assert told.wait(30)
        heard.append(f"{context.cancelled} {context.cause and context.cause.source}")
        if ask == "check":
            context.check()
        return "half done"

    run, outcome, report = await cut(Agent(ScriptedModel(Call("work")), tools=[work]), began)
    return run, outcome, report, heard


async def test_a_thread_is_told_and_returns_what_it_has() -> None:
    """`on_cancel`, `cancelled` and `cause` are good to use in a thread."""
    _, outcome, report, heard = await threaded("cancelled")
    assert heard == ["True user"]
    assert (states(outcome), contents(outcome)) == (["completed"], ["half done"])
    assert report.abandoned == ()


async def test_a_thread_that_checks_is_left_by_an_exception() -> None:
    """`ctx.check()` raises Cancelled: the call is unknown."""
    _, outcome, report, _ = await threaded("check")
    assert states(outcome) == ["unknown"]
    assert report.abandoned == ()


async def test_a_thread_that_does_not_listen_is_abandoned_and_its_result_quarantined() -> None:
    """The run ends after the grace; the late result is in `run.late`, and nowhere else."""
    began, gate = Gate("began", opened=True), Event()

    @tool
    def deaf(context: ToolContext) -> str:
        """Hear nothing."""
        began.wait()
        gate.wait(30)
        context.progress("late")
        return "late"

    agent = Agent(ScriptedModel(Call("deaf", id="c1")), tools=[deaf], tool_grace=0.05)
    run, outcome, report = await cut(agent, began)
    assert states(outcome) == ["unknown"]
    assert [(gone.name, gone.call_id) for gone in report.abandoned] == [("deaf", "c1")]
    assert run.late == ()
    gate.set()
    with anyio.fail_after(10):
        while not run.late:
            await anyio.lowlevel.checkpoint()
    assert [(late.call_id, late.name, late.value, late.error) for late in run.late] == [
        ("c1", "deaf", "late", None)
    ]
    seen = [event async for event in run]
    assert isinstance(seen[-1], RunEnded)
    assert not any(isinstance(event, ToolProgress) for event in seen)
    assert await run.outcome() == outcome
