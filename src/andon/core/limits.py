"""Usage: what a run has spent; Limits: what it may spend."""

from msgspec import Struct
from msgspec.structs import replace

from andon.core.messages import Message, size
from andon.core.stop import check_seconds

CHARACTERS_PER_TOKEN = 4


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Tokens spent; `estimated` when the provider did not say and part of it was counted by length."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    cost: float | None = None
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            cost=other.cost if self.cost is None else self.cost + (other.cost or 0.0),
            estimated=self.estimated or other.estimated,
        )


NOTHING = Usage()


def check_amount(name: str, amount: float | None, least: int = 0) -> None:
    """Refuse what is no number from `least` up; NaN would never be reached."""
    if amount is None:
        return
    if isinstance(amount, bool) or not isinstance(amount, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} is {amount!r}: give a number from {least} up, or None for no bound")
    if not amount >= least:  # NaN is not, either
        raise ValueError(f"{name} is {amount!r}: give a number from {least} up, or None for no bound")


class Price(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a model costs, a million tokens of each kind; those of a cache cost as input unless it is said."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cache_read", "cache_write"):
            check_amount(f"the price of {name}", getattr(self, name))

    def of(self, usage: Usage) -> float:
        """Give the cost of some usage, whose input tokens count those of the cache in."""
        read, write = usage.cache_read_tokens, usage.cache_write_tokens
        fresh = max(0, usage.input_tokens - read - write)
        return (
            fresh * self.input
            + read * (self.input if self.cache_read is None else self.cache_read)
            + write * (self.input if self.cache_write is None else self.cache_write)
            + usage.output_tokens * self.output
        ) / 1_000_000


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a run may spend, its children counted in; None is no bound.

    Reaching one is a stop with source `limit` at the nearest whole point: what is in flight ends,
    and the history, the usage and the checkpoint are kept. `cost` is reached, too, where an answer
    has cost nobody knows what: give the agent prices. `repeated_failures` is how many times in a row
    a tool may fail with the same arguments.
    """

    model_calls: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    repeated_failures: int | None = None

    def __post_init__(self) -> None:
        for name in ("model_calls", "tool_calls", "input_tokens", "output_tokens", "cost"):
            check_amount(name, getattr(self, name))
        check_seconds("seconds", self.seconds)
        check_amount("repeated_failures", self.repeated_failures, least=1)


def as_limits(given: Limits | None, otherwise: Limits) -> Limits:
    """Take what a caller gives; nothing said is what holds otherwise."""
    if given is None:
        return otherwise
    if not isinstance(given, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"limits is {given!r}: give Limits, such as Limits(model_calls=20)"
        raise TypeError(msg)
    return given


def exceeded(limits: Limits, usage: Usage, seconds: float, repeats: int = 0) -> str | None:
    """Name the limit that is reached before the next model call, if any."""
    spent: tuple[tuple[str, float, float | None], ...] = (
        ("model_calls", usage.model_calls, limits.model_calls),
        ("input_tokens", usage.input_tokens, limits.input_tokens),
        ("output_tokens", usage.output_tokens, limits.output_tokens),
        ("cost", usage.cost or 0.0, limits.cost),
        ("seconds", seconds, limits.seconds),
        ("repeated_failures", repeats, limits.repeated_failures),
    )
    for name, value, bound in spent:
        if bound is not None and value >= bound:
            return f"{name} {bound:g}"
    return None


def exceeded_by_tools(limits: Limits, usage: Usage, calls: int) -> str | None:
    """Name the limit that `calls` more tool calls would pass, if any."""
    bound = limits.tool_calls
    if bound is not None and usage.tool_calls + calls > bound:
        return f"tool_calls {bound}"
    return None


def usage_at_cut(told: Usage | None, sent_characters: int, received: Message | None) -> Usage:
    """Complete what the provider had told when its call was cut, by counting characters."""
    told = told or NOTHING
    guess = estimate(sent_characters, size(received) if received else 0)
    if told.input_tokens and told.output_tokens >= guess.output_tokens:
        return told
    return replace(
        told,
        input_tokens=told.input_tokens or guess.input_tokens,
        output_tokens=max(told.output_tokens, guess.output_tokens),
        estimated=True,
    )


def estimate(sent_characters: int, received_characters: int) -> Usage:
    """Guess what a model call cost, from its length."""
    return Usage(
        input_tokens=-(-sent_characters // CHARACTERS_PER_TOKEN),
        output_tokens=-(-received_characters // CHARACTERS_PER_TOKEN),
        estimated=True,
    )
