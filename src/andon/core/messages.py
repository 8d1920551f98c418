"""Messages: what a person, a model and tools have said, as values that go to JSON and back."""

from enum import StrEnum
from typing import Literal, assert_never

from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from andon.core.frozen import frozen

Role = Literal["user", "assistant", "tool"]


class ResultState(StrEnum):
    """How a tool call ended; `UNKNOWN` was started, and whether it took effect is not known."""

    COMPLETED = "completed"
    FAILED = "failed"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"


class Text(Struct, frozen=True, tag="text", omit_defaults=True, gc=False):
    """Words."""

    text: str


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True, gc=False):
    """What the model thought before it answered."""

    text: str


class Image(Struct, frozen=True, tag="image", omit_defaults=True, gc=False):
    """A picture for the model, by its bytes or by its address."""

    data: bytes | None = None
    media_type: str = "image/png"
    url: str | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            msg = "an Image has either data or a url: give exactly one of them"
            raise ValueError(msg)


class Call(Struct, frozen=True, tag="call", omit_defaults=True, gc=False):
    """A tool call that the model asks for; `id` is given by the run where the model gave none.

    `said` is the model's own word for the tool where that is a name that no provider takes; such a
    call is never made.
    """

    name: str
    arguments: dict[str, object] = {}
    id: str = ""
    said: str | None = None

    def __post_init__(self) -> None:
        # Histories, hooks, models and tools all hold it: what one of them changed would change for all.
        if type(self.arguments) is dict:
            force_setattr(self, "arguments", frozen(self.arguments))


class Result(Struct, frozen=True, tag="result", omit_defaults=True, gc=False):
    """What became of one tool call."""

    call_id: str
    name: str
    content: str
    state: ResultState = ResultState.COMPLETED

    @property
    def is_error(self) -> bool:
        """Say whether the model should read the content as a failure."""
        return self.state is not ResultState.COMPLETED


class Payload(Struct, frozen=True, tag="payload", omit_defaults=True, gc=False):
    """A message in its provider's own JSON, kept unread so that it goes back without loss."""

    provider: str
    data: Raw


Part = Text | Reasoning | Image | Call | Result


class Message(Struct, frozen=True, omit_defaults=True, weakref=True):
    """One turn of speech: `user`, `assistant`, or `tool` with the results of one round."""

    role: Role
    parts: tuple[Part, ...]
    cut: bool = False
    synthetic: bool = False
    payload: Payload | None = None

    @classmethod
    def user(cls, *parts: str | Part) -> "Message":
        """Make a user's message of words and pictures."""
        return cls("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))

    @classmethod
    def assistant(cls, *parts: str | Part) -> "Message":
        """Make an assistant's message of words, reasoning and calls."""
        return cls("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts))

    @property
    def text(self) -> str:
        """The words of the message, without reasoning and calls."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def reasoning(self) -> str:
        """The reasoning of the message."""
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls that the message asks for."""
        return tuple([part for part in self.parts if isinstance(part, Call)])

    @property
    def results(self) -> tuple[Result, ...]:
        """The tool results that the message carries."""
        return tuple([part for part in self.parts if isinstance(part, Result)])


def size(message: Message) -> int:
    """Count the characters that a model would read or write, for an estimate of tokens."""
    return sum(map(_part_size, message.parts))


def _part_size(part: Part) -> int:
    match part:
        case Text(text) | Reasoning(text):
            return len(text)
        case Call(name, arguments):
            return len(name) + len(str(arguments))
        case Result(content=content):
            return len(content)
        case Image():
            return 4_000  # providers count a picture at about a thousand tokens
        case _:
            assert_never(part)
