"""Interrupts: a tool or a hook asks a human, the run waits, and the answer finds its question."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Limits, Point, Stop, StopResult, ToolContext, tool
from andon.core.items import Answered, Interrupted, ToolEnded, ToolStarted
from andon.core.stop import Where
from andon.errors import CheckpointError, RunStateError, UserError
from andon.runtime.tools import Tool
from andon.testing import Gate, ScriptedModel, virtual
from andon.testing.conversation import problems
from tests.answers import answered, ids
from tests.stores import MemoryStore
from tests.whole import whole


class Asker:
    """An agent with one tool that asks twice, and counts what it does after each answer."""

    def __init__(self) -> None:
        self.begun = 0
        self.told: list[object] = []

        @tool
        async def ask(context: ToolContext) -> str:
            """Ask twice."""
            self.begun += 1
            first = await context.interrupt("first?")
            self.told.append(first)
            second = await context.interrupt({"second": first})
            self.told.append(second)
            return f"{first}, {second}"

        self.model = ScriptedModel(Call("ask", id="c1"), "Done.")
        self.store = MemoryStore()
        self.agent = Agent(self.model, tools=[ask], name="root", store=self.store)


# From a tool


@virtual
async def test_a_tool_asks_and_the_run_waits_with_a_history_that_is_whole() -> None:
    """The reason is `interrupt`; the question has an id, a payload and the way to it."""
    scene = Asker()
    async with scene.agent.start("go") as run:
        outcome = await whole(run)
        asked = [event async for event in run if isinstance(event, Interrupted)]
    assert (outcome.stop_reason, outcome.error, outcome.cancelled) == ("interrupt", None, None)
    [question] = outcome.interrupts
    assert (question.payload, question.path) == ("first?", ("root", "ask"))
    assert [(one.id, one.payload, one.site, one.k) for one in asked] == [
        (question.id, "first?", "tool:c1", 0)
    ]
    assert outcome.messages[2].results[0].state == "unknown"
    assert problems(outcome.messages) == []
    assert list(scene.store.data) == [run.id]


@virtual
async def test_the_kth_question_gets_the_kth_answer() -> None:
    """The tool runs again from its top with each resume, and finds what was answered before."""
    scene = Asker()
    outcome = await scene.agent.run("go")
    outcome = await answered(scene.agent, outcome, "one")
    assert [one.payload for one in outcome.interrupts] == [{"second": "one"}]
    outcome = await answered(scene.agent, outcome, "two")
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Done.")
    assert outcome.messages[2].results[0].content == "one, two"
    assert (scene.begun, scene.told) == (3, ["one", "one", "two"])
    assert len(scene.model.requests) == 2


@virtual
async def test_without_an_answer_the_question_comes_again_and_the_tool_does_not_run() -> None:
    """Under a new id; the old one is not known any more."""
    scene = Asker()
    first = await scene.agent.run("go")
    second = await answered(scene.agent, first)
    assert (second.stop_reason, [one.payload for one in second.interrupts]) == ("interrupt", ["first?"])
    assert ids(first) != ids(second)
    assert scene.begun == 1
    assert second.checkpoint is not None
    with pytest.raises(CheckpointError, match=f"answers has '{ids(first)[0]}'"):
        await scene.agent.resume(second.checkpoint, answers={ids(first)[0]: "late"})


@virtual
async def test_an_answer_is_an_item_of_the_run_that_got_it() -> None:
    """Who reads along sees what was answered."""
    scene = Asker()
    outcome = await scene.agent.run("go")
    assert outcome.checkpoint is not None
    async with scene.agent.start_from(outcome.checkpoint, answers={ids(outcome)[0]: {"n": 1}}) as run:
        await whole(run)
        seen = [event async for event in run if isinstance(event, Answered)]
    assert [(one.id, one.answer) for one in seen] == [(ids(outcome)[0], {"n": 1})]


@virtual
async def test_unknown_ids_are_refused_by_name_and_nothing_is_consumed() -> None:
    """Also beside a good one; the message says which are open."""
    scene = Asker()
    outcome = await scene.agent.run("go")
    assert outcome.checkpoint is not None
    good = ids(outcome)[0]
    with pytest.raises(CheckpointError, match=f"answers has 'nobody', and the open interrupts are: {good}"):
        scene.agent.start_from(outcome.checkpoint, answers={good: "yes", "nobody": "no"})
    assert scene.begun == 1
    assert (await answered(scene.agent, outcome, "yes", "unused")).stop_reason == "interrupt"


@virtual
async def test_answers_where_nothing_was_asked_are_refused() -> None:
    """A run that was cut has no question."""
    answer = Gate("model")
    agent = Agent(ScriptedModel([answer], "Done."))
    async with agent.start("go") as run:
        await answer.reached()
        run.cancel()
        saved = (await whole(run)).checkpoint
    assert saved is not None
    with pytest.raises(CheckpointError, match="the open interrupts are: none is open"):
        await agent.resume(saved, answers={"x": 1})


@virtual
async def test_a_payload_that_is_no_json_fails_the_call_and_the_model_reads_why() -> None:
    """Nobody is asked, and the run goes on."""

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask with an object."""
        return f"{await context.interrupt(object())}"

    outcome = await Agent(ScriptedModel(Call("ask"), "Done."), tools=[ask]).run("go")
    assert (outcome.stop_reason, outcome.interrupts) == ("end_turn", ())
    assert (
        outcome.messages[2]
        .results[0]
        .content.startswith("UserError: the payload of an interrupt is kept as JSON, and this one is not")
    )


