"""Checkpoint: the exact state of a run that ended before its answer, as versioned JSON."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from andon.core.limits import Usage
from andon.core.messages import Message, Result
from andon.errors import CheckpointError

VERSION = 1
UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


class Asked(Struct, frozen=True, omit_defaults=True, gc=False):
    """A question to a human, the `k`-th of its site, and the answer once there is one.

    The site is what asked: "tool:…" or "before_tool:…" with the id of the call, or "before_model".
    """

    id: str
    site: str
    k: int = 0
    payload: object = None
    answered: bool = False
    answer: object = None


class Checkpoint(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What `agent.resume` goes on from.

    `messages` is the history without the notes that sealed it, and without the first `shared`
    messages, which are those of the parent. `results` are the calls of its last message that have
    ended; the others run, and those in `children` had begun: they go on inside the runs, if any, that
    they had started. A call in both was under way when its worker died: it goes on if its tool is
    idempotent or an agent, and else it stays unknown.
    `heard` is what was said to the run meanwhile, and was heard by whom it had handed over to.
    `partial` is an answer that was cut. `model` and `tools` are the agent's, as it was.
    """

    version: int
    run_id: str
    agent: str
    model: str = ""
    tools: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    results: tuple[Result, ...] = ()
    steps: int = 0
    usage: Usage = Usage()
    children: "dict[str, tuple[Checkpoint, ...]]" = {}
    asked: tuple[Asked, ...] = ()
    shared: int = 0
    partial: Message | None = None
    heard: tuple[Message, ...] = ()

    def to_json(self) -> bytes:
        """Write it down."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(data: bytes | str) -> "Checkpoint":
        """Read it back; another format version is refused, and nothing is guessed."""
        try:
            version = msgspec.json.decode(data, type=_Version).version
        except UNREADABLE as error:
            msg = f"this is no checkpoint of a run: {error}"
            raise CheckpointError(msg) from error
        check_version(version)
        try:
            return msgspec.json.decode(data, type=Checkpoint)
        except UNREADABLE as error:
            msg = f"this checkpoint cannot be read: {error}"
            raise CheckpointError(msg) from error


class _Version(Struct):
    version: int


def check_version(version: int) -> None:
    """Refuse a checkpoint that another version wrote."""
    if version != VERSION:
        msg = (
            f"the checkpoint has format version {version}, and this Andon reads version {VERSION}: "
            "resume it with the version that wrote it; it has been left as it was"
        )
        raise CheckpointError(msg)


def check_whole(checkpoint: Checkpoint) -> None:
    """Refuse what a run cannot go on from by itself."""
    check_version(checkpoint.version)
    if checkpoint.shared:
        msg = (
            f"this checkpoint of {checkpoint.agent!r} is a part of another, with which it shares messages: "
            "resume the whole"
        )
        raise CheckpointError(msg)
    if not checkpoint.messages:
        msg = "this checkpoint has no messages: there is nothing to go on from"
        raise CheckpointError(msg)


def changes(then: Checkpoint, *, agent: str, model: str, tools: Iterable[str]) -> tuple[str, ...]:
    """Say in what an agent differs from the one that wrote a checkpoint; nothing is guessed."""
    had, has = set(then.tools), set(tools)
    told = (
        ("agent", then.agent, agent),
        ("model", then.model, model),
        ("tools gone", ", ".join(sorted(had - has)), ""),
        ("tools new", "", ", ".join(sorted(has - had))),
    )
    return tuple(f"{what}: {' → '.join(filter(None, (was, now)))}" for what, was, now in told if was != now)
