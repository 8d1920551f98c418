"""G: what a run weighs while its model says nothing.

Counted by tracemalloc, which sees every byte that Python allocates and none of what its allocator
keeps in reserve: it says the same every time, where resident memory comes in whole arenas.
"""

import asyncio
import gc
import tracemalloc
from contextlib import suppress

from andon import Agent, Run
from bench import floor
from bench.measure import Bench, Claim, Figure, Pair, Report, Size
from bench.model import TURN, Provider

PROMPT = "Go on."
KIBIBYTE = 1024
GOAL = 12.0


async def held() -> int:
    """Count the bytes held once everything that has begun hangs in its await."""
    for _ in range(3):
        await TURN
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def bare(provider: Provider, count: int) -> float:
    """Weigh tasks that hang in the raw turn."""
    before = await held()
    tasks = [asyncio.ensure_future(floor.turn(provider.hung, PROMPT)) for _ in range(count)]
    spent = await held() - before
    assert provider.open == count
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return spent / count / KIBIBYTE


async def ours(agent: Agent, provider: Provider, count: int) -> float:
    """Weigh runs that hang in the model."""
    before = await held()
    runs = [begun(agent) for _ in range(count)]
    spent = await held() - before
    assert provider.open == count
    for run in runs:
        run.cancel()
        await run.outcome()
    return spent / count / KIBIBYTE


def begun(agent: Agent) -> Run:
    """Begin a run without a task of ours that would wait for it, and be weighed too."""
    run = agent.start(PROMPT)
    run.events()
    return run


async def _measure(size: Size) -> Report:
    provider = Provider()
    agent = Agent(provider.hung)
    pairs: list[Pair] = []
    tracemalloc.start()
    try:
        for number in range(size.rounds + 1):
            pair = (await bare(provider, size.count), await ours(agent, provider, size.count))
            if number:  # the first fills what is made once
                pairs.append(pair)
    finally:
        tracemalloc.stop()
    figure = Figure(name="a run hung in its model", pairs=pairs, unit="KiB", goal=GOAL, absolute=True)
    return Report([figure], [Claim("provider streams left open", provider.open)])


def measure(size: Size) -> Report:
    """Measure memory."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="G",
    title="Memory of a paused run",
    floor="a bare task hung in the raw turn of B; both are weighed by tracemalloc, a thousand at a time,"
    " from one agent",
    full=Size(3, 1_000),
    tiny=Size(1, 5),
    measure=measure,
)
