"""What the history looks like after every kind of end."""

import pytest

from andon import Agent, Call, Message, Outcome, Point, Reasoning, Stop, Usage, tool
from andon.core.messages import Text
from andon.core.repair import NOT_STARTED, UNKNOWN
from andon.core.stop import Where
from andon.testing import Gate, Hang, Reply, ScriptedModel, Step, Yield, virtual
from tests.whole import complaints, whole


async def cut_in_the_model(*chunks: Step, text: str = "Cancelled by user") -> tuple[Outcome, ScriptedModel]:
    """Cancel a model call after some chunks."""
    answer = Gate("model")
    model = ScriptedModel([*chunks, answer])
    async with Agent(model, cancel_text=text).start("go") as run:
        await answer.reached()
        run.cancel()
        outcome = await whole(run)
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is Where.MODEL
    return outcome, model


@virtual
async def test_cut_before_any_word() -> None:
    """An assistant message says so, marked cut."""
    outcome, _ = await cut_in_the_model()
    assert outcome.messages[1:] == (
        Message("assistant", (Text("Cancelled by user"),), cut=True, synthetic=True),
    )


@virtual
async def test_the_words_of_a_cancelled_run_are_a_setting() -> None:
    """In the user's own language."""
    outcome, _ = await cut_in_the_model(text="Abgebrochen")
    assert outcome.text == "Abgebrochen"


@virtual
async def test_cut_with_words() -> None:
    """The partial answer is kept, marked cut, and nothing is added."""
    outcome, _ = await cut_in_the_model("Half an ", "answ")
    assert outcome.messages[1:] == (Message("assistant", (Text("Half an answ"),), cut=True),)


@virtual
async def test_cut_with_reasoning_only() -> None:
    """The reasoning is kept, and the note stands where the words would."""
    outcome, _ = await cut_in_the_model(Reasoning("Let me "), Reasoning("think"))
    assert outcome.message == Message(
        "assistant", (Reasoning("Let me think"), Text("Cancelled by user")), cut=True, synthetic=True
    )


@virtual
async def test_cut_with_a_call_in_flight() -> None:
    """A call of an answer that is not complete is dropped: it would have to be answered."""
    outcome, _ = await cut_in_the_model("Let me look.", Call("look"))
    assert outcome.message == Message("assistant", (Text("Let me look."),), cut=True)


@virtual
async def test_the_usage_of_a_cut_call_is_kept_or_estimated() -> None:
    """What the provider told stays; what it did not is counted, and flagged."""
    outcome, _ = await cut_in_the_model(Usage(input_tokens=9, output_tokens=8), "Half")
    assert outcome.usage == Usage(input_tokens=9, output_tokens=8, model_calls=1)
    outcome, _ = await cut_in_the_model("x" * 40)
    assert outcome.usage == Usage(input_tokens=1, output_tokens=10, model_calls=1, estimated=True)


@virtual
async def test_before_the_start() -> None:
    """The prompt and the cancellation."""
    run = Agent(ScriptedModel("never")).start("go")
    run.cancel()
    async with run:
        outcome = await whole(run)
    assert [(m.role, m.text, m.synthetic) for m in outcome.messages] == [
        ("user", "go", False),
        ("assistant", "Cancelled by user", True),
    ]


async def with_tools(stop: Stop, *, at: str, first: Reply | None = None) -> Outcome:
    """Cancel a run of three calls, one of which has ended and one of which is under way."""
    gates = {"model": Gate("model"), "tool": Gate("tool")}

    @tool
    async def fast() -> str:
        """End at once."""
        return "done"

    @tool
    async def slow() -> str:
        """Wait."""
        ended = run.messages[-1]
        assert ended.role == "assistant"
        await gates["tool"]
        return "done late"

    calls = [Call("fast", id="c1"), Call("slow", id="c2"), Call("slow", id="c3")]
    model = ScriptedModel(first or ["Let me.", gates["model"], *calls], "never")
    agent = Agent(model, tools=[fast, slow], tool_concurrency=1)
    run = agent.start("go")
    async with run:
        await gates["model"].reached() if first is None else None
        if at == "tools":
            gates["model"].open()
            await gates["tool"].reached()
        run.cancel(stop)
        gates["model"].open()
        gates["tool"].open() if stop != Stop.now() else None
        return await whole(run)


