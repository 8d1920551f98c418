"""Steer: what is said to a live run joins its history once, in order, where its kind says."""

from collections.abc import AsyncIterator

import anyio
import pytest

from andon import Agent, Call, Image, Message, ModelError, sequence, tool
from andon.core.draft import Chunk
from andon.core.items import ModelStarted, Steered
from andon.core.messages import Text
from andon.core.steer import When
from andon.errors import RunStateError, UserError
from andon.ports import ModelRequest
from andon.runtime.hooks import NAMES, Moment
from andon.runtime.prompt import Prompt
from andon.runtime.steering import SteerReceipt
from andon.testing import Gate, ScriptedModel, virtual
from tests.steered import said, steered
from tests.whole import only_items

KINDS: tuple[When, ...] = ("next", "idle", "now")


def asked(model: ScriptedModel) -> list[list[str]]:
    """Give the words of each request."""
    return [[message.text for message in request.messages if message.text] for request in model.requests]


@virtual
async def test_it_is_heard_with_the_next_model_call_after_running_tools() -> None:
    """The tools end undisturbed; what was said comes after their results."""
    gate = Gate("tool")

    @tool
    async def work() -> str:
        """Work."""
        await gate
        return "done"

    model = ScriptedModel(Call("work"), "Done.")
    async with Agent(model, tools=[work]).start("go") as run:
        await gate.reached()
        receipt = run.steer("also this")
        await anyio.wait_all_tasks_blocked()
        assert receipt.delivery is None
        gate.open()
        outcome = await steered(run, [receipt])
    assert [message.role for message in outcome.messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert outcome.messages[2].results[0].content == "done"
    assert asked(model)[1] == ["go", "also this"]
    assert outcome.usage.model_calls == 2


@virtual
async def test_where_the_run_would_have_ended_one_more_model_call_is_made() -> None:
    """The answer that is there stays, and what was said is answered after it."""
    answer = Gate("model")
    model = ScriptedModel(["First.", answer], "Second.")
    async with Agent(model).start("go") as run:
        await answer.reached()
        receipt = run.steer("and?")
        answer.open()
        outcome = await steered(run, [receipt])
    assert said(outcome) == ["user: go", "assistant: First.", "user: and?", "assistant: Second."]
    assert not any(message.cut for message in outcome.messages)


@virtual
async def test_idle_waits_until_the_run_would_end() -> None:
    """Model calls go by without it; where the run would end, it comes, and is answered."""
    gate = Gate("tool")

    @tool
    async def work() -> str:
        """Work."""
        await gate
        return "done"

    model = ScriptedModel(Call("work"), Call("work"), "Done.", "More.")
    async with Agent(model, tools=[work]).start("go") as run:
        await gate.reached()
        receipt = run.steer("afterwards", when="idle")
        gate.open()
        outcome = await steered(run, [receipt])
    assert asked(model) == [["go"], ["go"], ["go"], ["go", "Done.", "afterwards"]]
    assert outcome.text == "More."


@virtual
async def test_idle_and_next_are_each_heard_in_their_order() -> None:
    """What waits for the end is overtaken by what does not; within a kind nothing overtakes."""
    gate = Gate("tool")

    @tool
    async def work() -> str:
        """Work."""
        await gate
        return "done"

    model = ScriptedModel(Call("work"), "Done.", "More.")
    async with Agent(model, tools=[work]).start("go") as run:
        await gate.reached()
        kinds: tuple[When, ...] = ("idle", "next", "idle", "next", "now")
        receipts = [run.steer(f"{kind} {n}", when=kind) for n, kind in enumerate(kinds)]
        gate.open()
        outcome = await steered(run, receipts)
    users = [message.text for message in outcome.messages if message.role == "user"]
    assert users == ["go", "next 1", "next 3", "now 4", "idle 0", "idle 2"]
    assert outcome.usage.model_calls == 3


@virtual
@pytest.mark.parametrize("when", KINDS)
async def test_said_before_the_start_it_waits_for_the_run(when: When) -> None:
    """After the prompt; with the first model call, or where the run would end."""
    model = ScriptedModel("One.", "Two.")
    run = Agent(model).start("go")
    receipt = run.steer("and this", when=when)
    assert receipt.delivery is None
    async with run:
        outcome = await steered(run, [receipt])
    first = [["go"], ["go", "One.", "and this"]] if when == "idle" else [["go", "and this"]]
    assert asked(model) == first
    assert not outcome.message.cut


@virtual
@pytest.mark.parametrize("when", ["next", "idle"])
async def test_said_in_a_back_off_it_waits_for_the_call_that_is_tried_again(when: When) -> None:
    """A retry asks what was asked; the message is for the call after it."""
    model = ScriptedModel(ModelError("busy", transient=True, retry_after=10), "One.", "Two.")
    async with Agent(model).start("go") as run:
        began = anyio.current_time()
        await anyio.sleep(1)
        receipt = run.steer("and?", when=when)
        outcome = await steered(run, [receipt])
        assert anyio.current_time() - began == pytest.approx(10)
    assert asked(model) == [["go"], ["go"], ["go", "One.", "and?"]]
    assert outcome.text == "Two."


@virtual
async def test_several_that_come_while_the_model_answers_are_heard_together() -> None:
    """One model call answers them all."""
    answer = Gate("model")
    model = ScriptedModel(["First.", answer], "All.")
    async with Agent(model).start("go") as run:
        await answer.reached()
        receipts = [run.steer(str(n)) for n in range(5)]
        answer.open()
        outcome = await steered(run, receipts)
    assert asked(model)[1:] == [["go", "First.", "0", "1", "2", "3", "4"]]
    assert len({receipt.id for receipt in receipts}) == 5
    assert outcome.text == "All."


@virtual
@pytest.mark.parametrize("when", KINDS)
async def test_after_the_end_it_is_told_at_once_that_the_run_ended_first(when: When) -> None:
    """Nothing is asked any more, and the outcome stays as it is."""
    model = ScriptedModel("Done.")
    async with Agent(model).start("go") as run:
        before = await run.outcome()
        receipt = run.steer("too late", when=when)
        assert repr(receipt) == "<SteerReceipt not delivered>"
        assert (await receipt).delivered is False
        assert await steered(run, [receipt]) == before
    assert len(model.requests) == 1


@virtual
@pytest.mark.parametrize("when", KINDS)
async def test_a_run_that_is_never_started_tells_it_when_it_is_closed(when: When) -> None:
    """As it tells its tickets."""
    model = ScriptedModel("never")
    run = Agent(model).start("go")
    receipt = run.steer("hello?", when=when)
    await run.close()
    assert (await receipt).delivered is False
    outcome = await steered(run, [receipt])
    assert (outcome.stop_reason, model.requests) == ("cancelled", [])


@virtual
async def test_a_receipt_says_when_and_which_item_it_was() -> None:
    """The wall time and the number of the item that readers see."""
    answer = Gate("model")
    async with Agent(ScriptedModel([answer, "First."], "Second.")).start("go") as run:
        await answer.reached()
        receipt = run.steer("and?")
        assert repr(receipt) == "<SteerReceipt open>"
        await anyio.sleep(5)
        answer.open()
        delivery = await receipt
        assert repr(receipt) == "<SteerReceipt delivered>"
        items = only_items([event async for event in run])
        await steered(run, [receipt])
    item = items[(delivery.n or 0) - 1]
    assert isinstance(item, Steered)
    assert (item.message, item.id, item.at) == (Message.user("and?"), receipt.id, delivery.at)
    assert isinstance(items[item.n], ModelStarted)
    assert item.at - items[0].at == pytest.approx(5, abs=1e-3)


@virtual
async def test_the_hooks_are_told_of_the_message() -> None:
    """Every message of the outcome reaches message_added, in order, and this one is no exception."""
    told: list[Message | None] = []
    model = ScriptedModel("First.", "Second.")
    agent = Agent(model)

    def keep(moment: Moment) -> None:
        told.append(moment.message)

    agent.on("message_added", keep)
    run = agent.start("go")
    receipts = [run.steer("also"), run.steer("then", when="idle")]
    async with run:
        outcome = await steered(run, receipts)
    assert tuple(told) == outcome.messages


@virtual
@pytest.mark.parametrize("when", KINDS)
async def test_a_tool_may_steer_its_own_run(when: When) -> None:
    """The tool ends, and keeps its result; then the message is heard."""
    receipts: list[SteerReceipt] = []

    @tool
    async def work() -> str:
        """Work."""
        receipts.append(run.steer("from the tool", when=when))
        await anyio.sleep(1)
        return "done"

    model = ScriptedModel(Call("work"), "Done.", "Yes.")
    run = Agent(model, tools=[work]).start("go")
    async with run:
        outcome = await steered(run, receipts)
    assert receipts[0].delivery is not None
    assert receipts[0].delivery.delivered
    assert outcome.messages[2].results[0].content == "done"
    assert asked(model)[1] == (["go"] if when == "idle" else ["go", "from the tool"])
    assert outcome.text == ("Yes." if when == "idle" else "Done.")


@virtual
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("when", KINDS)
async def test_a_hook_may_steer_the_run_at_each_moment(name: str, when: When) -> None:
    """It is heard as if a user had said it; at `run_ended` it comes too late."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    receipts: list[SteerReceipt] = []
    agent = Agent(ScriptedModel(Call("work"), *["Done."] * 3), tools=[work])

    def steer(moment: Moment) -> None:
        if not receipts:
            receipts.append(moment.run.steer(name, when=when))

    agent.on(name, steer)
    async with agent.start("go") as run:
        outcome = await steered(run, receipts)
    delivered = receipts[0].delivery is not None and receipts[0].delivery.delivered
    assert delivered is (name != "run_ended")
    assert (name in [message.text for message in outcome.messages]) is delivered
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Done.")


@virtual
@pytest.mark.parametrize("when", KINDS)
async def test_at_the_very_end_a_hook_need_not_wait_to_be_told(when: When) -> None:
    """The run is final before its last hook is called."""
    agent = Agent(ScriptedModel("Done."))
    told: list[bool] = []

    @agent.on("run_ended")
    async def steer(moment: Moment) -> None:
        told.append((await moment.run.steer("too late", when=when)).delivered)

    assert (await agent.run("go")).stop_reason == "end_turn"
    assert told == [False]


@virtual
@pytest.mark.parametrize("when", KINDS)
async def test_a_model_may_steer_the_run_that_asks_it(when: When) -> None:
    """Also *now*, which cuts the very answer that is being given, at its next wait."""
    receipts: list[SteerReceipt] = []
    requests: list[list[str]] = []

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        requests.append([message.text for message in request.messages])
        yield "First "
        if not receipts:
            receipts.append(run.steer("from the model", when=when))
            await anyio.sleep(1)
        yield "half."

    run = Agent(model).start("go")
    async with run:
        outcome = await steered(run, receipts)
    partial = "First " if when == "now" else "First half."
    assert requests == [["go"], ["go", partial, "from the model"]]
    assert [message.cut for message in outcome.messages] == [False, when == "now", False, False]


@virtual
async def test_a_model_that_steers_now_and_never_waits_has_answered() -> None:
    """There was no moment to cut it at; it is asked once more."""
    receipts: list[SteerReceipt] = []

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        if not receipts:
            receipts.append(run.steer("hm", when="now"))
        yield "Whole."

    run = Agent(model).start("go")
    async with run:
        outcome = await steered(run, receipts)
    assert said(outcome) == ["user: go", "assistant: Whole.", "user: hm", "assistant: Whole."]


@virtual
async def test_pictures_may_be_said() -> None:
    """As in a prompt."""
    picture = Image(b"png")
    model = ScriptedModel("Nice.")
    run = Agent(model).start("go")
    receipts = [run.steer(["look", picture]), run.steer(Message.user(picture))]
    async with run:
        outcome = await steered(run, receipts)
    assert outcome.messages[1:3] == (Message.user("look", picture), Message.user(picture))
    assert model.requests[0].messages[1].parts == (Text("look"), picture)


@virtual
@pytest.mark.parametrize("prompt", ["", "  \n", [], Message.assistant("no"), b"no", 7, ["x", 7], "\ud800"])
async def test_what_is_no_prompt_is_refused_and_nothing_is_said(prompt: Prompt) -> None:
    """As it would be where a run begins."""
    model = ScriptedModel("Done.")
    run = Agent(model).start("go")
    with pytest.raises(UserError, match="the prompt "):
        run.steer(prompt)
    async with run:
        outcome = await steered(run)
    assert said(outcome) == ["user: go", "assistant: Done."]


@virtual
@pytest.mark.parametrize("when", ["later", "", None, "NOW"])
async def test_an_unknown_when_is_refused_with_those_there_are(when: When) -> None:
    """And nothing is said."""
    run = Agent(ScriptedModel("Done.")).start("go")
    with pytest.raises(ValueError, match=r"when is .*: it is one of next, idle, now; nothing was said"):
        run.steer("hm", when=when)
    async with run:
        await steered(run)


@virtual
async def test_a_workflow_cannot_hear_and_names_the_steps_that_can() -> None:
    """It has no model; the step that is live is steered, and the next step gets its answer."""
    answer = Gate("model")
    model = ScriptedModel([answer, "One."], "Two.")
    flow = sequence(Agent(model, name="first"), Agent(ScriptedModel("End."), name="second"))
    run = flow.start("go")
    with pytest.raises(RunStateError, match=r"sequence is a workflow, .*: none is live"):
        run.steer("hm")
    async with run:
        await answer.reached()
        (step,) = run.children
        with pytest.raises(RunStateError, match=rf"steer one of its steps, .*: {step.id}"):
            run.steer("hm", when="now")
        receipt = run.child(step.id).steer("louder")
        answer.open()
        outcome = await run.outcome()
        assert (await receipt).delivered
    assert (outcome.text, asked(model)[1]) == ("End.", ["go", "One.", "louder"])


@virtual
async def test_a_child_is_steered_alone() -> None:
    """Its message is in its own history; the parent only sees it pass, with the way to it."""
    answer = Gate("model")
    inner = ScriptedModel([answer, "Half."], "Whole.")
    child = Agent(inner, name="child").as_tool(description="Help.")
    agent = Agent(ScriptedModel(Call("child", {"request": "help"}), "Done."), tools=[child])
    async with agent.start("go") as run:
        await answer.reached()
        (live,) = run.children
        receipt = live.steer("and more")
        answer.open()
        outcome = await steered(run)
        seen = [event async for event in run if isinstance(event, Steered)]
        await steered(live, [receipt])
    assert said(outcome) == ["user: go", "assistant: Done."]
    assert outcome.messages[2].results[0].content == "Whole."
    assert [(item.path, item.message.text) for item in seen] == [((live.id,), "and more")]


@virtual
async def test_a_parent_is_steered_while_its_child_works() -> None:
    """*Now* cuts no model but the run's own: the child is a tool at work."""
    answer = Gate("model")
    inner = ScriptedModel([answer, "Found."])
    child = Agent(inner, name="child").as_tool(description="Help.")
    model = ScriptedModel(Call("child", {"request": "help"}), "Done.")
    async with Agent(model, tools=[child]).start("go") as run:
        await answer.reached()
        receipt = run.steer("hurry", when="now")
        await anyio.wait_all_tasks_blocked()
        assert inner.live == 1
        answer.open()
        outcome = await steered(run, [receipt])
    assert outcome.messages[2].results[0].content == "Found."
    assert asked(model)[1] == ["go", "hurry"]


@virtual
async def test_the_answer_of_a_human_outlives_what_is_said_on_the_way() -> None:
    """A hook that asked before the model call gets its answer, though the resumed run hears more first."""
    answers: list[str] = []
    model = ScriptedModel("Done.")
    agent = Agent(model)

    @agent.on("before_model")
    async def ask(moment: Moment) -> None:
        answers.append(await moment.interrupt("may I?"))

    paused = await agent.run("go")
    assert paused.checkpoint is not None
    run = agent.start_from(paused.checkpoint, answers={paused.interrupts[0].id: "yes"})
    receipt = run.steer("be brief")
    async with run:
        outcome = await steered(run, [receipt])
    assert (outcome.stop_reason, answers) == ("end_turn", ["yes"])
    assert asked(model) == [["go", "be brief"]]


@virtual
async def test_a_run_that_pauses_first_has_not_heard_what_waits_for_its_end() -> None:
    """It waits for a human; who steered is told, and may say it again to the resumed run."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    agent = Agent(ScriptedModel(Call("work"), "never"), tools=[work])

    @agent.on("before_tool")
    async def ask(moment: Moment) -> None:
        await moment.interrupt("may I?")

    run = agent.start("go")
    receipts = [run.steer("at the end", when="idle"), run.steer("at once")]
    async with run:
        outcome = await steered(run, receipts)
    assert outcome.stop_reason == "interrupt"
    assert [(await receipt).delivered for receipt in receipts] == [False, True]
