"""Usage adds up, limits are reached when they are, and a cut is counted by length."""

from typing import Any

import pytest
from hypothesis import given

from andon.core.limits import Limits, Price, Usage, exceeded, exceeded_by_tools, usage_at_cut
from andon.core.messages import Message
from tests.core.values import USAGES

NUMBERS = ("model_calls", "tool_calls", "input_tokens", "output_tokens", "cost")


@given(USAGES, USAGES, USAGES)
def test_usage_adds_up_in_any_order(a: Usage, b: Usage, c: Usage) -> None:
    """Children and retries may be counted in as they come."""
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a


def test_usage_adds_every_field() -> None:
    """Each field to its own kind; what is partly estimated is estimated."""
    part = Usage(
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=3,
        cache_write_tokens=4,
        model_calls=5,
        tool_calls=6,
        cost=0.5,
    )
    assert part + part == Usage(
        input_tokens=2,
        output_tokens=4,
        cache_read_tokens=6,
        cache_write_tokens=8,
        model_calls=10,
        tool_calls=12,
        cost=1.0,
    )
    assert (part + Usage(estimated=True)).estimated
    assert part.total_tokens == 3


def test_a_cost_that_nobody_told_is_not_zero() -> None:
    """None stays None; one side that is told counts."""
    assert (Usage() + Usage()).cost is None
    assert (Usage(cost=0.5) + Usage()).cost == 0.5


SPENT = Usage(model_calls=3, tool_calls=4, input_tokens=100, output_tokens=50, cost=0.25)


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (Limits(), None),
        (Limits(model_calls=None), None),
        (Limits(model_calls=4), None),
        (Limits(model_calls=3), "model_calls 3"),
        (Limits(model_calls=0), "model_calls 0"),
        (Limits(input_tokens=101), None),
        (Limits(input_tokens=100), "input_tokens 100"),
        (Limits(output_tokens=50), "output_tokens 50"),
        (Limits(cost=0.25), "cost 0.25"),
        (Limits(cost=0.3), None),
        (Limits(seconds=10), "seconds 10"),
        (Limits(seconds=10.5), None),
        (Limits(tool_calls=1), None),
    ],
)
def test_a_limit_is_reached_when_what_is_spent_equals_it(limits: Limits, named: str | None) -> None:
    """And it is told by name."""
    assert exceeded(limits, SPENT, seconds=10.0) == named


@pytest.mark.parametrize(
    ("times", "named"), [(0, None), (2, None), (3, "repeated_failures 3"), (4, "repeated_failures 3")]
)
def test_failures_in_a_row_are_counted_to_the_limit(times: int, named: str | None) -> None:
    """The one that reaches it is the last."""
    assert exceeded(Limits(repeated_failures=3), SPENT, seconds=0, repeats=times) == named


def test_where_nothing_was_spent_the_cost_is_nothing() -> None:
    """So that a bound of zero is reached before anything is bought, as with tokens."""
    assert exceeded(Limits(cost=0), Usage(), seconds=0) == "cost 0"
    assert exceeded(Limits(cost=0.01), Usage(), seconds=0) is None


@pytest.mark.parametrize(
    ("bound", "calls", "named"), [(None, 99, None), (6, 2, None), (5, 2, "tool_calls 5")]
)
def test_tool_calls_are_counted_before_they_run(bound: int | None, calls: int, named: str | None) -> None:
    """A round that would pass the limit is not begun."""
    assert exceeded_by_tools(Limits(tool_calls=bound), SPENT, calls) == named


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("bound", [-1, float("nan")])
def test_a_limit_below_nothing_is_refused(name: str, bound: float) -> None:
    """The message names the limit; NaN would never be reached."""
    with pytest.raises(ValueError, match=f"{name} is {bound}: give a number from 0 up, or None for no bound"):
        Limits(**{name: bound})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bound", [0, -1, 0.5, float("nan")])
def test_a_number_of_failures_below_one_is_refused(bound: float) -> None:
    """A run in which nothing has failed would be at its limit."""
    words = f"repeated_failures is {bound}: give a number from 1 up, or None for no bound"
    with pytest.raises(ValueError, match=words):
        Limits(repeated_failures=bound)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", [*NUMBERS, "repeated_failures"])
