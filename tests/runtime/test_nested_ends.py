"""How a tree ends: within its grace, with patience, and with what was abandoned anywhere in it told."""

import asyncio
from collections.abc import AsyncIterator
from threading import Event as Opened
from threading import Thread

import anyio
import pytest

from andon import Agent, Call, Point, Run, Stop, StopResult, tool
from andon.core.draft import Chunk
from andon.core.items import TextDelta
from andon.core.stop import Abandoned, Cause, Where
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.scope import Scope
from andon.testing import Gate, ScriptedModel, virtual
from tests.family import Family, ask, call, inside, report_of, stopped
from tests.whole import whole


def clock() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()


class Payment:
    """A tool that must finish, and takes some seconds."""

    def __init__(self, seconds: float = 20) -> None:
        self.began = Gate("payment", opened=True)
        self.paid = 0

        @tool(finish=True)
        async def pay() -> str:
            """Pay."""
            await self.began
            await anyio.sleep(seconds)
            self.paid += 1
            return "paid"

        self.pay = pay


class Deaf:
    """A tool that swallows its cancellation."""

    def __init__(self) -> None:
        self.gate = Gate("deaf")

    async def deaf(self) -> str:
        """Hear nothing."""
        while not self.gate.opened:
            try:
                await self.gate
            except asyncio.CancelledError:
                continue
        return "late"


def chain(family: Family, leaf: Agent, *names: str) -> Agent:
    """Put agents behind each other, each of which asks the next, down to the leaf."""
    for name in names:
        leaf = family.agent(name, ask(leaf.name), "never", below=[leaf])
    return leaf


@virtual
@pytest.mark.parametrize("recursive", [True, False])
async def test_a_payment_deep_inside_is_waited_for_by_every_level(*, recursive: bool) -> None:
    """The tree ends after it, its result stands, and nobody is abandoned."""
    family, payment = Family(), Payment()
    leaf = family.agent("leaf", call("pay"), "never", tools=[payment.pay])
    root = chain(family, leaf, "third", "second", "first")
    async with root.start("go") as run:
        await payment.began.reached()
        began = clock()
        outcome, report = await stopped(run, run.cancel(Stop.now(recursive=recursive)))
    assert (payment.paid, report.abandoned) == (1, ())
    assert clock() - began == pytest.approx(20)
    assert family.asked == ["first", "second", "third", "leaf"]
    kept = ["first", "second", "third", "leaf"] if recursive else ["first"]
    assert inside(outcome.checkpoint) == kept


@virtual
async def test_a_payment_that_takes_too_long_is_abandoned_at_its_own_level() -> None:
    """Its time is its agent's `finish_timeout`; every level above hears of it, by its path."""
    family, payment = Family(), Payment(seconds=1_000)
    leaf = family.agent("leaf", call("pay", "c1"), "never", tools=[payment.pay], finish_timeout=5.0)
    async with chain(family, leaf, "middle", "root").start("go") as run:
        await payment.began.reached()
        (middle,) = run.children
        (inner,) = middle.children
        _, report = await stopped(run, run.cancel())
        reports = [await report_of(one) for one in (run, middle, inner)]
    assert report.latency == pytest.approx(5)
    assert [one.abandoned for one in reports] == [
        (Abandoned("pay", "c1", (middle.id, inner.id)),),
        (Abandoned("pay", "c1", (inner.id,)),),
        (Abandoned("pay", "c1"),),
    ]


@virtual
@pytest.mark.parametrize("recursive", [True, False])
async def test_what_a_child_has_abandoned_is_in_the_report_of_the_root(*, recursive: bool) -> None:
    """The child ends within its grace; its own call, and the calls above it, are not abandoned."""
    family, deaf = Family(), Deaf()
    leaf = family.agent("leaf", call("deaf", "c1"), "never", tools=[deaf.deaf], tool_grace=0.5)
    async with chain(family, leaf, "root").start("go") as run:
        await deaf.gate.reached()
        (inner,) = run.children
        _, report = await stopped(run, run.cancel(Stop.now(recursive=recursive)))
        deaf.gate.open()
    assert report.abandoned == (Abandoned("deaf", "c1", (inner.id,)),)
    assert report.latency == pytest.approx(0.5)


@virtual
async def test_a_model_that_a_child_has_abandoned_is_in_the_report_too() -> None:
    """A model that clings is left by the child; the root says so."""
    gate = Gate("model")

    async def clings(_: ModelRequest) -> AsyncIterator[Chunk]:
        while not gate.opened:
            try:
                await gate
            except asyncio.CancelledError:
                continue
        yield "late"

    family = Family()
    async with chain(family, Agent(clings, name="leaf"), "root").start("go") as run:
        await gate.reached()
        (inner,) = run.children
        _, report = await stopped(run, run.cancel())
        gate.open()
    assert report.abandoned == (Abandoned("model", path=(inner.id,)),)


