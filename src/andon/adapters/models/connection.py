"""Connections: an HTTP client of ours for each event loop, which knows what a request has left open.

A client belongs to its event loop, and a loop ends without telling us. But it closes the async
generators that were begun on it, so one of those keeps each client and closes it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Self

import httpx2
from msgspec import Struct
from pydantic_ai.models import Model, get_user_agent
from pydantic_ai.providers import Provider

TIMEOUT = httpx2.Timeout(600, connect=10)
LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)


class Watch:
    """What one request has opened: whatever its library leaves open is closed at the end of the block."""

    __slots__ = ("_bodies", "on_pause")

    def __init__(self, on_pause: Callable[[], None] | None = None) -> None:
        self._bodies: list[_Body] = []
        self.on_pause = on_pause
        """Called whenever all that has come was read, and more is waited for."""

    def open(self, response: httpx2.Response) -> None:
        """Watch over a response that has just begun."""
        if isinstance(response.stream, httpx2.AsyncByteStream):
            body = _Body(response.stream, self)
            self._bodies.append(body)
            response.stream = body

    def closed(self, body: "_Body") -> None:
        """Forget a response that was closed."""
        if body in self._bodies:
            self._bodies.remove(body)

    async def __aenter__(self) -> Self:
        _watch.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for body in tuple(self._bodies):
            await body.aclose()


_watch: ContextVar[Watch | None] = ContextVar("andon_watch", default=None)


class _Body(httpx2.AsyncByteStream):
    """The body of a response, which tells the watch when it is closed."""

    def __init__(self, body: httpx2.AsyncByteStream, watch: Watch) -> None:
        self._body = body
        self._watch = watch

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._body)
        try:
            async for piece in pieces:
                yield piece
                if self._watch.on_pause is not None:
                    self._watch.on_pause()
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def aclose(self) -> None:
        self._watch.closed(self)
        await self._body.aclose()


async def on_response(response: httpx2.Response) -> None:
    """Let the watch of the request that is being made watch over its response."""
    watch = _watch.get()
    if watch is not None:
        watch.open(response)


class Session(Struct, frozen=True):
    """A model on a client of one event loop."""

    model: Model
    client: httpx2.AsyncClient
    keeper: AsyncGenerator[None, None]


class Sessions:
    """One session for each event loop that uses a model."""

    __slots__ = ("_build", "_certificates", "opened")

    def __init__(self, build: Callable[[httpx2.AsyncClient], tuple[Model, Provider]]) -> None:
        self._build = build
        self._certificates = httpx2.create_ssl_context()
        self.opened: dict[asyncio.AbstractEventLoop, Session] = {}
        """The session of each loop; those of ended loops go when the next is opened."""
        # Made once at the start, so that a missing key or package is told where the model is named.
        build(self._client())

    async def here(self) -> Model:
        """Give the model on the client of the running loop."""
        loop = asyncio.get_running_loop()
        session = self.opened.get(loop)
        if session is None or session.client.is_closed:
            self._forget_ended_loops()
            client = self._client()
            model, provider = self._build(client)
            session = Session(model, client, _keep(client, provider))
            self.opened[loop] = session
            await anext(session.keeper)
        return session.model

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        session = self.opened.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.keeper.aclose()

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            verify=self._certificates,
            timeout=TIMEOUT,
            limits=LIMITS,
            headers={"User-Agent": get_user_agent()},
            event_hooks={"response": [on_response]},
        )

    def _forget_ended_loops(self) -> None:
        for loop in tuple(self.opened):
            if loop.is_closed():
                self.opened.pop(loop, None)


async def _keep(client: httpx2.AsyncClient, provider: Provider) -> AsyncGenerator[None, None]:
    """Close the client when the loop ends, or when nobody has the model any more."""
    async with client, provider:
        yield
