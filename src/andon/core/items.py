"""Items and deltas: the closed union of what happens in a run, and its JSON.

Items are what the journal keeps: numbered from 1 without a gap, past participles. Deltas are what
passes by on the way: tokens and progress, superseded by the item that ends their step.
"""

from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from andon.core.checkpoint import Checkpoint
from andon.core.limits import NOTHING, Usage
from andon.core.messages import Message, ResultState
from andon.core.outcome import Outcome
from andon.core.stop import Stop
from andon.core.text import clean_all

Path = tuple[str, ...]


class TextDelta(Struct, frozen=True, tag="text_delta", omit_defaults=True, gc=False):
    """Some words of the answer in flight."""

    text: str
    path: Path = ()


class ReasoningDelta(Struct, frozen=True, tag="reasoning_delta", omit_defaults=True, gc=False):
    """Some reasoning of the answer in flight."""

    text: str
    path: Path = ()


class CallDelta(Struct, frozen=True, tag="call_delta", omit_defaults=True, gc=False):
    """Some of the arguments of a tool call in flight, as the provider's JSON text."""

    name: str
    arguments: str
    call_id: str = ""
    path: Path = ()


class ToolProgress(Struct, frozen=True, tag="tool_progress", omit_defaults=True):
    """What a running tool tells before its result."""

    call_id: str
    value: object
    path: Path = ()


class _Item(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What all items have: a number, a wall time, and the path of a child run."""

    n: int = 0
    at: float = 0.0
    path: Path = ()


class RunStarted(_Item, frozen=True, tag="run_started", gc=False):
    """A run began, with this history before it, or went on from this checkpoint.

    A child names its parent, and the tool call that started it if one did. `changed` says in what the agent
    differs from the one that wrote the checkpoint.
    """

    run_id: str
    agent: str
    parent: str = ""
    call_id: str = ""
    model: str = ""
    history: tuple[Message, ...] = ()
    checkpoint: Checkpoint | None = None
    changed: tuple[str, ...] = ()


class MessageAdded(_Item, frozen=True, tag="message_added", gc=False):
    """A message joined the history."""

    message: Message


class ModelStarted(_Item, frozen=True, tag="model_started", gc=False):
    """The model was asked; `attempt` counts the retries of one step from 1."""

    step: int
    attempt: int = 1
    model: str = ""


class ModelEnded(_Item, frozen=True, tag="model_ended", gc=False):
    """The model call is over: `complete`, `cut` by a stop, or `failed`."""

    step: int
    attempt: int = 1
    end: Literal["complete", "cut", "failed"] = "complete"
    usage: Usage = NOTHING
    error: str | None = None


class ToolStarted(_Item, frozen=True, tag="tool_started", gc=False):
    """A tool is about to run; written before it does.

    With `step` it is a step of a workflow, which is no tool call that a model asked for. With `again`
    this very call had begun before the run was resumed: it is not counted twice.
    """

    call_id: str
    name: str
    step: bool = False
    again: bool = False


class ToolEnded(_Item, frozen=True, tag="tool_ended", gc=False):
    """A tool call is over; a call that was never started ends too.

    `again` says that a resumed run makes the call again, with the runs that it had started going
    on from the checkpoints in `children`, in order. `repeats` says how many times in a row this very
    call has failed.
    """

    call_id: str
    name: str
    state: ResultState
    content: str = ""
    again: bool = False
    children: tuple[Checkpoint, ...] = ()
    repeats: int = 0


class Steered(_Item, frozen=True, tag="steered", gc=False):
    """A message was added from outside, to be read with the next model call.

    `above` is how many runs up it was said, to one that had handed the conversation over.
    """

    message: Message
    id: str = ""
    above: int = 0


class StopRequested(_Item, frozen=True, tag="stop_requested", gc=False):
    """Somebody asked the run to stop; `stop` is all requests so far, joined."""

    stop: Stop


class Interrupted(_Item, frozen=True, tag="interrupted"):
    """The agent asks a human, for the `k`-th time at this site."""

    id: str
    payload: object = None
    site: str = ""
    k: int = 0


class Answered(_Item, frozen=True, tag="answered"):
    """A human has answered."""

    id: str
    answer: object = None


class TurnStarted(_Item, frozen=True, tag="turn_started", gc=False):
    """A turn of a loop began."""

    turn: int


class TurnEnded(_Item, frozen=True, tag="turn_ended", gc=False):
    """A turn of a loop is over."""

    turn: int
    end: str = ""


class RunEnded(_Item, frozen=True, tag="run_ended", gc=False):
    """The run is over: the one terminal item, always the last."""

    outcome: Outcome


Delta = TextDelta | ReasoningDelta | CallDelta | ToolProgress
Item = (
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
)
Event = Delta | Item

# What a tool tells of its progress may be any object; written down, what is no JSON is its repr.
_encoder = msgspec.json.Encoder(enc_hook=repr)
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def to_json(event: Event) -> bytes:
    """Write one event down."""
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        return _encoder.encode(clean_all(msgspec.to_builtins(event, enc_hook=repr)))
    except RecursionError:
        if not isinstance(event, ToolProgress):
            raise
        return to_json(replace(event, value=repr(event.value)))


def from_json(data: bytes | str) -> Event:
    """Read one event back."""
    return _decoder.decode(data)
