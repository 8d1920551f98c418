"""Runaway: the same call that fails again and again is noticed, reported, and stops the run at a count."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Limits, Outcome, Run, ToolEnded, ToolError, tool
from andon.core.items import StopRequested
from andon.runtime.hooks import Moment
from andon.runtime.tools import Tool
from andon.testing import Reply, ScriptedModel, virtual
from tests.whole import whole

BAD = Call("fetch", {"url": "nowhere", "options": {"a": 1, "b": [1, 2]}})
SAME = Call("fetch", {"options": {"b": [1, 2], "a": 1}, "url": "nowhere"})
OTHER = Call("fetch", {"url": "elsewhere", "options": {"a": 1, "b": [1, 2]}})
GOOD = Call("fetch", {"url": "here"})


@tool
async def fetch(url: str, options: dict[str, object] | None = None) -> str:
    """Fetch a page, of which there is only one."""
    if url != "here":
        raise ToolError(f"there is nothing at {url}")
    return f"a page {options or ''}"


async def repeats(run: Run) -> list[int]:
    """Say of each call of a run, but not of its children, how often it had failed in a row."""
    return [event.repeats async for event in run if isinstance(event, ToolEnded) and not event.path]


async def played(*replies: Reply, limit: int | None = None) -> tuple[Outcome, list[int]]:
    """Run an agent that calls as it is told."""
    limits = Limits(repeated_failures=limit)
    async with Agent(ScriptedModel(*replies, "Done."), tools=[fetch], limits=limits).start("go") as run:
        return await whole(run), await repeats(run)


@virtual
async def test_at_the_count_the_run_stops_before_the_model_is_asked_again() -> None:
    """With the results in history, a checkpoint, and a cause that names the limit."""
    model = ScriptedModel(*[BAD] * 9)
    async with Agent(model, tools=[fetch], limits=Limits(repeated_failures=3)).start("go") as run:
        outcome = await whole(run)
        stops = [event.stop async for event in run if isinstance(event, StopRequested)]
        assert await repeats(run) == [1, 2, 3]
    assert (outcome.stop_reason, outcome.limit) == ("limit", "repeated_failures 3")
    assert [(cause.source, cause.reason) for cause in stops[-1].causes] == [
        ("limit", "the limit repeated_failures 3 was reached")
    ]
    assert len(model.requests) == 3
    assert outcome.messages[-2].results[0].content == "there is nothing at nowhere"
    assert outcome.checkpoint is not None


@virtual
async def test_without_a_limit_it_is_only_reported() -> None:
    """The user's own code may look at it, and stop."""
    outcome, told = await played(*[BAD] * 30)
    assert (outcome.stop_reason, told) == ("end_turn", list(range(1, 31)))


@virtual
@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([BAD, SAME, BAD], [1, 2, 3]),
        ([BAD, OTHER, BAD], [1, 1, 1]),
        ([BAD, GOOD, BAD], [1, 0, 1]),
        ([BAD, BAD, GOOD, BAD, BAD], [1, 2, 0, 1, 2]),
        ([BAD, Call("unknown"), BAD, BAD], [1, 1, 1, 2]),
        ([GOOD, GOOD, GOOD], [0, 0, 0]),
        ([BAD, Call("fetch", {"url": "nowhere"}), BAD], [1, 1, 1]),
        ([Call("fetch", {"url": "x", "options": {"b": [2, 1]}}), Call("fetch", {"url": "x"})], [1, 1]),
        ([Call("fetch", {"options": {"l": [1, 2]}, "url": "x"})] * 2, [1, 2]),
        ([Call("fetch", {"url": "x", "options": {"l": [n]}}) for n in (1, 2)], [1, 1]),
    ],
)
async def test_what_counts_is_the_same_call_in_a_row(calls: Sequence[Call], told: list[int]) -> None:
    """Arguments that are equal as JSON are the same in any order; another call or a success begins anew."""
    limit = 3 if 3 in told else 1 + max(told)
    outcome, heard = await played(*calls, limit=limit)
    assert heard == told
    assert outcome.stop_reason == ("limit" if 3 in told else "end_turn")


@virtual
@pytest.mark.parametrize("call", [Call("unknown"), Call("fetch"), Call("fetch", {"url": 7, "more": 1})])
async def test_calls_that_never_get_to_a_tool_fail_as_well(call: Call) -> None:
    """There is no such tool, or it does not take these arguments: the model may say so for ever."""
    outcome, told = await played(*[call] * 9, limit=3)
    assert (outcome.limit, told) == ("repeated_failures 3", [1, 2, 3])


