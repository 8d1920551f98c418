"""Events: what a session or a run tells, across connections that break, each item once."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing

import anyio
import httpx2
import msgspec
from msgspec import Struct

from andon.client.shape import News
from andon.client.wire import Wire
from andon.core.items import Delta
from andon.core.journal import Partial, Superseded, entry_from_json
from andon.errors import AndonError, ServerError, SessionError

DELTAS = frozenset({"text_delta", "reasoning_delta", "call_delta", "tool_progress"})
FIRST_DELAY = 0.05
LONGEST_DELAY = 5.0
FOR_NOW = frozenset({"busy", "full"})

_delta: msgspec.json.Decoder[Delta] = msgspec.json.Decoder(Delta)
_partial = msgspec.json.Decoder(Partial)
_superseded = msgspec.json.Decoder(Superseded)


class Sent(Struct, gc=False):
    """One server-sent event."""

    id: str
    kind: str
    data: bytes


class Reader:
    """Cuts what comes from a server into events; comments say only that it is alive."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Sent]:
        """Take some bytes, and give the events that are whole with them."""
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        return [sent for sent in map(_event, blocks) if sent.data]


def _event(block: bytes) -> Sent:
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        fields[name] = value.removeprefix(b" ")
    event_id, kind = fields.get(b"id", b"").decode(), fields.get(b"event", b"").decode()
    return Sent(event_id, kind, fields.get(b"data", b""))


def news_of(sent: Sent) -> News:
    """Read what an event tells."""
    if sent.kind in DELTAS:
        return _delta.decode(sent.data)
    if sent.kind == "partial":
        return _partial.decode(sent.data)
    if sent.kind == "superseded":
        return _superseded.decode(sent.data)
    return entry_from_json(sent.data)


class Events:
    """One reader of the events at a path: where it is, and how long nobody has told it anything.

    Args:
        wire: The server.
        path: Where it tells them.
        after: The number of the item behind which to begin.
        patience: Seconds for which a server that has told something before may be gone.
        is_over: Tells whether nothing can come any more, once the server has ended a stream.
    """

    def __init__(
        self, wire: Wire, path: str, *, after: int, patience: float, is_over: Callable[[], Awaitable[bool]]
    ) -> None:
        self._wire = wire
        self._path = path
        self._after = after
        self._patience = patience
        self._is_over = is_over
        self._last_id = ""
        self._connected = False
        self._at_end = False
        self._ended = False
        self._problem: AndonError = ServerError("")
        self._gone_since: float | None = None
        self._delay = FIRST_DELAY

    async def read(self) -> AsyncGenerator[News]:
        """Give what is told, to its end; what can be told once more after a break is told once."""
        while not self._ended:
            async with aclosing(self._attempt()) as told:
                async for news in told:
                    yield news
            if not self._ended:
                await self._wait()

    async def _attempt(self) -> AsyncGenerator[News]:
        """Give what is told over one connection; if it breaks, keep in mind why."""
        self._problem = ServerError(f"the server at {self._wire.url} has ended, and no other came in time")
        try:
            async with aclosing(self._connection()) as told:
                async for news in told:
                    yield news
        except httpx2.TransportError as error:
            self._problem = self._wire.unreachable(error)
        except ServerError as error:
            self._problem = error
        except SessionError as error:
            if error.kind not in FOR_NOW:
                raise
            self._problem = error

    async def _connection(self) -> AsyncGenerator[News]:
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        params = {} if headers else {"after": str(self._after)}
        async with self._wire.listen(self._path, params, headers) as response:
            self._connected = True
            self._at_end = False
            reader = Reader()
            async for data in response.aiter_bytes():
                for news in self._heard(reader.feed(data)):
                    yield news
                if self._at_end:
                    self._ended = await self._is_over()
                    return

    def _heard(self, events: list[Sent]) -> Generator[News]:
        """Give what is new in some events; none is a sign of life."""
        self._gone_since, self._delay = None, FIRST_DELAY
        for sent in events:
            self._last_id = sent.id or self._last_id
            if sent.kind == "end":
                self._at_end = True
            elif self._is_new(news := news_of(sent)):
                yield news

    def _is_new(self, news: News) -> bool:
        n: int = getattr(news, "n", 0)
        if n and n <= self._after:
            return False
        self._after = n or self._after
        return True

    async def _wait(self) -> None:
        """Wait, each time for longer; too long, or before anything was told, the problem is raised."""
        now = anyio.current_time()
        self._gone_since = now if self._gone_since is None else self._gone_since
        if not self._connected or now - self._gone_since >= self._patience:
            raise self._problem
        await anyio.sleep(self._delay * random.uniform(0.5, 1.0))  # noqa: S311 - so that not all come at once
        self._delay = min(2 * self._delay, LONGEST_DELAY)
