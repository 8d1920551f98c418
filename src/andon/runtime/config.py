"""Config: what all runs of one agent share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from andon.core.checkpoint import Checkpoint
from andon.core.limits import Limits, Price, Usage
from andon.core.messages import Result, ResultState
from andon.core.stop import check_seconds
from andon.core.text import check_text
from andon.ports import Model, Observer, Store, ToolSpec
from andon.runtime.hooks import Hooks
from andon.runtime.plan import Plan
from andon.runtime.tools import Tool

Pricing = Callable[[Usage], float | None]


class Config(Struct, frozen=True, kw_only=True):
    """What all runs of one agent share."""

    name: str
    models: Sequence[Model]
    names: Sequence[str]
    hands_over: bool
    tools: Mapping[str, Tool[..., Any]]
    specs: Sequence[ToolSpec]
    hooks: Hooks
    observers: Sequence[Observer]
    instructions: str
    settings: Mapping[str, object]
    limits: Limits
    retries: int
    tool_grace: float
    finish_timeout: float
    durable_timeout: float
    tool_concurrency: int | None
    cancel_text: str
    pricing: Mapping[str, Pricing]
    store: Store | None

    def __post_init__(self) -> None:
        for name in ("tool_grace", "finish_timeout", "durable_timeout"):
            check_seconds(name, getattr(self, name))
        for name in ("name", "instructions", "cancel_text"):
            check_text(name, getattr(self, name))
        if self.tool_concurrency is not None:
            check_count("tool_concurrency", self.tool_concurrency, 1, ", or None for no bound")
        check_count("retries", self.retries, 0)
        if not self.cancel_text.strip():
            msg = "cancel_text is empty, and providers refuse empty messages: give it some words"
            raise ValueError(msg)

    @property
    def model(self) -> str:
        """The name of the model that is asked first."""
        return self.names[0]

    @property
    def plan(self) -> Plan | None:
        """The plan of a workflow, which has no other model."""
        model = self.models[0]
        return model if isinstance(model, Plan) else None

    def stands(self, result: Result, checkpoint: Checkpoint) -> bool:
        """Say whether a stored result is kept: an unknown one may run again if its tool is idempotent.

        One that is unknown only because the worker died goes on, too, if an agent is behind it.
        """
        tool = self.tools.get(result.name)
        if result.state is not ResultState.UNKNOWN or tool is None:
            return True
        return not (tool.idempotent or (tool.agent and result.call_id in checkpoint.children))

    def takes_over(self, result: Result) -> bool:
        """Say whether this is the answer of an agent that the conversation was handed over to."""
        tool = self.tools.get(result.name)
        return tool is not None and tool.final and result.state is ResultState.COMPLETED


def check_count(name: str, given: int, least: int, otherwise: str = "") -> None:
    """Refuse what is no number from `least` up."""
    msg = f"{name} is {given!r:.80}: give a number from {least} up{otherwise}"
    if isinstance(given, bool) or not isinstance(given, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(msg)
    if given < least:
        raise ValueError(msg)


def pricing(models: Sequence[Model], prices: Mapping[str, Price]) -> dict[str, Pricing]:
    """Say what knows the price of each model: the table that was given, or else the model itself."""
    for name, price in prices.items():
        if not isinstance(price, Price):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"the price of {name!r} is {price!r}: give a Price, such as Price(input=3, output=15)"
            raise TypeError(msg)
    known: dict[str, Pricing] = {}
    for model in models:
        own: Pricing | None = getattr(model, "price", None)
        name = model_name(model)
        if name in prices:
            known[name] = _price(name, prices[name]).of
        elif own is not None:
            known[name] = own
    return known


def _price(name: str, given: Price) -> Price:
    if not isinstance(given, Price):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"the price of {name!r} is {given!r:.80}: give a Price(input=…, output=…)"
        raise TypeError(msg)
    return given


def model_name(model: Model) -> str:
    """Name a model for the record."""
    name = getattr(model, "name", None) or getattr(model, "__name__", None)
    return name if isinstance(name, str) else type(model).__name__
