"""Turns a reply into steps: what to send, where to stall, when to drop. Decides, and does nothing."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, assert_never

from msgspec import Struct, json

from andon.testing.provider.dialect import Dialect, Encoder
from andon.testing.provider.request import Request
from andon.testing.provider.script import (
    Burst,
    Drip,
    Drop,
    Fail,
    Fault,
    Part,
    Place,
    Reasoning,
    Reply,
    Stall,
    Text,
    ToolCall,
)

_OK = 200


class Head(Struct, frozen=True):
    """Send the status line and the headers; no length means chunks of unknown number."""

    status: int
    headers: Mapping[str, str]
    length: int | None = None


class Send(Struct, frozen=True):
    """Send bytes; those of content count as chunks, and the last end the answer."""

    data: bytes
    chunks: int = 0
    last: bool = False


class Pause(Struct, frozen=True):
    """Let time go by."""

    seconds: float


Step: TypeAlias = Head | Send | Pause | Stall | Drop


def play(reply: Reply, request: Request, dialect: Dialect) -> Iterator[Step]:
    """Give the steps of answering a request."""
    yield from _faults(reply, "headers")
    parts = [part for part in reply.parts if not (isinstance(part, Fault) and part.before)]
    if parts and isinstance(parts[0], Fail):
        yield from refuse(parts[0], dialect, reply.headers)
    elif request.stream:
        yield from _stream(parts, reply, dialect.encoder(request, reply.usage))
    else:
        yield from _whole(parts, reply, request, dialect)


def refuse(fail: Fail, dialect: Dialect, headers: Mapping[str, str] | None = None) -> Iterator[Step]:
    """Give the steps of an answer that is an error status."""
    body = json.encode(dialect.error(fail))
    patience = {} if fail.retry_after is None else {"retry-after": f"{fail.retry_after:g}"}
    yield Head(fail.status, {"content-type": "application/json", **patience, **(headers or {})}, len(body))
    yield Send(body, last=True)


def _faults(reply: Reply, before: Place) -> Iterator[Fault]:
    return (part for part in reply.parts if isinstance(part, Fault) and part.before == before)


def _stream(parts: list[Part], reply: Reply, encoder: Encoder) -> Iterator[Step]:
    yield Head(
        _OK,
        {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **reply.headers},
    )
    yield from _faults(reply, "events")
    yield Send(encoder.opening())
    for part in parts:
        yield from _steps(part, encoder)
        if isinstance(part, Fail):
            return
    yield Send(encoder.closing(), last=True)


def _whole(parts: list[Part], reply: Reply, request: Request, dialect: Dialect) -> Iterator[Step]:
    """Go through the same faults, and send everything said as one body at their end."""
    failed = next((part for part in parts if isinstance(part, Fail)), None)
    if failed is not None:
        yield from refuse(failed, dialect, reply.headers)
        return
    encoder = dialect.encoder(request, reply.usage)
    steps = [step for part in parts for step in _steps(part, encoder)]
    body = json.encode(encoder.whole())
    yield Head(_OK, {"content-type": "application/json", **reply.headers}, len(body))
    yield from _faults(reply, "events")
    yield from (step for step in steps if not isinstance(step, Send))
    yield Send(body, chunks=1, last=True)


def _steps(part: Part, encoder: Encoder) -> Iterator[Step]:
    match part:
        case Text():
            yield Send(encoder.text(part), chunks=1)
        case Reasoning():
            yield Send(encoder.reasoning(part), chunks=1)
        case ToolCall():
            yield from _call(part, encoder)
        case Burst(times, text):
            yield from (Send(encoder.text(Text(text)), chunks=1) for _ in range(times))
        case Drip():
            yield from _drip(part, lambda text: encoder.text(Text(text)))
        case Fail():
            yield Send(encoder.failing(part), last=True)
        case Stall() | Drop():
            yield part
        case _:
            assert_never(part)


def _call(call: ToolCall, encoder: Encoder) -> Iterator[Step]:
    yield Send(encoder.call(call))
    place, fault = call.midway or (-1, None)
    for index, piece in enumerate(call.pieces()):
        if index == place and fault is not None:
            yield from _midway(fault, encoder)
        yield Send(encoder.arguments(piece), chunks=1)
    if place == call.chunks and fault is not None:
        yield from _midway(fault, encoder)
    yield Send(encoder.called())


def _midway(fault: Stall | Drop | Drip, encoder: Encoder) -> Iterator[Step]:
    if isinstance(fault, Drip):
        yield from _drip(fault, encoder.arguments)
    else:
        yield fault


def _drip(drip: Drip, say: Callable[[str], bytes]) -> Iterator[Step]:
    for _ in range(drip.times):
        yield Send(say(drip.text), chunks=1)
        yield Pause(drip.interval)
