"""CP: how far a stop goes down a tree: only recursive ones at points, every one that is now."""

import anyio
import pytest

from andon import Point, Run, Stop, StopResult, ToolContext
from andon.core.stop import Where
from andon.testing import Gate, Reply, virtual
from tests.family import Family, ask, call, inside, report_of, stopped
from tests.whole import whole

MODEL = Stop.at(Point.MODEL)
MODEL_BELOW = Stop.at(Point.MODEL, recursive=True)


class Scene:
    """Three levels, A, B and C, the last of which is held in its model."""

    def __init__(self, *levels: list[Reply]) -> None:
        self.gate = Gate("C")
        self.family = Family()
        a, b, c = levels or ([[ask("B")], "A."], [[ask("C")], "B."], [["Half ", self.gate, "C."]])
        leaf = self.family.agent("C", *c)
        middle = self.family.agent("B", *b, below=[leaf])
        self.root = self.family.agent("A", *a, below=[middle])

    async def held(self, run: Run) -> list[Run]:
        """Wait until C is held, and give the runs of all levels."""
        await self.gate.reached()
        (b,) = run.children
        (c,) = b.children
        return [run, b, c]


def asked(run: Run) -> Stop | None:
    """What a run was asked so far, by whomever."""
    return run._record.scope.stop  # pyright: ignore[reportPrivateUsage]


async def settled(runs: list[Run]) -> list[Stop | None]:
    """Let all that is under way in the loop come to pass, and say what each run was asked."""
    await anyio.sleep(0.001)  # virtual time goes on only when nothing else can
    return [asked(run) for run in runs]


@virtual
async def test_cp_01_a_child_is_not_told_of_points_that_are_not_recursive() -> None:
    """The child ends its tool call undisturbed; the parent goes on to its own point."""
    family, gate = Family(), Gate("C")
    child = family.agent("C", ["Half ", gate, "C."])
    async with family.agent("P", ask("C"), ask("C"), below=[child]).start("go") as run:
        await gate.reached()
        (c,) = run.children
        ticket = run.cancel(MODEL)
        assert (await settled([run, c]))[1] is None
        gate.open()
        outcome, report = await stopped(run, ticket)
    assert (await c.outcome()).stop_reason == "end_turn"
    assert outcome.messages[2].results[0].content == "Half C."
    assert report.stopped_at is Where.POINT_MODEL
    assert family.asked == ["P", "C", "P"]


@virtual
async def test_cp_03_nor_is_anybody_further_down() -> None:
    """A is asked for MODEL: neither B nor C is told."""
    scene = Scene()
    async with scene.root.start("go") as run:
        runs = await scene.held(run)
        ticket = run.cancel(MODEL)
        assert [stop is None for stop in await settled(runs)] == [False, True, True]
        scene.gate.open()
        outcome = await whole(run)
    assert (await ticket).result is StopResult.FINISHED_FIRST
    assert (outcome.text, [(await below.outcome()).stop_reason for below in runs]) == ("A.", ["end_turn"] * 3)


@virtual
@pytest.mark.parametrize("at_first", [True, False])
async def test_cp_06_now_that_is_recursive_is_now_for_the_child(*, at_first: bool) -> None:
    """Whether recursive came first or with it, the child is to stop immediately."""
    scene = Scene()
    async with scene.root.start("go") as run:
        runs = await scene.held(run)
        if at_first:
            run.cancel(Stop.at(Point.TOOLS, recursive=True))
            await settled(runs)
        ticket = run.cancel(Stop.now() if at_first else Stop.now(recursive=True))
        assert [stop and (stop.immediate, stop.recursive) for stop in await settled(runs)] == [
            (True, True)
        ] * 3
        outcome, _ = await stopped(run, ticket)
    assert [(await report_of(below)).stopped_at for below in runs] == [Where.TOOLS, Where.TOOLS, Where.MODEL]
    assert inside(outcome.checkpoint) == ["A", "B", "C"]


@virtual
async def test_cp_07_the_recursive_flag_travels_with_the_stop() -> None:
    """A is asked for MODEL, recursive: B and C both have it, and C's own point stops all of them."""
    scene = Scene()
    scene.family.models["C"].script(["Half ", scene.gate, ask("nobody")])
    async with scene.root.start("go") as run:
        runs = await scene.held(run)
        ticket = run.cancel(MODEL_BELOW, by="ann", reason="enough")
        told = await settled(runs)
        scene.gate.open()
        outcome, _ = await stopped(run, ticket)
    assert [stop and (stop.points, stop.recursive) for stop in told] == [(Point.MODEL, True)] * 3
    reports = [await report_of(below) for below in runs]
    assert [report.stopped_at for report in reports] == [Where.POINT_MODEL] * 3
    causes = [report.causes[0] for report in reports]
    assert [cause.source for cause in causes] == ["user", "parent", "parent"]
    assert {(cause.by, cause.reason, cause.id) for cause in causes} == {("ann", "enough", causes[0].id)}
    assert inside(outcome.checkpoint) == ["A", "B", "C"]


@virtual
async def test_cp_08_a_child_that_begins_after_the_stop_has_it_at_once() -> None:
    """It stops at its first point; one that begins after NOW is never asked anything."""
    family, gate = Family(), Gate("P")
    child = family.agent("C", ask("nobody"), "C.")

    async def late() -> str:
        """Ask the child once the gate is open."""
        await gate
        return (await child.run("go")).text

    async with family.agent("P", call("late"), "P.", tools=[late]).start("go") as run:
        await gate.reached()
        ticket = run.cancel(MODEL_BELOW)
        gate.open()
        outcome, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_MODEL
    assert inside(outcome.checkpoint) == ["P", "C"]
    assert family.asked == ["P", "C"]


