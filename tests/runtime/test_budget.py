"""Budget: what a run may spend counts its children in, whoever of them is about to spend it."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Limits, Point, Stop, StopResult, Usage, parallel, sequence, tool
from andon.core.items import StopRequested, ToolStarted
from andon.core.stop import Where
from andon.runtime.hooks import Moment
from andon.runtime.tools import Tool
from andon.testing import Delay, Gate, ScriptedModel, virtual
from tests.whole import whole

SPENDING = Usage(input_tokens=10, output_tokens=5, cost=0.5)
HELP = Call("helper", {"request": "help"})


@tool
async def work() -> str:
    """Work for a second."""
    await anyio.sleep(1)
    return "done"


def working(times: int, last: str = "Worked.") -> ScriptedModel:
    """A model that works so many times, and then says so; each time it spends the same."""
    return ScriptedModel(*[[SPENDING, Call("work")]] * times, [SPENDING, last])


def behind(model: ScriptedModel, name: str = "helper", limits: Limits | None = None) -> Tool[..., Any]:
    """An agent with the one tool, behind a tool."""
    return Agent(model, tools=[work], name=name, limits=limits).as_tool(description="Help.")


@virtual
@pytest.mark.parametrize(
    ("limits", "named", "asked"),
    [
        (Limits(model_calls=4), "model_calls 4", 3),
        (Limits(tool_calls=3), "tool_calls 3", 3),
        (Limits(input_tokens=35), "input_tokens 35", 3),
        (Limits(output_tokens=20), "output_tokens 20", 3),
        (Limits(cost=2), "cost 2", 3),
        (Limits(seconds=2.5), "seconds 2.5", 3),
    ],
)
async def test_a_limit_that_a_child_reaches_ends_the_whole_tree(
    limits: Limits, named: str, asked: int
) -> None:
    """At the child's own whole point; the limit is the run's, and its checkpoint goes on inside the child."""
    inner = working(9)
    outer = ScriptedModel([SPENDING, HELP], "Done.")
    agent = Agent(outer, tools=[behind(inner)], limits=limits)
    async with agent.start("go") as run:
        outcome = await whole(run)
        stops = [event.stop async for event in run if isinstance(event, StopRequested) and not event.path]
    assert (outcome.stop_reason, outcome.limit, outcome.cancelled) == ("limit", named, None)
    assert len(inner.requests) == asked
    assert [(cause.source, cause.reason) for stop in stops for cause in stop.causes] == [
        ("limit", f"the limit {named} was reached")
    ]
    assert outcome.checkpoint is not None
    assert list(outcome.checkpoint.children) == [outcome.messages[1].calls[0].id]
    inner.script("Helped.")
    again = await agent.resume(outcome.checkpoint.to_json(), limits=Limits())
    assert (again.stop_reason, again.text, again.messages[2].results[0].content) == (
        "end_turn",
        "Done.",
        "Helped.",
    )
    assert len(outer.requests) == 2


@virtual
async def test_what_children_spend_is_spent_by_the_run() -> None:
    """To the last token, and while they are at it."""
    inner = working(2)
    agent = Agent(ScriptedModel([SPENDING, HELP], [SPENDING, "Done."]), tools=[behind(inner)])
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert outcome.usage == Usage(input_tokens=50, output_tokens=25, cost=2.5, model_calls=5, tool_calls=3)
    assert run.usage == outcome.usage


@virtual
async def test_a_child_of_a_child_counts_too() -> None:
    """The stop goes all the way down, and each keeps its place for a resume."""
    deep = working(9)
    middle = Agent(
        ScriptedModel([SPENDING, HELP], "Passed on."), tools=[behind(deep)], name="middle"
    ).as_tool(description="Pass on.")
    top = ScriptedModel([SPENDING, Call("middle", {"request": "help"})], "Done.")
    agent = Agent(top, tools=[middle], limits=Limits(model_calls=5))
    outcome = await agent.run("go")
    assert (outcome.limit, outcome.usage.model_calls, len(deep.requests)) == ("model_calls 5", 5, 3)
    assert outcome.checkpoint is not None
    deep.script("Deep.")
    assert (await agent.resume(outcome.checkpoint, limits=Limits())).text == "Done."


@virtual
async def test_children_beside_each_other_share_the_budget() -> None:
    """Together they stay within it."""
    models = [working(9), working(9)]
    tools = [behind(model, f"helper{n}") for n, model in enumerate(models)]
    calls = [Call(f"helper{n}", {"request": "help"}) for n in range(2)]
    agent = Agent(ScriptedModel([SPENDING, *calls], "never"), tools=tools, limits=Limits(model_calls=7))
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert (outcome.limit, outcome.usage.model_calls) == ("model_calls 7", 7)
    assert sum(len(model.requests) for model in models) == 6


@virtual
async def test_a_childs_own_limit_is_its_own() -> None:
    """Its call fails with words that say so, and the parent goes on."""
    inner = working(9)
    helper = behind(inner, limits=Limits(model_calls=2))
    async with Agent(ScriptedModel(HELP, "Done."), tools=[helper]).start("go") as run:
        outcome = await whole(run)
    result = outcome.messages[2].results[0]
    assert result.state.value == "failed"
    assert result.content == "The agent helper reached its limit model_calls 2"
    assert (outcome.stop_reason, outcome.text, outcome.usage.model_calls) == ("end_turn", "Done.", 4)


@virtual
@pytest.mark.parametrize(
    ("own", "above", "limit"), [(2, 9, None), (9, 3, "model_calls 3"), (2, 3, "model_calls 3")]
)
async def test_of_two_limits_the_one_that_is_reached_first_counts(
    own: int, above: int, limit: str | None
) -> None:
    """In the same moment, the run's: the whole tree may spend no more."""
    helper = behind(working(9), limits=Limits(model_calls=own))
    agent = Agent(ScriptedModel(HELP, "Done."), tools=[helper], limits=Limits(model_calls=above))
    outcome = await agent.run("go")
    assert outcome.limit == limit