@virtual
@pytest.mark.parametrize("answer", [object(), {1, object()}, "half a \ud83d"], ids=["object", "set", "half"])
async def test_an_answer_that_is_no_json_is_refused_before_anything_happens(answer: object) -> None:
    """It could not be kept: the next checkpoint would be lost."""
    scene = Asker()
    outcome = await scene.agent.run("go")
    assert outcome.checkpoint is not None
    with pytest.raises(UserError, match="an answer is kept as JSON, and this one is not"):
        scene.agent.start_from(outcome.checkpoint, answers={ids(outcome)[0]: answer})
    assert (await answered(scene.agent, outcome, "yes")).stop_reason == "interrupt"


@virtual
async def test_payload_and_answer_are_what_they_would_be_in_a_new_process() -> None:
    """A tuple is a list and a number's key is text from the start, not only after a restart."""
    scene = Asker()
    outcome = await scene.agent.run("go")
    assert outcome.checkpoint is not None
    second = await scene.agent.resume(outcome.checkpoint, answers={ids(outcome)[0]: {1: ("a", b"b")}})
    assert scene.told == [{"1": ["a", "Yg=="]}]
    assert second.interrupts[0].payload == {"second": {"1": ["a", "Yg=="]}}


# Tools of every kind


async def _asks(context: ToolContext) -> str:
    return f"{await context.interrupt('well?')}"


@tool(finish=True)
async def finishing(context: ToolContext) -> str:
    """Ask, in a tool that must finish."""
    return await _asks(context)


@tool(timeout=5)
async def in_time(context: ToolContext) -> str:
    """Ask, after nearly all of the time has passed."""
    await anyio.sleep(4)
    return await _asks(context)


@tool(idempotent=True)
async def repeatable(context: ToolContext) -> str:
    """Ask, in a tool that may be repeated."""
    return await _asks(context)


@tool
async def streaming(context: ToolContext) -> AsyncIterator[str]:
    """Ask, between two values."""
    yield "so far"
    yield await _asks(context)


@tool
async def grouped(context: ToolContext) -> str:
    """Ask, inside a task group, beside a task that would never end."""
    said: list[str] = []

    async def ask() -> None:
        said.append(await _asks(context))
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        async with anyio.create_task_group() as inner:
            inner.start_soon(ask)
    return said[0]


@tool(sequential=True)
async def sequential(context: ToolContext) -> str:
    """Ask, in a tool that is never beside another."""
    return await _asks(context)


@tool
def threaded(context: ToolContext) -> str:
    """Ask, in a thread with a loop of its own."""
    return asyncio.run(_asks(context))


EVERY_KIND = [finishing, in_time, repeatable, streaming, grouped, sequential, threaded]


