"""Guard: stands before the routes: what is too large or too deep, or comes from a foreign page, stays out."""

import re
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from andon.serve.auth import is_loopback
from andon.serve.problem import Problem
from andon.serve.settings import Settings

DEEPEST = 64
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_STEP = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


class Guard:
    """Middleware: checks hosts, origins, headers and bodies, and reads bodies whole before they go on."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or say why not."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
            if scope["type"] == "http" and scope["method"] not in SAFE:
                body = await self._read(scope, receive)
                if body is None:
                    return
                receive = _replay(body, receive)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) for name, value in raw) + len(scope["query_string"])
        if size > self._settings.max_headers:
            raise Problem(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the headers and the query have {size} bytes, and {self._settings.max_headers} are allowed",
            )
        headers = Headers(scope=scope)
        self._check_host(headers.get("host", ""))
        origin = headers.get("origin")
        if origin is not None and (scope["type"] == "websocket" or scope["method"] not in SAFE):
            self._check_origin(origin, headers.get("host", ""))

    def _check_host(self, host: str) -> None:
        """Refuse names of elsewhere that were made to lead here: a page there would pass for ours."""
        if not self._settings.is_open:
            return
        name = urlsplit(f"//{host}").hostname or ""
        if not is_loopback(name) and name not in self._settings.hosts:
            raise Problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"without tokens it answers to names of this machine only, and not to {name!r}: call it "
                "127.0.0.1 or localhost, or add the name to the hosts of its settings",
            )

    def _check_origin(self, origin: str, host: str) -> None:
        if urlsplit(origin).netloc != host and origin not in self._settings.origins:
            raise Problem(
                HTTPStatus.FORBIDDEN,
                f"a page of {origin} may not ask for this: add it to the origins of the settings if it may",
            )

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Read the body; None if the client goes away."""
        most = self._settings.max_body
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdecimal() and int(declared) > most:
            raise _too_large(most)
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > most:
                raise _too_large(most)
        check_depth(body)
        return bytes(body)


def check_depth(body: bytes | bytearray) -> None:
    """Refuse JSON that nests too deep for whoever reads it later."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return
    depth = 0
    for step in _STEP.finditer(body):
        first = body[step.start()]
        depth += first in b"[{"
        depth -= first in b"]}"
        if depth > DEEPEST:
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"the body nests more than {DEEPEST} deep: make it flatter",
            )


def _too_large(most: int) -> Problem:
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than the {most} bytes that are allowed"
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give what was read once more, then what comes."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    return again
