"""Receipt: what a push to a turn loop is told."""

from andon.core.turns import PreemptResult
from andon.runtime.later import Later


class Receipt:
    """Whether an item was accepted; `await receipt.preempt` says what became of its preempt, if any."""

    __slots__ = ("accepted", "preempt")

    def __init__(self, *, accepted: bool, preempt: Later[PreemptResult] | None = None) -> None:
        self.accepted = accepted
        self.preempt = preempt

    def __repr__(self) -> str:
        return f"<Receipt {'accepted' if self.accepted else 'too late'}>"
