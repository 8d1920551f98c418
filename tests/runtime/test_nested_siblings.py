"""Siblings: two agents in one tool call neither cut nor leave each other where one goes on later."""

import asyncio

import anyio
import pytest

from andon import Stop, ToolContext
from andon.core.stop import Where
from andon.testing import Gate, virtual
from tests.family import Family, call, inside, report_of, stopped
from tests.whole import whole


class Pair:
    """A tool that asks two agents at once, each held at a gate of its own."""

    def __init__(self, how: str) -> None:
        self.family = Family()
        self.gates = Gate("A"), Gate("B")
        self.stepped: list[str] = []
        a, b = (
            self.family.agent(name, ["Half ", gate, call("step")], f"{name}.", tools=[self.step])
            for name, gate in zip("AB", self.gates, strict=True)
        )
        self.agents = a, b
        self.how = how
        self.root = self.family.agent("root", call("both"), "Root.", tools=[self.both])

    async def step(self) -> str:
        """Step."""
        self.stepped.append("step")
        return "stepped"

    async def both(self) -> str:
        """Ask both."""
        if self.how == "gather":
            outcomes = await asyncio.gather(*(agent.run("go") for agent in self.agents))  # noqa: TID251
            return " ".join(outcome.text for outcome in outcomes)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(agent.run("go")) for agent in self.agents]
        return " ".join(task.result().text for task in tasks)


PAIRS = pytest.mark.parametrize("how", ["gather", "group"])


@virtual
@PAIRS
async def test_a_child_that_stops_at_its_point_neither_cuts_nor_leaves_the_one_beside_it(how: str) -> None:
    """Graceful: each of two in one tool call comes to its own point; resumed, each goes on there."""
    pair = Pair(how)
    async with pair.root.start("go") as run:
        for gate in pair.gates:
            await gate.reached()
        children = run.children
        ticket = run.cancel(Stop.graceful())
        pair.gates[0].open()
        await children[0].outcome()
        await anyio.sleep(1)
        assert [child.ended for child in (run, *children)] == [False, True, False]
        pair.gates[1].open()
        outcome, report = await stopped(run, ticket)
    assert [(await report_of(child)).stopped_at for child in children] == [Where.POINT_MODEL] * 2
    assert report.stopped_at is Where.POINT_MODEL
    assert inside(outcome.checkpoint) == ["root", "A", "B"]
    assert outcome.checkpoint is not None
    again = await pair.root.resume(outcome.checkpoint)
    assert again.messages[2].results[0].content == "A. B."
    assert (again.text, pair.stepped) == ("Root.", ["step"] * 2)
    assert sorted(pair.family.asked) == ["A", "A", "B", "B", "root", "root"]


@virtual
@PAIRS
async def test_now_ends_the_wait_for_the_one_beside_it(how: str) -> None:
    """One waits at its point, the other would never come to one: both are kept as they are."""
    pair = Pair(how)
    async with pair.root.start("go") as run:
        for gate in pair.gates:
            await gate.reached()
        children = run.children
        first = run.cancel(Stop.graceful())
        pair.gates[0].open()
        await children[0].outcome()
        await anyio.sleep(1)
        began = asyncio.get_running_loop().time()
        outcome, _ = await stopped(run, first, run.cancel())
    assert asyncio.get_running_loop().time() - began < 0.1
    assert [(await report_of(child)).stopped_at for child in children] == [Where.POINT_MODEL, Where.MODEL]
    assert inside(outcome.checkpoint) == ["root", "A", "B"]
    assert pair.family.live == []


@virtual
async def test_a_tool_left_by_a_question_leaves_no_child_behind() -> None:
    """A task of the tool still asks an agent: that is cut before the run ends, and goes on when resumed."""
    family, gate = Family(), Gate("child")
    child = family.agent("child", ["Half", gate])
    tasks: list[asyncio.Task[object]] = []

    async def asks(context: ToolContext) -> str:
        """Ask an agent in a task, and a human."""
        tasks.append(asyncio.get_running_loop().create_task(child.run("go")))
        await gate.reached()
        return str(await context.interrupt("sure?"))

    async with family.agent("root", call("asks"), "Root.", tools=[asks]).start("go") as run:
        outcome = await whole(run)
        assert family.live == []
        assert run.children == ()
    assert outcome.stop_reason == "interrupt"
    assert inside(outcome.checkpoint) == ["root", "child"]
    await asyncio.wait(tasks)
