"""Steered now: the model call in flight is cut, what it said is kept, and the same run goes on."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import anyio
import pytest

from andon import Agent, Call, ModelError, Reasoning, Run, StopResult, TextDelta, ToolContext, tool
from andon.core.draft import Chunk
from andon.core.items import CallDelta, ModelEnded, ModelStarted
from andon.core.limits import Usage
from andon.core.stop import Abandoned, Where
from andon.ports import ModelRequest
from andon.runtime.carrier import STEERED
from andon.runtime.hooks import Moment
from andon.runtime.steering import SteerReceipt
from andon.testing import Gate, Hang, ScriptedModel, Step, VirtualLoop, Yield, run_virtual, virtual
from tests.steered import said, steered


def asked(model: ScriptedModel) -> list[list[str]]:
    """Give the words of each request."""
    return [[message.text for message in request.messages if message.text] for request in model.requests]


async def model_calls(run: Run) -> list[str]:
    """Say how each model call of a run ended."""
    return [event.end async for event in run if isinstance(event, ModelEnded)]


@virtual
async def test_the_answer_in_flight_is_cut_and_the_message_is_answered_in_the_same_run() -> None:
    """What it had said stays, marked cut; its generator is closed before the next call begins."""
    answer = Gate("model")
    model = ScriptedModel(["Once upon ", answer, "a time"], "Dogs, then.")
    async with Agent(model).start("a tale of cats") as run:
        await answer.reached()
        receipt = run.steer("of dogs", when="now")
        outcome = await steered(run, [receipt])
        ends = await model_calls(run)
    assert said(outcome) == [
        "user: a tale of cats",
        "assistant: Once upon ",
        "user: of dogs",
        "assistant: Dogs, then.",
    ]
    assert [message.cut for message in outcome.messages] == [False, True, False, False]
    assert (outcome.stop_reason, outcome.cancelled, ends) == ("end_turn", None, ["cut", "complete"])
    assert (model.opened, model.closed) == (2, 2)
    assert asked(model)[1] == ["a tale of cats", "Once upon ", "of dogs"]


@virtual
async def test_a_call_that_has_said_nothing_leaves_nothing() -> None:
    """It stalled before its first chunk: what was said is simply the next of the user's words."""
    answer = Gate("model")
    model = ScriptedModel([answer], "Both.")
    async with Agent(model).start("one") as run:
        await answer.reached()
        outcome = await steered(run, [run.steer("two", when="now")])
    assert said(outcome) == ["user: one", "user: two", "assistant: Both."]


@virtual
@pytest.mark.parametrize(
    ("said_so_far", "kept"),
    [
        ([Reasoning("Hm. ")], (Reasoning("Hm. "),)),
        ([Call("work", id="c1")], ()),
        ([Reasoning("Hm. "), CallDelta("work", '{"q', "c1")], (Reasoning("Hm. "),)),
        ([" \n"], ()),
    ],
)
async def test_where_no_words_had_come_there_is_a_note(
    said_so_far: list[Step], kept: tuple[object, ...]
) -> None:
    """Reasoning is kept; calls, half or whole, are dropped and never run; the note is no cancellation."""
    began: list[str] = []

    @tool
    async def work() -> None:
        """Work."""
        began.append("work")

    answer = Gate("model")
    model = ScriptedModel([*said_so_far, answer], "Yes.")
    async with Agent(model, tools=[work]).start("go") as run:
        await answer.reached()
        outcome = await steered(run, [run.steer("hm", when="now")])
    partial_answer = outcome.messages[1]
    assert (partial_answer.text, partial_answer.cut, partial_answer.synthetic) == (STEERED, True, True)
    assert partial_answer.parts[:-1] == kept
    assert (outcome.text, began) == ("Yes.", [])


@virtual
async def test_a_half_received_call_alone_leaves_nothing() -> None:
    """Nothing of it was whole enough to be kept."""
    answer = Gate("model")
    model = ScriptedModel([CallDelta("work", '{"q', "c1"), answer], "Yes.")
    async with Agent(model).start("go") as run:
        await answer.reached()
        outcome = await steered(run, [run.steer("hm", when="now")])
    assert said(outcome) == ["user: go", "user: hm", "assistant: Yes."]


