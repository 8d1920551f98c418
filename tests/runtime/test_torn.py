"""Cancelling the task around a run from outside: the same clean-up, then the cancellation goes on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from andon import Agent, Call, ModelError, Outcome, Stop, StopResult, ToolContext, tool
from andon.core.draft import Chunk
from andon.core.items import Item, RunEnded
from andon.core.stop import Where
from andon.ports import ModelRequest
from andon.testing import Gate, ScriptedModel, VirtualLoop, virtual
from tests.stores import MemoryStore
from tests.whole import complaints


class Journal:
    """Keeps the items of a run."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def observe(self, _: str, item: Item, /) -> None:
        """Take one item."""
        self.items.append(item)

    @property
    def outcome(self) -> Outcome:
        """The outcome, which is in the last item."""
        last = self.items[-1]
        assert isinstance(last, RunEnded)
        return last.outcome

    def says_cancelled_by_code(self) -> None:
        """The journal says `cancelled`, source `code`, with a history that can be sent."""
        outcome = self.outcome
        assert outcome.stop_reason == "cancelled"
        assert outcome.cancelled is not None
        assert [cause.source for cause in outcome.cancelled.causes] == ["code"]
        assert complaints(outcome.messages) == []


class Failure(Exception):  # noqa: N818 - it is not ours
    """Something else that went wrong."""


async def by_task(work: Callable[[], Awaitable[object]], ready: Gate) -> None:
    """task.cancel()."""

    async def main() -> None:
        await work()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ready.reached)
        task = asyncio.get_running_loop().create_task(main())
        await ready.reached()
        task.cancel("mine")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()


async def by_timeout(work: Callable[[], Awaitable[object]], ready: Gate) -> None:
    """asyncio.timeout."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await work()
    assert ready.arrived
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def by_scope(work: Callable[[], Awaitable[object]], ready: Gate) -> None:
    """An anyio scope."""
    with anyio.move_on_after(5) as scope:
        await work()
    assert scope.cancelled_caught
    assert ready.arrived


async def by_sibling(work: Callable[[], Awaitable[object]], ready: Gate) -> None:
    """A sibling in a TaskGroup that fails."""

    async def fail() -> None:
        await ready.reached()
        raise Failure

    async def main() -> None:
        await work()
        pytest.fail("the run was not cancelled")

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the group raises it
        async with asyncio.TaskGroup() as group:
            group.create_task(main())
            group.create_task(fail())
    assert [type(error) for error in caught.value.exceptions] == [Failure]


WAYS = [by_task, by_timeout, by_scope, by_sibling]


@pytest.mark.parametrize("way", WAYS)
def test_a_cancellation_from_outside_passes_through_a_model_call(
    way: Callable[[Callable[[], Awaitable[object]], Gate], Awaitable[None]],
) -> None:
    """The provider is closed first, the partial answer kept, the checkpoint stored; nothing is swallowed."""

    @virtual
    async def scene() -> None:
        answer, journal, store = Gate("model"), Journal(), MemoryStore()
        model = ScriptedModel(["Half", answer])
        agent = Agent(model, observers=[journal], store=store)
        await way(lambda: agent.run("go", checkpoint_id="it"), answer)
        journal.says_cancelled_by_code()
        assert model.live == 0
        assert journal.outcome.text == "Half"
        assert journal.outcome.cancelled is not None
        assert journal.outcome.cancelled.stopped_at is Where.MODEL
        assert "it" in store.data
        assert repr(agent) == "<Agent agent, 0 live>"

    scene()


@pytest.mark.parametrize("way", WAYS)
def test_a_cancellation_from_outside_passes_through_tools(
    way: Callable[[Callable[[], Awaitable[object]], Gate], Awaitable[None]],
) -> None:
    """The tools have ended before it goes on, and were told."""

    @virtual
    async def scene() -> None:
        gate, journal, ended = Gate("tool"), Journal(), list[str]()

        @tool
        async def work(context: ToolContext) -> str:
            """Work."""
            try:
                await gate
            finally:
                ended.append(f"told: {context.cancelled}")
            return "done"

        agent = Agent(ScriptedModel([Call("work"), Call("work")]), tools=[work], observers=[journal])
        await way(lambda: agent.run("go"), gate)
        assert ended == ["told: True"] * 2
        journal.says_cancelled_by_code()
        assert [result.state for result in journal.outcome.messages[2].results] == ["unknown"] * 2

    scene()


@virtual
async def test_the_clean_up_is_not_cut_and_not_endless() -> None:
    """A tool that swallows its cancellation is abandoned after its grace; only then it goes on."""
    gate, journal = Gate("tool"), Journal()

    @tool
    async def stubborn() -> str:
        """Hear nothing."""
        while not gate.opened:
            try:
                await gate
            except asyncio.CancelledError:
                continue
        return "done"

    agent = Agent(ScriptedModel(Call("stubborn")), tools=[stubborn], observers=[journal], tool_grace=3)
    began = anyio.current_time()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    with anyio.move_on_after(5) as scope:
        await agent.run("go")
    assert loop.steps < 200  # whoever waits for the clean-up does not spin
    assert anyio.current_time() - began == pytest.approx(8)
    assert scope.cancelled_caught
    assert journal.outcome.cancelled is not None
    assert [gone.name for gone in journal.outcome.cancelled.abandoned] == ["stubborn"]
    gate.open()


@virtual
async def test_the_clean_up_survives_a_second_cancellation() -> None:
    """Whoever cancels again waits as well."""
    cleaning, journal = Gate("cleaning"), Journal()

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            yield "Half"
            await anyio.sleep_forever()
        finally:
            await cleaning
            cleaned.append("clean")

    cleaned: list[str] = []
    agent = Agent(model, observers=[journal])
    task = asyncio.get_running_loop().create_task(agent.run("go"))
    await anyio.sleep(1)
    task.cancel()
    await cleaning.reached()
    task.cancel()
    await anyio.sleep(1)
    assert not task.done()
    cleaning.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == ["clean"]
    journal.says_cancelled_by_code()


@virtual
async def test_leaving_the_block_by_an_error_ends_the_run_and_raises_the_error() -> None:
    """The run is a part of the block."""
    answer, journal = Gate("model"), Journal()
    model = ScriptedModel(answer)
    with pytest.raises(Failure):  # noqa: PT012 - that is the block
        async with Agent(model, observers=[journal]).start("go"):
            await answer.reached()
            raise Failure
    journal.says_cancelled_by_code()
    assert model.live == 0


@virtual
async def test_leaving_the_block_early_ends_the_run() -> None:
    """Nothing runs on behind it."""
    answer, journal = Gate("model"), Journal()
    model = ScriptedModel(answer)
    async with Agent(model, observers=[journal]).start("go") as run:
        await answer.reached()
    assert run.ended
    journal.says_cancelled_by_code()
    assert model.live == 0


def test_a_loop_that_is_shut_down_leaves_a_whole_history() -> None:
    """The run's own task is cancelled, as asyncio.run does at its end."""
    journal = Journal()
    model = ScriptedModel(["Half", Gate("model")])
    agent = Agent(model, observers=[journal])

    async def main() -> None:
        run = agent.start("go")
        run.events()
        await model_is_asked()

    async def model_is_asked() -> None:
        while not model.live:
            await anyio.lowlevel.checkpoint()

    asyncio.run(main())
    journal.says_cancelled_by_code()
    assert model.live == 0


