"""The test kit's front door: few names, each documented."""

import inspect

import pytest

from andon import testing

NAMES = [
    "Burst",
    "DeadlockError",
    "Delay",
    "Exploration",
    "FakeProvider",
    "Gate",
    "Hang",
    "MODES",
    "Mode",
    "Reply",
    "Scenario",
    "Scene",
    "ScriptError",
    "ScriptedModel",
    "Step",
    "TREE_MODES",
    "Tally",
    "Violation",
    "VirtualLoop",
    "Yield",
    "explore",
    "run_virtual",
    "virtual",
]
VALUES = {"MODES", "Reply", "Step", "TREE_MODES"}


def test_the_names_of_the_test_kit_are_these() -> None:
    """A name is added on purpose, or not at all."""
    assert sorted(testing.__all__) == NAMES
    there = {name for name, value in vars(testing).items() if not inspect.ismodule(value)}
    assert {name for name in there if not name.startswith("_")} == set(NAMES)


@pytest.mark.parametrize("name", sorted({*NAMES} - VALUES))
def test_each_name_is_documented(name: str) -> None:
    """A class's docstring is its own."""
    thing: object = getattr(testing, name)
    assert vars(thing)["__doc__"] if inspect.isclass(thing) else thing.__doc__
