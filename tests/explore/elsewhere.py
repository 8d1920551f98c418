"""Elsewhere: another process, in which the runs that were stopped here go on, one after the other."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from andon.testing import Scenario
from andon.testing.again import End, go_on
from tests.explore.scenarios import FOREIGN, ON_ONE_LOOP
from tests.explore.trees import FOREIGN_TREES, TREES

ROOT = Path(__file__).parent.parent.parent
SCENARIOS = {scenario.name: scenario for scenario in (*ON_ONE_LOOP, *FOREIGN, *TREES, *FOREIGN_TREES)}


class Order(Struct, frozen=True):
    """What the other process is to resume: a scenario by its name, from the JSON of a checkpoint."""

    scenario: str
    checkpoint: str


class Elsewhere:
    """A fresh interpreter that reads orders, a line each, and writes how each run has ended."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.explore.elsewhere"]
        self._process = subprocess.Popen(  # noqa: S603 — our own program
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def pid(self) -> int:
        """Which process it is."""
        return self._process.pid

    def resume(self, scenario: Scenario, saved: bytes) -> End:
        """Let a run go on over there."""
        orders, answers = self._process.stdin, self._process.stdout
        assert orders is not None
        assert answers is not None
        orders.write(msgspec.json.encode(Order(scenario.name, saved.decode())) + b"\n")
        orders.flush()
        return msgspec.json.decode(answers.readline(), type=End)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def main() -> None:
    """Do what stdin says, until it is closed."""
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        end = go_on(SCENARIOS[order.scenario], order.checkpoint.encode())
        sys.stdout.buffer.write(msgspec.json.encode(end) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