@virtual
@pytest.mark.parametrize("flow", [sequence, parallel])
async def test_a_workflow_counts_its_steps_in(flow: Any) -> None:  # noqa: ANN401
    """Its limits are given to it as to an agent."""
    models = [working(9), working(9)]
    agents = [Agent(model, tools=[work], name=f"step{n}") for n, model in enumerate(models)]
    outcome = await flow(*agents, limits=Limits(model_calls=3)).run("go")
    assert (outcome.stop_reason, outcome.limit, outcome.usage.model_calls) == ("limit", "model_calls 3", 3)


@virtual
async def test_what_a_hook_starts_counts_too() -> None:
    """Its tokens are burnt all the same; it is cut short, and the run ends before its own next call."""
    judge = Agent(working(9), tools=[work], name="judge")
    model = ScriptedModel([SPENDING, Call("work")], "never")
    agent = Agent(model, tools=[work], limits=Limits(model_calls=3))
    said: list[str] = []

    @agent.on("after_tool")
    async def ask(_: Moment) -> None:
        said.append((await judge.run("is this well?")).stop_reason)

    outcome = await agent.run("go")
    assert (outcome.stop_reason, outcome.limit, outcome.usage.model_calls) == ("limit", "model_calls 3", 3)
    assert (said, len(model.requests)) == (["cancelled"], 1)


@virtual
async def test_what_is_in_flight_ends_though_its_time_is_up() -> None:
    """A limit of seconds cuts nothing: the model answers, the tools of a round that was begun end."""

    @tool
    async def slow() -> str:
        """Work for ten seconds."""
        await anyio.sleep(10)
        return "done"

    model = ScriptedModel([Delay(10), Call("slow")], "never")
    began = anyio.current_time()
    outcome = await Agent(model, tools=[slow], limits=Limits(seconds=5)).run("go")
    assert anyio.current_time() - began == pytest.approx(10)
    assert (outcome.limit, outcome.messages[2].results[0].state.value) == ("seconds 5", "not_started")
    model = ScriptedModel(Call("slow"), "never")
    outcome = await Agent(model, tools=[slow], limits=Limits(seconds=5)).run("go")
    assert (outcome.limit, outcome.messages[2].results[0].state.value) == ("seconds 5", "completed")


@virtual
async def test_the_tools_of_the_last_model_call_still_run() -> None:
    """They belong to it: the limit of model calls forbids the next one, not what this one has asked for."""
    model = ScriptedModel([Call("work"), Call("work")], "never")
    outcome = await Agent(model, tools=[work], limits=Limits(model_calls=1)).run("go")
    assert outcome.limit == "model_calls 1"
    assert [result.state.value for result in outcome.messages[2].results] == ["completed"] * 2


@virtual
async def test_an_answer_that_reaches_a_limit_is_an_answer() -> None:
    """Nothing more is to be spent: the run simply finishes."""
    limits = Limits(model_calls=1, input_tokens=1, output_tokens=1, cost=0.1)
    outcome = await Agent(ScriptedModel([SPENDING, "Done."])).run("go", limits=limits)
    assert (outcome.stop_reason, outcome.limit, outcome.text) == ("end_turn", None, "Done.")


