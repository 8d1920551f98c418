"""I: what a turn of a loop costs beside a run, and a push from another thread beside a bare queue."""

import asyncio
import queue
from collections.abc import AsyncGenerator, Sequence
from threading import Thread
from time import perf_counter

from andon import Agent, Stop, Turn, TurnLoop
from andon.runtime.turn import Planning
from bench.measure import MICROSECONDS, Bench, Claim, Figure, Report, Sample, Size, in_turns, in_unit
from bench.model import short

PROMPT = "What is two and two?"
MANY = 100  # times as many pushes as turns are measured: 100,000 of them in full


def one(_: Planning[str], items: Sequence[str]) -> Turn[str]:
    """Take the first."""
    return Turn(items[0], consumed=items[:1], remaining=items[1:])


def runs(agent: Agent, count: int) -> Sample:
    """Time one run of so many."""

    async def sample() -> float:
        start = perf_counter()
        for _ in range(count):
            await agent.run(PROMPT)
        return (perf_counter() - start) / count

    return sample


def turns(agent: Agent, count: int) -> Sample:
    """Time one turn of so many, each pushed when the one before has ended."""

    async def sample() -> float:
        left = count

        def next_agent(_about: Planning[str], _consumed: Sequence[str]) -> Agent:
            nonlocal left
            left -= 1
            if left:
                loop.push(PROMPT)
            else:
                loop.stop(when_idle_for=0.000_001)
            return agent

        loop: TurnLoop[str] = TurnLoop(gen_input=one, prepare_agent=next_agent)
        start = perf_counter()
        loop.push(PROMPT)
        exit_ = await loop.run()
        spent = perf_counter() - start
        assert exit_.reason is None
        return spent / count

    return sample


async def in_thread(act: Thread) -> None:
    """Run a thread to its end, without holding up the loop."""
    act.start()
    await asyncio.to_thread(act.join)


def bare(count: int) -> Sample:
    """Time one put into a queue, in another thread."""

    async def sample() -> float:
        spent: list[float] = []
        into: queue.SimpleQueue[int] = queue.SimpleQueue()

        def put() -> None:
            start = perf_counter()
            for number in range(count):
                into.put(number)
            spent.append(perf_counter() - start)

        await in_thread(Thread(target=put))
        return spent[0] / count

    return sample


class Busy:
    """A loop whose one turn goes on, while another thread pushes."""

    def __init__(self) -> None:
        self.out_of_order = 0
        self._begun = asyncio.Event()

    async def model(self, _: object) -> AsyncGenerator[str]:
        """Say nothing, for ever."""
        self._begun.set()
        await asyncio.get_running_loop().create_future()
        yield ""

    def pushes(self, count: int) -> Sample:
        """Time one push from another thread, and count what is not where it was pushed."""
        agent = Agent(self.model)

        async def sample() -> float:
            loop: TurnLoop[int] = TurnLoop(
                gen_input=lambda _about, items: Turn("go", consumed=items[:1], remaining=items[1:]),
                prepare_agent=lambda _about, _consumed: agent,
            )
            spent: list[float] = []

            def push() -> None:
                start = perf_counter()
                for number in range(count):
                    loop.push(number)
                spent.append(perf_counter() - start)

            self._begun.clear()
            async with loop:
                loop.push(-1)
                await self._begun.wait()
                await in_thread(Thread(target=push))
                loop.stop(Stop.now())
            exit_ = await loop.wait()
            self.out_of_order += list(exit_.unhandled) != list(range(count))
            return spent[0] / count

        return sample


async def _measure(size: Size) -> Report:
    agent, busy = Agent(short), Busy()
    turn = await in_turns(runs(agent, size.count), turns(agent, size.count), size.rounds)
    many = size.count * MANY
    push = await in_turns(bare(many), busy.pushes(many), max(1, size.rounds // 5))
    return Report(
        [
            Figure(name="a turn beside a run", pairs=in_unit(turn, MICROSECONDS), goal=3),
            Figure(
                name="a push from another thread",
                pairs=in_unit(push, MICROSECONDS),
                goal=60,
                absolute=True,
            ),
        ],
        [Claim("loops whose items were not in order", busy.out_of_order)],
    )


def measure(size: Size) -> Report:
    """Measure the turn loop."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="I",
    title="The turn loop",
    floor="for a turn, `agent.run()` of the same agent; for a push, `SimpleQueue.put` in another thread, a"
    " hundred thousand times each",
    full=Size(5, 1_000),
    tiny=Size(1, 1),
    measure=measure,
)