@virtual
async def test_a_child_that_was_cancelled_alone_leaves_a_note_for_later() -> None:
    """What it abandoned still runs when the root is cancelled after it, and the root's report says it."""
    family, deaf, gate = Family(), Deaf(), Gate("root")
    leaf = family.agent("leaf", call("deaf", "c1"), "never", tools=[deaf.deaf], tool_grace=0.5)
    root = family.agent("root", ask("leaf"), ["Half", gate], below=[leaf])
    async with root.start("go") as run:
        await deaf.gate.reached()
        (inner,) = run.children
        await inner.cancel()
        await gate.reached()
        _, report = await stopped(run, run.cancel())
        deaf.gate.open()
    assert report.abandoned == (Abandoned("deaf", "c1", (inner.id,)),)


@virtual
@pytest.mark.parametrize("place", ["model", "hook"])
async def test_a_payment_of_an_agent_in_a_model_or_a_hook_is_waited_for(place: str) -> None:
    """By the run whose model or hook it is, and by the calls above that."""
    family, payment = Family(), Payment()
    payer = family.agent("payer", call("pay"), "never", tools=[payment.pay])

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield (await payer.run("go")).text if place == "model" else "never"

    async def hook(_: Moment) -> None:
        if place == "hook":
            await payer.run("go")

    leaf = Agent(model, name="leaf")
    leaf.on("before_model", hook)
    async with chain(family, leaf, "root").start("go") as run:
        await payment.began.reached()
        began = clock()
        _, report = await stopped(run, run.cancel())
    assert (payment.paid, report.abandoned) == (1, ())
    assert clock() - began == pytest.approx(20)


@virtual
@pytest.mark.parametrize("recursive", [True, False])
async def test_grace_bounds_the_whole_tree(*, recursive: bool) -> None:
    """At the deadline every level is cut, in one moment; the canceller has waited for nothing."""
    family, gate = Family(), Gate("leaf")
    leaf = family.agent("leaf", ["Half", gate])
    async with chain(family, leaf, "middle", "root").start("go") as run:
        await gate.reached()
        (middle,) = run.children
        (inner,) = middle.children
        began = clock()
        ticket = run.cancel(Stop.at(Point.TOOLS, grace=3, recursive=recursive))
        assert (clock(), ticket.report) == (began, None)
        outcome, report = await stopped(run, ticket)
    assert (report.result, report.escalated_by) == (StopResult.ESCALATED, "timeout")
    assert clock() - began == pytest.approx(3)
    below = [await report_of(one) for one in (middle, inner)]
    assert [one.stopped_at for one in below] == [Where.TOOLS, Where.MODEL]
    assert family.live == []
    assert inside(outcome.checkpoint) == (["root", "middle", "leaf"] if recursive else ["root"])


@virtual
async def test_a_child_that_begins_late_gets_what_is_left_of_the_grace() -> None:
    """The deadline is the tree's, not each run's own."""
    family, gate = Family(), Gate("tool")
    leaf = family.agent("leaf", ["Half", Gate("never")])

    async def late() -> str:
        """Ask late."""
        await gate
        return (await leaf.run("go")).text

    async with family.agent("root", call("late"), tools=[late]).start("go") as run:
        await gate.reached()
        began = clock()
        ticket = run.cancel(Stop.graceful(grace=3))
        await anyio.sleep(2)
        gate.open()
        _, report = await stopped(run, ticket)
    assert (report.result, clock() - began) == (StopResult.ESCALATED, pytest.approx(3))


