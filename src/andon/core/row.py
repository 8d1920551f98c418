"""Row: what the list of runs says of one run; a projection, made anew from the journal at any time."""

from typing import Literal, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from andon.core.command import Key, Push
from andon.core.items import RunEnded
from andon.core.limits import NOTHING, Usage
from andon.core.live import Live, Queued
from andon.core.outcome import Interrupt, Outcome
from andon.core.stop import StopReport

RunState = Literal[
    "queued", "running", "stopping", "quarantined", "finished", "cancelled", "interrupted", "limit", "failed"
]
RUN_STATES: tuple[str, ...] = RunState.__args__  # type: ignore[attr-defined]
LIVE: frozenset[RunState] = frozenset({"queued", "running", "stopping", "quarantined"})
PREVIEW = 200  # characters of the prompt


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run: whose it is, what it does or how it ended, and what it has spent.

    `n` is the item of the session's journal at which this was so; `queued`, `began` and `ended` are wall
    times.
    """

    run_id: str
    app: str
    user: str
    session: str
    state: RunState
    n: int = 0
    queued: float = 0.0
    began: float | None = None
    ended: float | None = None
    prompt: str = ""
    step: str = ""
    usage: Usage = NOTHING
    by: str | None = None
    cancelled: StopReport | None = None
    interrupts: tuple[Interrupt, ...] = ()
    limit: str | None = None
    error: str | None = None
    went_on_as: str | None = None

    @property
    def key(self) -> Key:
        """The session that the run is part of."""
        return Key(self.app, self.user, self.session)

    @property
    def is_live(self) -> bool:
        """Whether the run has not ended."""
        return self.state in LIVE

    def to_json(self) -> bytes:
        """Write it down."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(data: bytes) -> "Row":
        """Read it back."""
        return _decoder.decode(data)


_decoder = msgspec.json.Decoder(Row)


def row_of_pushed(key: Key, push: Push) -> Row:
    """Tell of a run that no worker has heard of yet."""
    row = _row(key, push.run_id, "queued", 0)
    return replace(row, queued=push.at, prompt=push.message.text[:PREVIEW], by=push.by)


def row_of_queued(key: Key, queued: Queued, n: int) -> Row:
    """Tell of a run that waits."""
    prompt = "" if queued.message is None else queued.message.text[:PREVIEW]
    state: RunState = "queued" if queued.stop is None else "stopping"
    return replace(_row(key, queued.run_id, state, n), queued=queued.at, prompt=prompt, by=queued.by)


def row_of_live(key: Key, live: Live, n: int, *, quarantined: bool = False) -> Row:
    """Tell of a run that has begun."""
    state: RunState = "running" if live.stop is None else "stopping"
    return replace(
        _row(key, live.run_id, "quarantined" if quarantined else state, n),
        queued=live.queued,
        began=live.began,
        prompt=live.prompt[:PREVIEW],
        step=live.step(),
        usage=live.state.spent(),
        by=live.by,
    )


def row_of_ended(key: Key, live: Live, item: RunEnded) -> Row:
    """Tell of a run as it ends."""
    outcome = item.outcome
    return replace(
        row_of_live(key, live, item.n),
        state=_ended_as(outcome),
        ended=item.at,
        step="",
        usage=outcome.usage,
        cancelled=outcome.cancelled,
        interrupts=outcome.interrupts,
        limit=outcome.limit,
        error=outcome.error,
    )


def _row(key: Key, run_id: str, state: RunState, n: int) -> Row:
    return Row(run_id=run_id, app=key.app, user=key.user, session=key.session, state=state, n=n)


def _ended_as(outcome: Outcome) -> RunState:
    match outcome.stop_reason:
        case "end_turn":
            return "finished"
        case "cancelled":
            return "cancelled"
        case "interrupt":
            return "interrupted"
        case "limit":
            return "limit"
        case "error":
            return "failed"
        case _:
            assert_never(outcome.stop_reason)
