"""Stub: a server that answers each request with what a test has laid out, over real sockets."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct


class Asked(Struct):
    """One request."""

    method: str
    target: str
    headers: dict[str, str]
    body: object = None


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Stub:
    """Answers the requests in their order; those beyond are refused by closing the connection."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[Asked] = []
        self._answers = list(answers)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where it is."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append(await _read(reader))
            if self._answers:
                await self._answers.pop(0)(writer)
            await writer.drain()
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers, msgspec.json.decode(body) if body else None)


def says(value: object, status: int = 200, media: str = "application/json") -> Answer:
    """Answer with a value as JSON, or with bytes as they are."""
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(_head(status, media, f"Content-Length: {len(body)}") + body)
        await writer.drain()

    return answer


def problem(status: int, detail: str) -> Answer:
    """Answer with a problem."""
    told = {"type": "about:blank", "title": "?", "status": status, "detail": detail}
    return says(told, status, "application/problem+json")


def tells(*events: bytes, whole: bool = True) -> Answer:
    """Answer with a stream of events; one that is not whole breaks in the middle."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, "text/event-stream", "Transfer-Encoding: chunked"))
        for event in events:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
        writer.write(b"0\r\n\r\n" if whole else b"")
        await writer.drain()

    return answer


def event(event_id: str, kind: str, **fields: object) -> bytes:
    """Write one event down as a server does."""
    data = msgspec.json.encode({"type": kind, **fields})
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), kind.encode(), data)


def end(why: str) -> bytes:
    """Write down that nothing more comes."""
    return b"event: end\ndata: %s\n\n" % msgspec.json.encode({"type": "end", "why": why})


def _head(status: int, media: str, *headers: str) -> bytes:
    lines: Sequence[str] = (f"HTTP/1.1 {status} -", f"Content-Type: {media}", "Connection: close", *headers)
    return "\r\n".join((*lines, "", "")).encode()
