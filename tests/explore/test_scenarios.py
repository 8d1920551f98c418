"""Stopped at any step, in any way, a run keeps every promise, and goes on in another process.

All steps are swept where everything runs on one loop. The slow scenarios, with threads and
processes, are stopped in three ways at some boundaries, or in all ways at all of them with
ANDON_EXPLORE=full in the environment.
"""

import os

import pytest

from andon import Point, Stop
from andon.testing import MODES, Mode, Scenario, explore
from tests.explore.elsewhere import Elsewhere
from tests.explore.scenarios import FOREIGN, ON_ONE_LOOP

FULL = os.environ.get("ANDON_EXPLORE") == "full"
SAMPLE = {"thread tools": None, "a process tool": 7}
STEERED = [
    Mode(name="steered now", steer="now"),
    Mode(name="steered", steer="next"),
    Mode(name="steered at the end", steer="idle"),
    Mode(name="steered now, then now", steer="now", stops=(Stop.now(),)),
    Mode(name="steered, then at ANY", steer="next", stops=(Stop.at(Point.ANY),)),
]
FAST_MODES = [mode for mode in MODES if mode.name in {"now", "at ANY, grace 0.37", "by its task"}]


@pytest.mark.parametrize("scenario", ON_ONE_LOOP, ids=lambda scenario: scenario.name)
def test_stopped_at_any_step_a_run_keeps_every_promise(scenario: Scenario, elsewhere: Elsewhere) -> None:
    """Between any two callbacks of the loop, and at each boundary, in each mode; resumed elsewhere."""
    found = explore(scenario, resume=elsewhere.resume)
    found.check()
    assert found.runs == 2 + len(MODES) * (found.steps + found.boundaries)
    assert found.steps > 8
    assert found.boundaries > 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", FOREIGN, ids=lambda scenario: scenario.name)
def test_stopped_at_any_boundary_a_run_with_foreign_jobs_keeps_every_promise(
    scenario: Scenario, elsewhere: Elsewhere
) -> None:
    """Threads and processes take real time: what has ended has ended, and nothing is left behind."""
    found = explore(
        scenario,
        most=None if FULL else SAMPLE[scenario.name],
        modes=MODES if FULL else FAST_MODES,
        resume=elsewhere.resume,
    )
    found.check()
    assert found.steps == 0
    assert found.boundaries > 8


@pytest.mark.parametrize("name", ["one tool", "sequential tools", "many tools, two at once"])
def test_what_is_said_at_any_step_is_heard_once(name: str) -> None:
    """At once, with the next model call, or at the end; also when a stop follows."""
    scenario = next(one for one in ON_ONE_LOOP if one.name == name)
    found = explore(scenario, modes=STEERED)
    found.check()
    assert found.runs == 2 + len(STEERED) * (found.steps + found.boundaries)
