"""Stop is a value in a lattice: the laws of the join, and what can be asked for."""

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andon.core.stop import (
    GOOD_AT,
    MAX_BY,
    MAX_ID,
    MAX_REASON,
    SOURCES,
    Cause,
    Point,
    Stop,
    Where,
    describe,
    join_all,
)
from tests.core.values import JOINED, POINTS, TIMES, causes, stops


@given(JOINED)
def test_a_request_that_arrives_twice_is_one_request(a: Stop) -> None:
    """Join is idempotent."""
    assert a.join(a) == a


@given(stops(), stops())
def test_the_order_of_two_requests_does_not_matter(a: Stop, b: Stop) -> None:
    """Join is commutative."""
    assert a.join(b) == b.join(a)


@given(stops(), stops(), stops())
def test_how_requests_are_gathered_does_not_matter(a: Stop, b: Stop, c: Stop) -> None:
    """Join is associative."""
    assert a.join(b).join(c) == a.join(b.join(c))


@given(st.lists(JOINED, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_any_order_and_any_duplicates_give_one_stop(requests: list[Stop], chance: Random) -> None:
    """A request may arrive late, twice, out of order."""
    arrived = [*requests, *requests[:2]]
    chance.shuffle(arrived)
    assert join_all(arrived) == join_all(requests)


@given(stops(), stops())
def test_nothing_weakens_a_request(a: Stop, b: Stop) -> None:
    """Join is monotone: what was due stays due, deadlines only come nearer, causes only add up."""
    both = a.join(b)
    assert all(both.due(where) for where in GOOD_AT if a.due(where))
    assert both.recursive >= a.recursive
    assert both.immediate >= a.immediate
    assert {cause.id for cause in a.causes} <= {cause.id for cause in both.causes}
    if a.deadline is not None and not both.immediate:
        assert both.deadline is not None
        assert both.deadline <= a.deadline


@given(stops(), stops())
def test_the_join_is_what_the_text_says(a: Stop, b: Stop) -> None:
    """Now by or, points by union, recursive by or, the earliest deadline."""
    both = a.join(b)
    assert both.immediate == (a.immediate or b.immediate)
    assert both.recursive == (a.recursive or b.recursive)
    if not both.immediate:
        assert both.points == a.points | b.points
        assert both.deadline == min((d for d in (a.deadline, b.deadline) if d is not None), default=None)
        assert both.grace == min((g for g in (a.grace, b.grace) if g is not None), default=None)


@given(stops())
def test_now_absorbs_points_and_clears_the_deadline(a: Stop) -> None:
    """Whatever it is joined with, now is now."""
    both = a.join(Stop.now())
    assert both.immediate
    assert (both.points, both.grace, both.deadline) == (Point(0), None, None)


def test_now_absorbs_what_it_was_made_with() -> None:
    """A now with points and a deadline, from a journal, is a plain now."""
    assert Stop(immediate=True, points=Point.ANY, grace=2, deadline=9) == Stop.now()


@given(st.lists(causes(), max_size=4), st.lists(causes(), max_size=4))
def test_causes_are_ordered_by_time_then_id_and_none_comes_twice(a: list[Cause], b: list[Cause]) -> None:
    """Everybody who asked is named once, the first first."""
    both = Stop(immediate=True, causes=tuple(a)).join(Stop(immediate=True, causes=tuple(b))).causes
    assert [(c.at, c.id) for c in both] == sorted((c.at, c.id) for c in both)
    assert sorted(c.id for c in both) == sorted({c.id for c in (*a, *b)})


def test_no_request_joins_to_none() -> None:
    """The join of nothing asks for nothing."""
    assert join_all([]) is None


# From a grace to a deadline


@given(POINTS, TIMES, TIMES)
def test_a_grace_becomes_a_deadline_when_it_is_bound(points: Point, grace: float, now: float) -> None:
    """The deadline is counted from the request, and the cause keeps what was asked."""
    asked = Stop.at(points, grace=grace + 1)
    bound = asked.bind(now, Cause("user", id="a"))
    assert (bound.deadline, bound.grace) == (now + grace + 1, None)
    assert bound.causes == (Cause("user", id="a", at=now, asked=asked),)


def test_a_deadline_that_is_there_already_is_never_extended() -> None:
    """Binding again with a longer grace keeps the earlier deadline."""
    assert Stop(points=Point.ANY, grace=60, deadline=5).bind(1, Cause(id="a")).deadline == 5
    assert Stop(points=Point.ANY, grace=1, deadline=5).bind(1, Cause(id="a")).deadline == 2
    assert Stop(points=Point.ANY, deadline=5).bind(1, Cause(id="a")).deadline == 5


def test_a_cause_keeps_its_own_time() -> None:
    """A request that was made elsewhere keeps the time it was made at."""
    assert Stop.now().bind(9, Cause(id="a", at=3)).causes[0].at == 3


# Which point is good where

ALL = [Point.STREAM, Point.MODEL, Point.TOOLS]
TABLE = {
    Where.BEFORE_START: [],
    Where.MODEL: [Point.STREAM],
    Where.POINT_MODEL: [Point.STREAM, Point.MODEL],
    Where.TOOLS: [],
    Where.POINT_TOOLS: [Point.STREAM, Point.TOOLS],
    Where.POINT_STEP: ALL,
}


@pytest.mark.parametrize(("where", "good"), TABLE.items())
@pytest.mark.parametrize("point", ALL)
def test_a_point_is_good_only_where_the_table_says(where: Where, good: list[Point], point: Point) -> None:
    """Stopping somewhere else would cut what was promised to be whole."""
    assert Stop.at(point).due(where) == (point in good)


@pytest.mark.parametrize("where", GOOD_AT)
def test_now_is_good_everywhere(where: Where) -> None:
    """Now waits for nothing."""
    assert Stop.now().due(where)


@pytest.mark.parametrize("where", GOOD_AT)
@given(points=POINTS)
def test_the_first_of_several_points_counts(where: Where, points: Point) -> None:
    """A union is due where one of its parts is."""
    assert Stop.at(points).due(where) == any(Stop.at(point).due(where) for point in points)


# The constructors


def test_the_constructors_say_what_they_ask_for() -> None:
    """Four ways to ask."""
    assert Stop.now() == Stop(immediate=True)
    assert Stop.now(recursive=True).recursive
    assert Stop.at(Point.TOOLS, grace=5) == Stop(points=Point.TOOLS, grace=5)
    assert Stop.at(Point.TOOLS, recursive=True).recursive
    assert Stop.graceful(grace=5) == Stop(points=Point.ANY, grace=5, recursive=True)
    assert Stop.gently(grace=5) == Stop(points=Point.STREAM | Point.ANY, grace=5)


def test_any_is_model_or_tools() -> None:
    """Nothing in flight is cut at ANY."""
    assert Point.ANY == Point.MODEL | Point.TOOLS
    assert Point.STREAM not in Point.ANY


NO_GRACE = [0, -1, -0.0, float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("grace", NO_GRACE)
@pytest.mark.parametrize("make", [Stop.graceful, Stop.gently, partial(Stop.at, Point.ANY)])
def test_a_grace_that_is_no_time_is_refused(make: Callable[..., Stop], grace: float) -> None:
    """Zero, less, NaN and for ever: the message says what to give."""
    with pytest.raises(ValueError, match=r"grace is .*: give a number of seconds above 0, or None"):
        make(grace=grace)


@pytest.mark.parametrize("grace", [True, False, "5", b"5", [5], object()])
def test_a_grace_that_is_no_number_is_refused(grace: float) -> None:
    """True is not one second."""
    with pytest.raises(TypeError, match=r"grace is .*: give a number of seconds, or None"):
        Stop.graceful(grace=grace)


@pytest.mark.parametrize("deadline", [float("nan"), float("inf"), float("-inf")])
def test_a_deadline_that_is_no_time_is_refused(deadline: float) -> None:
    """NaN would be earlier and later than every other, and break the join."""
    with pytest.raises(ValueError, match=r"deadline is .*: give a finite wall time, or None"):
        Stop(points=Point.ANY, deadline=deadline)


def test_a_stop_without_a_point_is_refused() -> None:
    """It would never take effect."""
    with pytest.raises(ValueError, match=r"points is empty: name at least one.* or use Stop.now\(\)"):
        Stop.at(Point(0))
    with pytest.raises(ValueError, match="points is empty"):
        Stop()


@pytest.mark.parametrize("points", [2, "TOOLS", None])
def test_what_is_no_point_is_refused(points: Point) -> None:
    """A number is not a point."""
    with pytest.raises(TypeError, match=r"points is .*: give a Point, such as Point\.TOOLS"):
        Stop.at(points)


@pytest.mark.parametrize("bits", [8, 16, 15])
def test_unknown_bits_are_refused(bits: int) -> None:
    """In Python and on the wire."""
    with pytest.raises(ValueError, match="invalid value"):
        Point(bits)
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value"):
        msgspec.json.decode(b'{"points":%d}' % bits, type=Stop)


def test_options_are_given_by_name() -> None:
    """A grace by position would read like a point."""
    with pytest.raises(TypeError, match="positional"):
        Stop.at(Point.ANY, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="positional"):
        Stop.graceful(5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    "wire", [b"{}", b'{"points":0}', b'{"points":2,"grace":0}', b'{"points":2,"grace":true}']
)
def test_a_bad_request_on_the_wire_is_refused(wire: bytes) -> None:
    """What cannot be made cannot be read either."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(wire, type=Stop)


# Who asked


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_every_source_can_be_named(source: str) -> None:
    """The nine of the text."""
    assert Cause(source).source == source  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_the_sources_are_those_of_the_text() -> None:
    """No more and no fewer."""
    named = "code disconnect limit parent pause preempt shutdown timeout user"
    assert " ".join(sorted(SOURCES)) == named


def test_an_unknown_source_is_refused() -> None:
    """The message lists those there are."""
    with pytest.raises(ValueError, match="source is 'boss': it is one of code, disconnect"):
        Cause("boss")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("name", "most"), [("by", MAX_BY), ("reason", MAX_REASON), ("id", MAX_ID)])
def test_a_text_over_its_bound_is_refused(name: str, most: int) -> None:
    """At the bound it is taken."""
    Cause(**{name: "x" * most})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=f"{name} has {most + 1} characters, {most} are allowed: shorten it"):
        Cause(**{name: "x" * (most + 1)})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["by", "reason", "id"])
def test_a_text_that_cannot_be_written_down_is_refused(name: str) -> None:
    """It would make the whole report unreadable."""
    with pytest.raises(ValueError, match=f"{name} is no valid text"):
        Cause(**{name: "\ud800"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["immediate", "recursive"])
@pytest.mark.parametrize("given_", ["no", 0, None])
def test_a_yes_that_is_none_is_refused(name: str, given_: object) -> None:
    """A text that says no would count as a yes."""
    with pytest.raises(TypeError, match=f"{name} is {given_!r}: give True or False"):
        Stop(points=Point.ANY, **{name: given_})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["grace", "deadline"])
def test_a_number_beyond_all_floats_is_refused_as_one(name: str) -> None:
    """Python's ints have no end."""
    with pytest.raises(ValueError, match=f"{name} is 1000"):
        Stop(points=Point.ANY, **{name: 10**400})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (Stop.now(), "now"),
        (Stop.now(recursive=True), "now, recursive"),
        (Stop.at(Point.TOOLS, grace=2.5), "at TOOLS, grace 2.5"),
        (Stop.graceful(), "at MODEL|TOOLS, recursive"),
    ],
)
def test_a_stop_tells_itself_in_words(stop: Stop, words: str) -> None:
    """The state shows itself in its repr."""
    assert describe(stop) == words
    assert repr(stop) == f"Stop({words})"


@given(stops())
def test_a_stop_goes_to_json_and_back(stop: Stop) -> None:
    """Causes, points and deadlines included."""
    assert msgspec.json.decode(msgspec.json.encode(stop), type=Stop) == stop
