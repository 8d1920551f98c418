"""Models: retried while they fail for a while, never after a cut; closed, or abandoned by name."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Message, ModelError, Point, Run, Stop, StopResult, tool
from andon.core.draft import Chunk
from andon.core.items import ModelEnded, ModelStarted, RunEnded, TextDelta
from andon.core.stop import Abandoned, Where
from andon.ports import ModelRequest
from andon.testing import Burst, Gate, ScriptedModel, virtual
from tests.whole import whole

BUSY = ModelError("busy", transient=True)


@virtual
async def test_a_transient_failure_is_tried_again_with_back_off() -> None:
    """Half a second, then a second; each attempt is written down, and the words of a failed one are not."""
    model = ScriptedModel(["Lost", BUSY], BUSY, "Done.")
    began = anyio.current_time()
    async with Agent(model).start("go") as run:
        outcome = await whole(run)
        ends = [(e.step, e.attempt, e.end) async for e in run if isinstance(e, ModelEnded)]
    assert outcome.text == "Done."
    assert anyio.current_time() - began == pytest.approx(1.5)
    assert ends == [(1, 1, "failed"), (1, 2, "failed"), (1, 3, "complete")]
    assert outcome.usage.model_calls == 1


@virtual
async def test_the_providers_own_delay_is_kept() -> None:
    """It said when to come again."""
    model = ScriptedModel(ModelError("busy", transient=True, retry_after=7), "Done.")
    began = anyio.current_time()
    assert (await Agent(model).run("go")).text == "Done."
    assert anyio.current_time() - began == pytest.approx(7)


@virtual
@pytest.mark.parametrize(("retries", "asked"), [(0, 1), (1, 2), (3, 4)])
async def test_retries_are_bounded(retries: int, asked: int) -> None:
    """Then the run ends as an error that says what failed."""
    model = ScriptedModel(*[BUSY] * 9)
    outcome = await Agent(model, retries=retries).run("go")
    assert (outcome.stop_reason, outcome.error) == ("error", "ModelError: busy")
    assert len(model.requests) == asked


@virtual
async def test_a_failure_for_good_is_not_tried_again() -> None:
    """It would fail again."""
    model = ScriptedModel(ModelError("no such model"), "never")
    assert (await Agent(model).run("go")).error == "ModelError: no such model"
    assert len(model.requests) == 1


@virtual
async def test_the_fallback_is_asked_when_the_first_has_failed_for_good() -> None:
    """With the same request; and the one after it."""
    models = [
        ScriptedModel(BUSY, BUSY, BUSY, name="a"),
        ScriptedModel(OSError("down"), name="b"),
        ScriptedModel("Done.", name="c"),
    ]
    agent = Agent(models[0], fallback=models[1:])
    async with agent.start("go") as run:
        outcome = await whole(run)
        asked = [event.model async for event in run if isinstance(event, ModelStarted)]
    assert outcome.text == "Done."
    assert asked == ["a", "a", "a", "b", "c"]
    assert models[2].requests[0].messages == models[0].requests[0].messages


@virtual
@pytest.mark.parametrize("stop", [Stop.now(), Stop.gently()])
async def test_a_cut_during_the_back_off_ends_at_once(stop: Stop) -> None:
    """And nobody is asked again, no fallback either."""
    model, second = ScriptedModel(ModelError("busy", transient=True, retry_after=60)), ScriptedModel()
    began = anyio.current_time()
    async with Agent(model, fallback=[second]).start("go") as run:
        await anyio.sleep(1)
        report = await run.cancel(stop)
        outcome = await whole(run)
    assert anyio.current_time() - began == pytest.approx(1)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert (len(model.requests), len(second.requests)) == (1, 0)
    assert outcome.text == "Cancelled by user"


@virtual
async def test_a_point_during_the_back_off_waits_for_the_point() -> None:
    """Nothing in flight is cut."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    model = ScriptedModel(ModelError("busy", transient=True, retry_after=60), Call("work"))
    async with Agent(model, tools=[work]).start("go") as run:
        await anyio.sleep(1)
        report = await run.cancel(Stop.at(Point.MODEL))
    assert report.stopped_at is Where.POINT_MODEL


@virtual
async def test_a_cut_is_never_retried() -> None:
    """Not even if the provider makes a transient failure of it."""
    asked: list[str] = []

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        asked.append("asked")
        yield "Half"
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            raise BUSY from None

    async with Agent(model).start("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                break
        run.cancel()
        outcome = await whole(run)
    assert asked == ["asked"]
    assert outcome.stop_reason == "cancelled"
    assert outcome.text == "Half"


@virtual
async def test_a_model_that_swallows_its_cut_is_abandoned() -> None:
    """The run ends after the grace and names it; what it still says is not heard."""
    gate, woken = Gate("model"), list[str]()

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Half"
        while not gate.opened:
            try:
                await gate
            except asyncio.CancelledError:
                woken.append("up")
        yield "late"
        woken.append("never asked for more")

    agent = Agent(model, tool_grace=5)
    async with agent.start("go") as run:
        await gate.reached()
        report = await run.cancel()
        outcome = await whole(run)
        gate.open()
        await anyio.sleep(1)
        seen = [event async for event in run]
    assert report.abandoned == (Abandoned("model"),)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.MODEL)
    assert report.latency == pytest.approx(5, abs=1e-3)
    assert woken == ["up"]
    assert isinstance(seen[-1], RunEnded)
    assert run._record.events == seen  # pyright: ignore[reportPrivateUsage]
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["Half"]
    assert (outcome.text, outcome.message.cut) == ("Half", True)
    assert await agent.cancel() != report


