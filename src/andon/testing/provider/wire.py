"""HTTP/1.1, as much of it as the providers' clients use."""

from asyncio import IncompleteReadError, LimitOverrunError, StreamReader
from collections.abc import Mapping
from http import HTTPStatus

from msgspec import Struct

LIMIT = 1 << 20
"""The longest head of a request."""

LAST_CHUNK = b"0\r\n\r\n"


class RawRequest(Struct, frozen=True):
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


async def read_request(reader: StreamReader) -> RawRequest | None:
    """Read the next request; none if the client is done, or does not speak HTTP."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, _version = lines[0].split(" ")
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except (IncompleteReadError, LimitOverrunError, ConnectionError, ValueError):
        return None
    return RawRequest(method, target.partition("?")[0], headers, body)


def head(status: int, headers: Mapping[str, str], length: int | None) -> bytes:
    """Write the status line and the headers."""
    framing = {"transfer-encoding": "chunked"} if length is None else {"content-length": str(length)}
    lines = [f"{name}: {value}" for name, value in {**headers, **framing}.items()]
    return "\r\n".join([f"HTTP/1.1 {status} {_phrase(status)}", *lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Write one chunk of a body whose length is not known."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def _phrase(status: int) -> str:
    # Anthropic's 529 is none of HTTP's own.
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Overloaded"
