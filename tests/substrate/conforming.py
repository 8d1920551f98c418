"""Conforming: one test for every substrate, each where it is at home.

Memory is tested on the virtual clock, SQLite with files, threads and real time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from andon.adapters.sqlite import SqliteSubstrate
from andon.core.command import Key
from andon.errors import SessionError
from andon.ports import Claim
from andon.runtime.memory import MemorySubstrate
from andon.testing import run_virtual

Tested = MemorySubstrate | SqliteSubstrate
Test = Callable[[Tested], Coroutine[Any, Any, None]]

ONE, TWO = Key("app", "ann", "one"), Key("app", "bob", "two")
DECOY = Key("zoo", "decoy", "last")
_decoys = count()
SHORT = 0.05  # seconds of a lease that is meant to end


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.time = 5_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.time

    def rule(self, substrate: Tested) -> "Clock":
        """Be the clock of a substrate."""
        substrate.wall = self
        if isinstance(substrate, MemorySubstrate):
            substrate.now = self
        return self


def conforms(*, mailbox: int = 1_000, lease: float = 15.0) -> Callable[[Test], Callable[[str, Path], None]]:
    """Make a test of a substrate one of all substrates."""

    def of_all(test: Test) -> Callable[[str, Path], None]:
        @pytest.mark.parametrize("kind", ["memory", "sqlite"])
        def run(kind: str, tmp_path: Path) -> None:
            if kind == "memory":
                run_virtual(_enter, test, MemorySubstrate(mailbox=mailbox, lease=lease))
            else:
                path = tmp_path / "andon.db"
                asyncio.run(_enter(test, SqliteSubstrate(path, mailbox=mailbox, lease=lease)))

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return of_all


async def _enter(test: Test, substrate: Tested) -> None:
    async with substrate:
        await test(substrate)


async def problem_of(work: Coroutine[Any, Any, object]) -> str:
    """Give the kind of the problem that something has."""
    with pytest.raises(SessionError) as caught:
        await work
    return caught.value.kind


async def at_once(*work: Coroutine[Any, Any, object]) -> list[object]:
    """Do all of it at the same time; give what each answers, or the kind of its problem."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_answer(one)) for one in work]
    return [task.result() for task in tasks]


async def _answer(work: Coroutine[Any, Any, object]) -> object:
    try:
        return await work
    except SessionError as error:
        return error.kind


async def claim_all(substrate: Tested) -> dict[Key, Claim]:
    """Claim whatever is free now: the decoy is last in the row."""
    sent = await substrate.send(DECOY, f"decoy {next(_decoys)}", b"")
    claims: dict[Key, Claim] = {}
    while DECOY not in claims:
        claim = await substrate.claim("looks")
        assert claim.key not in claims
        claims[claim.key] = claim
    await substrate.commands(DECOY, after=sent)
    assert await claims.pop(DECOY).release(sent)
    return claims
