"""Explore: stop a scenario at every place there is, in every way there is, and see what breaks."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from andon.core.stop import Point, Stop
from andon.testing.again import End, Resume, differences, go_on, same, untouched_end
from andon.testing.invariants import broken
from andon.testing.scene import Mode, Scenario
from andon.testing.trial import Seen, Trial

UNTOUCHED = Mode(name="nobody stops it")
MODES = (
    Mode(name="now", stops=(Stop.now(),)),
    Mode(name="at MODEL", stops=(Stop.at(Point.MODEL),)),
    Mode(name="at TOOLS", stops=(Stop.at(Point.TOOLS),)),
    Mode(name="at ANY", stops=(Stop.at(Point.ANY),)),
    Mode(name="at STREAM|ANY", stops=(Stop.gently(),)),
    Mode(name="at ANY, grace 0.37", stops=(Stop.at(Point.ANY, grace=0.37),)),
    Mode(name="at TOOLS, then now", stops=(Stop.at(Point.TOOLS), Stop.now())),
    Mode(name="by its task", by_task=True),
)
TREE_MODES = (
    Mode(name="now", stops=(Stop.now(),)),
    Mode(name="gracefully", stops=(Stop.graceful(),)),
    Mode(name="now, recursive", stops=(Stop.now(recursive=True),)),
    Mode(name="at TOOLS", stops=(Stop.at(Point.TOOLS),)),
    Mode(name="at MODEL, recursive", stops=(Stop.at(Point.MODEL, recursive=True),)),
    Mode(name="its child, now", stops=(Stop.now(),), whom="child"),
    Mode(name="at ANY, recursive later", stops=(Stop.at(Point.ANY), Stop.at(Point.ANY, recursive=True))),
    Mode(name="steered now, then gracefully", steer="now", stops=(Stop.graceful(),)),
    Mode(name="gracefully, grace 0.37", stops=(Stop.graceful(grace=0.37),)),
    Mode(name="at STREAM|ANY", stops=(Stop.gently(),)),
    Mode(name="its child, gracefully", stops=(Stop.graceful(),), whom="child"),
    Mode(name="gracefully, then now", stops=(Stop.graceful(), Stop.now())),
    Mode(name="steered now", steer="now"),
    Mode(name="by its task", by_task=True),
)


class Violation(Struct, frozen=True, kw_only=True):
    """An invariant that did not hold: in which scenario, stopped how and where."""

    scenario: str
    mode: str
    place: str
    broken: str

    def __str__(self) -> str:
        return f"{self.scenario}, stopped {self.mode} at {self.place}: {self.broken}"


class Exploration(Struct, frozen=True, kw_only=True):
    """What an exploration did and found; `check()` raises if it found anything."""

    scenario: str
    runs: int
    steps: int
    boundaries: int
    resumed: int = 0
    violations: Sequence[Violation]

    def report(self) -> str:
        """Tell it in words, at most twenty violations of them."""
        found = len(self.violations)
        head = (
            f"{self.scenario}: {self.runs} runs over {self.steps} steps and {self.boundaries} boundaries, "
            f"{found} violation{'' if found == 1 else 's'}"
        )
        more = [f"  … and {found - MOST_TOLD} more"] if found > MOST_TOLD else []
        return "\n".join([head, *(f"  {one}" for one in self.violations[:MOST_TOLD]), *more])

    def check(self) -> None:
        """Raise AssertionError with the report, unless every invariant held."""
        if self.violations:
            raise AssertionError(self.report())


MOST_TOLD = 20


def explore(
    scenario: Scenario,
    *,
    modes: Sequence[Mode] = MODES,
    most: int | None = None,
    each: int | None = None,
    resume: Resume = go_on,
) -> Exploration:
    """Run a scenario once per place and mode, stopping it exactly there, and check the invariants.

    Where everything runs on one loop, the places are all steps of the loop, between any two
    callbacks, and all boundaries: after each event appended to the run's log, at each chunk that
    a model makes, and when its answer is closed. A foreign scenario is stopped at its boundaries.
    With `most`, only so many steps and boundaries are taken, evenly spread over all. With `each`,
    only so many of the modes are used at each place, in turn.

    A scenario that `resumes` then goes on from each checkpoint, by `resume` (in a fresh scene of
    this process, or wherever that does it), and must end as if nobody had stopped it. Checkpoints
    that are the same but for the names of runs are resumed once.
    """
    return _Explorer(scenario, resume).explore(modes, most, each or len(modes))


class _Explorer:
    """Tries one scenario everywhere, and keeps count."""

    def __init__(self, scenario: Scenario, resume: Resume) -> None:
        self._scenario = scenario
        self._resume = resume
        self._resumed: dict[bytes, End] = {}
        self._untouched: End | None = None
        self._runs = 0
        self._violations: list[Violation] = []

    def explore(self, modes: Sequence[Mode], most: int | None, each: int) -> Exploration:
        scenario = self._scenario
        first = self._try("no place", UNTOUCHED)
        if not scenario.foreign:
            self._violations += _same(first, self._try("no place", UNTOUCHED))
        if scenario.resumes:
            self._untouched = untouched_end(first, self._go_on)
            self._violations += _answered(first, self._untouched)
        steps = 0 if scenario.foreign else first.steps + 1
        for step in _spread(steps, most):
            for mode in _in_turn(modes, each, step):
                self._try(f"step {step}", mode, at_step=step)
        for number in _spread(len(first.boundaries), most):
            for mode in _in_turn(modes, each, number):
                place = f"boundary {number} ({first.boundaries[number]})"
                self._try(place, mode, at_boundary=number)
        return Exploration(
            scenario=scenario.name,
            runs=self._runs,
            steps=steps,
            boundaries=len(first.boundaries),
            resumed=len(self._resumed),
            violations=tuple(self._violations),
        )

    def _try(
        self, place: str, mode: Mode, *, at_step: int | None = None, at_boundary: int | None = None
    ) -> Seen:
        self._runs += 1
        seen = Trial(self._scenario, mode, at_step=at_step, at_boundary=at_boundary).go()
        wrong = list(broken(seen))
        if self._untouched is not None:
            wrong += differences(self._untouched, seen, self._go_on)
        self._violations += (
            Violation(scenario=self._scenario.name, mode=mode.name, place=place, broken=one) for one in wrong
        )
        return seen

    def _go_on(self, scenario: Scenario, saved: bytes) -> End:
        key = same(saved)
        if key not in self._resumed:
            self._resumed[key] = self._resume(scenario, saved)
        return self._resumed[key]


def _in_turn(modes: Sequence[Mode], each: int, place: int) -> Sequence[Mode]:
    """Give the modes whose turn it is at a place."""
    return [modes[(place * each + number) % len(modes)] for number in range(min(each, len(modes)))]


def _answered(first: Seen, end: End) -> Iterator[Violation]:
    """Name what does not hold once a run that nobody stops has its answers."""
    open_still = (
        ("a run whose questions are answered comes to its end",) if end.stop_reason == "interrupt" else ()
    )
    for one in (*end.broken, *open_still):
        yield Violation(scenario=first.scenario.name, mode=UNTOUCHED.name, place="no place", broken=one)


def _same(first: Seen, second: Seen) -> Iterator[Violation]:
    if (first.steps, first.boundaries) != (second.steps, second.boundaries):
        yield Violation(
            scenario=first.scenario.name,
            mode=UNTOUCHED.name,
            place="no place",
            broken=f"the scenario does the same twice: {first.steps} steps became {second.steps}",
        )


def _spread(count: int, most: int | None) -> Sequence[int]:
    """Give up to `most` of the numbers below `count`, the first and the last among them."""
    if most is None or count <= most:
        return range(count)
    if most == 1:
        return (0,)
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})