@virtual
async def test_at_point_model() -> None:
    """The answer is whole, each of its calls is answered as not started, and a note closes it."""
    outcome = await with_tools(Stop.at(Point.MODEL), at="model")
    assert [m.role for m in outcome.messages] == ["user", "assistant", "tool", "assistant"]
    assert not outcome.messages[1].cut
    assert [(r.call_id, r.state, r.content) for r in outcome.messages[2].results] == [
        (name, "not_started", NOT_STARTED) for name in ("c1", "c2", "c3")
    ]
    assert outcome.messages[3] == Message("assistant", (Text("Cancelled by user"),), synthetic=True)


@virtual
async def test_at_point_tools() -> None:
    """All results are real, and a note closes it."""
    outcome = await with_tools(Stop.at(Point.TOOLS), at="tools")
    assert [r.content for r in outcome.messages[2].results] == ["done", "done late", "done late"]
    assert [r.state for r in outcome.messages[2].results] == ["completed"] * 3
    assert outcome.messages[3].synthetic


@virtual
async def test_cut_in_the_tools() -> None:
    """What ended keeps its result, what was cut is unknown, what had not begun is not started."""
    outcome = await with_tools(Stop.now(), at="tools")
    results = outcome.messages[2].results
    assert [(r.call_id, r.state, r.content, r.is_error) for r in results] == [
        ("c1", "completed", "done", False),
        ("c2", "unknown", UNKNOWN, True),
        ("c3", "not_started", NOT_STARTED, True),
    ]
    assert outcome.messages[3].synthetic
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is Where.TOOLS


@virtual
@pytest.mark.parametrize("reply", [OSError("broken"), 7])
async def test_after_an_error(reply: Reply) -> None:
    """The history can be sent again, too."""
    async with Agent(ScriptedModel(["Half", reply])).start("go") as run:  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        outcome = await whole(run)
    assert outcome.stop_reason == "error"
    assert outcome.message == Message("assistant", (Text("Half"),), cut=True)
    async with Agent(ScriptedModel(reply)).start("go") as run:
        outcome = await whole(run)
    assert outcome.text == "(no answer: the run failed)"


@virtual
async def test_an_answer_without_a_word() -> None:
    """Providers refuse it, so it says that there is none."""
    async with Agent(ScriptedModel([Yield()])).start("go") as run:
        outcome = await whole(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "(no answer)")


@virtual
async def test_a_history_that_came_broken_goes_on_whole() -> None:
    """It is repaired before the model sees it."""
    model = ScriptedModel("Done.")
    broken = [Message.user("look"), Message.assistant(Call("look", id="c1")), Message.user(" ")]
    async with Agent(model).start("and?", messages=broken) as run:
        outcome = await whole(run)
    assert complaints(model.requests[0].messages) == []
    assert [m.role for m in outcome.messages] == ["user", "assistant", "tool", "user", "assistant"]


@virtual
async def test_a_run_shows_its_history_while_it_runs() -> None:
    """And its usage."""
    answer = Gate("model")
    async with Agent(ScriptedModel([answer])).start("go") as run:
        await answer.reached()
        assert [message.text for message in run.messages] == ["go"]
        assert run.usage == Usage(model_calls=1)
        assert not run.ended


@virtual
async def test_a_prompt_may_be_parts_or_a_message() -> None:
    """Words, pictures, or both."""
    for prompt in (["Look: ", Text("here")], Message.user("Look: ", "here")):
        outcome = await Agent(ScriptedModel("Done.")).run(prompt)
        assert outcome.messages[0] == Message.user("Look: ", "here")


@virtual
async def test_messages_alone_may_be_answered() -> None:
    """A history that ends with a user's message needs no prompt."""
    outcome = await Agent(ScriptedModel("Done.")).run(messages=[Message.user("go")])
    assert [message.text for message in outcome.messages] == ["go", "Done."]


@virtual
async def test_a_run_that_hangs_forever_hangs_until_it_is_closed() -> None:
    """`close` is bounded by the run itself."""
    run = Agent(ScriptedModel([Hang()])).start("go")
    run.events()
    await run.close()
    assert (await run.outcome()).stop_reason == "cancelled"
