"""Whatever is done in whatever order, SQLite and memory say the same.

ANDON_NIGHTLY=1 in the environment does much more of it.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from andon.adapters.sqlite import SqliteSubstrate
from andon.errors import SessionError
from andon.ports import Claim
from andon.runtime.memory import MemorySubstrate
from tests.substrate.conforming import ONE, TWO, Clock

NIGHTLY = os.environ.get("ANDON_NIGHTLY") == "1"
pytestmark = pytest.mark.timeout(3600 if NIGHTLY else 120)
KEYS = st.sampled_from([ONE, TWO])
IDS = st.sampled_from([f"c{n}" for n in range(6)])


class Both(RuleBasedStateMachine):
    """Does everything to both, and compares what they answer."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.clock = Clock()
        self.memory = MemorySubstrate(mailbox=3, lease=15.0)
        self.sqlite = SqliteSubstrate(Path(self.folder) / "andon.db", mailbox=3, lease=15.0)
        self.runner = asyncio.Runner()
        for substrate in (self.memory, self.sqlite):
            self.runner.run(substrate.__aenter__())
            self.clock.rule(substrate)
        self.heads = {ONE: 0, TWO: 0}
        self.numbers = [0]
        self.claims: list[tuple[Claim, Claim]] = []

    def teardown(self) -> None:
        """Close both."""
        self.runner.run(self.sqlite.__aexit__(None, None, None))
        self.runner.run(self.memory.__aexit__(None, None, None))
        self.runner.close()
        shutil.rmtree(self.folder)

    def both(self, *work: Coroutine[Any, Any, object]) -> object:
        """Give what both answer, or what problem both have."""
        memory, sqlite = [self.runner.run(_answer(one)) for one in work]
        assert memory == sqlite
        return memory

    @rule(key=KEYS, behind=st.sampled_from([0, 0, 0, 1]), run=st.sampled_from(["r1", "r2", None]))
    def append(self, key: Any, behind: int, run: str | None) -> None:  # noqa: ANN401 — as hypothesis has it
        """Append behind the head, or behind what it is not."""
        rows = {} if run is None else {run: b"%d" % len(self.numbers)}
        head = self.heads[key] + behind
        new = self.both(*(one.append(key, b"r", head=head, rows=rows) for one in (self.memory, self.sqlite)))
        if isinstance(new, int):
            self.heads[key] = new

    @rule(key=KEYS, command=IDS)
    def send(self, key: Any, command: str) -> None:  # noqa: ANN401
        """Send, some of it again."""
        number = self.both(*(one.send(key, command, b"c") for one in (self.memory, self.sqlite)))
        if isinstance(number, int):
            self.numbers.append(number)

    @rule(key=KEYS, at=st.integers(1, 4))
    def consume(self, key: Any, at: int) -> None:  # noqa: ANN401
        """Consume up to one of the last commands."""
        after = self.numbers[-min(at, len(self.numbers))]
        self.both(*(one.commands(key, after=after) for one in (self.memory, self.sqlite)))

    @precondition(lambda self: any(map(self.memory._is_free, self.memory._boxes.values())))
    @rule()
    def claim(self) -> None:
        """Claim what is free."""
        memory, sqlite = [self.runner.run(one.claim("w")) for one in (self.memory, self.sqlite)]
        assert (memory.key, memory.deliveries) == (sqlite.key, sqlite.deliveries)
        self.claims.append((memory, sqlite))

    @precondition(lambda self: self.claims)
    @rule(at=st.integers(0, 3))
    def beat(self, at: int) -> None:
        """Keep a session that one has or had."""
        self.both(*(one.beat() for one in self.claims[at % len(self.claims)]))

    @precondition(lambda self: self.claims)
    @rule(at=st.integers(0, 3), last=st.integers(1, 3))
    def release(self, at: int, last: int) -> None:
        """Leave a session that one has or had."""
        cursor = self.numbers[-min(last, len(self.numbers))]
        self.both(*(one.release(cursor) for one in self.claims[at % len(self.claims)]))

    @precondition(lambda self: self.claims)
    @rule(at=st.integers(0, 3), delay=st.sampled_from([0.0, 10.0]))
    def give_back(self, at: int, delay: float) -> None:
        """Give back a session that one has or had."""
        self.both(*(one.give_back(delay) for one in self.claims[at % len(self.claims)]))

    @rule(seconds=st.sampled_from([1.0, 10.0, 15.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.time += seconds

    @rule(key=KEYS)
    def delete(self, key: Any) -> None:  # noqa: ANN401
        """Forget a session."""
        self.both(*(one.delete(key) for one in (self.memory, self.sqlite)))
        self.heads[key] = 0

    @invariant()
    def they_say_the_same(self) -> None:
        """Journals, mailboxes, holders, lists."""
        for key in (ONE, TWO):
            self.both(*(one.read(key) for one in (self.memory, self.sqlite)))
            self.both(*(one.commands(key) for one in (self.memory, self.sqlite)))
            self.both(*(one.ring(key) for one in (self.memory, self.sqlite)))
        self.both(*(one.sessions() for one in (self.memory, self.sqlite)))
        self.both(*(one.rows() for one in (self.memory, self.sqlite)))


async def _answer(work: Coroutine[Any, Any, object]) -> object:
    try:
        return await work
    except SessionError as error:
        return error.kind, str(error)


TestBoth = Both.TestCase
TestBoth.settings = settings(
    max_examples=2_000 if NIGHTLY else 20,
    stateful_step_count=30,
    deadline=None,
    derandomize=not NIGHTLY,
    database=None,
)