@virtual
@pytest.mark.parametrize(
    ("limits", "more"),
    [
        (Limits(model_calls=2), Limits(model_calls=4)),
        (Limits(tool_calls=2), Limits(tool_calls=4)),
        (Limits(input_tokens=20), Limits(input_tokens=40)),
        (Limits(output_tokens=10), Limits(output_tokens=20)),
        (Limits(cost=1), Limits(cost=2)),
    ],
)
async def test_what_was_spent_before_a_resume_is_spent(limits: Limits, more: Limits) -> None:
    """With the same limits nothing is done; with higher ones, as much as is left of them."""
    model = working(9)
    agent = Agent(model, tools=[work], limits=limits)
    first = await agent.run("go")
    asked = len(model.requests)
    assert first.checkpoint is not None
    same = await agent.resume(first.checkpoint)
    assert (same.stop_reason, same.limit, len(model.requests)) == ("limit", first.limit, asked)
    assert same.usage == first.usage
    assert same.checkpoint is not None
    further = await agent.resume(same.checkpoint.to_json(), limits=more)
    assert further.stop_reason == "limit"
    assert len(model.requests) == asked + 2
    assert further.usage.cost == pytest.approx(len(model.requests) * 0.5)


@virtual
async def test_seconds_are_counted_anew_by_a_resumed_run() -> None:
    """How long it lay there is nobody's spending."""
    agent = Agent(working(9), tools=[work], limits=Limits(seconds=1.5))
    first = await agent.run("go")
    assert (first.limit, first.usage.model_calls, first.checkpoint is not None) == ("seconds 1.5", 2, True)
    await anyio.sleep(1_000)
    assert first.checkpoint is not None
    again = await agent.resume(first.checkpoint)
    assert (again.limit, again.usage.model_calls) == ("seconds 1.5", 4)


@virtual
@pytest.mark.parametrize("limit", [Limits(), Limits(model_calls=99)])
async def test_a_stop_at_a_point_and_a_limit_at_the_same_point(limit: Limits) -> None:
    """What a user has asked for is the reason, not the limit that was not reached."""
    gate = Gate("tool")

    @tool
    async def wait() -> str:
        """Wait."""
        await gate
        return "done"

    async with Agent(ScriptedModel(Call("wait"), "never"), tools=[wait], limits=limit).start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        gate.open()
        report = await ticket
        outcome = await whole(run)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.POINT_TOOLS)
    assert (outcome.stop_reason, outcome.limit) == ("cancelled", None)


@virtual
async def test_a_stop_that_was_asked_for_is_the_reason_also_where_a_child_reaches_a_limit() -> None:
    """The run was to stop behind this round; the limit stops the child in it, and both are told."""
    inner = working(9)
    model = ScriptedModel(HELP, "never")
    agent = Agent(model, tools=[behind(inner)], limits=Limits(model_calls=3))
    async with agent.start("go") as run:
        async for event in run:
            if isinstance(event, ToolStarted) and event.path:
                break
        ticket = run.cancel(Stop.at(Point.TOOLS), reason="enough")
        report = await ticket
        outcome = await whole(run)
    assert (outcome.stop_reason, outcome.limit) == ("cancelled", None)
    assert [(cause.source, cause.reason) for cause in report.causes] == [
        ("user", "enough"),
        ("limit", "the limit model_calls 3 was reached"),
    ]
    assert len(inner.requests) == 2


BAD: Sequence[Any] = (7, {"model_calls": 2}, "cheap", True)


@virtual
@pytest.mark.parametrize("bad", BAD)
async def test_what_are_no_limits_is_refused_where_it_is_given(bad: Any) -> None:  # noqa: ANN401
    """With what to write instead, before anything runs."""
    model = ScriptedModel(Call("work"), "never")
    agent = Agent(model, tools=[work])
    stopped = await agent.run("go", limits=Limits(tool_calls=0))
    assert stopped.checkpoint is not None
    with pytest.raises(TypeError, match=r"limits is .*: give Limits, such as Limits\(model_calls=20\)"):
        agent.start("go", limits=bad)
    with pytest.raises(TypeError, match="give Limits"):
        await agent.run("go", limits=bad)
    with pytest.raises(TypeError, match="give Limits"):
        await agent.resume(stopped.checkpoint, limits=bad)
    assert len(model.requests) == 1
