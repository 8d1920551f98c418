"""Stray: tasks whose loop has gone, closed as the garbage collector would."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


def close_all(left: Iterable[asyncio.Task[Any]]) -> None:
    """Do what the garbage collector does to tasks whose loop is closed."""
    for task in left:
        coroutine = task.get_coro()
        assert isinstance(coroutine, Coroutine)
        coroutine.close()