@virtual
async def test_a_back_off_ends_and_the_model_is_asked_with_the_message() -> None:
    """At once, and as a step of its own with its own attempts."""
    busy = ModelError("busy", transient=True, retry_after=600)
    model = ScriptedModel(["Half", busy], "Yes.")
    async with Agent(model).start("go") as run:
        began = anyio.current_time()
        while not any(isinstance(event, ModelEnded) for event in run._record.events):  # noqa: ASYNC110  # pyright: ignore[reportPrivateUsage]
            await anyio.sleep(1)
        outcome = await steered(run, [run.steer("hm", when="now")])
        assert anyio.current_time() - began < 10
        starts = [event async for event in run if isinstance(event, ModelStarted)]
    assert said(outcome) == ["user: go", "assistant: Half", "user: hm", "assistant: Yes."]
    assert [(start.step, start.attempt) for start in starts] == [(1, 1), (2, 1)]


@virtual
async def test_what_is_cut_is_not_retried_and_no_other_model_is_asked_instead() -> None:
    """A cut is no failure, also when the model raises as it is cut."""
    answer, fallback = Gate("model"), ScriptedModel("never")
    requests: list[int] = []

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        requests.append(len(request.messages))
        if len(requests) > 1:
            yield "Yes."
            return
        try:
            await answer
        except asyncio.CancelledError as cut:
            raise ModelError("the connection broke", transient=True) from cut

    async with Agent(model, fallback=[fallback]).start("go") as run:
        await answer.reached()
        outcome = await steered(run, [run.steer("hm", when="now")])
        ends = await model_calls(run)
    assert (outcome.text, requests, fallback.requests) == ("Yes.", [1, 2], [])
    assert ends == ["cut", "complete"]


@virtual
async def test_in_a_hook_before_the_model_it_is_waited_for_and_heard_before_the_call() -> None:
    """Hooks are not cut; the model is never asked without the message, and the hook hears of both."""
    gate, log = Gate("hook"), list[str]()
    model = ScriptedModel("Yes.")
    agent = Agent(model)

    @agent.on("before_model")
    async def slow(moment: Moment) -> None:
        assert moment.request is not None
        log.append(f"before {len(moment.request.messages)}")
        await gate
        log.append("hook ended")

    @agent.on("after_model")
    def after(moment: Moment) -> None:
        log.append(f"after{' cut' if moment.cut else ''}")

    async with agent.start("go") as run:
        await gate.reached()
        receipt = run.steer("hm", when="now")
        await anyio.sleep(5)
        assert receipt.delivery is None
        gate.open()
        outcome = await steered(run, [receipt])
    assert log == ["before 1", "hook ended", "after cut", "before 2", "hook ended", "after"]
    assert asked(model) == [["go", "hm"]]
    assert said(outcome) == ["user: go", "user: hm", "assistant: Yes."]


@virtual
async def test_running_tools_are_not_cut() -> None:
    """Only a model call is; the tools are told nothing, and end with their results."""
    gate, told = Gate("tool"), list[bool]()

    @tool
    async def slow(context: ToolContext) -> str:
        """Wait."""
        await gate
        told.append(context.cancelled)
        return "slow"

    @tool
    def blocking(context: ToolContext) -> str:
        """Wait in a thread."""
        gate.wait()
        told.append(context.cancelled)
        return "blocking"

    model = ScriptedModel([Call("slow"), Call("blocking")], "Yes.")
    async with Agent(model, tools=[slow, blocking]).start("go") as run:
        await gate.reached(2)
        receipt = run.steer("hm", when="now")
        await anyio.wait_all_tasks_blocked()
        gate.open()
        outcome = await steered(run, [receipt])
    assert [result.content for result in outcome.messages[2].results] == ["slow", "blocking"]
    assert told == [False, False]
    assert asked(model)[1] == ["go", "hm"]


@virtual
async def test_again_and_again_each_cuts_the_answer_to_the_one_before() -> None:
    """Every partial answer is kept in its place."""
    gates = [Gate(f"model {n}") for n in range(5)]
    model = ScriptedModel(*[[f"Answer {n}", gate] for n, gate in enumerate(gates)], "All.")
    receipts: list[SteerReceipt] = []
    async with Agent(model).start("go") as run:
        for n, gate in enumerate(gates):
            await gate.reached()
            receipts.append(run.steer(f"more {n}", when="now"))
        outcome = await steered(run, receipts)
    expected = [line for n in range(5) for line in (f"assistant: Answer {n}", f"user: more {n}")]
    assert said(outcome) == ["user: go", *expected, "assistant: All."]
    answers = [message for message in outcome.messages if message.role == "assistant"]
    assert [message.cut for message in answers] == [True] * 5 + [False]


