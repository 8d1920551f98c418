"""Readers: any number, each with its own cursor; none disturbs the run. Observers read along."""

import asyncio
from threading import Thread

import anyio
import anyio.lowlevel
import pytest

from andon import Agent, Call, Reasoning, Run, tool
from andon.core.fold import fold
from andon.core.items import (
    CallDelta,
    Event,
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from andon.testing import Burst, Gate, ScriptedModel, Yield, virtual
from tests.whole import only_items, whole


@tool
async def work() -> str:
    """Work."""
    return "done"


def agent() -> Agent:
    """An agent whose run has all kinds of events."""
    first = [Reasoning("hm"), Yield(), "Let me. ", CallDelta("work", "{"), Yield(), Call("work", id="c1")]
    return Agent(ScriptedModel(first, ["Do", Yield(), "ne."]), tools=[work])


async def read(run: Run, into: list[Event], *, slow: float = 0, after: int = 0) -> None:
    """Read a run to its end."""
    async for event in run.events(after=after):
        into.append(event)
        await anyio.sleep(slow)


@virtual
async def test_a_run_tells_all_that_happens_in_order() -> None:
    """Deltas as they come, items past participles, the end last."""
    async with agent().start("go") as run:
        seen = [event async for event in run]
        await whole(run)
    assert [type(event) for event in seen] == [
        RunStarted,
        MessageAdded,
        ModelStarted,
        ReasoningDelta,
        TextDelta,
        CallDelta,
        ModelEnded,
        MessageAdded,
        ToolStarted,
        ToolEnded,
        MessageAdded,
        ModelStarted,
        TextDelta,
        TextDelta,
        ModelEnded,
        MessageAdded,
        RunEnded,
    ]


@virtual
async def test_several_readers_early_late_and_slow_read_the_same() -> None:
    """Each from the first to the last."""
    logs: list[list[Event]] = [[] for _ in range(4)]
    run = agent().start("go")
    async with anyio.create_task_group() as tasks, run:
        tasks.start_soon(read, run, logs[0])
        async with anyio.create_task_group() as slow:
            slow.start_soon(lambda: read(run, logs[1], slow=10))
            await anyio.lowlevel.checkpoint()
            slow.start_soon(read, run, logs[2])
    await read(run, logs[3])
    assert logs[0] == logs[1] == logs[2] == logs[3]
    assert isinstance(logs[0][-1], RunEnded)


@virtual
@pytest.mark.parametrize("after", range(14))
async def test_a_reader_may_go_on_from_any_item(after: int) -> None:
    """It reads what follows that item, as it would have before."""
    async with agent().start("go") as run:
        await whole(run)
        everything = [event async for event in run]
        rest = [event async for event in run.events(after=after)]
    items = [index for index, event in enumerate(everything) if isinstance(event, Item)]
    start = items[after - 1] + 1 if 0 < after <= len(items) else 0
    assert rest == (everything[start:] if after < len(items) else [])


@virtual
async def test_a_reader_that_leaves_disturbs_nobody() -> None:
    """By a break, by an error or by its own cancellation."""
    log: list[Event] = []
    answer = Gate("model")
    run = Agent(ScriptedModel(["One", answer, "Two"])).start("go")
    async with run, anyio.create_task_group() as tasks:
        tasks.start_soon(read, run, log)
        async for _ in run:
            break
        with pytest.raises(OSError, match="mine"):  # noqa: PT012 - that is the reader
            async for event in run:
                if isinstance(event, TextDelta):
                    msg = "mine"
                    raise OSError(msg)
        with anyio.move_on_after(1):
            await read(run, [])
        answer.open()
        assert (await whole(run)).text == "OneTwo"
    assert isinstance(log[-1], RunEnded)


@virtual
async def test_a_reader_that_never_comes_back_holds_up_nothing() -> None:
    """Ten thousand chunks go by; it finds them all when it does."""
    async with Agent(ScriptedModel([Burst(10_000), "end"])).start("go") as run:
        reader = run.events()
        await anext(reader)
        outcome = await whole(run)
        rest = [event async for event in reader]
    assert sum(isinstance(event, TextDelta) for event in rest) == 10_001
    assert outcome.text.endswith("end")


async def test_a_reader_in_another_thread_and_loop() -> None:
    """It is woken there."""
    answer = Gate("model")
    log: list[Event] = []
    reading = Gate("reading", opened=True)

    async def elsewhere() -> None:
        async for event in run.events():
            log.append(event)
            if isinstance(event, TextDelta):
                await reading

    async with Agent(ScriptedModel(["One", answer, "Two"])).start("go") as run:
        await answer.reached()
        thread = Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await reading.reached()
        answer.open()
        outcome = await whole(run)
        await anyio.to_thread.run_sync(thread.join)
        assert log == [event async for event in run]
    assert outcome.text == "OneTwo"


@virtual
async def test_the_items_fold_to_the_outcome() -> None:
    """Whoever replays them knows all there is to know."""
    async with agent().start("go") as run:
        outcome = await whole(run)
        state = fold(only_items([event async for event in run]))
    assert tuple(state.messages) == outcome.messages
    assert state.spent() == outcome.usage
    assert state.ended == outcome


class Journal:
    """Keeps what it is told, by run."""

    def __init__(self, *, fail_at: type[Item] | None = None) -> None:
        self.items: dict[str, list[Item]] = {}
        self.fail_at = fail_at

    def observe(self, run_id: str, item: Item, /) -> None:
        """Take one item."""
        self.items.setdefault(run_id, []).append(item)
        if self.fail_at is not None and isinstance(item, self.fail_at):
            msg = "the exporter is down"
            raise OSError(msg)


@virtual
async def test_an_observer_reads_the_items_of_all_runs() -> None:
    """Each with its run, as they happen."""
    journal = Journal()
    watched = Agent(ScriptedModel("One.", "Two."), observers=[journal])
    runs = [watched.start("a"), watched.start("b")]
    for run in runs:
        async with run:
            await whole(run)
    for run in runs:
        assert journal.items[run.id] == only_items([event async for event in run])


@virtual
async def test_an_observer_that_fails_changes_nothing_and_is_told_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of this run; it is logged, and the others read on."""
    broken, whole_one = Journal(fail_at=ModelStarted), Journal()
    watched = Agent(ScriptedModel("One.", "Two."), observers=[broken, whole_one])
    outcome = await watched.run("go")
    assert outcome.text == "One."
    assert [type(item) for item in broken.items[outcome.run_id]] == [RunStarted, MessageAdded, ModelStarted]
    assert isinstance(whole_one.items[outcome.run_id][-1], RunEnded)
    assert "failed and is no longer told of run" in caplog.text
    again = await watched.run("go")
    assert len(broken.items[again.run_id]) == 3


@virtual
async def test_runs_of_one_agent_do_not_mix() -> None:
    """Twenty at once, each with its own history."""
    gate = Gate("model")
    model = ScriptedModel(*[[gate, f"{n}"] for n in range(20)])
    many = Agent(model)
    answers: dict[str, str] = {}

    async def ask(n: int) -> None:
        outcome = await many.run(f"{n}")
        answers[outcome.messages[0].text] = outcome.text
        assert len(outcome.messages) == 2

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(ask, n)
        await gate.reached(20)
        gate.open()
    assert len(answers) == 20
    assert len(set(answers.values())) == 20


def test_one_agent_in_two_threads_and_two_loops() -> None:
    """And one cancel reaches both."""
    gates = [Gate("a"), Gate("b")]
    shared = Agent(ScriptedModel([gates[0]], [gates[1]]))
    outcomes: list[str] = []

    def elsewhere() -> None:
        outcomes.append(shared.run_sync("go").stop_reason)

    threads = [Thread(target=elsewhere) for _ in range(2)]
    for thread in threads:
        thread.start()
    for gate in gates:
        gate.wait_reached()
    report = shared.cancel().wait(timeout=20)
    for thread in threads:
        thread.join()
    assert outcomes == ["cancelled"] * 2
    assert len(report.reports) == 2
