"""Limits: reaching one is a stop at the nearest whole point, and everything is kept."""

import anyio
import pytest

from andon import Agent, Call, Limits, Usage, tool
from andon.core.items import StopRequested
from andon.core.stop import Where
from andon.testing import ScriptedModel, virtual
from tests.whole import whole


@tool
async def work() -> str:
    """Work for a second."""
    await anyio.sleep(1)
    return "done"


SPENDING = Usage(input_tokens=10, output_tokens=5, cost=0.5)


@virtual
@pytest.mark.parametrize(
    ("limits", "named", "asked"),
    [
        (Limits(model_calls=2), "model_calls 2", 2),
        (Limits(input_tokens=15), "input_tokens 15", 2),
        (Limits(output_tokens=5), "output_tokens 5", 1),
        (Limits(cost=1), "cost 1", 2),
        (Limits(seconds=1.5), "seconds 1.5", 2),
        (Limits(tool_calls=2), "tool_calls 2", 3),
    ],
)
async def test_each_kind_of_limit_ends_the_run_at_a_whole_point(
    limits: Limits, named: str, asked: int
) -> None:
    """Named, with source `limit`; what was in flight ended, history, usage and checkpoint are kept."""
    model = ScriptedModel(*[[SPENDING, Call("work")]] * 9)
    async with Agent(model, tools=[work], limits=limits).start("go") as run:
        outcome = await whole(run)
        stops = [event.stop async for event in run if isinstance(event, StopRequested)]
    assert (outcome.stop_reason, outcome.limit) == ("limit", named)
    assert len(model.requests) == asked
    assert outcome.text == "(no answer: a limit was reached)"
    assert outcome.cancelled is None
    assert outcome.checkpoint is not None
    assert outcome.usage.model_calls == asked
    assert [(stop.causes[0].source, stop.causes[0].reason) for stop in stops] == [
        ("limit", f"the limit {named} was reached")
    ]


@virtual
async def test_a_round_that_would_pass_the_limit_is_not_begun() -> None:
    """Its calls are answered as not started."""
    model = ScriptedModel([Call("work")] * 3)
    outcome = await Agent(model, tools=[work], limits=Limits(tool_calls=2)).run("go")
    assert outcome.limit == "tool_calls 2"
    assert {result.state.value for result in outcome.messages[2].results} == {"not_started"}
    assert outcome.usage.tool_calls == 0


@virtual
async def test_a_limit_of_no_model_call_asks_nobody() -> None:
    """Zero is a limit."""
    model = ScriptedModel("never")
    outcome = await Agent(model).run("go", limits=Limits(model_calls=0))
    assert (outcome.limit, model.requests) == ("model_calls 0", [])


@virtual
async def test_a_runs_own_limits_replace_the_agents() -> None:
    """As they are given."""
    agent = Agent(ScriptedModel("Done."), limits=Limits(model_calls=0))
    assert (await agent.run("go", limits=Limits(model_calls=1))).text == "Done."


@virtual
@pytest.mark.parametrize("limits", [None, Limits()])
async def test_without_limits_a_run_goes_on(limits: Limits | None) -> None:
    """None is no bound."""
    model = ScriptedModel(*[[SPENDING, Call("work")]] * 60, "Done.")
    outcome = await Agent(model, tools=[work], limits=limits).run("go")
    assert (outcome.stop_reason, outcome.usage.model_calls) == ("end_turn", 61)


@virtual
async def test_limits_hold_across_a_resume() -> None:
    """What was spent before counts."""
    agent = Agent(ScriptedModel(*[Call("work")] * 9), tools=[work], limits=Limits(model_calls=2))
    first = await agent.run("go")
    assert first.checkpoint is not None
    again = await agent.resume(first.checkpoint)
    assert (again.limit, again.usage.model_calls) == ("model_calls 2", 2)
    more = await agent.resume(first.checkpoint, limits=Limits(model_calls=3))
    assert (more.limit, more.usage.model_calls) == ("model_calls 3", 3)


@virtual
async def test_a_limit_that_keeps_a_child_from_beginning_is_told_as_inside_the_tool() -> None:
    """The run itself has begun; resumed with more, the child begins."""
    child = Agent(ScriptedModel("found"), name="finder")
    agent = Agent(
        ScriptedModel(Call("finder", {"request": "it"}), "Done."), tools=[child.as_tool(description="Finds.")]
    )
    async with agent.start("go", limits=Limits(model_calls=1)) as run:
        outcome = await run.outcome()
        report = await run.cancel()
    assert (outcome.limit, report.stopped_at) == ("model_calls 1", Where.TOOLS)
    assert outcome.checkpoint is not None
    assert (await agent.resume(outcome.checkpoint, limits=Limits(model_calls=3))).text == "Done."
