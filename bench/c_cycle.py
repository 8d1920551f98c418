"""C: what a model-tool cycle costs, and whether that grows with the history."""

import asyncio
from time import perf_counter

from andon import Agent, tool
from bench import floor
from bench.measure import MICROSECONDS, Bench, Figure, Report, Sample, Size, in_turns, in_unit
from bench.model import Script, calling

PROMPT = "Look it up."
LONGER = 5  # times more cycles, to see whether the cost of one grows


async def search(query: str) -> str:
    """Search the catalogue."""
    return f"nothing about {query}"


def bare(model: Script, count: int) -> Sample:
    """Time the raw loop."""
    tools = {"search": search}

    async def sample() -> float:
        start = perf_counter()
        messages = await floor.cycles(model, tools, PROMPT)
        spent = perf_counter() - start
        assert len(messages) == 2 * count + 2
        return spent / count

    return sample


async def seconds(agent: Agent, count: int) -> float:
    """Time one run of so many cycles."""
    start = perf_counter()
    outcome = await agent.run(PROMPT)
    spent = perf_counter() - start
    assert len(outcome.messages) == 2 * count + 2
    return spent


def ours(model: Script, count: int) -> Sample:
    """Time a run."""
    agent = Agent(model, tools=[tool(search)])

    async def sample() -> float:
        return await seconds(agent, count) / count

    return sample


def marginal(count: int, times: int) -> Sample:
    """Time the cycles of some runs, without what a run of no cycle costs."""
    empty = Agent(calling(0, "search"), tools=[tool(search)])
    many = Agent(calling(count, "search"), tools=[tool(search)])

    async def sample() -> float:
        spent = sum([await seconds(many, count) - await seconds(empty, 0) for _ in range(times)])
        return spent / times / count

    return sample


async def _measure(size: Size) -> Report:
    few, many = size.count, size.count * LONGER
    figures: list[Figure] = []
    for count in (few, many):
        model = calling(count, "search")
        pairs = await in_turns(bare(model, count), ours(model, count), size.rounds)
        figures.append(Figure(name=f"a cycle of {count}", pairs=in_unit(pairs, MICROSECONDS), goal=12))
    pairs = await in_turns(marginal(few, LONGER), marginal(many, 1), size.rounds)
    figures.append(
        Figure(name=f"growth: {few} → {many} cycles", pairs=in_unit(pairs, MICROSECONDS), goal=1.05)
    )
    return Report(figures)


def measure(size: Size) -> Report:
    """Measure model-tool cycles."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="C",
    title="Model-tool cycles",
    floor="a loop that parses and checks nothing: it finds the tool by name, awaits it and appends dicts;"
    " for growth, a cycle of our own in five runs a fifth as long",
    full=Size(51, 20),
    tiny=Size(1, 2),
    measure=measure,
)