@virtual
async def test_cp_08_a_child_that_begins_after_now_asks_nobody() -> None:
    """A tool that begins a child while it cleans up begins one that is stopped already."""
    family, gate = Family(), Gate("P")
    child = family.agent("C", "never")

    async def tidy() -> str:
        """Ask the child while cleaning up."""
        try:
            await gate
        finally:
            await child.run("go")
        return "tidied"

    async with family.agent("P", call("tidy"), tools=[tidy]).start("go") as run:
        await gate.reached()
        outcome, _ = await stopped(run, run.cancel(Stop.now(recursive=True)))
    assert inside(outcome.checkpoint) == ["P", "C"]
    assert family.asked == ["P"]


@virtual
async def test_cp_09_recursive_that_comes_later_tells_the_child_then() -> None:
    """And with what the parent was asked before: MODEL, though the later request says TOOLS."""
    scene = Scene()
    scene.family.models["C"].script(["Half ", scene.gate, ask("nobody")])
    async with scene.root.start("go") as run:
        runs = await scene.held(run)
        first = run.cancel(MODEL)
        assert [stop is None for stop in await settled(runs)] == [False, True, True]
        second = run.cancel(Stop.at(Point.TOOLS, recursive=True))
        told = await settled(runs)
        assert [stop and (stop.points, stop.recursive) for stop in told] == [(Point.ANY, True)] * 3
        third = run.cancel(MODEL)  # is never taken back
        assert [stop and stop.recursive for stop in await settled(runs)] == [True] * 3
        scene.gate.open()
        outcome, report = await stopped(run, first, second, third)
    assert report.stopped_at is Where.POINT_MODEL
    assert [(await report_of(below)).stopped_at for below in runs] == [Where.POINT_MODEL] * 3
    assert inside(outcome.checkpoint) == ["A", "B", "C"]


@virtual
@pytest.mark.parametrize("later", [None, Stop.now(recursive=True), MODEL_BELOW])
async def test_cp_10_now_tears_every_live_child_down_and_recursive_decides_what_is_kept(
    later: Stop | None,
) -> None:
    """Without recursive nothing of them is kept; had it come before the child ended, it is."""
    scene = Scene()
    async with scene.root.start("go") as run:
        runs = await scene.held(run)
        tickets = [run.cancel(Stop.now())]
        if later is not None:
            tickets.append(run.cancel(later))
        outcome, _ = await stopped(run, *tickets)
    assert [(await report_of(below)).stopped_at for below in runs] == [Where.TOOLS, Where.TOOLS, Where.MODEL]
    assert scene.family.live == []
    assert inside(outcome.checkpoint) == (["A"] if later is None else ["A", "B", "C"])
    assert [result.state.value for result in outcome.messages[2].results] == ["unknown"]


@virtual
async def test_cp_12_a_child_that_has_ended_is_not_told() -> None:
    """Recursive comes after it has given its answer: it keeps that, and no stop."""
    family, gate = Family(), Gate("after")
    child = family.agent("C", "C.")
    seen: list[Run] = []

    async def around(context: ToolContext) -> str:
        """Ask the child, then wait."""
        async with child.start(context.call_id) as one:
            seen.append(one)
            await one.outcome()
        await gate
        return "around"

    async with family.agent("P", call("around"), "never", tools=[around]).start("go") as run:
        await gate.reached()
        assert run.children == ()
        tickets = [run.cancel(Stop.at(Point.TOOLS)), run.cancel(Stop.graceful()), run.cancel(MODEL_BELOW)]
        tickets.append(run.cancel(Stop.now(recursive=True)))
        assert await settled(seen) == [None]
        before = [event async for event in seen[0]]
        gate.open()
        await stopped(run, *tickets)
    assert (await seen[0].outcome()).stop_reason == "end_turn"
    assert [event async for event in seen[0]] == before
    assert not seen[0]._record.scope.cuts  # pyright: ignore[reportPrivateUsage]


@virtual
async def test_cp_13_only_the_child_that_still_runs_is_told() -> None:
    """One of two has ended when recursive comes."""
    family, first, second = Family(), Gate("C1"), Gate("C2")
    below = [family.agent("C1", [first, "C1."]), family.agent("C2", [second, "Half "])]
    async with family.agent("P", [ask("C1"), ask("C2")], "never", below=below).start("go") as run:
        await first.reached()
        await second.reached()
        children = sorted(run.children, key=lambda child: child._record.config.name)  # pyright: ignore[reportPrivateUsage]
        run.cancel(MODEL)
        first.open()
        await children[0].outcome()
        ticket = run.cancel(Stop.now(recursive=True))
        assert [stop is None for stop in await settled(children)] == [True, False]
        outcome, _ = await stopped(run, ticket)
    assert [(await child.outcome()).stop_reason for child in children] == ["end_turn", "cancelled"]
    assert [result.state.value for result in outcome.messages[2].results] == ["completed", "unknown"]
    assert inside(outcome.checkpoint) == ["P", "C2"]


@virtual
async def test_cp_17_now_through_the_plain_cancel_is_now_for_the_child() -> None:
    """`agent.cancel()` of the root's agent, recursive before: the child is told NOW."""
    scene = Scene()
    async with scene.root.start("go") as run:
        runs = await scene.held(run)
        run.cancel(Stop.at(Point.TOOLS, recursive=True))
        await settled(runs)
        report = await scene.root.cancel()
        told = [asked(below) for below in runs]
    assert report.result is StopResult.STOPPED
    assert [stop and stop.immediate for stop in told] == [True] * 3
    assert [(await report_of(below)).escalated_by for below in runs] == ["request"] * 3