@virtual
@pytest.mark.parametrize("asking", EVERY_KIND, ids=lambda one: one.name)
async def test_every_kind_of_tool_may_ask(asking: Tool[..., Any]) -> None:
    """Paused once, answered once, completed with the answer; nothing is timed out or left behind."""
    agent = Agent(ScriptedModel(Call(asking.name), "Done."), tools=[asking])
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert (outcome.stop_reason, [one.payload for one in outcome.interrupts]) == ("interrupt", ["well?"])
    outcome = await answered(agent, outcome, "yes")
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Done.")
    assert outcome.messages[2].results[0].content == "yes"


@virtual
@pytest.mark.parametrize("asking", EVERY_KIND, ids=lambda one: one.name)
async def test_a_question_of_any_tool_is_absorbed_by_a_stop_that_is_pending(asking: Tool[..., Any]) -> None:
    """The run is cancelled where it waits, the question is listed, and comes again on resume."""
    agent = Agent(ScriptedModel(Call(asking.name), "Done."), tools=[asking])
    run = agent.start("go")
    ticket = run.cancel(Stop.at(Point.TOOLS))
    async with run:
        outcome = await whole(run)
    report = await ticket
    assert (outcome.stop_reason, report.result) == ("cancelled", StopResult.STOPPED)
    assert report.stopped_at is Where.PAUSED
    assert [one.payload for one in outcome.interrupts] == ["well?"]
    again = await answered(agent, outcome)
    assert (again.stop_reason, [one.payload for one in again.interrupts]) == ("interrupt", ["well?"])
    assert (await answered(agent, again, "yes")).text == "Done."


@virtual
async def test_a_question_asked_while_the_tool_is_cut_is_kept_too() -> None:
    """NOW, and the tool asks as it cleans up: cancelled in tools, with the question listed."""
    gate = Gate("tool")

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask when told to stop, or at the end."""
        try:
            await gate
        finally:
            answer = await context.interrupt("keep it?")
        return f"{answer}"

    agent = Agent(ScriptedModel(Call("ask", id="c1"), "Done."), tools=[ask])
    async with agent.start("go") as run:
        await gate.reached()
        report = await run.cancel()
        outcome = await whole(run)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.TOOLS)
    assert [one.payload for one in outcome.interrupts] == ["keep it?"]
    gate.open()
    assert (await answered(agent, outcome, "yes")).messages[2].results[0].content == "yes"


@virtual
async def test_a_tool_that_swallows_its_own_question_has_simply_ended() -> None:
    """The run is not paused, and no stop that comes later finds the question open."""
    gate = Gate("other")

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask, and wait for nothing."""
        try:
            await context.interrupt("well?")
        except BaseException:  # noqa: BLE001 — what must not be done
            return "swallowed"
        return "never"

    @tool
    async def hold() -> str:
        """Hold."""
        await gate
        return "held"

    agent = Agent(ScriptedModel([Call("ask"), Call("hold")], "Done."), tools=[ask, hold])
    async with agent.start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.TOOLS))
        gate.open()
        outcome = await whole(run)
    assert (await ticket).stopped_at is Where.POINT_TOOLS
    assert outcome.interrupts == ()
    assert [result.content for result in outcome.messages[2].results] == ["swallowed", "held"]


@virtual
async def test_who_asks_after_the_call_has_ended_is_told_so() -> None:
    """What a tool leaves behind cannot pause the run, nor leave a question in its checkpoint."""
    leave, ended, refused = Gate("leave"), Gate("ended"), list[str]()
    kept: list[asyncio.Task[None]] = []

    @tool
    async def leak(context: ToolContext) -> str:
        """Leave a task behind that asks."""

        async def later() -> None:
            await leave
            try:
                await context.interrupt("too late?")
            except RunStateError as error:
                refused.append(str(error))
            ended.open()

        kept.append(asyncio.get_running_loop().create_task(later()))
        return "left"

    @tool
    async def hold() -> str:
        """Hold."""
        await ended
        return "held"

    agent = Agent(ScriptedModel([Call("leak", id="c1"), Call("hold", id="c2")], "Done."), tools=[leak, hold])
    async with agent.start("go") as run:
        async for event in run:
            if isinstance(event, ToolEnded):
                leave.open()
        outcome = await whole(run)
        asked = [event async for event in run if isinstance(event, Interrupted)]
    assert refused == [
        "only tools and the hooks before_tool and before_model can ask, while they run: do it there"
    ]
    assert (outcome.text, asked) == ("Done.", [])


