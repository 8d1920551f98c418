"""What foreign code may do that nobody should, and what the run still tells truthfully."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from typing_extensions import override

from andon.core.draft import Chunk
from andon.core.items import ModelEnded, ModelStarted
from andon.core.messages import Call, ResultState
from andon.core.repair import unknown
from andon.core.stop import Stop, StopResult
from andon.ports import ModelRequest
from andon.runtime.agent import Agent
from andon.runtime.hooks import Moment
from andon.runtime.isolate import run_to_end
from andon.runtime.run import Run
from andon.runtime.tools import ToolContext, tool
from andon.testing import Gate, ScriptedModel, virtual
from tests.stray import close_all
from tests.whole import complaints, whole


class MuteError(Exception):
    """An error that fails when it is asked for its text."""

    @override
    def __str__(self) -> str:
        msg = "no words"
        raise RuntimeError(msg)


class Odd(BaseException):
    """What is no Exception, and nobody should raise."""


@virtual
async def test_a_tool_whose_error_has_no_words_has_failed_all_the_same() -> None:
    """It ran: its call is `failed`, the model reads so, and the run goes on."""

    @tool
    async def work() -> str:
        raise MuteError

    outcome = await Agent(ScriptedModel(Call("work"), "Done."), tools=[work]).run("Go.")

    (result,) = outcome.messages[2].results
    assert result.state is ResultState.FAILED
    assert result.content.startswith("MuteError: (its text cannot be shown")
    assert outcome.stop_reason == "end_turn"


@virtual
async def test_a_tool_that_had_started_when_the_run_failed_is_never_said_to_be_unstarted() -> None:
    """A hook failed while it was at work: the call is unknown, also to whoever resumes."""
    gate = Gate("work")
    worked: list[str] = []

    @tool
    async def work() -> str:
        worked.append("begun")
        await gate
        return "never"

    @tool
    async def other() -> str:
        """Refused by a hook that fails."""
        return "never"

    agent = Agent(ScriptedModel([Call("work", id="a"), Call("other", id="b")], "Done."), tools=[work, other])

    @agent.on("before_tool")
    async def fail(moment: Moment) -> None:
        if moment.call is not None and moment.call.name == "other":
            await gate.reached()
            gate.open()
            raise MuteError

    async with agent.start("Go.") as run:
        outcome = await whole(run)

    assert outcome.stop_reason == "error"
    assert outcome.error is not None
    assert outcome.error.startswith("HookError")
    states = {result.call_id: result.state for result in outcome.messages[2].results}
    assert states == {"a": ResultState.COMPLETED, "b": ResultState.NOT_STARTED}
    assert outcome.checkpoint is not None
    resumed = await Agent(ScriptedModel("Done."), tools=[work, other]).resume(outcome.checkpoint)
    assert resumed.stop_reason == "end_turn"
    assert worked == ["begun"]


@virtual
@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("no")])
async def test_a_callback_that_fails_keeps_no_tool_from_being_cut(error: BaseException) -> None:
    """Whatever `on_cancel` is given raises, the tools are cut, and the others are told."""
    begun = Gate("begun")
    told: list[str] = []

    @tool
    async def work(name: str, context: ToolContext) -> str:
        def fail() -> None:
            raise error

        context.on_cancel(fail)
        context.on_cancel(lambda: told.append(name))
        begun_once = asyncio.get_running_loop().create_future()
        await begun if name == "a" else await begun_once
        return "never"

    calls = [Call("work", {"name": "a"}), Call("work", {"name": "b"})]
    async with Agent(ScriptedModel(calls), tools=[work]).start("Go.") as run:
        await begun.reached()
        report = await run.cancel()
        outcome = await whole(run)

    assert report.result is StopResult.STOPPED
    assert sorted(told) == ["a", "b"]
    assert {result.state for result in outcome.messages[2].results} == {ResultState.UNKNOWN}
    assert report.abandoned == ()


@virtual
@pytest.mark.parametrize("make", [lambda: Odd("odd"), MuteError], ids=["no exception", "no words"])
async def test_whatever_a_model_raises_its_call_ends_and_each_hook_has_its_other_half(
    make: Callable[[], BaseException],
) -> None:
    """The run is an error, what had come is kept, and nothing is left open."""

    async def odd(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Half"
        raise make()

    agent = Agent(odd)
    moments: list[str] = []

    def note(moment: Moment) -> None:
        moments.append(moment.name)

    for name in ("before_model", "after_model", "run_ended"):
        agent.on(name, note)

    async with agent.start("Go.") as run:
        events = [event async for event in run]
        outcome = await whole(run)

    assert moments == ["before_model", "after_model", "run_ended"]
    assert sum(isinstance(event, ModelStarted) for event in events) == 1
    (ended,) = (event for event in events if isinstance(event, ModelEnded))
    assert ended.end == "failed"
    assert (outcome.stop_reason, outcome.text) == ("error", "Half")


@virtual
async def test_a_model_that_fails_and_will_not_be_closed_is_given_up() -> None:
    """Rubbish, and then a clean-up without end: the run fails on its own, and names the model."""
    gate = Gate("clean-up")

    async def stuck(_request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            yield 5  # type: ignore[misc] — rubbish
        finally:
            await gate

    async with Agent(stuck, tool_grace=0.2).start("Go.") as run:
        outcome = await whole(run)
        report = await run.cancel()

    assert outcome.stop_reason == "error"
    assert outcome.error is not None
    assert "the model yielded a int" in outcome.error
    assert report.result is StopResult.FINISHED_FIRST
    gate.open()


@virtual
async def test_a_thousand_requests_in_a_row_are_joined_at_once() -> None:
    """They are told in one item, which names each of them once."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer)).start("Go.") as run:
        await answer.reached()
        tickets = [run.cancel(Stop.graceful(), reason=str(number)) for number in range(1000)]
        tickets.append(run.cancel())
        reports = [await ticket for ticket in tickets]
        outcome = await whole(run)

    assert all(report is reports[0] for report in reports)
    assert outcome.cancelled is not None
    assert len({cause.id for cause in outcome.cancelled.causes}) == 1001
    assert outcome.cancelled.escalated_by == "request"


