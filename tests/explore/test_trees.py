"""Stopped at any step, in any way, a run and all runs inside it keep every promise, and go on elsewhere.

Each scenario is stopped between any two callbacks of the loop and at each boundary, in some of the
modes in turn, or in all of them with ANDON_EXPLORE=full in the environment. Every checkpoint is
resumed in another process, where nothing of this one is known.
"""

import os

import pytest

from andon.testing import TREE_MODES, Scenario, explore
from tests.explore.elsewhere import Elsewhere
from tests.explore.trees import FOREIGN_TREES, TREES

FULL = os.environ.get("ANDON_EXPLORE") == "full"
EACH = 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", TREES, ids=lambda scenario: scenario.name)
def test_stopped_at_any_step_a_tree_keeps_every_promise(scenario: Scenario, elsewhere: Elsewhere) -> None:
    """Between any two callbacks of the loop and at each boundary; resumed in another process."""
    each = len(TREE_MODES) if FULL else EACH
    found = explore(scenario, modes=TREE_MODES, each=each, resume=elsewhere.resume)
    found.check()
    assert found.runs == 2 + each * (found.steps + found.boundaries)
    assert found.steps > 8
    assert found.boundaries > 8
    assert found.resumed > 5
    assert elsewhere.pid != os.getpid()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", FOREIGN_TREES, ids=lambda scenario: scenario.name)
def test_stopped_at_any_boundary_a_tree_in_threads_keeps_every_promise(
    scenario: Scenario, elsewhere: Elsewhere
) -> None:
    """The loops of its children are others, and take real time."""
    each = len(TREE_MODES) if FULL else 1
    found = explore(scenario, modes=TREE_MODES, each=each, resume=elsewhere.resume)
    found.check()
    assert found.steps == 0
    assert found.boundaries > 8
    assert found.resumed > 3


def test_there_are_enough_trees_and_every_way_to_stop_them() -> None:
    """At points and now, recursive or not, later recursive, a child alone, and steered."""
    assert len(TREES) + len(FOREIGN_TREES) >= 12
    assert all(scenario.resumes for scenario in (*TREES, *FOREIGN_TREES))
    asked = [stop for mode in TREE_MODES for stop in mode.stops]
    assert {(stop.immediate, stop.recursive) for stop in asked} == {
        (now, recursive) for now in (True, False) for recursive in (True, False)
    }
    assert any(mode.whom == "child" for mode in TREE_MODES)
    assert any(mode.steer == "now" for mode in TREE_MODES)
    assert any([stop.recursive for stop in mode.stops] == [False, True] for mode in TREE_MODES)
