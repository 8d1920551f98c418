"""CS: output streams under a stop that is now."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import anyio
import pytest

from andon import Agent, Call, Run, Stop, StopResult, tool
from andon.core.checkpoint import Checkpoint
from andon.core.items import Event, RunEnded, TextDelta, ToolEnded, ToolProgress, ToolStarted
from andon.core.stop import Where
from andon.testing import Gate, Hang, ScriptedModel, virtual
from tests.stores import MemoryStore
from tests.whole import whole


async def upto(run: Run, kind: type[Event]) -> list[Event]:
    """Read the events of a run up to the first of a kind."""
    seen: list[Event] = []
    async for event in run:
        seen.append(event)
        if isinstance(event, kind):
            break
    return seen


@virtual
async def test_cs_01_a_model_that_blocks_is_stopped_in_bounded_time() -> None:
    """NOW while the stream is stalled: STOPPED at once, and the stream says cancelled."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer)).start("go") as run:
        await answer.reached()
        with anyio.fail_after(2):
            report = await run.cancel()
        seen = [event async for event in run]
        outcome = await whole(run)
    assert report.result is StopResult.STOPPED
    assert isinstance(seen[-1], RunEnded)
    assert seen[-1].outcome.stop_reason == outcome.stop_reason == "cancelled"


@virtual
@pytest.mark.parametrize("recursive", [False, True])
async def test_cs_02_one_delta_then_a_hang_is_stopped_every_time(recursive: bool) -> None:  # noqa: FBT001
    """300 times: STOPPED, cancelled and never an error, the checkpoint in the store when the stream ends."""
    store = MemoryStore()
    for round_ in range(300):
        model = ScriptedModel(["One", Hang()])
        name = f"run-{round_}"
        async with Agent(model, store=store).start("go", checkpoint_id=name) as run:
            await upto(run, TextDelta)
            ticket = run.cancel(Stop.now(recursive=recursive))
            seen = [event async for event in run]
            assert name in store.data
            report = await ticket
        last = seen[-1]
        assert isinstance(last, RunEnded)
        assert (report.result, last.outcome.stop_reason) == (StopResult.STOPPED, "cancelled")
        assert last.outcome.error is None
        assert (report.checkpoint, report.durable) == (name, True)
        assert Checkpoint.from_json(store.data[name]) == last.outcome.checkpoint
        assert model.live == 0


def streaming(gate: Gate, closed: list[str]) -> Agent:
    """An agent whose tool gives one chunk, waits at a gate, and gives another."""

    @tool
    async def stream() -> AsyncIterator[str]:
        """Stream."""
        try:
            yield "chunk1"
            await gate
            yield "chunk2"
        except asyncio.CancelledError:
            closed.append("cancelled")
            raise
        finally:
            closed.append("closed")

    return Agent(ScriptedModel([Call("stream")], "never"), tools=[stream])


@virtual
async def test_cs_04_a_streaming_tool_gives_nothing_after_the_stop() -> None:
    """chunk1 was delivered; the tool's own wait raises, later chunks are not delivered."""
    gate, closed = Gate("tool"), list[str]()
    async with streaming(gate, closed).start("go") as run:
        await gate.reached()
        await run.cancel()
        gate.open()
        outcome = await whole(run)
        chunks = [event.value async for event in run if isinstance(event, ToolProgress)]
    assert chunks == ["chunk1"]
    assert closed == ["cancelled", "closed"]
    assert outcome.messages[2].results[0].state == "unknown"


@virtual
async def test_cs_04_a_streaming_tool_that_goes_on_after_the_stop_is_closed_and_not_heard() -> None:
    """It swallows its cancellation and gives more: the source is closed there, before its call ends."""
    gate, closing = Gate("tool"), Gate("closing")
    given: list[str] = []

    @tool
    async def stream() -> AsyncIterator[str]:
        """Stream, whatever is asked."""
        try:
            for chunk in ("chunk1", "chunk2", "chunk3"):
                given.append(chunk)
                yield chunk
                with contextlib.suppress(asyncio.CancelledError):
                    await gate
        finally:
            await closing

    async with Agent(ScriptedModel([Call("stream")], "never"), tools=[stream]).start("go") as run:
        await gate.reached()
        ticket = run.cancel()
        await closing.reached()
        assert not run.ended
        closing.open()
        report = await ticket
        outcome = await whole(run)
        chunks = [event.value async for event in run if isinstance(event, ToolProgress)]
    assert (chunks, given) == (["chunk1"], ["chunk1", "chunk2"])
    assert (report.result, report.abandoned) == (StopResult.STOPPED, ())
    assert outcome.messages[2].results[0].state == "unknown"


@virtual
async def test_cs_05_a_streaming_tool_does_not_start_after_the_stop() -> None:
    """NOW came already: no chunk, and nothing of the source is left open."""
    begun: list[str] = []

    @tool(sequential=True)
    async def first() -> str:
        """Ask for a stop, and end."""
        run.cancel()
        return "done"

    @tool
    async def stream() -> AsyncIterator[str]:
        """Stream."""
        begun.append("begun")
        yield "chunk1"

    model = ScriptedModel([Call("first"), Call("stream")])
    run = Agent(model, tools=[first, stream]).start("go")
    async with run:
        outcome = await whole(run)
        seen = [event async for event in run]
    assert begun == []
    assert not any(isinstance(event, ToolProgress) for event in seen)
    assert [event.name for event in seen if isinstance(event, ToolStarted)] == ["first"]
    assert [event.state for event in seen if isinstance(event, ToolEnded)] == ["completed", "not_started"]
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is Where.TOOLS


@virtual
async def test_cs_07_a_stream_that_is_being_read_ends_and_the_run_says_cancelled() -> None:
    """The reader holds chunk1 when NOW comes: the tool's stream ends, and so does the run's."""
    gate, closed = Gate("tool"), list[str]()
    async with streaming(gate, closed).start("go") as run:
        reader = run.events()
        async for event in reader:
            if isinstance(event, ToolProgress):
                ticket = run.cancel()
                break
        else:
            pytest.fail("the tool gave no chunk")
        rest = [event async for event in reader]
        report = await ticket
        await whole(run)
    assert not any(isinstance(event, ToolProgress) for event in rest)
    assert isinstance(rest[-1], RunEnded)
    assert rest[-1].outcome.stop_reason == "cancelled"
    assert report.result is StopResult.STOPPED
    assert "closed" in closed