class Ajar(AsyncIterator[Chunk]):
    """A stream that cancels itself, and then will not be closed."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @override
    async def __anext__(self) -> Chunk:
        raise asyncio.CancelledError

    async def aclose(self) -> None:
        """Take for ever."""
        await self._gate


@virtual
async def test_a_stream_that_cancels_itself_and_will_not_be_closed_has_failed() -> None:
    """Nobody asked for a stop, so it is no cut."""
    gate = Gate("closing")
    async with Agent(lambda _request: Ajar(gate), tool_grace=0.2).start("Go.") as run:
        outcome = await whole(run)

    assert outcome.stop_reason == "error"
    assert outcome.error == "ModelError: the model failed, and would not be closed in time"
    gate.open()


async def interrupting(_request: ModelRequest) -> AsyncIterator[Chunk]:
    """Answer with a Ctrl-C."""
    raise KeyboardInterrupt
    yield ""


@tool
async def interrupted() -> str:
    """Come to a Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("agent", "states"),
    [
        (Agent(interrupting), []),
        (Agent(ScriptedModel(Call("interrupted")), tools=[interrupted]), [ResultState.FAILED]),
    ],
    ids=["a model", "a tool"],
)
def test_a_ctrl_c_goes_through_and_leaves_a_whole_history(agent: Agent, states: list[ResultState]) -> None:
    """It ends the program as ever, and the tool that came to it has failed."""
    runs: list[Run] = []

    async def main() -> None:
        runs.append(agent.start("Go."))
        await runs[0].outcome()

    with pytest.raises(KeyboardInterrupt):
        run_to_end(main)

    assert runs[0].ended
    assert [result.state for message in runs[0].messages for result in message.results] == states
    assert complaints(runs[0].messages) == []


def test_a_tool_whose_loop_is_gone_under_it_is_not_said_to_be_unstarted() -> None:
    """It was at work when everything ended, and nobody knows how far it came: no resume runs it again."""
    begun = Gate("begun")

    @tool
    async def work() -> str:
        await begun
        return "never"

    async def start() -> Run:
        run = Agent(ScriptedModel(Call("work")), tools=[work]).start("Go.")
        run.events()
        await begun.reached()
        return run

    loop = asyncio.new_event_loop()
    run = loop.run_until_complete(start())
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: int(task.get_name().rpartition("-")[2]))
    loop.close()
    close_all(tasks)

    assert run.ended
    (result,) = run.messages[2].results
    assert result.state is ResultState.UNKNOWN
    assert result.content == "The run failed while this was running; whether it took effect is not known"
    assert complaints(run.messages) == []
    begun.open()
    resumed = Agent(ScriptedModel("Done."), tools=[work]).start_from(run.checkpoint())
    assert run_to_end(resumed.outcome).messages[2].results == (unknown(Call("work", {}, result.call_id)),)
    assert begun.arrived == 1
