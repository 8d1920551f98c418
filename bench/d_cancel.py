"""D: how long it takes from cancel() until the run has ended, by what it is doing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from time import perf_counter

from andon import Agent, Run, ToolContext, tool
from bench import floor
from bench.measure import MICROSECONDS, Bench, Claim, Figure, Report, Sample, Size, in_turns, in_unit
from bench.model import TURN, Provider, Words, always_calling

PROMPT = "Go on."
HUNG_GOAL = 4.0


class Tools:
    """Tools that never end by themselves: one awaits, one blocks its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ready = asyncio.Event()
        self.release = Event()

    async def hang(self, query: str) -> str:
        """Wait for ever."""
        self.ready.set()
        await self.loop.create_future()
        return query

    def block(self, query: str, context: ToolContext) -> str:
        """Block the thread until the call is told to stop."""
        context.on_cancel(self.let_go)
        self.wait()
        return query

    def wait(self) -> None:
        """Block this thread until it is let go."""
        self.release.clear()
        self.loop.call_soon_threadsafe(self.ready.set)
        self.release.wait()

    def let_go(self) -> None:
        """End the wait, from any thread."""
        self.release.set()


class Scenes:
    """The scenes, each as a sample of the bare floor and one of a run; and what is counted on the way."""

    def __init__(self) -> None:
        self.provider = Provider()
        self.tools = Tools()
        self.left_open = 0
        self.most_after_stop = 0

    def all(self) -> Iterator[tuple[str, Sample, Sample, float | None]]:
        """Give each scene: its name, the floor, ours, and the goal for their ratio."""
        provider, tools = self.provider, self.tools
        for name, model, goal in (
            ("a hung model", provider.hung, HUNG_GOAL),
            ("a drip", provider.drip, None),
        ):
            yield name, self.bare(model), self.ours(Agent(model), provider.ready), goal
        yield "a burst", self.bare_burst, self.our_burst, None
        looking = Agent(always_calling("hang"), tools=[tool(tools.hang)])
        yield "an async tool", self.bare_tool, self.ours(looking, tools.ready), None
        blocking = Agent(always_calling("block"), tools=[tool(tools.block)])
        yield "a thread tool", self.bare_thread, self.ours(blocking, tools.ready), None

    def ours(self, agent: Agent, ready: asyncio.Event) -> Sample:
        """Cancel a run, and wait for its outcome."""

        async def sample() -> float:
            ready.clear()
            async with agent.start(PROMPT) as run:
                await ready.wait()
                await TURN
                start = perf_counter()
                run.cancel()
                outcome = await run.outcome()
                spent = perf_counter() - start
                self.left_open += self.provider.open
            assert outcome.stop_reason == "cancelled"
            return spent

        return sample

    def bare(self, model: Words) -> Sample:
        """Cancel a task that runs the raw turn."""

        async def sample() -> float:
            task = asyncio.ensure_future(floor.turn(model, PROMPT))
            return await ending(task, self.provider.ready, task.cancel)

        return sample

    async def bare_tool(self) -> float:
        """Cancel a task that awaits a tool in the raw loop."""
        work = floor.cycles(always_calling("hang"), {"hang": self.tools.hang}, PROMPT)
        task = asyncio.ensure_future(work)
        return await ending(task, self.tools.ready, task.cancel)

    async def bare_thread(self) -> float:
        """Let a thread go, and wait for it."""
        task = asyncio.ensure_future(asyncio.to_thread(self.tools.wait))
        return await ending(task, self.tools.ready, self.tools.let_go)

    async def bare_burst(self) -> float:
        """Raise a flag in the middle of a burst that is looked at after each chunk."""
        stopped: list[float] = []
        self.provider.stop = lambda: stopped.append(perf_counter())
        await floor.flagged(self.provider.burst, stopped)
        return perf_counter() - stopped[0]

    async def our_burst(self) -> float:
        """Cancel a run in the middle of a burst, from within."""
        stopped: list[float] = []

        def stop() -> None:
            stopped.append(perf_counter())
            run.cancel()

        self.provider.stop = stop
        self.provider.made = 0
        run = Agent(self.provider.burst).start(PROMPT)
        await run.outcome()
        spent = perf_counter() - stopped[0]
        self._count()
        return spent

    async def flood_from_a_thread(self) -> None:
        """Cancel a burst that has no end from a thread, and count the chunks made after cancel() returned."""
        stopped = Event()
        self.provider.ready.clear()
        self.provider.stop = stopped.is_set
        self.provider.made = 0
        run = Agent(self.provider.flood).start(PROMPT)
        async with run:
            await self.provider.ready.wait()
            thread = Thread(target=pull, args=(run, stopped), daemon=True)
            thread.start()
            await run.outcome()
            self._count()
        thread.join()

    def _count(self) -> None:
        self.left_open += self.provider.open
        self.most_after_stop = max(self.most_after_stop, self.provider.made)


def pull(run: Run, stopped: Event) -> None:
    """Cancel a run, and then say so."""
    run.cancel()
    stopped.set()


async def ending(task: Awaitable[object], ready: asyncio.Event, end: Callable[[], object]) -> float:
    """Time how long a task takes to end once it is ready and told to."""
    ready.clear()
    await ready.wait()
    await TURN
    start = perf_counter()
    end()
    with suppress(asyncio.CancelledError):
        await task
    return perf_counter() - start


async def _measure(size: Size) -> Report:
    scenes = Scenes()
    figures: list[Figure] = []
    for name, bare, ours, goal in scenes.all():
        pairs = await in_turns(bare, ours, size.rounds)
        figures.append(Figure(name=f"cancel of {name}", pairs=in_unit(pairs, MICROSECONDS), goal=goal))
    for _ in range(size.count):
        await scenes.flood_from_a_thread()
    return Report(
        figures,
        [
            Claim("provider streams open when the outcome is there", scenes.left_open),
            Claim("chunks made after the stop in a burst, at most in one run", scenes.most_after_stop, 1),
        ],
    )


def measure(size: Size) -> Report:
    """Measure cancels."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="D",
    title="Cancel",
    floor="`task.cancel()` and `await task` of the raw loop hung in the same place; for a burst, a flag that"
    " the loop looks at after each chunk; for a thread, an event it waits on, under `asyncio.to_thread`",
    full=Size(200, 20),
    tiny=Size(2, 2),
    measure=measure,
)
