"""Outcome: how a run ended, and all that somebody needs to go on from there."""

from typing import Literal

from msgspec import Struct

from andon.core.checkpoint import Checkpoint
from andon.core.limits import Usage
from andon.core.messages import Message
from andon.core.stop import StopReport

StopReason = Literal["end_turn", "cancelled", "interrupt", "limit", "error"]


class Interrupt(Struct, frozen=True, omit_defaults=True, gc=False):
    """A question that waits for a human; `path` names the agents and tools on the way to it."""

    id: str
    payload: object = None
    path: tuple[str, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How a run ended; `messages` can always be sent again, to any provider.

    `cancelled` is the stop report of a run that was cancelled. `limit` names the limit that a run
    reached, and `error` says what failed in one that ended as an error. `interrupts` are the
    questions that a paused run waits for, or that a stop found open. `checkpoint_error` says why the
    checkpoint, which is here all the same, is not in the store.
    """

    run_id: str
    stop_reason: StopReason
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    cancelled: StopReport | None = None
    limit: str | None = None
    error: str | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_error: str | None = None
    interrupts: tuple[Interrupt, ...] = ()

    @property
    def message(self) -> Message:
        """The last message of the assistant."""
        return next(message for message in reversed(self.messages) if message.role == "assistant")

    @property
    def text(self) -> str:
        """The words of the last message of the assistant."""
        return self.message.text