@virtual
async def test_a_call_that_a_hook_refuses_has_failed() -> None:
    """A model that will not take no for an answer is stopped."""
    agent = Agent(ScriptedModel(*[GOOD] * 9), tools=[fetch], limits=Limits(repeated_failures=2))

    def refuse(_: Moment) -> str:
        return "Not allowed."

    agent.on("before_tool", refuse)
    outcome = await agent.run("go")
    assert (outcome.limit, outcome.usage.model_calls) == ("repeated_failures 2", 2)


@virtual
async def test_calls_beside_each_other_are_counted_as_they_end() -> None:
    """Three of the same in one round are three in a row; the round ends whole."""
    outcome, told = await played([BAD, SAME, BAD], limit=2)
    assert (outcome.limit, told) == ("repeated_failures 2", [1, 2, 3])
    assert [result.state.value for result in outcome.messages[2].results] == ["failed"] * 3
    outcome, told = await played([BAD, OTHER], [BAD, OTHER], limit=2)
    assert (outcome.stop_reason, told) == ("end_turn", [1, 1, 1, 1])


@virtual
async def test_calls_in_turn_go_on_to_the_end_of_their_round() -> None:
    """A round that was begun is whole; the next is not begun."""

    @tool(sequential=True)
    async def write(text: str) -> str:
        """Write."""
        await anyio.sleep(1)
        raise ToolError(text)

    model = ScriptedModel([Call("write", {"text": "x"})] * 3, "never")
    outcome = await Agent(model, tools=[write], limits=Limits(repeated_failures=2)).run("go")
    assert [result.state.value for result in outcome.messages[2].results] == ["failed"] * 3
    assert (outcome.limit, len(model.requests)) == ("repeated_failures 2", 1)


@virtual
async def test_one_failure_may_be_one_too_many() -> None:
    """A count of one ends the run at the first."""
    outcome, told = await played(GOOD, BAD, "never", limit=1)
    assert (outcome.limit, told) == ("repeated_failures 1", [0, 1])


@virtual
async def test_whoever_resumes_has_looked_at_it() -> None:
    """The count begins anew, and stops the run again when it comes."""
    model = ScriptedModel(*[BAD] * 9)
    agent = Agent(model, tools=[fetch], limits=Limits(repeated_failures=3))
    outcome = await agent.run("go")
    assert outcome.checkpoint is not None
    again = await agent.resume(outcome.checkpoint.to_json())
    assert (again.limit, again.usage.model_calls, len(model.requests)) == ("repeated_failures 3", 6, 6)


def helper(model: ScriptedModel, limits: Limits | None = None) -> Tool[..., Any]:
    """An agent behind a tool."""
    return Agent(model, tools=[fetch], name="helper", limits=limits).as_tool(description="Help.")


HELP = Call("helper", {"request": "help"})


@virtual
async def test_a_childs_own_guard_fails_its_call_and_no_more() -> None:
    """The parent reads why, and goes on."""
    inner = ScriptedModel(*[BAD] * 9)
    agent = Agent(ScriptedModel(HELP, "Done."), tools=[helper(inner, Limits(repeated_failures=2))])
    async with agent.start("go") as run:
        outcome = await whole(run)
        assert await repeats(run) == [1]
    assert outcome.text == "Done."
    assert outcome.messages[2].results[0].content == "The agent helper reached its limit repeated_failures 2"
    assert len(inner.requests) == 2


@virtual
async def test_the_guard_of_a_run_holds_in_its_children() -> None:
    """As every limit does: a child that runs away is stopped with the whole tree."""
    inner = ScriptedModel(*[BAD] * 9)
    agent = Agent(ScriptedModel(HELP, "never"), tools=[helper(inner)], limits=Limits(repeated_failures=3))
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert (outcome.stop_reason, outcome.limit) == ("limit", "repeated_failures 3")
    assert len(inner.requests) == 3


@virtual
async def test_failures_of_a_child_are_none_of_its_parents() -> None:
    """Each run has a row of its own, in which the other's calls do not stand between."""
    inner = ScriptedModel(BAD, "Helped.", BAD, "Helped.")
    model = ScriptedModel(BAD, HELP, BAD, HELP, BAD, "Done.")
    agent = Agent(model, tools=[fetch, helper(inner)], limits=Limits(repeated_failures=2))
    async with agent.start("go") as run:
        outcome = await whole(run)
        assert await repeats(run) == [1, 0, 1, 0, 1]
    assert outcome.text == "Done."


@virtual
async def test_an_agent_that_fails_each_time_is_a_call_like_any_other() -> None:
    """Asked the same, it failed the same."""
    inner = ScriptedModel(*[OSError("no")] * 9)
    agent = Agent(ScriptedModel(*[HELP] * 9), tools=[helper(inner)], limits=Limits(repeated_failures=2))
    async with agent.start("go") as run:
        outcome = await whole(run)
        assert await repeats(run) == [1, 2]
    assert outcome.limit == "repeated_failures 2"
