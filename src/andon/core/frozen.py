"""Frozen: dicts and lists that many hold and nobody may change; JSON writes them as it does any other."""

import copy
from collections.abc import Mapping
from typing import NoReturn, TypeGuard


def _refuse(*_args: object, **_options: object) -> NoReturn:
    msg = "this is a read-only view: change a copy of it, such as copy.deepcopy(…) gives"
    raise TypeError(msg)


class FrozenDict(dict[str, object]):
    """A dict that nobody may change; copies of it are plain dicts."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, object]) -> dict[str, object]:
        return {key: copy.deepcopy(value, memo) for key, value in self.items()}

    def __reduce__(self) -> tuple[type[dict[str, object]], tuple[dict[str, object]]]:
        return dict, (dict(self),)


class FrozenList(list[object]):
    """A list that nobody may change; copies of it are plain lists."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, object]) -> list[object]:
        return [copy.deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[type[list[object]], tuple[list[object]]]:
        return list, (list(self),)


# Set from outside: to a type checker they are what they look like.
for _changes in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenDict, _changes, _refuse)
for _changes in ("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert"):
    setattr(FrozenList, _changes, _refuse)
for _changes in ("pop", "remove", "reverse", "sort"):
    setattr(FrozenList, _changes, _refuse)


def frozen(given: dict[str, object]) -> FrozenDict:
    """Give a copy that nobody may change, dicts and lists inside it included."""
    if isinstance(given, FrozenDict):
        return given
    for value in given.values():
        if isinstance(value, dict | list):
            return FrozenDict({key: _inside(value) for key, value in given.items()})
    return FrozenDict(given)


def thawed(given: Mapping[str, object]) -> dict[str, object]:
    """Give a copy that its owner may change, dicts and lists inside it included."""
    return {key: _thawed(value) for key, value in given.items()}


def _thawed(value: object) -> object:
    if _is_dict(value):
        return thawed(value)
    return [_thawed(one) for one in value] if _is_list(value) else value


def _inside(value: object) -> object:
    if _is_dict(value):
        return frozen(value)
    if _is_list(value):
        return value if isinstance(value, FrozenList) else FrozenList(map(_inside, value))
    return value


def _is_dict(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
