"""Many threads cancel at once, before, during and at the end: one outcome, one report, no error."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Lock

import pytest

from andon import Agent, Outcome, Point, Run, Stop, StopReport, StopResult
from andon.core.items import RunEnded
from andon.core.stop import Where
from andon.runtime.ticket import Ticket
from andon.testing import Gate, ScriptedModel
from tests.whole import complaints

THREADS = 64
ROUNDS = 200
STOPS = (Stop.now(), Stop.graceful(), Stop.gently(), Stop.at(Point.TOOLS, grace=60), Stop.now(recursive=True))


class Crowd:
    """Threads that wait at one barrier, then all cancel."""

    def __init__(self) -> None:
        self.barrier = Barrier(THREADS + 1)
        self.tickets: list[Ticket] = []
        self.lock = Lock()

    def cancel(self, number: int, agent: Agent, run: Run) -> StopReport:
        """Come to the barrier, cancel the run or the agent, wait for the report."""
        self.barrier.wait(30)
        stop = STOPS[number % len(STOPS)]
        if number % 2:
            ticket = run.cancel(stop, by=f"{number}")
        else:
            ticket = agent.cancel(stop, arm=False, by=f"{number}")
        with self.lock:
            self.tickets.append(ticket)
        return ticket.wait(timeout=30)


@contextmanager
def crowd(pool: ThreadPoolExecutor, agent: Agent, run: Run) -> Generator[Callable[[], list[StopReport]]]:
    """Set a crowd on a run; give what waits for all its reports."""
    people = Crowd()
    futures = [pool.submit(people.cancel, number, agent, run) for number in range(THREADS)]

    def reports() -> list[StopReport]:
        return [future.result(30) for future in futures]

    yield reports
    people.barrier.wait(30)


def held(outcome: Outcome, run: Run, reports: list[StopReport]) -> None:
    """One outcome, and every ticket has the report of it."""
    mine = [report for report in reports if not report.reports]
    theirs = [part for report in reports for part in report.reports]
    nothing = [report for report in mine if report.result is StopResult.NOTHING_RUNNING]
    same = [report for report in mine if report.result is not StopResult.NOTHING_RUNNING] + theirs
    assert len(same) + len(nothing) == THREADS
    assert len(same) >= THREADS // 2
    assert all(report == same[0] for report in same)
    assert same[0].run_id == run.id
    if outcome.cancelled is not None:
        assert same[0] == outcome.cancelled
        assert len({cause.id for cause in same[0].causes}) == len(same[0].causes)
    else:
        assert same[0].result is StopResult.FINISHED_FIRST
    assert complaints(outcome.messages) == []


async def once(pool: ThreadPoolExecutor, when: str) -> None:
    """One run, cancelled by a crowd at one time of its life."""
    answer = Gate("model")
    model = ScriptedModel(["Half", answer, "Whole."])
    agent = Agent(model)
    run = agent.start("go")
    with crowd(pool, agent, run) as reports:
        if when != "before":
            run.events()
            await answer.reached()
    if when == "end":
        answer.open()
    outcome = await run.outcome()
    events = [event async for event in run.events()]
    assert sum(isinstance(event, RunEnded) for event in events) == 1
    assert isinstance(events[-1], RunEnded)
    held(outcome, run, await asyncio.get_running_loop().run_in_executor(None, reports))
    assert model.live == 0
    assert repr(agent) == "<Agent agent, 0 live>"
    if when == "during":
        assert outcome.cancelled is not None
        assert outcome.cancelled.stopped_at is Where.MODEL


@pytest.mark.parametrize("when", ["before", "during", "end"])
async def test_64_threads_cancel_200_runs_at_once(when: str) -> None:
    """No error, no hang, no second opinion."""
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(ROUNDS // 3 + 1):
            await once(pool, when)


async def test_threads_that_arm_and_runs_that_begin_meet() -> None:
    """What is armed is taken by exactly one run; every ticket is answered."""
    with ThreadPoolExecutor(8) as pool:
        for _ in range(100):
            agent = Agent(ScriptedModel(*["Done."] * 4))
            barrier = Barrier(9)

            def arm(agent: Agent, barrier: Barrier) -> Ticket:
                barrier.wait(30)
                return agent.cancel(arm=True)

            futures = [pool.submit(arm, agent, barrier) for _ in range(8)]
            barrier.wait(30)
            outcomes = [await agent.run("go") for _ in range(2)]
            tickets = [future.result(30) for future in futures]
            outcomes.append(await agent.run("go"))
            reports = [await ticket for ticket in tickets]
            by_run = {outcome.run_id: outcome for outcome in outcomes}
            for report in reports:
                parts = report.reports or (report,)
                assert all(part.run_id in by_run for part in parts)
            assert outcomes[2].stop_reason in {"end_turn", "cancelled"}
