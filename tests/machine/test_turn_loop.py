"""A turn loop under everything at once: each item is in one place, in order, and nothing is left behind.

Callers, callbacks and agents do whatever hypothesis makes up, between any two callbacks of the event
loop; a deadlock names who waits for whom. ANDON_NIGHTLY=1 in the environment goes on for 100,000 steps.
"""

import os
import sys
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings

from andon.testing import run_virtual
from tests.machine.life import Life, in_steps, in_threads
from tests.machine.scenes import Action, Scene, crowds, scenes, trials
from tests.stores import MemoryStore

NIGHTLY = os.environ.get("ANDON_NIGHTLY") == "1"
LEAST = 100_000 if NIGHTLY else 5_000  # steps: a push, a stop, a gate that opens, a time, a cancelled task
CROWDED = LEAST // 5  # and by threads
LOOK = settings(
    deadline=None,
    derandomize=not NIGHTLY,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


async def lives(trial: tuple[Scene, ...]) -> int:
    """Let loops live one after the other on one checkpoint; gives the steps that were made."""
    store, numbers, steps = MemoryStore(), count(), 0
    for scene in trial:
        life = Life(scene, store, lambda: next(numbers), exact=True)
        await life.live(in_steps)
        steps += life.steps
    return steps


@pytest.mark.timeout(3600 if NIGHTLY else 120)
def test_whatever_is_done_to_a_turn_loop_no_item_is_lost_and_nothing_is_left() -> None:
    """Conservation, order, precedence, one exit, every answer, the store, no task left, no deadlock."""
    steps = 0

    @settings(LOOK, max_examples=LEAST // 24 + 1)  # each has at least two lives of twelve steps
    @given(trials)
    def look(trial: tuple[Scene, ...]) -> None:
        nonlocal steps
        steps += run_virtual(lives, trial)

    look()
    assert steps >= LEAST


async def crowd(scene: Scene, threads: Sequence[Sequence[Action]]) -> int:
    """Let threads do what they want with a loop, and another one go on from what is left."""
    store, numbers, steps = MemoryStore(), count(), 0
    for actions in (threads, threads[:1]):
        life = Life(scene, store, lambda: next(numbers), exact=False)
        await life.live(in_threads(actions))
        steps += life.steps
    return steps


@pytest.mark.timeout(3600 if NIGHTLY else 120)
def test_whatever_threads_do_to_a_turn_loop_no_item_is_lost_and_nothing_is_left() -> None:
    """The same, as far as it holds in any order."""
    steps, interval = 0, sys.getswitchinterval()

    @settings(LOOK, max_examples=CROWDED // 24 + 1)  # each has at least three threads of eight steps
    @given(scenes(0, 3), crowds)
    def look(scene: Scene, threads: list[list[Action]]) -> None:
        nonlocal steps
        steps += run_virtual(crowd, scene, threads)

    sys.setswitchinterval(1e-5)  # threads take turns within a push
    try:
        look()
    finally:
        sys.setswitchinterval(interval)
    assert steps >= CROWDED
