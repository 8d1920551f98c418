"""Scopes of a tree under many threads: no wake-up is lost, and recursive is never taken back."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andon import Agent, Call, Point, Run, Stop
from andon.core.stop import Bond, Cause
from andon.runtime.scope import Scope
from andon.testing import Gate, ScriptedModel, run_virtual
from tests.family import Family, ask, inside, stopped

ROUNDS = 100
POINTS = st.sampled_from([Point.MODEL, Point.TOOLS, Point.ANY, Point.STREAM])
STOPS = st.one_of(
    st.builds(Stop.now, recursive=st.booleans()),
    st.builds(Stop.at, POINTS, grace=st.none() | st.floats(1, 100), recursive=st.booleans()),
)
BONDS = st.sampled_from(["step", "tool", "aside"])


def scope_of(run: Run) -> Scope:
    """Look into a run."""
    return run._record.scope  # pyright: ignore[reportPrivateUsage]


@given(st.lists(STOPS, min_size=1, max_size=5), st.lists(BONDS, min_size=1, max_size=4), st.integers(0, 5))
@settings(deadline=None)
def test_whatever_comes_and_whenever_each_level_has_what_is_for_it(
    stops: list[Stop], bonds: list[Bond], late: int
) -> None:
    """A chain of scopes, children adopted before, between or after the requests: the same in the end."""

    async def main() -> list[Scope]:
        scopes = [Scope(str(level), lambda _: None) for level in range(len(bonds) + 1)]
        for scope in scopes:
            scope.begin()
        for number in range(max(len(stops), late) + 1):
            if number == late:
                for above, below, bond in zip(scopes, scopes[1:], bonds, strict=False):
                    above.adopt("child", below, bond)
            if number < len(stops):
                scopes[0].request(stops[number], Cause("user", by=str(number)))
        await anyio.sleep(0.001)
        return scopes

    root, *below = run_virtual(main)
    assert root.stop is not None
    expected: Stop | None = root.stop
    assert (root.stop.recursive, root.cuts) == (
        any(stop.recursive for stop in stops),
        any(stop.immediate for stop in stops),
    )
    for scope, bond in zip(below, bonds, strict=True):
        expected = None if expected is None else expected.passed_on(bond)
        assert _asked(scope.stop) == _asked(expected)
        assert scope.cuts is (expected is not None and expected.immediate)


def _asked(stop: Stop | None) -> object:
    return stop and (stop.immediate, stop.points, stop.recursive, sorted(c.by or "" for c in stop.causes))


class Scene:
    """A parent and a child that is held in its model."""

    def __init__(self) -> None:
        self.gate = Gate("child")
        self.family = Family()
        child = self.family.agent("child", ["Half", self.gate])
        self.root = self.family.agent("root", ask("child"), below=[child])


async def test_cp_11_recursive_and_cancel_at_once_always_cancel_the_child() -> None:
    """Two threads, a hundred times: one asks for a point, the other for now and recursive."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            scene, barrier = Scene(), Barrier(2)
            async with scene.root.start("go") as run:
                await scene.gate.reached()
                (child,) = run.children

                def cancel(stop: Stop, run: Run = run, barrier: Barrier = barrier) -> None:
                    barrier.wait(30)
                    run.cancel(stop)

                for stop in (Stop.at(Point.TOOLS, recursive=True), Stop.now()):
                    pool.submit(cancel, stop)
                with anyio.fail_after(30):
                    outcome = await run.outcome()
            assert (await child.outcome()).stop_reason == "cancelled"
            assert outcome.stop_reason == "cancelled"


async def test_cp_11_a_child_that_begins_in_that_moment_is_cancelled_too() -> None:
    """The cancel comes from a thread while the child, in a thread of its own, is adopted."""
    barrier = Barrier(2)
    model, outer = ScriptedModel(), ScriptedModel()
    child = Agent(model, name="child")

    def work() -> str:
        """Begin a child."""
        barrier.wait(30)
        return child.run_sync("go").text

    def cancel(run: Run) -> None:
        barrier.wait(30)
        run.cancel(Stop.now(recursive=True))

    root = Agent(outer, tools=[work], name="root")
    for _ in range(ROUNDS):
        model.script(["Half", Gate("never")])
        outer.script(Call("work"))
        async with root.start("go") as run:
            canceller = Thread(target=cancel, args=(run,))
            canceller.start()
            with anyio.fail_after(30):
                outcome = await run.outcome()
        canceller.join(30)
        assert outcome.stop_reason == "cancelled"
        assert model.live == 0
        assert inside(outcome.checkpoint) == ["root", "child"]


async def test_cp_15_recursive_set_ten_times_at_once_is_set() -> None:
    """No thread fails, the flag stands, and no request without it takes it back."""
    with ThreadPoolExecutor(10) as pool:
        scene, barrier = Scene(), Barrier(10)
        async with scene.root.start("go") as run:
            await scene.gate.reached()
            (child,) = run.children

            def ask_for(number: int) -> None:
                barrier.wait(30)
                run.cancel(Stop.at(Point.TOOLS, recursive=True), by=str(number))
                run.cancel(Stop.at(Point.MODEL), by=f"{number} without")

            for future in [pool.submit(ask_for, number) for number in range(10)]:
                future.result(30)
            ticket = run.cancel(Stop.now())
            await stopped(run, ticket)
            assert [(one.stop and one.stop.recursive) for one in (scope_of(run), scope_of(child))] == [
                True
            ] * 2
            report = await ticket
    assert len(report.causes) == 21


@pytest.mark.parametrize("depth", [1, 6])
async def test_many_threads_cancel_any_level_and_all_runs_end(depth: int) -> None:
    """Root, middle and leaf are cancelled by sixteen threads at once: every ticket gets its report."""
    with ThreadPoolExecutor(16) as pool:
        for _ in range(ROUNDS // 4):
            family, gate = Family(), Gate("leaf")
            agent = family.agent("leaf", ["Half", gate])
            for level in range(depth):
                agent = family.agent(f"level{level}", ask(agent.name), "On.", below=[agent])
            async with agent.start("go") as run:
                await gate.reached()
                runs = [run]
                while runs[-1].children:
                    runs.append(runs[-1].children[0])
                tickets = list(pool.map(Run.cancel, (runs[n % len(runs)] for n in range(16))))
                with anyio.fail_after(30):
                    outcome = await run.outcome()
                    reports = [await ticket for ticket in tickets]
            ids = {one.id for one in runs}
            assert {report.run_id for report in reports} <= ids
            assert outcome.stop_reason == "cancelled"
            assert family.live == []
