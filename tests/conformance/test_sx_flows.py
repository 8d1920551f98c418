"""SX, of workflows: a planner, an executor and a replanner, stopped in the middle one."""

import asyncio

from andon import Agent, Call, Point, Stop, loop, sequence, tool
from andon.core.checkpoint import Checkpoint
from andon.core.stop import Where
from andon.testing import Delay, Gate, virtual
from tests.flows import Actor, ended, inside, stopped
from tests.stores import MemoryStore


def plan_and_do(planner: Agent, executor: Agent, replanner: Agent, store: MemoryStore | None = None) -> Agent:
    """Plan once, then do and plan again until all is done."""
    rounds = loop(executor, replanner, until=lambda text: "DONE" in text, name="rounds")
    return sequence(planner, rounds, store=store, name="plan_and_do")


@virtual
async def test_sx_03_now_in_the_executor_keeps_the_replanner_from_running() -> None:
    """Recursive, through two workflows: STOPPED, in less than the 5 s of its model."""
    there = Gate(opened=True)
    planner, executor = Actor("planner", "A plan."), Actor("executor", [there, Delay(5), "late"])
    replanner = Actor("replanner", "never")
    began = asyncio.get_running_loop().time()
    async with plan_and_do(planner, executor, replanner).start("go") as run:
        await there.reached()
        _, report = await stopped(run, run.cancel(Stop.now(recursive=True)))
    assert asyncio.get_running_loop().time() - began < 3
    assert report.stopped_at is Where.MODEL
    assert (planner.asked, executor.asked, replanner.asked) == (1, 1, 0)
    assert executor.script.live == 0


@virtual
async def test_sx_04_model_in_the_executor_keeps_the_way_to_it() -> None:
    """Recursive, with a store: the checkpoint names the executor, and resume goes on in there."""
    answer, store, log = Gate("model"), MemoryStore(), list[str]()

    @tool
    async def do() -> str:
        """Do it."""
        log.append("do")
        return "it is done"

    executor = Actor("executor", [answer, Call("do")], tools=[do])
    flow = plan_and_do(Actor("planner", "A plan."), executor, Actor("replanner", "never"), store)
    async with flow.start("go") as run:
        await answer.reached()
        ticket = run.cancel(Stop.at(Point.MODEL, recursive=True))
        answer.open()
        _, report = await stopped(run, ticket)
    assert report.stopped_at is Where.POINT_MODEL
    assert [cause.asked for cause in report.causes] == [Stop.at(Point.MODEL, recursive=True)]
    saved = Checkpoint.from_json(store.data[report.checkpoint or ""])
    assert list(inside(saved)) == ["plan_and_do/rounds", "plan_and_do/rounds/executor"]
    fresh = (
        Actor("planner", "never"),
        Actor("executor", "It went well.", tools=[do]),
        Actor("replanner", "DONE"),
    )
    async with plan_and_do(*fresh).start_from(saved) as run:
        outcome = await ended(run)
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "DONE")
    assert (log, [actor.asked for actor in fresh]) == (["do"], [0, 1, 1])
