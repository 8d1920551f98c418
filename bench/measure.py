"""Measure: two things side by side in one process, in turns, with medians, quartiles and counted claims."""

import gc
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Literal

from msgspec import Struct

MICROSECONDS = 1e6
MILLISECONDS = 1e3

Sample = Callable[[], Awaitable[float]]
Pair = tuple[float, float]


class Size(Struct, frozen=True):
    """How much is measured: `rounds` samples of each side, each of `count` things."""

    rounds: int
    count: int


class Figure(Struct, frozen=True, kw_only=True):
    """One measured figure: pairs of (floor, ours), and what they should come to.

    The goal is one for the ratio, or, where `absolute`, for ours.
    """

    name: str
    pairs: Sequence[Pair]
    unit: Literal["µs", "ms", "KiB"] = "µs"
    goal: float | None = None
    absolute: bool = False

    @property
    def floor(self) -> float:
        """The median of the floor."""
        return median(floor for floor, _ in self.pairs)

    @property
    def ours(self) -> float:
        """The median of ours."""
        return median(ours for _, ours in self.pairs)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The quartiles of the ratios, each taken within one round."""
        ratios = [ours / floor for floor, ours in self.pairs]
        if len(ratios) == 1:
            return ratios[0], ratios[0], ratios[0]
        low, middle, high = quantiles(ratios, n=4, method="inclusive")
        return low, middle, high

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return self.quartiles[1]

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        if self.goal is None:
            return None
        return (self.ours if self.absolute else self.ratio) <= self.goal


class Claim(Struct, frozen=True):
    """Something that is counted, not timed, and so must hold every time."""

    name: str
    counted: int
    most: int = 0

    @property
    def holds(self) -> bool:
        """Whether it was counted no more often than it may be."""
        return self.counted <= self.most


class Report(Struct, frozen=True):
    """What one benchmark has found."""

    figures: Sequence[Figure]
    claims: Sequence[Claim] = ()


class Bench(Struct, frozen=True, kw_only=True):
    """One benchmark: what is measured, and in one sentence what the floor does."""

    letter: str
    title: str
    floor: str
    full: Size
    tiny: Size
    measure: Callable[[Size], Report]


async def in_turns(floor: Sample, ours: Sample, rounds: int) -> list[Pair]:
    """Sample both in every round, after one that does not count; who goes first alternates.

    The collector runs before each sample and is left on in it, for both alike.
    """
    pairs: list[Pair] = []
    with settled_heap():
        for number in range(rounds + 1):
            if number % 2:
                bare = await _sample(floor)
                pairs.append((bare, await _sample(ours)))
            else:
                subject = await _sample(ours)
                pairs.append((await _sample(floor), subject))
    return pairs[1:]


async def _sample(sample: Sample) -> float:
    gc.collect()
    return await sample()


@contextmanager
def settled_heap() -> Generator[None]:
    """Keep what the process has loaded so far out of the collector's way."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def in_unit(pairs: Sequence[Pair], factor: float) -> list[Pair]:
    """Turn pairs of seconds into another unit."""
    return [(floor * factor, ours * factor) for floor, ours in pairs]
