"""Wire: requests to one server and its answers; what goes wrong is told in the server's own words."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TypeVar, cast

import httpx2
import msgspec
from msgspec import Struct

from andon.errors import AndonError, ServerError, SessionError, SessionProblem, UserError

T = TypeVar("T")

HERE = frozenset({"127.0.0.1", "::1", "localhost"})
SILENCE = 60.0  # seconds; a server with nothing to tell says at least that it is alive
KINDS: dict[int, SessionProblem] = {
    HTTPStatus.NOT_FOUND: "missing",
    HTTPStatus.CONFLICT: "conflict",
    HTTPStatus.TOO_MANY_REQUESTS: "full",
    HTTPStatus.SERVICE_UNAVAILABLE: "busy",
}


class _Problem(Struct):
    detail: str


_problem = msgspec.json.Decoder(_Problem)


class Wire:
    """Connections to one server."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        try:
            place = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError) as error:
            raise UserError(f"url is {url!r}: {error}; write http://127.0.0.1:8484") from error
        if place.scheme not in {"http", "https"} or not place.host:
            raise UserError(f"url is {url!r}: write http://127.0.0.1:8484, or the like with https")
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            verify=place.scheme == "https",  # to load certificates takes longer than most answers
            trust_env=place.host not in HERE,  # no proxy leads to this machine
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: Mapping[str, object] | None = None,
        params: Mapping[str, object] | None = None,
        wait: float = 0.0,
    ) -> T:
        """Ask for something, and read the answer."""
        return self.read(await self.send(method, path, body=body, params=params, wait=wait), kind)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        params: Mapping[str, object] | None = None,
        wait: float = 0.0,
    ) -> httpx2.Response:
        """Ask for something that takes up to `wait` seconds beyond the usual."""
        request = self._http.build_request(
            method,
            path,
            content=None if body is None else msgspec.json.encode(body),
            headers=None if body is None else {"Content-Type": "application/json"},
            params=[(name, str(one)) for name, value in (params or {}).items() for one in _each(value)],
            timeout=httpx2.Timeout(self._timeout, read=self._timeout + wait),
        )
        try:
            response = await self._http.send(request)
        except httpx2.TransportError as error:
            raise self.unreachable(error) from error
        self._check(response)
        return response

    def read(self, response: httpx2.Response, kind: type[T]) -> T:
        """Read an answer."""
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.MsgspecError as error:
            raise self._strange(response, f"whose answer cannot be read ({error})") from error

    @asynccontextmanager
    async def listen(
        self, path: str, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncGenerator[httpx2.Response]:
        """Open a stream of events; `httpx2.TransportError` when it breaks."""
        timeout = httpx2.Timeout(self._timeout, read=SILENCE)
        async with self._http.stream(
            "GET", path, params=params, headers=headers, timeout=timeout
        ) as response:
            if response.is_error:
                await response.aread()
            self._check(response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise self._strange(response, "that tells no events")
            yield response

    def unreachable(self, error: httpx2.TransportError) -> ServerError:
        """Say that the server cannot be reached, and what to do."""
        if isinstance(error, httpx2.ConnectError):
            told = f"no server answers at {self.url}"
            return ServerError(f"{told}: start one with `andon serve app.py:agent`, or name another url")
        if isinstance(error, httpx2.TimeoutException):
            told = f"the server at {self.url} gave no answer in time"
        else:
            told = f"the connection to {self.url} broke ({str(error) or type(error).__name__})"
        return ServerError(f"{told}: look whether what was asked stands before you ask again")

    def _check(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        status = response.status_code
        try:
            words = _problem.decode(response.content).detail
        except msgspec.MsgspecError:
            told = f"{status} {response.reason_phrase}".strip()
            raise self._strange(response, f"which answered {told}") from None
        raise failure(status, words)

    def _strange(self, response: httpx2.Response, what: str) -> ServerError:
        where = f"{response.request.method} {response.request.url.path}"
        return ServerError(
            f"{self.url} is perhaps no Andon server, or one of another version, {what} to {where}: "
            "look at the url"
        )


def _each(value: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def failure(status: int, words: str) -> AndonError:
    """Make the error that a server told of."""
    kind = KINDS.get(status)
    if kind is not None:
        return SessionError(words, kind)
    return UserError(words) if status < HTTPStatus.INTERNAL_SERVER_ERROR else ServerError(words)
