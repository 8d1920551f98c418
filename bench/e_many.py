"""E: what many runs at once cost, and whether anything of them is left."""

import asyncio
from time import perf_counter

from andon import Agent
from bench import floor
from bench.measure import MILLISECONDS, Bench, Claim, Figure, Report, Size, in_turns, in_unit
from bench.model import Provider

PROMPT = "Go on."


async def _measure(size: Size) -> Report:
    provider = Provider()
    agent = Agent(provider.waiting)
    own = asyncio.all_tasks()
    left = 0

    async def bare() -> float:
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(size.count):
                group.create_task(floor.turn(provider.waiting, PROMPT))
        return perf_counter() - start

    async def ours() -> float:
        nonlocal left
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(size.count):
                group.create_task(agent.run(PROMPT))
        spent = perf_counter() - start
        left += len(asyncio.all_tasks() - own)
        return spent

    pairs = await in_turns(bare, ours, size.rounds)
    return Report(
        [Figure(name=f"{size.count} runs at once", pairs=in_unit(pairs, MILLISECONDS), unit="ms", goal=4)],
        [Claim("tasks left after the runs", left), Claim("provider streams left open", provider.open)],
    )


def measure(size: Size) -> Report:
    """Measure concurrent runs."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="E",
    title="Many runs at once",
    floor="as many tasks in a `TaskGroup`, each one the raw turn of B; each model waits for the loop before"
    " each of its five words",
    full=Size(31, 200),
    tiny=Size(1, 5),
    measure=measure,
)
