"""Steer: a message to a live run, when it is to be heard, and what became of it."""

from typing import Literal

from msgspec import Struct

from andon.core.messages import Message

When = Literal["next", "idle", "now"]
WHEN: tuple[str, ...] = When.__args__  # type: ignore[attr-defined]


class Steer(Struct, frozen=True, gc=False):
    """Something to be said to a run: at its next model call, when it would end, or now."""

    message: Message
    when: When
    id: str


class Delivery(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What became of a steer: the wall time and the item at which it joined the history, if it did.

    `delivered` is False when the run ended first.
    """

    delivered: bool
    at: float | None = None
    n: int | None = None
