"""A: what one chunk costs, in bursts and yielding, and whether that stays flat."""

import asyncio
from collections.abc import Callable
from time import perf_counter

from andon import Agent, Run
from bench.measure import MICROSECONDS, Bench, Figure, Pair, Report, Sample, Size, in_turns, in_unit
from bench.model import Script, burst, yielding

SHORTER = 10  # times fewer chunks, to see whether the cost of one grows


def floor(model: Script, count: int) -> Sample:
    """Time a bare `async for`."""

    async def sample() -> float:
        words: list[object] = []
        start = perf_counter()
        async for chunk in model(None):
            words.append(chunk)  # noqa: PERF401 — the loop is what is measured
        spent = perf_counter() - start
        assert len(words) == count
        return spent / count

    return sample


async def seconds(agent: Agent, kept: list[Run]) -> float:
    """Time one run, and keep it with its log."""
    start = perf_counter()
    run = agent.start("Go on.")
    outcome = await run.outcome()
    spent = perf_counter() - start
    assert outcome.stop_reason == "end_turn"
    kept.append(run)
    return spent


def ours(model: Script, count: int) -> Sample:
    """Time a chunk of a whole run."""
    agent = Agent(model)

    async def sample() -> float:
        return await seconds(agent, []) / count

    return sample


def marginal(script: Callable[[int], Script], count: int, times: int) -> Sample:
    """Time a chunk in some runs, without what a run of a single chunk costs.

    The logs are kept to the end: many short runs then fill as much memory as one that is long.
    """
    single, many = Agent(script(1)), Agent(script(count))

    async def sample() -> float:
        kept: list[Run] = []
        spent = sum([await seconds(many, kept) - await seconds(single, kept) for _ in range(times)])
        return spent / times / count

    return sample


async def _measure(size: Size) -> Report:
    figures: list[Figure] = []
    count = size.count
    for name, script, goal in (("in bursts", burst, 10.0), ("yielding", yielding, 2.5)):
        model = script(count)
        pairs = await in_turns(floor(model, count), ours(model, count), size.rounds)
        figures.append(figure(f"a chunk, {name}, of {count:,}", pairs, goal))
        less = max(1, count // SHORTER)
        pairs = await in_turns(marginal(script, less, SHORTER), marginal(script, count, 1), size.rounds)
        figures.append(figure(f"growth {name}: {less:,} → {count:,} chunks", pairs, 1.1))
    return Report(figures)


def figure(name: str, pairs: list[Pair], goal: float) -> Figure:
    """Make a figure of one chunk."""
    return Figure(name=name, pairs=in_unit(pairs, MICROSECONDS), goal=goal)


def measure(size: Size) -> Report:
    """Measure chunks."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="A",
    title="One chunk",
    floor="a bare `async for` over the same generator that appends each text to a list;"
    " for growth, a chunk of our own in ten runs a tenth as long, all of which keep their logs",
    full=Size(15, 20_000),
    tiny=Size(1, 200),
    measure=measure,
)
