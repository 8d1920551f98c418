"""H: what a child run adds to a run, and what a checkpoint of a long history takes."""

import asyncio
from collections.abc import AsyncGenerator
from time import perf_counter

import msgspec

from andon import Agent, Call, Message, tool
from andon.core.fold import checkpoint as take
from andon.core.fold import fold
from bench.measure import MICROSECONDS, MILLISECONDS, Bench, Figure, Report, Sample, Size, in_turns, in_unit
from bench.model import ANSWER, short

PROMPT = "What is two and two?"
LONG = 200  # messages of a history of which a checkpoint is taken


async def asking(request: object) -> AsyncGenerator[str | Call]:
    """Ask the one tool there is, and repeat its answer."""
    last: Message = request.messages[-1]  # type: ignore[attr-defined] — a ModelRequest
    if last.role == "user":
        yield Call("ask", {"request": PROMPT})
    else:
        yield last.results[0].content


@tool
async def ask(request: str) -> str:
    """Answer without any agent."""
    return "".join(ANSWER) if request else ""


def of(agent: Agent, count: int) -> Sample:
    """Time one run, as the mean of so many."""

    async def sample() -> float:
        start = perf_counter()
        for _ in range(count):
            outcome = await agent.run(PROMPT)
            assert outcome.text == "".join(ANSWER)
        return (perf_counter() - start) / count

    return sample


def added(without: Agent, with_child: Agent, count: int) -> Sample:
    """Time what a run takes longer because its tool asks an agent."""
    plain, nested = of(without, count), of(with_child, count)

    async def sample() -> float:
        return await nested() - await plain()

    return sample


async def child(size: Size) -> Figure:
    """Measure a child beside a run of its own."""
    helper = Agent(short, name="ask", instructions="Answer.")
    parents = Agent(asking, tools=[ask]), Agent(asking, tools=[helper.as_tool()])
    pairs = await in_turns(of(helper, size.count), added(*parents, size.count), size.rounds)
    return Figure(name="a child", pairs=in_unit(pairs, MICROSECONDS), goal=1.5)


async def hung(_: object) -> AsyncGenerator[str]:
    """Say nothing, for ever."""
    await asyncio.get_running_loop().create_future()
    yield ""


async def checkpoint(size: Size) -> Figure:
    """Measure taking a checkpoint and writing it down, beside writing down the bare messages."""
    words = "What was said before, at some length, as people and models do. " * 8
    roles = Message.user, Message.assistant
    history = [roles[number % 2](f"{number}: {words}") for number in range(LONG)]
    async with Agent(hung).start(PROMPT, messages=history) as run:
        await run.cancel()
        state = fold([event async for event in run])

    async def bare() -> float:
        start = perf_counter()
        msgspec.json.encode(history)
        return perf_counter() - start

    async def ours() -> float:
        start = perf_counter()
        take(state, "agent").to_json()
        return perf_counter() - start

    pairs = await in_turns(bare, ours, size.rounds)
    return Figure(
        name=f"a checkpoint of {LONG} messages",
        pairs=in_unit(pairs, MILLISECONDS),
        unit="ms",
        goal=5,
        absolute=True,
    )


async def _measure(size: Size) -> Report:
    return Report([await child(size), await checkpoint(size)])


def measure(size: Size) -> Report:
    """Measure what a tree costs."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="H",
    title="A child, and a checkpoint",
    floor="for a child, a plain run of the same agent beside what it adds to a run whose tool answers by"
    " itself; for a checkpoint, `msgspec.json.encode` of the bare messages",
    full=Size(51, 50),
    tiny=Size(1, 1),
    measure=measure,
)
