"""Stream: what a session tells, as server-sent events, to readers that come, go and come again."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Annotated

import anyio
import msgspec
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from andon.core.command import Key
from andon.core.row import Row
from andon.errors import SessionError
from andon.runtime.feed import MOST_AT_ONCE, Told
from andon.serve.desk import Desk, InDesk, Open, Reader
from andon.serve.excerpt import Excerpt
from andon.serve.shape import PROBLEMS, Id
from andon.serve.verbs import SESSION, InSession

router = APIRouter(tags=["events"], responses=PROBLEMS)

MOST = 2**53
EVENT_ID = r"^([0-9]{1,15}(\.[0-9.]{1,60})?)?$"
ALIVE = b": alive\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def written(one: Told) -> bytes:
    """Write one thing down as an event, once for all readers."""
    if not one.wire:
        one.wire = b"id: %s\nevent: %s\ndata: %s\n\n" % (one.id.encode(), one.kind.encode(), one.data)
    return one.wire


def pieces(batch: Sequence[Told]) -> Iterator[bytes]:
    """Write things down, several at once, but never more than a slow reader may hold up."""
    for start in range(0, len(batch), MOST_AT_ONCE):
        yield b"".join([one.wire or written(one) for one in batch[start : start + MOST_AT_ONCE]])


def end_event(why: str) -> bytes:
    """Write down that nothing more comes, and why."""
    return b"event: end\ndata: %s\n\n" % msgspec.json.encode({"type": "end", "why": why})


class EventStream(StreamingResponse):
    """A response of events; its source is closed with it, also when the client goes away in a write."""

    media_type = "text/event-stream"

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        keep_alive: float,
        *,
        when_cut: Callable[[str], bytes] = end_event,
    ) -> None:
        super().__init__(source, headers=HEADERS)
        self._when_cut = when_cut
        self._source = source
        self._keep_alive = keep_alive
        self._sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; however that ends, the source is closed, even if nothing was asked of it yet."""
        async with aclosing(self._source):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send it all, and a sign of life wherever it is silent for long."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with anyio.create_task_group() as group:
            group.start_soon(self._stay_alive, send)
            await self._send_all(send)
            group.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        try:
            async for chunk in self._source:
                self._sent += 1
                await send(_body(chunk))
        except SessionError as error:
            await send(_body(self._when_cut(str(error))))

    async def _stay_alive(self, send: Send) -> None:
        while True:
            seen = self._sent
            await anyio.sleep(self._keep_alive)
            if seen == self._sent:
                await send(_body(ALIVE))


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def _after(
    after: Annotated[int, Query(ge=0, le=MOST, description="Tell what comes behind this item.")] = 0,
    last_event_id: Annotated[str, Header(pattern=EVENT_ID, description="What was told last.")] = "",
) -> int:
    return max(after, int(last_event_id.partition(".")[0] or 0))


After = Annotated[int, Depends(_after)]


@asynccontextmanager
async def _reading(
    desk: Desk, key: Key, place: str | Key | None, after: int
) -> AsyncGenerator[AsyncIterator[Sequence[Told]]]:
    """Follow a session; whoever has read before is there for what they began."""
    with desk.presence.reads(place):
        async with desk.office.follow(key, after=after) as batches:
            yield batches


async def session_events(desk: Desk, key: Key, after: int) -> AsyncGenerator[bytes]:
    """Give all that a session tells, until it is deleted or the server ends, which is a `SessionError`."""
    async with _reading(desk, key, key if after else None, after) as batches:
        async for batch in batches:
            for piece in pieces(batch):
                yield piece


EVENT: dict[str, object] = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
STREAM: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Events: `id` is an item's number, or that of a delta; `data` is JSON.",
        "content": {"text/event-stream": {"schema": EVENT}},
    }
}


@router.get(SESSION + "/events", status_code=200, response_class=EventStream, responses=STREAM)
async def of_session(key: InSession, _who: Reader, desk: InDesk, after: After, _open: Open) -> Response:
    """Tell what a session does: every item from one on, then what passes by."""
    await desk.office.state(key)
    return EventStream(session_events(desk, key, after), desk.settings.keep_alive)


@router.get("/runs/{run}/events", status_code=200, response_class=EventStream, responses=STREAM)
async def of_run(run: Id, who: Reader, desk: InDesk, after: After, _open: Open) -> Response:
    """Tell what a run does: every item of it from one on, then what passes by, until it has ended."""
    row = await desk.row(who, run)
    return EventStream(run_events(desk, row, after), desk.settings.keep_alive)


async def run_events(desk: Desk, row: Row, after: int) -> AsyncGenerator[bytes]:
    """Give all that a session tells of one run, until that has ended."""
    if not row.is_live and after >= row.n:
        yield end_event("the run has ended")
        return
    place = row.run_id if after else None
    excerpt, after = await Excerpt.begin(desk.office.substrate, row, after)
    async with _reading(desk, row.key, place, after) as batches:
        while not excerpt.ended:
            for piece in pieces(excerpt.of(await anext(batches))):
                yield piece
        desk.presence.ended(row.run_id)
    yield end_event("the run has ended")