@virtual
async def test_several_at_once_cut_once_and_are_heard_together_with_what_waited() -> None:
    """In the order in which they were said; what waits for the end still does."""
    answer = Gate("model")
    model = ScriptedModel(["Half", answer], "All.", "End.")
    async with Agent(model).start("go") as run:
        await answer.reached()
        receipts = [
            run.steer("one"),
            run.steer("two", when="now"),
            run.steer("last", when="idle"),
            run.steer("three", when="now"),
            run.steer("four"),
        ]
        outcome = await steered(run, receipts)
        ends = await model_calls(run)
    assert asked(model)[1] == ["go", "Half", "one", "two", "three", "four"]
    assert asked(model)[2][-2:] == ["All.", "last"]
    assert (outcome.text, ends) == ("End.", ["cut", "complete", "complete"])


@virtual
async def test_the_hooks_are_told_of_the_partial_answer_and_of_the_cut() -> None:
    """As they are when a stop cuts."""
    answer, log = Gate("model"), list[str]()
    agent = Agent(ScriptedModel(["Half", answer], "Yes."))

    def note(moment: Moment) -> None:
        message = "" if moment.message is None else f" {moment.message.text}"
        log.append(f"{moment.name}{message}{' cut' if moment.cut else ''}")

    for name in ("message_added", "after_model", "run_ended"):
        agent.on(name, note)
    async with agent.start("go") as run:
        await answer.reached()
        await steered(run, [run.steer("hm", when="now")])
    assert log == [
        "message_added go",
        "message_added Half",
        "after_model Half cut",
        "message_added hm",
        "message_added Yes.",
        "after_model Yes.",
        "run_ended",
    ]


@virtual
async def test_what_the_cut_call_has_cost_is_counted() -> None:
    """Estimated, for the provider had not said."""
    answer = Gate("model")
    spent = Usage(input_tokens=10, output_tokens=5)
    model = ScriptedModel(["x" * 40, answer], ["Yes.", spent])
    async with Agent(model).start("y" * 8) as run:
        await answer.reached()
        outcome = await steered(run, [run.steer("hm", when="now")])
    assert outcome.usage == Usage(input_tokens=12, output_tokens=15, model_calls=2, estimated=True)


@virtual
async def test_a_stop_after_it_cuts_the_call_that_answers_it() -> None:
    """The steer has left nothing behind that would cut, or keep from being cut."""
    first, second = Gate("first"), Gate("second")
    model = ScriptedModel(["Half", first], ["Other half", second])
    async with Agent(model).start("go") as run:
        await first.reached()
        receipt = run.steer("hm", when="now")
        await second.reached()
        report = await run.cancel()
        outcome = await steered(run, [receipt])
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert said(outcome) == ["user: go", "assistant: Half", "user: hm", "assistant: Other half"]


