"""Journal: what the journal of a session holds: records of items, and their JSON.

One append is one record: the items that became true together, numbered from 1 without a gap. The
items of its runs are those of `items.py`, with the session's numbers; what belongs to the session
itself is here. What a run repeats of the history is left out, as the items before it hold it:
`slim` takes it out, and the fold puts it back.
"""

from collections.abc import Sequence
from typing import get_args

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from andon.core.checkpoint import UNREADABLE, Checkpoint
from andon.core.command import Command
from andon.core.items import (
    Answered,
    Interrupted,
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    Path,
    RunEnded,
    RunStarted,
    Steered,
    StopRequested,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from andon.core.messages import Message
from andon.core.text import clean_all
from andon.core.tree import without_shared
from andon.errors import SessionError

VERSION = 1


class _Entry(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    n: int = 0
    at: float = 0.0
    path: Path = ()


class SessionCreated(_Entry, frozen=True, tag="session_created"):
    """A session began; `state` is what its creator wants kept with it."""

    state: dict[str, object] = {}


class Received(_Entry, frozen=True, tag="received"):
    """A command was taken from the mailbox, where it was number `seq`: from here on it has its effect."""

    seq: int
    command: Command


class HandedOver(_Entry, frozen=True, tag="handed_over"):
    """A worker left a live run to the next one, which goes on from this checkpoint; nobody was cancelled."""

    run_id: str
    checkpoint: Checkpoint


class Quarantined(_Entry, frozen=True, tag="quarantined", gc=False):
    """Workers died on this session again and again: none works on it until it is released."""

    why: str


class Partial(Struct, frozen=True, tag="partial", omit_defaults=True, gc=False):
    """What a model call in flight has said so far, in place of what a reader has of it; not journaled."""

    text: str = ""
    reasoning: str = ""
    path: Path = ()


class Superseded(Struct, frozen=True, tag="superseded", omit_defaults=True, gc=False):
    """The worker of a run has died: what its calls in flight had said is said anew; not journaled."""

    run_id: str


class Unknown(_Entry, frozen=True, gc=False):
    """An item that a newer version wrote: kept, and passed on as it is."""

    raw: bytes


Entry = Item | SessionCreated | Received | HandedOver | Quarantined | Unknown

_KNOWN = (
    RunStarted
    | MessageAdded
    | ModelStarted
    | ModelEnded
    | ToolStarted
    | ToolEnded
    | Steered
    | StopRequested
    | Interrupted
    | Answered
    | TurnStarted
    | TurnEnded
    | RunEnded
    | SessionCreated
    | Received
    | HandedOver
    | Quarantined
)


class _Record(Struct, omit_defaults=True):
    v: int
    items: list[Raw]


class _Version(Struct):
    v: int


class _Head(Struct):
    type: str
    n: int = 0
    at: float = 0.0


_encoder = msgspec.json.Encoder(enc_hook=repr)
_record = msgspec.json.Decoder(_Record)
_version = msgspec.json.Decoder(_Version)
_entry = msgspec.json.Decoder(_KNOWN)
_head = msgspec.json.Decoder(_Head)
_TAGS = frozenset(kind.__struct_config__.tag for kind in get_args(_KNOWN))


def entry_to_json(entry: Entry) -> bytes:
    """Write one item down; one that is not known here is written as it came."""
    if isinstance(entry, Unknown):
        return entry.raw
    try:
        return _encoder.encode(entry)
    except UnicodeEncodeError:
        return _encoder.encode(clean_all(msgspec.to_builtins(entry, enc_hook=repr)))


def entry_from_json(raw: bytes | Raw) -> Entry:
    """Read one item back; one of a kind that only a newer version knows is kept as it is.

    One of a known kind with something new in it may change what is true here: it is refused.
    """
    try:
        return _entry.decode(raw)
    except UNREADABLE as error:
        head = _head_of(raw)
        if head.type not in _TAGS:
            return Unknown(n=head.n, at=head.at, raw=bytes(raw))
        msg = f"item {head.n} of the journal is a {head.type} that this Andon cannot read ({error})"
        raise SessionError(f"{msg}: it is left to newer workers", "newer") from error


def _head_of(raw: bytes | Raw) -> _Head:
    try:
        return _head.decode(raw)
    except UNREADABLE as error:
        raise _broken(error) from error


def _broken(error: BaseException) -> SessionError:
    return SessionError(
        f"the journal holds what is no record of a session ({error}): restore it from a back-up", "broken"
    )


def record_to_json(entries: Sequence[Entry]) -> bytes:
    """Write down what is appended at once."""
    return b'{"v":%d,"items":[%s]}' % (VERSION, b",".join(map(entry_to_json, entries)))


def record_from_json(data: bytes) -> list[Entry]:
    """Read a record back; one of a newer format is refused: newer workers can read it."""
    try:
        version = _version.decode(data).v
        items = _record.decode(data).items if version <= VERSION else []
    except UNREADABLE as error:
        raise _broken(error) from error
    if version > VERSION:
        msg = (
            f"the journal has format version {version}, and this Andon reads up to {VERSION}: "
            "it is left to newer workers"
        )
        raise SessionError(msg, "newer")
    return list(map(entry_from_json, items))


def slim(entry: Entry, history: Sequence[Message]) -> Entry:
    """Leave out of a run's item what the items before it say already."""
    match entry:
        case RunStarted(path=()):
            given = entry.checkpoint
            kept = None if given is None else without_shared(given, history)
            return replace(entry, history=(), checkpoint=kept)
        case RunEnded(outcome=outcome, path=()):
            given = outcome.checkpoint
            kept = None if given is None else without_shared(given, history)
            return replace(entry, outcome=replace(outcome, messages=(), checkpoint=kept))
        case HandedOver(checkpoint=given):
            return replace(entry, checkpoint=without_shared(given, history))
        case _:
            return entry
