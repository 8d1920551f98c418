"""Stop: a value in a lattice, and the rules by which it takes effect.

Rule 1: everything that decides whether and how a run stops is in this file.
Rule 2: requests are only ever joined. Join is idempotent, commutative and associative, so a
request may arrive twice, late, out of order, from any thread or machine, and never weakens
another. A grace is a deadline: once it is bound to a clock, the earliest one holds.

    where the run is            a stop takes effect there, if it asks for
    ------------------------    -----------------------------------------
    before its first step       now
    in a model call             now, STREAM
    point:model                 now, STREAM, MODEL
    in a round of tools         now
    point:tools                 now, STREAM, TOOLS
    point:step, paused          anything

    a child run is              and of its parent's stop it is told
    ------------------------    -----------------------------------------
    a step of a workflow        everything
    behind a tool call          now; all of it, if it is recursive
    aside, in a hook            now
"""

import math
from enum import Flag, StrEnum
from functools import reduce
from typing import Literal, Self

from msgspec import Struct
from msgspec.structs import astuple, force_setattr, replace

from andon.core.text import check_text

Source = Literal["user", "disconnect", "limit", "parent", "preempt", "pause", "shutdown", "timeout", "code"]
SOURCES: frozenset[str] = frozenset(Source.__args__)  # type: ignore[attr-defined]

MAX_REASON = 1_000
MAX_BY = 200
MAX_ID = 200


class Point(Flag):
    """Where a run may stop whole; combine with `|`, and the one that comes first counts.

    `STREAM` is anywhere in a model call, whose partial answer is kept. `MODEL` is when an answer
    with tool calls is complete and none of its tools has started. `TOOLS` is when all tools of a
    round have ended, before the model is asked again. `ANY` is `MODEL | TOOLS`: nothing in
    flight is cut.
    """

    STREAM = 1
    MODEL = 2
    TOOLS = 4
    ANY = 6


NOWHERE = Point(0)


class Where(StrEnum):
    """Where a run was when a stop took effect."""

    BEFORE_START = "before_start"
    MODEL = "model"
    POINT_MODEL = "point:model"
    TOOLS = "tools"
    POINT_TOOLS = "point:tools"
    POINT_STEP = "point:step"
    PAUSED = "paused"


# Which points are good at which place; *now* is good everywhere, and all is good between steps.
GOOD_AT: dict[Where, Point] = {
    Where.BEFORE_START: NOWHERE,
    Where.MODEL: Point.STREAM,
    Where.POINT_MODEL: Point.STREAM | Point.MODEL,
    Where.TOOLS: NOWHERE,
    Where.POINT_TOOLS: Point.STREAM | Point.TOOLS,
    Where.POINT_STEP: Point.STREAM | Point.ANY,
    Where.PAUSED: Point.STREAM | Point.ANY,
}

Bond = Literal["step", "tool", "aside"]


