"""Interrupts from hooks: what is about to be done waits until a human has said yes or no."""

import asyncio

import anyio
import pytest

from andon import Agent, Call, Outcome, ToolContext, tool
from andon.core.items import Interrupted, ToolStarted
from andon.errors import RunStateError
from andon.runtime.hooks import Moment
from andon.testing import Gate, ScriptedModel, virtual
from andon.testing.conversation import problems
from tests.answers import answered, ids
from tests.whole import whole


@virtual
async def test_before_tool_may_ask_whether_a_tool_may_run() -> None:
    """The call is `not started`; a yes runs it once, a no refuses it with the hook's words."""
    for says, content, ran in (("yes", "deleted", 1), ("no", "You may not.", 0)):
        log: list[str] = []

        @tool
        async def delete() -> str:
            """Delete."""
            log.append("delete")  # noqa: B023 — of this round
            return "deleted"

        async def guard(moment: Moment) -> str | None:
            assert moment.call is not None
            return None if await moment.interrupt({"may": moment.call.name}) == "yes" else "You may not."

        agent = Agent(ScriptedModel(Call("delete", id="c1"), "Done."), tools=[delete], name="root")
        agent.on("before_tool", guard)
        async with agent.start("go") as run:
            outcome = await whole(run)
            assert not [event async for event in run if isinstance(event, ToolStarted)]
        assert outcome.messages[2].results[0].state == "not_started"
        assert [(one.payload, one.path) for one in outcome.interrupts] == [
            ({"may": "delete"}, ("root", "delete"))
        ]
        assert problems(outcome.messages) == []
        outcome = await answered(agent, outcome, says)
        assert (outcome.messages[2].results[0].content, len(log)) == (content, ran)


@virtual
async def test_before_model_may_ask_before_each_model_call() -> None:
    """Each time is a question of its own; the answer of the first is not that of the second."""
    told: list[object] = []

    async def guard(moment: Moment) -> None:
        assert moment.request is not None
        told.append(await moment.interrupt(len(moment.request.messages)))

    model = ScriptedModel(Call("nothing"), "Done.")
    agent = Agent(model, name="root")
    agent.on("before_model", guard)
    first = await agent.run("go")
    assert [(one.payload, one.path) for one in first.interrupts] == [(1, ("root",))]
    assert (model.requests, problems(first.messages)) == ([], [])
    second = await answered(agent, first, "one")
    assert [one.payload for one in second.interrupts] == [3]
    third = await answered(agent, second, "two")
    assert (third.text, told) == ("Done.", ["one", "two"])
    assert len(model.requests) == 2


@virtual
async def test_two_hooks_of_one_moment_ask_in_turn() -> None:
    """The k-th question of the moment, whichever hook asks it, gets the k-th answer."""
    told: list[object] = []

    async def one(moment: Moment) -> None:
        told.append(("one", await moment.interrupt("one?")))

    async def two(moment: Moment) -> None:
        async with anyio.create_task_group() as group:  # and behind a task group
            group.start_soon(ask, moment)

    async def ask(moment: Moment) -> None:
        told.append(("two", await moment.interrupt("two?")))

    agent = Agent(ScriptedModel("Done."))
    agent.on("before_model", one)
    agent.on("before_model", two, safe=True)  # a question is no error that could be passed over
    outcome = await agent.run("go")
    outcome = await answered(agent, outcome, 1)
    assert [one.payload for one in outcome.interrupts] == ["two?"]
    outcome = await answered(agent, outcome, 2)
    assert (outcome.text, told) == ("Done.", [("one", 1), ("one", 1), ("two", 2)])


@virtual
async def test_what_is_said_to_a_resumed_run_does_not_lose_the_answer_it_got() -> None:
    """Steered before its first model call, it has both."""
    told: list[object] = []

    async def guard(moment: Moment) -> None:
        told.append(await moment.interrupt("may I?"))

    model = ScriptedModel("Done.")
    agent = Agent(model)
    agent.on("before_model", guard)
    outcome = await agent.run("go")
    assert outcome.checkpoint is not None
    run = agent.start_from(outcome.checkpoint, answers={ids(outcome)[0]: "yes"})
    receipt = run.steer("and be quick")
    async with run:
        outcome = await run.outcome()
    assert (outcome.text, told, (await receipt).delivered) == ("Done.", ["yes"], True)
    assert [message.text for message in model.requests[0].messages] == ["go", "and be quick"]


