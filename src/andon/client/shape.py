"""Shape: what a client sends, and what it is told besides the values of the core."""

from collections.abc import Sequence
from typing import cast

from msgspec import Struct, to_builtins

from andon.core.command import Key
from andon.core.items import Delta
from andon.core.journal import Entry, Partial, Superseded
from andon.core.limits import Limits
from andon.core.messages import Image, Text
from andon.core.outcome import Interrupt
from andon.core.row import Row
from andon.core.stop import Point, Stop
from andon.errors import UserError

News = Entry | Delta | Partial | Superseded
Input = str | Sequence[Text | Image]

POINTS = {Point.STREAM: "stream", Point.MODEL: "model", Point.TOOLS: "tools"}


class Told(Row, frozen=True, kw_only=True, omit_defaults=True):
    """A run; once it has ended, and was waited for, with the last words of its agent."""

    text: str = ""


class Session(Struct, frozen=True, kw_only=True, rename="camel"):
    """A session: what is live in it, what waits, and whether it is held, closed or in quarantine."""

    id: str
    app_name: str
    user_id: str
    state: dict[str, object] = {}
    last_update_time: float = 0.0
    live_run_id: str | None = None
    queued_run_ids: tuple[str, ...] = ()
    waiting_run_id: str | None = None
    interrupts: tuple[Interrupt, ...] = ()
    held: bool = False
    closed: bool = False
    quarantined: str = ""
    n: int = 0

    @property
    def key(self) -> Key:
        """Which session it is."""
        return Key(self.app_name, self.user_id, self.id)


class Taken(Struct, frozen=True):
    """What was asked stands; it concerns this run, if any."""

    run_id: str | None = None


class Page(Struct, frozen=True):
    """Some runs, and where the others begin, if there are any."""

    runs: tuple[Row, ...]
    next: str | None = None


def stop_body(stop: Stop | None) -> dict[str, object]:
    """Write a stop down as a server reads it; nothing said is *now*."""
    if stop is None:
        return {}
    if stop.deadline is not None:
        raise UserError("a stop that has a deadline already belongs to a run: give one with a grace")
    body: dict[str, object] = {"recursive": True} if stop.recursive else {}
    if not stop.immediate:
        body["at"] = [POINTS[point] for point in stop.points]
    if stop.grace is not None:
        body["grace"] = stop.grace
    return body


def input_body(prompt: Input) -> object:
    """Write a prompt down: words, or a list of words and of pictures by their address."""
    if isinstance(prompt, str):
        return prompt
    if any(isinstance(part, Image) and part.url is None for part in prompt):
        raise UserError("a picture goes to a server by its address: give Image(url=…)")
    return to_builtins(prompt)


def limits_body(limits: Limits | None) -> dict[str, object] | None:
    """Write limits down."""
    return None if limits is None else cast("dict[str, object]", to_builtins(limits))


def given(**fields: object) -> dict[str, object]:
    """Leave out what was not said."""
    return {name: value for name, value in fields.items() if value is not None}