@pytest.mark.parametrize("bound", ["3", True, [3], Limits()])
def test_a_limit_that_is_no_number_is_refused(name: str, bound: Any) -> None:  # noqa: ANN401
    """Where it is written, and not in the middle of a run."""
    with pytest.raises(TypeError, match=f"{name} is .*: give a number from [01] up, or None for no bound"):
        Limits(**{name: bound})


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(), 0),
        (Usage(input_tokens=1_000), 1_000 * 3),
        (Usage(output_tokens=1_000), 1_000 * 15),
        (Usage(input_tokens=1_000, output_tokens=100), 1_000 * 3 + 100 * 15),
        (Usage(input_tokens=1_000, cache_read_tokens=600), 400 * 3 + 600 * 0.3),
        (Usage(input_tokens=1_000, cache_write_tokens=600), 400 * 3 + 600 * 4),
        (
            Usage(input_tokens=1_000, cache_read_tokens=100, cache_write_tokens=200),
            700 * 3 + 100 * 0.3 + 200 * 4,
        ),
        (Usage(input_tokens=10, cache_read_tokens=100), 100 * 0.3),  # told wrong, and never below nothing
    ],
)
def test_a_price_is_that_of_a_million_tokens(usage: Usage, cost: float) -> None:
    """Input tokens count those of the cache in, which have prices of their own."""
    price = Price(input=3, output=15, cache_read=0.3, cache_write=4)
    assert price.of(usage) == pytest.approx(cost / 1_000_000)


def test_a_cache_costs_as_input_unless_it_is_said() -> None:
    """A price of two numbers is enough."""
    usage = Usage(input_tokens=1_000, cache_read_tokens=300, cache_write_tokens=300)
    assert Price(input=3, output=15).of(usage) == pytest.approx(0.003)
    assert Price(input=3, output=15, cache_read=0).of(usage) == pytest.approx(0.0021)


@pytest.mark.parametrize("name", ["input", "output", "cache_read", "cache_write"])
@pytest.mark.parametrize(("bad", "error"), [(-1, ValueError), (float("nan"), ValueError), ("3", TypeError)])
def test_a_price_below_nothing_is_refused(name: str, bad: Any, error: type[Exception]) -> None:  # noqa: ANN401
    """A slip of the keyboard must not let a run go on for ever."""
    prices: dict[str, Any] = {"input": 1, "output": 1, name: bad}
    with pytest.raises(error, match=f"the price of {name} is {bad!r}: give a number from 0 up"):
        Price(**prices)


def test_a_limit_beyond_all_floats_is_as_good_as_none() -> None:
    """Python's ints have no end."""
    assert exceeded(Limits(input_tokens=10**400), Usage(input_tokens=9), 0) is None


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_no_time_at_all_is_refused(seconds: float) -> None:
    """A run that may last no time cannot begin."""
    with pytest.raises(ValueError, match=r"seconds is .*: give a number of seconds above 0"):
        Limits(seconds=seconds)


def test_what_the_provider_told_before_the_cut_is_kept() -> None:
    """Both counts are there, and no less than what was received."""
    told = Usage(input_tokens=7, output_tokens=3)
    assert usage_at_cut(told, 999, Message.assistant("x" * 12)) == told


def test_a_cut_that_the_provider_told_nothing_of_is_estimated() -> None:
    """Four characters a token, rounded up, and flagged."""
    assert usage_at_cut(None, 9, Message.assistant("x" * 13)) == Usage(
        input_tokens=3, output_tokens=4, estimated=True
    )


def test_a_cut_before_any_answer_has_no_output() -> None:
    """Only the request was spent."""
    assert usage_at_cut(None, 4, None) == Usage(input_tokens=1, estimated=True)


def test_an_estimate_never_lowers_what_was_told() -> None:
    """The provider's larger count stays, the missing one is estimated."""
    told = Usage(output_tokens=50, cost=1.0)
    assert usage_at_cut(told, 8, Message.assistant("x")) == Usage(
        input_tokens=2, output_tokens=50, cost=1.0, estimated=True
    )
    told = Usage(input_tokens=5, output_tokens=1)
    assert usage_at_cut(told, 8, Message.assistant("x" * 8)) == Usage(
        input_tokens=5, output_tokens=2, estimated=True
    )
