"""B: what one turn costs: a prompt, a short answer, the outcome."""

import asyncio
from time import perf_counter

from andon import Agent
from bench import floor
from bench.measure import MICROSECONDS, Bench, Figure, Report, Size, in_turns, in_unit
from bench.model import short

PROMPT = "What is two and two?"


async def _measure(size: Size) -> Report:
    agent = Agent(short)

    async def bare() -> float:
        start = perf_counter()
        for _ in range(size.count):
            await floor.turn(short, PROMPT)
        return (perf_counter() - start) / size.count

    async def ours() -> float:
        start = perf_counter()
        for _ in range(size.count):
            await agent.run(PROMPT)
        return (perf_counter() - start) / size.count

    pairs = await in_turns(bare, ours, size.rounds)
    return Report([Figure(name="a turn of five words", pairs=in_unit(pairs, MICROSECONDS), goal=35)])


def measure(size: Size) -> Report:
    """Measure turns."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="B",
    title="One turn",
    floor="a coroutine that runs the same generator under `aclosing`, joins the text, and appends two dicts",
    full=Size(31, 200),
    tiny=Size(1, 2),
    measure=measure,
)
