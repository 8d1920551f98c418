"""Budget: what a run may spend, its children counted in, and the stop when it is spent.

It is looked at where a run is about to spend more: before a model call, and before a round of tools.
There the budgets of all runs above are looked at, too, so that no child outlives the limit of its root.
What is spent is charged to all of them at once, in whatever thread it happens: the events of a child
in another thread reach its parent only later.
"""

from threading import Lock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from andon.core.items import Item, ModelEnded, ModelStarted, ToolStarted
from andon.core.limits import Limits, Usage, exceeded, exceeded_by_tools
from andon.core.stop import Cause, Stop

if TYPE_CHECKING:
    from andon.runtime.record import Record

UNBOUNDED = Limits()
MODEL_CALL = Usage(model_calls=1)
TOOL_CALL = Usage(tool_calls=1)
UNPRICED = "nobody knows what an answer of the model of {!r} cost: give that agent prices={{name: Price(…)}}"


class Budget:
    """The limits of one run, what it has spent of them, and the first of them that was reached."""

    __slots__ = ("_limits", "_lock", "_record", "_started", "_unpriced", "_usage", "reached")

    def __init__(self, record: "Record", limits: Limits) -> None:
        self._record = record
        self._limits = limits
        self._usage = record.state.spent()
        self._lock = Lock()  # taken for an item, and never for a chunk
        self._started = record.scope.now()
        self._unpriced: str | None = None
        self.reached: str | None = None

    def unpriced(self, agent: str) -> None:
        """Note that an answer of an agent's model cost nobody knows what; from any thread."""
        self._unpriced = self._unpriced or agent

    def charge(self, usage: Usage) -> None:
        """Count in what the run, or one below it, has spent; from any thread."""
        with self._lock:
            self._usage += usage

    def check(self, calls: int | None, repeats: int) -> bool:
        """Ask for a stop, once, if a limit forbids so many new tool calls, or with None, a model call."""
        if self.reached is None:
            self.reached = self.forbids(calls, repeats)
            if self.reached is not None:
                reason = f"the limit {self.reached} was reached"
                self._record.scope.request(Stop.graceful(), Cause("limit", reason=reason))
                self._record.scope.on_loop(self._record.scope.drain)
        return self.reached is not None

    def forbids(self, calls: int | None, repeats: int) -> str | None:
        """Name the limit, if any, that forbids so many new tool calls, or with None, a model call.

        `repeats` are the failures in a row of whoever is about to go on: this run, or one below it.
        """
        record, limits, usage = self._record, self._limits, self._usage
        if calls is not None:  # their round still belongs to the model call that asked for them
            limits = replace(limits, model_calls=None)
            by_tools = exceeded_by_tools(limits, usage, calls)
            if by_tools is not None:
                return by_tools
        by_spending = exceeded(limits, usage, record.scope.now() - self._started, repeats)
        if by_spending is None and limits.cost is not None and self._unpriced is not None:
            # A bound that cannot be counted would bound nothing, without a word.
            return f"cost {limits.cost:g}: {UNPRICED.format(self._unpriced)}"
        return by_spending


def charge(record: "Record", item: Item) -> None:
    """Charge what an item has cost to the budgets of its run and of those above it."""
    match item:
        case ModelStarted(attempt=1):
            usage = MODEL_CALL
        case ModelEnded():
            usage = item.usage
            if item.end == "complete" and usage.cost is None:
                for budget in record.budgets:
                    budget.unpriced(record.config.name)
        case ToolStarted(again=False, step=False):
            usage = TOOL_CALL
        case _:
            return
    for budget in record.budgets:
        budget.charge(usage)


def spent(record: "Record", calls: int | None) -> bool:
    """Look whether a run, or one above it, may not go on; each that may not asks for a stop of its own."""
    repeats = record.state.repeated
    checked = [budget.check(calls, repeats) for budget in record.budgets]  # all, not only the first
    return any(checked)


def affords(record: "Record", calls: int | None) -> bool:
    """Look the same up, without asking for anything."""
    repeats = record.state.repeated
    return not any(budget.forbids(calls, repeats) for budget in record.budgets)
