"""What a wire format has to know: how to check, to speak, and to fail."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct, json

from andon.testing.provider.request import Api, Object, Request
from andon.testing.provider.script import Fail, Reasoning, Text, ToolCall, Usage


class Encoder(Protocol):
    """Writes one reply: each method gives the bytes of its events and remembers what was said."""

    def opening(self) -> bytes:
        """Say what comes before any content."""
        ...

    def text(self, part: Text) -> bytes:
        """Say a piece of text."""
        ...

    def reasoning(self, part: Reasoning) -> bytes:
        """Say a piece of reasoning."""
        ...

    def call(self, part: ToolCall) -> bytes:
        """Begin a tool call."""
        ...

    def arguments(self, piece: str) -> bytes:
        """Say a piece of the arguments of the call begun last."""
        ...

    def called(self) -> bytes:
        """End that call."""
        ...

    def closing(self) -> bytes:
        """Say what comes after all content."""
        ...

    def failing(self, fail: Fail) -> bytes:
        """Say that it went wrong, inside the stream."""
        ...

    def whole(self) -> Object:
        """Give everything said as the one JSON of an answer without a stream."""
        ...


class Dialect(Struct, frozen=True, kw_only=True):
    """One provider's API."""

    api: Api
    path: str
    auth: tuple[str, ...]
    """Headers, one of which must be there."""
    request_id: str
    """The header that carries the request's id."""
    encoder: Callable[[Request, Usage], Encoder]
    error: Callable[[Fail], Object]
    problems: Callable[[object, Mapping[str, str]], list[str]]
    """What the provider would reject in a body and its headers."""


def event(data: Object | str, name: str | None = None) -> bytes:
    """Write one server-sent event."""
    text = data.encode() if isinstance(data, str) else json.encode(data)
    head = b"" if name is None else b"event: %s\n" % name.encode()
    return b"%sdata: %s\n\n" % (head, text)
