"""Command: what may be asked of a session, from any process, as values that go to JSON and back.

A command is idempotent by its id: sent twice, it takes effect once. Who asks is in `by`, and the
server that passes it on fills that from who was authenticated, never from what was said.
"""

import re
from typing import Literal

import msgspec
from msgspec import Struct

from andon.core.limits import Limits
from andon.core.messages import Message
from andon.core.steer import When
from andon.core.stop import MAX_BY, MAX_ID, Stop
from andon.core.text import check_text

OnBusy = Literal["enqueue", "preempt", "steer", "reject", "rollback"]
ON_BUSY: tuple[str, ...] = OnBusy.__args__  # type: ignore[attr-defined]

_ID = re.compile(r"[A-Za-z0-9_.@+=~-]{1,128}")


class Key(Struct, frozen=True, order=True, gc=False):
    """Which session: an app, a user of it, and one conversation of theirs."""

    app: str
    user: str
    session: str

    def __post_init__(self) -> None:
        for name in ("app", "user", "session"):
            check_id(name, getattr(self, name))

    def __str__(self) -> str:
        return f"{self.app}/{self.user}/{self.session}"


def check_id(name: str, given: str) -> None:
    """Refuse an id that could not stand in a path: a colon there is a verb."""
    if not isinstance(given, str) or not _ID.fullmatch(given):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{name} is {given!r:.150}: give 1 to 128 letters, digits or _ . @ + = ~ -"
        raise ValueError(msg)


class _Command(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What all commands have: an id, the wall time, and who asks."""

    id: str
    at: float
    by: str | None = None

    def __post_init__(self) -> None:
        check_text("id", self.id, MAX_ID)
        check_text("by", self.by, MAX_BY)


class Push(_Command, frozen=True, tag="push", gc=False):
    """Say something, which becomes the run `run_id`; `on_busy` says what if a run is live."""

    run_id: str
    message: Message
    on_busy: OnBusy = "enqueue"
    limits: Limits | None = None


class Steer(_Command, frozen=True, tag="steer", gc=False):
    """Say something to the live run, or to that of a name only."""

    message: Message
    when: When = "next"
    run_id: str | None = None


class Cancel(_Command, frozen=True, tag="cancel", gc=False):
    """Cancel the live run, or one of a name only; with `queued`, all that wait as well.

    The stop is bound: it has its deadline as wall time, and its cause.
    """

    stop: Stop
    run_id: str | None = None
    queued: bool = False


class Halt(_Command, frozen=True, tag="halt", gc=False):
    """Stop the session: the live run goes on unless a stop is given, and what waits stays unhandled."""

    stop: Stop | None = None


class Pause(_Command, frozen=True, tag="pause", gc=False):
    """Stop the live run so that it can go on, and hold the session until it is resumed."""

    stop: Stop


class Resume(_Command, frozen=True, tag="resume", gc=False):
    """Let a session go on; a run that was stopped goes on from where it was, as the run `run_id`."""

    run_id: str


class Answer(_Command, frozen=True, tag="answer", gc=False):
    """Answer questions by their ids; the run that asked goes on as the run `run_id`."""

    run_id: str
    answers: dict[str, object]


class Release(_Command, frozen=True, tag="release", gc=False):
    """Let a session be worked on again that was put into quarantine."""


Command = Push | Steer | Cancel | Halt | Pause | Resume | Answer | Release

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


def command_to_json(command: Command) -> bytes:
    """Write a command down."""
    return _encoder.encode(command)


def command_from_json(data: bytes) -> Command:
    """Read a command back; `msgspec.ValidationError` if a newer version wrote it."""
    return _decoder.decode(data)