@virtual
async def test_a_call_that_asks_is_one_call_however_often_it_runs() -> None:
    """A limit that allows it once lets it come to its end; who reads along sees that it runs again."""
    scene = Asker()
    limits = Limits(tool_calls=1, model_calls=2)
    outcome = await scene.agent.run("go", limits=limits)
    for answer in ("one", "two"):
        assert outcome.usage.tool_calls == 1
        assert outcome.checkpoint is not None
        run = scene.agent.start_from(
            outcome.checkpoint.to_json(), answers={ids(outcome)[0]: answer}, limits=limits
        )
        async with run:
            outcome = await whole(run)
            begun = [event.again async for event in run if isinstance(event, ToolStarted)]
        assert begun == [True]
    assert (outcome.stop_reason, outcome.text, outcome.usage.tool_calls) == ("end_turn", "Done.", 1)


@virtual
async def test_beside_a_question_that_was_answered_a_limit_still_counts_what_is_new() -> None:
    """One call asks and one had not begun: both are within a limit of two, and not within one of one."""
    for most, reason in ((2, "end_turn"), (1, "limit")):
        agent = Agent(
            ScriptedModel([Call("sequential"), Call("repeatable")], "Done."), tools=[sequential, repeatable]
        )
        outcome = await agent.run("go")
        saved = outcome.checkpoint
        assert saved is not None
        limits = Limits(tool_calls=most)
        ended = await agent.resume(saved, answers={ids(outcome)[0]: "yes"}, limits=limits)
        if reason == "end_turn":
            saved = ended.checkpoint
            assert saved is not None
            ended = await agent.resume(saved, answers={ids(ended)[0]: "yes"}, limits=limits)
        assert ended.stop_reason == reason


# Several


@virtual
async def test_a_call_that_waits_in_line_behind_a_question_is_not_started() -> None:
    """Nobody cancelled it, and its words say so; it runs once there is an answer."""
    log: list[str] = []

    @tool
    async def after() -> str:
        """Come after."""
        log.append("after")
        return "came"

    agent = Agent(ScriptedModel([Call("sequential"), Call("after")], "Done."), tools=[sequential, after])
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert log == []
    assert [(r.state, r.content) for r in outcome.messages[2].results] == [
        ("unknown", "Paused: it waits for an answer; whether it took effect so far is not known"),
        ("not_started", "Paused: was not started"),
    ]
    outcome = await answered(agent, outcome, "yes")
    assert [result.content for result in outcome.messages[2].results] == ["yes", "came"]
    assert log == ["after"]


@virtual
async def test_beside_a_question_the_other_tools_run_to_their_end() -> None:
    """Their results are kept, and none of them runs again."""
    runs: list[str] = []

    @tool
    async def work(name: str) -> str:
        """Work a while."""
        runs.append(name)
        await anyio.sleep(3)
        return name

    calls = [Call("work", {"name": "a"}), Call("repeatable"), Call("work", {"name": "b"})]
    agent = Agent(ScriptedModel(calls, "Done."), tools=[work, repeatable], tool_concurrency=2)
    outcome = await agent.run("go")
    assert [result.state for result in outcome.messages[2].results] == ["completed", "unknown", "completed"]
    outcome = await answered(agent, outcome, "yes")
    assert [result.content for result in outcome.messages[2].results] == ["a", "yes", "b"]
    assert runs == ["a", "b"]


# The history of a paused run


@virtual
async def test_an_ordinary_prompt_just_works_on_a_paused_run_and_the_checkpoint_still_resumes() -> None:
    """Both, one after the other: each is a run of its own, and neither knows of the other."""
    scene = Asker()
    paused = await scene.agent.run("go")
    scene.model.script("Never mind.")
    onward = await scene.agent.run("Forget it.", messages=paused.messages)
    assert (onward.stop_reason, onward.text) == ("end_turn", "Never mind.")
    assert problems(onward.messages) == []
    assert scene.begun == 1
    scene.model.script("Done.")
    second = await answered(scene.agent, await answered(scene.agent, paused, "one"), "two")
    assert (second.text, second.messages[2].results[0].content) == ("Done.", "one, two")
    assert "Forget it." not in [message.text for message in second.messages]