@virtual
@pytest.mark.parametrize("name", ["run_started", "after_model", "after_tool", "message_added", "run_ended"])
async def test_other_hooks_cannot_ask(name: str) -> None:
    """The run ends as an error that says who can; no question is left open."""

    async def guard(moment: Moment) -> None:
        await moment.interrupt("may I?")

    agent = Agent(ScriptedModel(Call("nothing"), "Done."))
    agent.on(name, guard)
    outcome = await agent.run("go")
    assert outcome.stop_reason == "error"
    assert outcome.error is not None
    assert "only tools and the hooks before_tool and before_model can ask" in outcome.error
    assert outcome.interrupts == ()


@virtual
async def test_what_a_hook_leaves_behind_cannot_ask() -> None:
    """The hook has ended, the model is being asked: the run is not paused by it."""
    left, answer, refused = list[asyncio.Task[None]](), Gate("model"), list[str]()

    async def guard(moment: Moment) -> None:
        async def later() -> None:
            await answer.reached()
            try:
                await moment.interrupt("too late?")
            except RunStateError as error:
                refused.append(str(error))
            answer.open()

        left.append(asyncio.get_running_loop().create_task(later()))

    agent = Agent(ScriptedModel([answer, "Done."]))
    agent.on("before_model", guard)
    async with agent.start("go") as run:
        outcome = await whole(run)
        asked = [event async for event in run if isinstance(event, Interrupted)]
    assert refused == [
        "only tools and the hooks before_tool and before_model can ask, while they run: do it there"
    ]
    assert (outcome.text, asked) == ("Done.", [])


@virtual
async def test_outside_of_its_hook_a_moment_cannot_ask() -> None:
    """In a task that came from nowhere, long after the run."""
    moments: list[Moment] = []
    agent = Agent(ScriptedModel("Done."))
    agent.on("before_model", moments.append)
    outcome = await agent.run("go")
    with pytest.raises(RunStateError, match=r"interrupt\(\) was called outside of the hook"):
        await moments[0].interrupt("may I?")
    assert outcome.stop_reason == "end_turn"


@virtual
@pytest.mark.parametrize("name", ["run_started", "before_model", "after_tool"])
async def test_an_agent_in_a_hook_that_asks_is_paused_alone(name: str) -> None:
    """It is no part of the run, which goes on: whoever started it has the question, and may resume it."""
    outcomes: list[Outcome] = []

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask."""
        return f"answered {await context.interrupt('sure?')}"

    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    aside = Agent(ScriptedModel(Call("ask"), "Checked."), tools=[ask], name="aside")
    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work], name="root")

    async def check(_moment: Moment) -> None:
        if not outcomes:
            outcomes.append(await aside.run("check"))

    agent.on(name, check)
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert (outcome.text, outcome.interrupts) == ("Done.", ())
    assert (await answered(aside, outcomes[0], "yes")).text == "Checked."


@virtual
@pytest.mark.parametrize("name", ["before_model", "before_tool"])
async def test_a_hook_that_asks_has_its_other_half_all_the_same(name: str) -> None:
    """What was announced is closed before the run waits, and once more when it goes on."""
    told: list[str] = []

    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work], name="root")
    before, after = name, name.replace("before", "after")

    async def ask(moment: Moment) -> None:
        told.append(before)
        if len(told) == 1:
            await moment.interrupt("go on?")

    def note(_moment: Moment) -> None:
        told.append(after)

    agent.on(before, ask)
    agent.on(after, note)
    outcome = await agent.run("go")
    assert (outcome.stop_reason, told) == ("interrupt", [before, after])
    assert (await answered(agent, outcome, "yes")).text == "Done."
    assert told == [before, after] * (len(told) // 2)
