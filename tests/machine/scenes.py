"""Scenes: what callers do to a turn loop and when, and how its callbacks and agents behave."""

from typing import Literal

from hypothesis import strategies as st
from msgspec import Struct

from andon import Point, Preempt, Stop

How = Literal["plain", "async", "held", "fails", "odd"]
Agency = Literal["quick", "held", "works", "fails", "asks", "clings"]
Watching = Literal["all", "early", "fails", "fails late", "cancelled", "pushes", "stops", "tidies"]
SECONDS = (0.25, 1.0, 3.0)


class Push(Struct, frozen=True):
    """Somebody pushes an item."""

    after: int = 0
    preempt: Preempt | None = None
    strategy: Literal["", "decides", "fails"] = ""


class AskStop(Struct, frozen=True):
    """Somebody stops the loop."""

    after: int = 0
    stop: Stop | None = None
    idle: float | None = None
    cause: str | None = None
    skips: bool = False


class Open(Struct, frozen=True):
    """The oldest gate at which a callback or an agent is held opens."""

    after: int = 0


class Pass(Struct, frozen=True):
    """Time passes."""

    after: int = 0
    seconds: float = 0.25


class Tear(Struct, frozen=True):
    """Somebody cancels the task of the loop."""

    after: int = 0


Action = Push | AskStop | Open | Pass | Tear


class Script(Struct, frozen=True):
    """How one turn goes: its plan, its agent, and who watches it."""

    planning: How = "plain"
    takes: int = 1
    drops: int = 0
    from_end: bool = False
    preparing: How = "plain"
    agent: Agency = "quick"
    watching: Watching = "all"


class Scene(Struct, frozen=True):
    """One life of a loop; the first `early` actions come before it runs."""

    actions: tuple[Action, ...]
    scripts: tuple[Script, ...] = ()
    early: int = 0
    keeps: bool = True
    watches: bool = True
    requeues: bool = False
    resumes: bool = True


def _rarely(usual: object, *others: object) -> st.SearchStrategy[object]:
    return st.sampled_from([usual] * (7 * len(others)) + [*others])


def _weighed(*parts: tuple[float, st.SearchStrategy[Action]]) -> st.SearchStrategy[Action]:
    # `one_of` would take each of them once, however often it is named.
    table = [part for weight, part in parts for _ in range(round(weight * 20))]
    return st.integers(0, len(table) - 1).flatmap(table.__getitem__)


_after = st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13, 40])
_preempts = st.builds(
    Preempt,
    st.sampled_from([Point.ANY, Point.TOOLS, Point.MODEL, Point.STREAM]),
    grace=st.sampled_from([None, 0.25, 1.0, 3.0]),
    delay=st.sampled_from([None, None, 0.25, 1.0]),
)
_pushes = st.builds(
    Push,
    _after,
    st.none() | _preempts | _preempts,
    st.sampled_from(["", "", "", "decides", "decides", "fails"]),
)
_plain = st.builds(Push, _after)
_stops = st.sampled_from(
    [
        None,
        Stop.now(),
        Stop.now(recursive=True),
        Stop.at(Point.TOOLS),
        Stop.at(Point.MODEL, grace=0.25),
        Stop.at(Point.STREAM),
        Stop.gently(grace=1.0),
        Stop.graceful(),
        Stop.graceful(grace=0.25),
    ]
)
_causes = st.sampled_from([None, "deploy", "night"])
_asked = st.builds(AskStop, _after, _stops, cause=_causes, skips=st.sampled_from([False, False, False, True]))
_idle = st.builds(AskStop, _after, idle=st.sampled_from(SECONDS), cause=_causes)
_tears = st.builds(Tear, _after)
_opens = st.builds(Open, _after)
_passes = st.builds(Pass, _after, st.sampled_from([0.25, 0.5, 1.0, 2.0]))
_any = _weighed(
    (4, _pushes), (3, _plain), (5, _opens), (2, _passes), (1.2, _idle), (1, _asked), (0.15, _tears)
)

scripts = st.builds(
    Script,
    planning=st.sampled_from(["plain"] * 8 + ["async"] * 4 + ["held"] * 6 + ["fails", "odd"]),
    takes=st.integers(1, 3),
    drops=_rarely(0, 1),
    from_end=_rarely(False, True),  # noqa: FBT003 — one usual value and one other
    preparing=st.sampled_from(["plain"] * 8 + ["async"] * 4 + ["held"] * 4 + ["fails"]),
    agent=st.sampled_from(["quick", "fails", "asks", "clings"] + ["held", "works"] * 4),
    watching=st.sampled_from(
        ["all"] * 10
        + ["early", "fails", "stops"]
        + ["cancelled", "pushes", "tidies"] * 2
        + ["fails late"] * 4
    ),
)


def scenes(least: int = 12, most: int = 24) -> st.SearchStrategy[Scene]:
    """Make the lives of loops, of so many actions."""
    return st.builds(
        Scene,
        st.lists(_any, min_size=least, max_size=most).map(tuple),
        st.lists(scripts, min_size=1, max_size=6).map(tuple),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from([True, True, False]),
        st.sampled_from([True, True, False]),
        st.booleans(),
        st.sampled_from([True, True, True, True, True, False]),
    )


trials = st.lists(scenes(), min_size=2, max_size=3).map(tuple)
"""Loops that follow each other on one checkpoint."""

_hurried = _weighed(
    (6, st.builds(Push, preempt=st.none() | _preempts)), (5, _opens), (0.3, _idle), (0.5, _asked)
)
crowds = st.lists(st.lists(_hurried, min_size=8, max_size=16), min_size=2, max_size=3)
"""What several threads do to one loop at the same time."""