@virtual
@pytest.mark.parametrize("how", ["task", "thread"])
async def test_the_timeout_of_a_tool_ends_the_agents_inside(how: str) -> None:
    """Nothing burns tokens on; the agent's report says that it was the time-out."""
    model = ScriptedModel(["Half", Gate("never")])
    child = Agent(model, name="child")
    seen: list[Run] = []

    @tool(timeout=3)
    async def slow() -> str:
        """Be slow."""
        return (await child.run("go")).text

    @tool(timeout=0.1)
    def slow_thread() -> str:
        """Be slow."""
        return child.run_sync("go").text

    name = "slow" if how == "task" else "slow_thread"
    root = Agent(ScriptedModel(Call(name), "Root."), tools=[slow, slow_thread])
    async with root.start("go") as run:
        async for event in run:
            seen += [one for one in run.children if one not in seen] if event.path else []
        outcome = await whole(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Root.")
    assert model.live == 0
    (inner,) = seen
    report = await report_of(inner)
    assert (report.causes[0].source, report.stopped_at) == ("timeout", Where.MODEL)


async def test_a_child_that_blocks_its_own_thread_is_named_as_abandoned() -> None:
    """A tool in a task, whose agent is in another thread and hears nothing: the report says which."""
    blocked, going = Opened(), Gate("blocked", opened=True)

    async def blocks(_: ModelRequest) -> AsyncIterator[Chunk]:
        await going
        while not blocked.is_set():
            pass
        yield "late"

    child = Agent(blocks, name="child", tool_grace=0.05)

    async def work() -> str:
        """Ask in a thread."""
        return (await asyncio.to_thread(child.run_sync, "go")).text

    root = Agent(ScriptedModel(Call("work", id="c1")), tools=[work], tool_grace=0.05)
    try:
        async with root.start("go") as run:
            await going.reached()
            (inner,) = run.children
            _, report = await stopped(run, run.cancel())
    finally:
        blocked.set()
    assert report.abandoned == (Abandoned("work", "c1", (inner.id,)),)
    await inner.over()


@virtual
async def test_a_tool_that_has_not_begun_in_a_child_never_does_once_the_root_is_cut() -> None:
    """Not even where the tool before it cancels the root, and gives the loop no turn."""
    family = Family()
    worked: list[str] = []
    roots: list[Run] = []

    @tool(sequential=True)
    async def first() -> str:
        """Cancel the root."""
        roots[0].cancel()
        worked.append("first")
        return "done"

    @tool
    async def second() -> str:
        """Work."""
        worked.append("second")
        return "done"

    leaf = family.agent("leaf", [call("first"), call("second")], tools=[first, second])
    async with chain(family, leaf, "middle", "root").start("go") as run:
        roots.append(run)
        await whole(run)
    assert worked == ["first"]


async def test_the_canceller_in_a_thread_is_never_blocked() -> None:
    """Sixteen levels deep, with the loop of the run busy: `cancel` returns before the loop has a turn."""
    family, gate = Family(), Gate("leaf")
    leaf = family.agent("leaf", ["Half", gate])
    async with chain(family, leaf, *(f"level{n}" for n in range(15))).start("go") as run:
        await gate.reached()
        returned = Opened()
        thread = Thread(target=lambda: (run.cancel(Stop.now(recursive=True)), returned.set()))
        thread.start()
        assert returned.wait(30)  # the loop is held here, and has told nobody yet
        assert not run.ended
        outcome = await whole(run)
        thread.join(30)
    assert len(inside(outcome.checkpoint)) == 16
    assert family.live == []


@virtual
async def test_a_stop_that_code_inside_asks_for_counts_at_the_very_next_point() -> None:
    """The leaf's model asks the root to stop, and gives the loop no turn before its tool call."""
    family = Family()
    worked: list[str] = []
    roots: list[Run] = []

    async def work() -> str:
        """Work."""
        worked.append("work")
        return "done"

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        roots[0].cancel(Stop.at(Point.MODEL, recursive=True))
        yield Call("work")

    leaf = Agent(model, tools=[work], name="leaf")
    async with chain(family, leaf, "middle", "root").start("go") as run:
        roots.append(run)
        outcome = await whole(run)
    assert (outcome.stop_reason, worked) == ("cancelled", [])
    assert inside(outcome.checkpoint) == ["root", "middle", "leaf"]


@virtual
async def test_a_deadline_counts_once_it_has_come_though_the_timer_has_not() -> None:
    """A child in another loop may be cut by the deadline of the tree a moment before its parent is."""
    scope = Scope("one", lambda _: None)
    scope.begin()
    scope.request(Stop.graceful(grace=3), Cause())
    await anyio.sleep(2.9)
    scope.grace_is_over()
    assert (scope.cuts, scope.escalated_by) == (False, None)
    await anyio.sleep(0.0995)
    scope.grace_is_over()
    assert (scope.cuts, scope.escalated_by) == (True, "timeout")


@virtual
async def test_nobody_listens_to_what_an_abandoned_call_still_begins() -> None:
    """A deaf tool is left at its time-out; the agent that it asks later is not heard in its parent."""
    family, gate, on = Family(), Gate("tool"), Gate("root")
    child = family.agent("child", "Child.")

    @tool(timeout=1)
    async def deaf() -> str:
        """Hear nothing, and go on."""
        while not gate.opened:
            try:
                await gate
            except asyncio.CancelledError:
                continue
        return (await child.run("late")).text

    async with family.agent("root", call("deaf"), [on, "Root."], tools=[deaf]).start("go") as run:
        await on.reached()
        gate.open()
        await anyio.sleep(1)
        assert family.asked == ["root", "root", "child"]
        on.open()
        outcome = await whole(run)
        assert [late.value for late in run.late] == ["Child."]
        assert [event.path async for event in run if event.path] == []
    assert outcome.usage.model_calls == 2


@virtual
@pytest.mark.parametrize("how", ["watched", "asked"])
async def test_a_tool_that_only_watches_an_agent_is_left_as_one_that_asks_for_its_outcome(how: str) -> None:
    """A child that was stopped inside its block never passes for one that has given its answer."""
    family, gate = Family(), Gate("child")
    child = family.agent("child", [gate, call("work")], "Child.", tools=[no_work])

    async def show() -> str:
        """Show the words of an agent."""
        words: list[str] = []
        async with child.start("go") as inner:
            async for event in inner:
                words += [event.text] if isinstance(event, TextDelta) else []
            if how == "asked":
                await inner.outcome()
        return "".join(words)

    async with family.agent("root", call("show"), "Root.", tools=[show]).start("go") as run:
        await gate.reached()
        ticket = run.cancel(Stop.at(Point.MODEL, recursive=True))
        gate.open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_MODEL
    assert [one.state.value for one in outcome.messages[2].results] == ["unknown"]
    assert inside(outcome.checkpoint) == ["root", "child"]


async def no_work() -> str:
    """Work."""
    raise AssertionError
