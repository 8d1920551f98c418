"""Frozen dicts and lists cannot be changed, are JSON as any other, and their copies are plain."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given

from andon.core.frozen import FrozenDict, FrozenList, frozen, thawed
from andon.core.messages import Call
from tests.core.values import OBJECTS

DICT_CHANGES: list[Callable[[Any], object]] = [
    lambda it: it.__setitem__("a", 1),
    lambda it: it.__delitem__("a"),
    lambda it: it.__ior__({"b": 1}),
    lambda it: it.clear(),
    lambda it: it.pop("a"),
    lambda it: it.popitem(),
    lambda it: it.setdefault("b", 1),
    lambda it: it.update(b=1),
]
LIST_CHANGES: list[Callable[[Any], object]] = [
    lambda it: it.__setitem__(0, 1),
    lambda it: it.__delitem__(0),
    lambda it: it.__iadd__([1]),
    lambda it: it.__imul__(2),
    lambda it: it.append(1),
    lambda it: it.clear(),
    lambda it: it.extend([1]),
    lambda it: it.insert(0, 1),
    lambda it: it.pop(),
    lambda it: it.remove(3),
    lambda it: it.reverse(),
    lambda it: it.sort(),
]


@pytest.mark.parametrize("change", DICT_CHANGES)
def test_a_frozen_dict_refuses_every_change(change: Callable[[object], object]) -> None:
    """In words that say what to do, and it is as it was; so is one inside a list inside it."""
    whole = frozen({"a": [{"a": 3}]})
    inside: Any = whole["a"]
    for one in (whole, inside[0]):
        with pytest.raises(TypeError, match="this is a read-only view: change a copy of it"):
            change(one)
    assert whole == {"a": [{"a": 3}]}


@pytest.mark.parametrize("change", LIST_CHANGES)
def test_a_frozen_list_refuses_every_change(change: Callable[[object], object]) -> None:
    """However it is asked."""
    whole = frozen({"a": [3]})
    with pytest.raises(TypeError, match="this is a read-only view"):
        change(whole["a"])
    assert whole == {"a": [3]}


@given(OBJECTS)
def test_what_is_frozen_is_the_same_json(value: dict[str, object]) -> None:
    """To those who read it nothing has changed."""
    assert frozen(value) == value
    assert msgspec.json.encode(frozen(value)) == msgspec.json.encode(value)
    assert json.dumps(frozen(value)) == json.dumps(value)
    assert frozen(frozen(value)) == value


@given(OBJECTS)
def test_its_copies_are_plain(value: dict[str, object]) -> None:
    """Whoever wants to change something takes one."""
    whole = frozen(value)
    for plain in (copy.deepcopy(whole), pickle.loads(pickle.dumps(whole)), thawed(whole)):  # noqa: S301 — our own
        assert plain == value
        assert all(kind not in kinds(plain) for kind in (FrozenDict, FrozenList))
    assert type(whole.copy()) is dict
    assert type(copy.copy(FrozenList([1]))) is list


def kinds(value: object) -> set[type]:
    """Give the types of a value and of all that is inside it."""
    return {type(value), *(kind for one in inside(value) for kind in kinds(one))}


def inside(value: Any) -> list[Any]:  # noqa: ANN401 — any JSON
    """Give what a dict or a list holds."""
    return [*value.values()] if hasattr(value, "values") else [*value] if hasattr(value, "append") else []


def test_what_it_was_made_of_may_be_changed() -> None:
    """The owner of that keeps it."""
    mine: dict[str, Any] = {"a": [1]}
    whole = frozen(mine)
    mine["a"].append(2)
    assert whole == {"a": [1]}


def test_the_arguments_of_a_call_are_frozen_wherever_it_comes_from() -> None:
    """Made, or read from JSON."""
    made = Call("look", {"a": [1]})
    read = msgspec.json.decode(msgspec.json.encode(made), type=Call)
    for call in (made, read):
        with pytest.raises(TypeError, match="read-only"):
            call.arguments["a"] = 2
