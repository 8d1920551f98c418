"""Steering: what is said to a live run from outside, heard once and in order.

Any thread puts messages in; only the run's own task takes them out, where a model call is next or
the run would end. What is still there when the run has ended was not delivered, and is told so.
"""

import os
from collections import deque

from andon.core.messages import Message
from andon.core.steer import Delivery, Steer, When
from andon.runtime.later import Later


class SteerReceipt(Later[Delivery]):
    """What `run.steer` gives: `await` it, or `wait()` for it in a thread, to learn what became of it.

    That is a `Delivery`: `delivered`, and if so `at` which time and as item number `n` of the run. It
    comes with the model call that the message was for, or when the run has ended without it.
    """

    __slots__ = ("id",)

    def __init__(self, steer_id: str) -> None:
        super().__init__()
        self.id = steer_id

    @property
    def delivery(self) -> Delivery | None:
        """What became of the message; None while that is open."""
        return self._given

    def __repr__(self) -> str:
        if self._given is None:
            return "<SteerReceipt open>"
        return f"<SteerReceipt {'delivered' if self._given.delivered else 'not delivered'}>"


Said = tuple[Steer, SteerReceipt]


class Steering:
    """The messages that wait to be heard by one run."""

    __slots__ = ("_closed", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Said] = deque()
        self._closed = False

    def say(self, message: Message, when: When, steer_id: str | None = None) -> SteerReceipt:
        """Put a message in; after the end it is told so at once."""
        receipt = SteerReceipt(steer_id or os.urandom(8).hex())
        self.waiting.append((Steer(message, when, receipt.id), receipt))
        if self._closed:  # looked at after the append: either this or `close` finds it
            self._refuse()
        return receipt

    @property
    def urgent(self) -> bool:
        """Whether something waits that is to cut the model call in flight."""
        return any(steer.when == "now" for steer, _ in tuple(self.waiting))

    def take(self, *, at_end: bool) -> list[Said]:
        """Take out what is heard at this place."""
        waiting = [self.waiting.popleft() for _ in range(len(self.waiting))]
        if at_end:
            return waiting
        self.waiting.extendleft(one for one in reversed(waiting) if one[0].when == "idle")
        return [one for one in waiting if one[0].when != "idle"]

    def close(self) -> None:
        """Tell all that still wait, and all that come later, that the run has ended first."""
        self._closed = True
        self._refuse()

    def _refuse(self) -> None:
        while self.waiting:
            try:
                _, receipt = self.waiting.popleft()
            except IndexError:  # another thread has just taken the last one
                return
            receipt.settle(Delivery(delivered=False))