class Stubborn:
    """A model that swallows its first cut, and goes on once a gate is open; later calls are scripted."""

    def __init__(self, then: Step, *replies: Step) -> None:
        self.gate = Gate("stubborn")
        self.first = Gate("first")
        self.then = ScriptedModel([then])
        self.after = ScriptedModel(*replies)
        self.over = False
        self.read_on = False

    async def __call__(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Answer."""
        if self.first.arrived:
            async for chunk in self.after(request):
                yield chunk
            return
        yield "Half"
        try:
            await self.first
        except asyncio.CancelledError:
            await self.gate
        try:
            async for chunk in self.then(request):
                yield chunk
                self.read_on = True
        finally:
            self.over = True


@virtual
async def test_a_model_that_swallows_the_cut_is_left_after_its_grace_and_the_run_goes_on() -> None:
    """What it had said is kept, the message is answered, and what it says later nobody hears."""
    model = Stubborn("late words", "Yes.")
    async with Agent(model, tool_grace=3).start("go") as run:
        await model.first.reached()
        began = anyio.current_time()
        receipt = run.steer("hm", when="now")
        outcome = await steered(run, [receipt])
        assert anyio.current_time() - began == pytest.approx(3)
        before = [event async for event in run]
        model.gate.open()
        await anyio.wait_all_tasks_blocked()
        assert [event async for event in run] == before
    assert said(outcome) == ["user: go", "assistant: Half", "user: hm", "assistant: Yes."]
    assert outcome.stop_reason == "end_turn"
    assert (model.over, model.read_on) == (True, False)


@virtual
@pytest.mark.parametrize("then", ["late words", OSError("broken"), Yield(), asyncio.CancelledError()])
async def test_a_model_that_lets_go_late_leaves_the_one_that_is_asked_now_alone(then: Step) -> None:
    """Whatever it does then, it is read no further, and a stop cuts the model call that is in flight."""
    second = Gate("second")
    model = Stubborn(then)
    model.after.script(["Other half", second])
    async with Agent(model, tool_grace=3).start("go") as run:
        await model.first.reached()
        receipt = run.steer("hm", when="now")
        await second.reached()
        model.gate.open()
        await anyio.wait_all_tasks_blocked()
        assert (model.over, model.read_on) == (True, False)
        began = anyio.current_time()
        report = await run.cancel()
        assert anyio.current_time() == began
        outcome = await steered(run, [receipt])
    assert (report.stopped_at, report.abandoned) == (Where.MODEL, (Abandoned("model"),))
    shown = [event.text async for event in run if isinstance(event, TextDelta)]
    assert shown == ["Half", "Other half"]
    assert said(outcome) == ["user: go", "assistant: Half", "user: hm", "assistant: Other half"]
    assert model.after.live == 0


def test_a_run_that_is_steered_as_its_loop_is_shut_down_ends() -> None:
    """The loop cancels the task that the steer cuts: both are heeded, and nothing is asked any more."""
    answer = Gate("model")
    model = ScriptedModel(["Half", answer], [Hang()])
    kept: list[Run] = []
    receipts: list[SteerReceipt] = []

    async def main() -> None:
        run = Agent(model).start("go")
        kept.append(run)
        events = run.events()
        await anext(events)
        await answer.reached()
        receipts.append(run.steer("hm", when="now"))

    asyncio.run(main())
    assert repr(kept[0]).endswith("cancelled>")
    assert len(model.requests) == 1
    assert receipts[0].delivery is not None
    assert not receipts[0].delivery.delivered


async def a_run_with_a_tool(loop: VirtualLoop, step: int | None) -> tuple[int, list[bool]]:
    """Steer a run now at one step of its loop; give the steps that it took, and which answers were cut."""

    @tool
    async def work() -> str:
        """Work."""
        await anyio.sleep(1)
        return "done"

    model = ScriptedModel(
        ["Let ", Yield(), "me.", Yield(), Call("work"), Yield()], *[["Done", Yield(), "."]] * 3
    )
    run = Agent(model, tools=[work]).start("go")
    receipts: list[SteerReceipt] = []
    began = loop.steps

    def look(at: int) -> None:
        if step is not None and at == began + step:
            receipts.append(run.steer("hm", when="now"))

    loop.before_step = look
    async with run:
        outcome = await run.outcome()
        loop.before_step = None
        steps = loop.steps - began
        await steered(run, receipts)
    assert outcome.stop_reason == "end_turn"
    answered = outcome.messages[-1].role == "assistant" and not outcome.message.cut
    heard = [to for to in (receipt.delivery for receipt in receipts) if to is not None and to.delivered]
    assert answered
    assert sum(message.text == "hm" for message in outcome.messages) == len(heard)
    assert model.live == 0
    return steps, [message.cut for message in outcome.messages]


def test_at_every_step_of_a_run_it_is_heard_once_or_told_undelivered() -> None:
    """Also in the very moment in which an answer completes: then it is whole, and the run goes on."""

    def at(step: int | None) -> tuple[int, list[bool]]:
        loop = VirtualLoop()
        return run_virtual(partial(a_run_with_a_tool, loop, step), loop=loop)

    steps, _ = at(None)
    assert steps >= 10
    cuts = [any(at(step)[1]) for step in range(steps)]
    assert True in cuts
    assert False in cuts