@virtual
async def test_a_provider_that_will_not_close_is_abandoned() -> None:
    """The burst was left by the flag; its clean-up is bounded as well."""
    gate = Gate("closing")
    holding: list[Any] = []

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            holding.append(run.cancel())
            yield "Half"
        finally:
            await gate

    run = Agent(model, tool_grace=5).start("go")
    async with run:
        outcome = await whole(run)
    assert outcome.cancelled is not None
    assert outcome.cancelled.abandoned == (Abandoned("model"),)
    gate.open()


@virtual
async def test_a_provider_that_fails_while_closing_does_not_hide_the_stop() -> None:
    """It was asked to stop, and it stopped."""

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            yield "Half"
            await anyio.sleep_forever()
        finally:
            msg = "connection lost"
            raise OSError(msg)

    async with Agent(model).start("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                break
        report = await run.cancel()
        outcome = await whole(run)
    assert report.result is StopResult.STOPPED
    assert (outcome.stop_reason, outcome.text) == ("cancelled", "Half")


@virtual
async def test_a_model_that_cancels_itself_has_failed() -> None:
    """Nobody asked for it."""

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Half"
        raise asyncio.CancelledError

    outcome = await Agent(model).run("go")
    assert outcome.error == "ModelError: the model call cancelled itself, without a stop"


@virtual
async def test_a_burst_gives_the_loop_its_turns() -> None:
    """Others run while the provider's chunks come without a wait."""
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(1)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await Agent(ScriptedModel([Burst(3), "end"])).run("go")
        tasks.cancel_scope.cancel()
    assert turns


async def test_a_long_burst_gives_the_loop_its_turns_in_real_time() -> None:
    """About each millisecond: a thread's cancel is seen in the middle of it."""
    model = ScriptedModel([Burst(5_000_000)])
    async with Agent(model).start("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                break
        await run.cancel()
        await whole(run)
    assert model.made < 5_000_000


@virtual
async def test_the_request_is_all_that_a_model_is_told() -> None:
    """History, tools, instructions and settings; the run itself is not in it."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    model = ScriptedModel("Done.")
    agent = Agent(model, tools=[work], instructions="Be brief.", settings={"temperature": 0})
    await agent.run("go")
    request = model.requests[0]
    assert request.messages == (Message.user("go"),)
    assert request.tools == (work.spec,)
    assert (request.instructions, request.settings) == ("Be brief.", {"temperature": 0})


@virtual
@pytest.mark.parametrize("rubbish", [7, None, {"text": "hi"}, b"bytes"])
async def test_a_model_that_yields_rubbish_is_told_what_to_yield(rubbish: Any) -> None:  # noqa: ANN401
    """What came, and what would do."""

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Half"
        yield rubbish

    outcome = await Agent(model).run("go")
    assert outcome.error is not None
    assert outcome.error.startswith(f"TypeError: the model yielded a {type(rubbish).__name__}: ")
    assert outcome.error.endswith("yield str, Reasoning, Call or Usage")
    assert outcome.text == "Half"


@virtual
async def test_a_model_that_is_no_generator_is_told_so() -> None:
    """It returned where it should yield."""

    def model(_: ModelRequest) -> Any:  # noqa: ANN401 - what is tested
        return "an answer"

    outcome = await Agent(model).run("go")
    assert outcome.error == "ModelError: model 'model' gave a str: write `async def` with `yield`"


@virtual
async def test_a_model_may_be_an_iterator_without_aclose() -> None:
    """A `ports.Model` need not be a generator; its name is its type's."""

    class Words:
        """Some words, one by one."""

        def __init__(self) -> None:
            self.left = ["two", "one "]

        def __call__(self, _: ModelRequest, /) -> AsyncIterator[Chunk]:
            return self

        def __aiter__(self) -> AsyncIterator[Chunk]:
            return self

        async def __anext__(self) -> Chunk:
            if not self.left:
                raise StopAsyncIteration
            if self.left == ["two"] and stopping is not None:
                stopping.cancel(Stop.gently())
            return self.left.pop()

    stopping: Run | None = None
    async with Agent(Words()).start("go") as run:
        assert (await whole(run)).text == "one two"
        named = [event.model async for event in run if isinstance(event, ModelStarted)]
    assert named == ["Words"]
    stopping = Agent(Words()).start("go")
    assert (await stopping.outcome()).stop_reason == "cancelled"