def check_seconds(name: str, seconds: float | None) -> None:
    """Refuse what is no positive, finite number of seconds; None means unbounded."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{name} is {seconds!r:.80}: give a number of seconds, or None for no bound"
        raise TypeError(msg)
    if not _is_finite(seconds) or seconds <= 0:
        msg = f"{name} is {seconds!r:.80}: give a number of seconds above 0, or None for no bound"
        raise ValueError(msg)


def check_flag(name: str, given: bool) -> None:  # noqa: FBT001 — it is what is checked
    """Refuse what is neither True nor False: "no" would be taken for a yes."""
    if not isinstance(given, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{name} is {given!r:.80}: give True or False"
        raise TypeError(msg)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an int beyond all floats
        return False


def check_points(points: Point) -> None:
    """Refuse what names no point."""
    if not isinstance(points, Point):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"points is {points!r}: give a Point, such as Point.TOOLS or Point.ANY"
        raise TypeError(msg)
    if not points:
        msg = "points is empty: name at least one, such as Point.TOOLS, or use Stop.now()"
        raise ValueError(msg)


class Cause(Struct, frozen=True, omit_defaults=True, gc=False):
    """Who asked for a stop, why, when (wall time), and what was asked."""

    source: Source = "code"
    by: str | None = None
    reason: str | None = None
    id: str = ""
    at: float = 0.0
    asked: "Stop | None" = None

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            msg = f"source is {self.source!r}: it is one of {', '.join(sorted(SOURCES))}"
            raise ValueError(msg)
        check_text("by", self.by, MAX_BY)
        check_text("reason", self.reason, MAX_REASON)
        check_text("id", self.id, MAX_ID)


class Stop(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"immediate": "now"}, gc=False):
    """A request to stop; make one with `now`, `at`, `graceful` or `gently`, and `join` several."""

    immediate: bool = False
    points: Point = NOWHERE
    grace: float | None = None
    deadline: float | None = None
    recursive: bool = False
    causes: tuple[Cause, ...] = ()

    def __post_init__(self) -> None:
        check_flag("immediate", self.immediate)
        check_flag("recursive", self.recursive)
        check_seconds("grace", self.grace)
        if self.deadline is not None and not _is_finite(self.deadline):
            msg = f"deadline is {self.deadline!r:.80}: give a finite wall time, or None for no bound"
            raise ValueError(msg)
        if self.immediate:  # *now* absorbs points and clears the deadline
            force_setattr(self, "points", NOWHERE)
            force_setattr(self, "grace", None)
            force_setattr(self, "deadline", None)
        else:
            check_points(self.points)
        if len(self.causes) > 1:
            force_setattr(self, "causes", canonical(self.causes))

    @classmethod
    def now(cls, *, recursive: bool = False) -> Self:
        """Stop as soon as the signal arrives: the model call and the tools in flight are cut."""
        return cls(immediate=True, recursive=recursive)

    @classmethod
    def at(cls, points: Point, *, grace: float | None = None, recursive: bool = False) -> Self:
        """Stop at whichever of the points comes first; after `grace` seconds it becomes *now*."""
        return cls(points=points, grace=grace, recursive=recursive)

    @classmethod
    def graceful(cls, *, grace: float | None = None) -> Self:
        """Stop where nothing in flight is cut, in this run and its children."""
        return cls(points=Point.ANY, grace=grace, recursive=True)

    @classmethod
    def gently(cls, *, grace: float | None = None) -> Self:
        """Stop as soon as no tool is cut: a model call in flight may be."""
        return cls(points=Point.STREAM | Point.ANY, grace=grace)

    def join(self, other: "Stop") -> "Stop":
        """Ask for both; nothing is ever weakened."""
        return Stop(
            immediate=self.immediate or other.immediate,
            points=self.points | other.points,
            grace=_earliest(self.grace, other.grace),
            deadline=_earliest(self.deadline, other.deadline),
            recursive=self.recursive or other.recursive,
            causes=_union(self.causes, other.causes),
        )

    def bind(self, now: float, cause: Cause) -> "Stop":
        """Turn the grace into a deadline from `now` (wall time), and name who asked."""
        asked = self if not self.causes and self.deadline is None else replace(self, causes=(), deadline=None)
        deadline = self.deadline if self.grace is None else _earliest(now + self.grace, self.deadline)
        named = Cause(cause.source, cause.by, cause.reason, cause.id, cause.at or now, asked)
        return replace(self, grace=None, deadline=deadline, causes=_union(self.causes, (named,)))

    def due(self, where: Where) -> bool:
        """Say whether the stop takes effect here."""
        return self.immediate or bool(self.points & GOOD_AT[where])

    def passed_on(self, bond: Bond) -> "Stop | None":
        """Give what a child run is told of this stop; the causes say that it came by its parent."""
        whole = bond == "step" or (bond == "tool" and self.recursive)
        if not whole and not self.immediate:
            return None
        return replace(self, causes=tuple(replace(cause, source="parent") for cause in self.causes))

    def keeps(self, bond: Bond) -> bool:
        """Say whether the state of a child that it stopped is kept, to go on from."""
        return bond == "step" or (bond == "tool" and self.recursive)

    def __repr__(self) -> str:
        return f"Stop({describe(self)})"


def _earliest(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _union(a: tuple[Cause, ...], b: tuple[Cause, ...]) -> tuple[Cause, ...]:
    if a and b[: len(a)] == a:  # what is joined again and again holds all that was joined before
        return b
    return canonical((*a, *b)) if a and b else a or b


def canonical(causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Order causes by time, each id once; which copy of one stays does not depend on the order given."""
    unique: dict[str, Cause] = {}
    for cause in causes:
        other = unique.setdefault(cause.id, cause)
        if other != cause and _rank(cause) < _rank(other):
            unique[cause.id] = cause
    return tuple(sorted(unique.values(), key=_when))


def _when(cause: Cause) -> tuple[float, str]:
    return cause.at, cause.id