@virtual
async def test_a_run_whose_task_is_cancelled_before_its_first_step() -> None:
    """No code of the run ran at all, and still its history is whole and its tickets are answered."""
    journal, model = Journal(), ScriptedModel("never")
    run = Agent(model, observers=[journal]).start("go")
    here = asyncio.current_task()
    run.events()
    ticket = run.cancel(Stop.graceful())
    for task in asyncio.all_tasks() - {here}:
        task.cancel()
    report = await ticket
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.BEFORE_START)
    assert [cause.source for cause in report.causes] == ["user", "code"]
    assert journal.outcome.stop_reason == "cancelled"
    assert [message.text for message in journal.outcome.messages] == ["go", "Cancelled by user"]
    assert model.requests == []


@pytest.mark.parametrize("kind", ["one tool", "tools", "hook", "back-off"])
@pytest.mark.parametrize("steps", range(9))
def test_a_loop_that_is_shut_down_at_any_step_leaves_a_whole_history(kind: str, steps: int) -> None:
    """In tools, in a hook, while it waits to try again: also before the first step of any of them."""
    journal = Journal()
    place = Gate(kind)

    @tool
    async def work() -> str:
        """Work."""
        await place
        return "done"

    reply = (
        ModelError("busy", transient=True)
        if kind == "back-off"
        else [Call("work")] * (1 if kind == "one tool" else 3)
    )
    agent = Agent(ScriptedModel(reply), tools=[work], observers=[journal])
    if kind == "hook":

        @agent.on("before_model")
        async def hold(_: object) -> None:
            await place

    async def main() -> None:
        agent.start("go").events()
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()

    asyncio.run(main())
    journal.says_cancelled_by_code()
