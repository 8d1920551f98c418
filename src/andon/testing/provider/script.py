"""What a reply is made of: the parts a test puts in order, and the faults it puts between them."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct, json

Place: TypeAlias = Literal["headers", "events"]


class Text(Struct, frozen=True):
    """Text of the answer, sent as one chunk."""

    text: str


class Reasoning(Struct, frozen=True):
    """Reasoning, sent as one chunk.

    A signature ends its block; the block that gets none is signed by the provider where its wire has
    signatures (Anthropic's `signature`, the Responses' `encrypted_content`).
    """

    text: str
    signature: str | None = None


class Stall(Struct, frozen=True):
    """Send nothing more until the test releases it or the client closes.

    It takes effect where it stands, or, wherever it stands, before the status line (`before="headers"`) or
    between the headers and the first event (`before="events"`).
    """

    before: Place | None = None


class Drop(Struct, frozen=True):
    """Reset the connection (TCP RST), at the same places as `Stall`."""

    before: Place | None = None


class Drip(Struct, frozen=True):
    """Send `text` as a chunk `times` times, one every `interval` seconds."""

    text: str
    times: int
    interval: float = 0.01


class Burst(Struct, frozen=True):
    """Send `text` as a chunk `times` times, as fast as the client reads."""

    times: int
    text: str


class Fail(Struct, frozen=True):
    """Fail in the provider's own words: as the first part by status, later as an error inside the stream.

    The type is the one the provider gives to that status, unless given.
    """

    status: int
    message: str = "the script says so"
    type: str | None = None
    retry_after: float | None = None


class ToolCall(Struct, frozen=True):
    """A call of a tool, its arguments sent in `chunks` pieces; several of them in a reply are parallel.

    Arguments given as text are sent as they are, valid or not. `midway=(2, Stall())` puts a fault after two
    pieces of the arguments.
    """

    name: str
    arguments: str | Mapping[str, object] = ""
    id: str | None = None
    chunks: int = 1
    midway: tuple[int, Stall | Drop | Drip] | None = None

    def pieces(self) -> list[str]:
        """Cut the arguments, as they go over the wire, into `chunks` pieces."""
        text = self.arguments if isinstance(self.arguments, str) else json.encode(self.arguments).decode()
        bounds = [len(text) * step // self.chunks for step in range(self.chunks + 1)]
        return [text[start:end] for start, end in pairwise(bounds)]


Fault: TypeAlias = Stall | Drop
Part: TypeAlias = Text | Reasoning | ToolCall | Stall | Drop | Drip | Burst | Fail


class Usage(Struct, frozen=True):
    """The tokens that a reply says it cost."""

    input: int
    output: int


class Reply(Struct, frozen=True):
    """Everything one request is answered with."""

    parts: tuple[Part, ...]
    headers: Mapping[str, str] = {}
    usage: Usage = Usage(10, 5)