def _rank(cause: Cause) -> tuple[float, str, str]:
    # All of a cause counts; the repr of a Stop alone would leave out its deadline.
    asked = None if cause.asked is None else astuple(cause.asked)
    return cause.at, cause.id, repr((cause.source, cause.by, cause.reason, asked))


def join_all(stops: list[Stop]) -> Stop | None:
    """Join any number of requests, in any order; none of them gives None."""
    if len(stops) < 2:  # noqa: PLR2004 — nothing to join
        return stops[0] if stops else None
    points = NOWHERE
    for stop in stops:
        points |= stop.points
    return Stop(
        immediate=any(stop.immediate for stop in stops),
        points=points,
        grace=reduce(_earliest, (stop.grace for stop in stops)),
        deadline=reduce(_earliest, (stop.deadline for stop in stops)),
        recursive=any(stop.recursive for stop in stops),
        causes=canonical(tuple(cause for stop in stops for cause in stop.causes)),
    )


NOW = Stop.now()


def as_stop(given: Stop | None) -> Stop:
    """Take what a caller asks for; nothing said is *now*."""
    if given is None:
        return NOW
    if not isinstance(given, Stop):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"stop is {given!r}: give a Stop, such as Stop.now() or Stop.at(Point.TOOLS); nothing was asked"
        raise TypeError(msg)
    return given


def describe(stop: Stop) -> str:
    """Tell in words what a stop asks for."""
    words = ["now"] if stop.immediate else [f"at {'|'.join(p.name or '' for p in stop.points)}"]
    if stop.grace is not None:
        words.append(f"grace {stop.grace:g}")
    if stop.recursive:
        words.append("recursive")
    return ", ".join(words)


class StopResult(StrEnum):
    """What became of a request to stop."""

    STOPPED = "STOPPED"
    ESCALATED = "ESCALATED"
    FINISHED_FIRST = "FINISHED_FIRST"
    NOTHING_RUNNING = "NOTHING_RUNNING"


class Abandoned(Struct, frozen=True, omit_defaults=True, gc=False):
    """Work that would not stop within its grace; a late result of it is quarantined.

    `path` leads to the child run whose work it was, as that of an event does.
    """

    name: str
    call_id: str = ""
    path: tuple[str, ...] = ()


class StopReport(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened to the requests to stop a run; the same for every ticket of that run.

    `latency` is the time in seconds from the first request to the end of the run. `durable` is
    False when the outcome could not be stored in time, and `checkpoint_error` then says why.
    """

    result: StopResult
    accepted: bool = False
    stopped_at: Where | None = None
    escalated_by: Literal["timeout", "request"] | None = None
    causes: tuple[Cause, ...] = ()
    latency: float = 0.0
    abandoned: tuple[Abandoned, ...] = ()
    checkpoint: str | None = None
    durable: bool = True
    checkpoint_error: str | None = None
    run_id: str | None = None
    reports: "tuple[StopReport, ...]" = ()

    @property
    def cause(self) -> Cause | None:
        """The first who asked."""
        return self.causes[0] if self.causes else None


def verdict(*, stopped: bool, escalated_by: Literal["timeout", "request"] | None) -> StopResult:
    """Name the result of a run that somebody asked to stop."""
    if not stopped:
        return StopResult.FINISHED_FIRST
    return StopResult.ESCALATED if escalated_by == "timeout" else StopResult.STOPPED


# The report of several runs has the gravest result among them.
GRAVITY = (
    StopResult.NOTHING_RUNNING,
    StopResult.FINISHED_FIRST,
    StopResult.STOPPED,
    StopResult.ESCALATED,
)


def summarise(reports: tuple[StopReport, ...]) -> StopReport:
    """Make one report of many; a single one is its own summary."""
    if len(reports) == 1:
        return replace(reports[0], reports=reports)
    if not reports:
        return StopReport(result=StopResult.NOTHING_RUNNING)
    gravest = max(reports, key=lambda report: GRAVITY.index(report.result))
    causes: tuple[Cause, ...] = ()
    for report in reports:
        causes = _union(causes, report.causes)
    return StopReport(
        result=gravest.result,
        accepted=any(report.accepted for report in reports),
        causes=causes,
        latency=max(report.latency for report in reports),
        abandoned=tuple(item for report in reports for item in report.abandoned),
        durable=all(report.durable for report in reports),
        reports=reports,
    )
