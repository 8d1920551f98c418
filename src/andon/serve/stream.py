"""Stream: what a session tells, as server-sent events, to readers that come, go and come again."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import anyio
import msgspec
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

from andon.core.command import Key
from andon.core.row import Row
from andon.errors import SessionError
from andon.runtime.feed import Told
from andon.serve.desk import Desk, InDesk, Place, Reader
from andon.serve.excerpt import Excerpt
from andon.serve.shape import PROBLEMS, Id
from andon.serve.verbs import SESSION, InSession

router = APIRouter(tags=["events"], responses=PROBLEMS)

MOST = 2**53
EVENT_ID = r"^[0-9]{1,15}(\.[0-9.]{1,60})?$"
ALIVE = b": alive\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def written(one: Told) -> bytes:
    """Write one thing down as an event, once for all readers."""
    if not one.wire:
        one.wire = b"id: %s\nevent: %s\ndata: %s\n\n" % (one.id.encode(), one.kind.encode(), one.data)
    return one.wire


def end_event(why: str) -> bytes:
    """Write down that nothing more comes, and why."""
    return b"event: end\ndata: %s\n\n" % msgspec.json.encode({"type": "end", "why": why})


class EventStream(StreamingResponse):
    """A response of events; its source is closed with it, also when the client goes away in a write."""

    media_type = "text/event-stream"

    def __init__(self, source: AsyncGenerator[bytes], keep_alive: float) -> None:
        super().__init__(source, headers=HEADERS)
        self._source = source
        self._keep_alive = keep_alive
        self._sent = 0

    async def stream_response(self, send: Send) -> None:
        """Send it all, and a sign of life wherever it is silent for long."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._source), anyio.create_task_group() as group:
            group.start_soon(self._stay_alive, send)
            async for chunk in self._source:
                self._sent += 1
                await send(_body(chunk))
            group.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stay_alive(self, send: Send) -> None:
        while True:
            seen = self._sent
            await anyio.sleep(self._keep_alive)
            if seen == self._sent:
                await send(_body(ALIVE))


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def _after(
    after: Annotated[
        int | None, Query(ge=0, le=MOST, description="Tell what comes behind this item.")
    ] = None,
    last_event_id: Annotated[str | None, Header(pattern=EVENT_ID, description="What was told last.")] = None,
) -> int:
    if after is not None or last_event_id is None:
        return after or 0
    return int(last_event_id.partition(".")[0])


After = Annotated[int, Depends(_after)]


async def session_events(desk: Desk, key: Key, after: int) -> AsyncGenerator[bytes]:
    """Give all that a session tells, until it is deleted or the server ends."""
    try:
        async with desk.office.follow(key, after=after) as batches:
            async for batch in batches:
                yield b"".join([one.wire or written(one) for one in batch])
    except SessionError as error:
        yield end_event(str(error))


STREAM: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Events: `id` is an item's number, or that of a delta; `data` is JSON.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get(SESSION + "/events", status_code=200, response_class=EventStream, responses=STREAM)
async def of_session(key: InSession, _who: Reader, desk: InDesk, after: After, _place: Place) -> Response:
    """Tell what a session does: every item from one on, then what passes by."""
    await desk.office.state(key)
    return EventStream(session_events(desk, key, after), desk.settings.keep_alive)


@router.get("/runs/{run}/events", status_code=200, response_class=EventStream, responses=STREAM)
async def of_run(run: Id, who: Reader, desk: InDesk, after: After, _place: Place) -> Response:
    """Tell what a run does: every item of it from one on, then what passes by, until it has ended."""
    row = await desk.row(who, run)
    return EventStream(run_events(desk, row, after), desk.settings.keep_alive)


async def run_events(desk: Desk, row: Row, after: int) -> AsyncGenerator[bytes]:
    """Give all that a session tells of one run, until that has ended."""
    try:
        if not row.is_live and after >= row.n:
            yield end_event("the run has ended")
            return
        excerpt, after = await Excerpt.begin(desk.office.substrate, row, after)
        async with desk.office.follow(row.key, after=after) as batches:
            async for batch in batches:
                mine = excerpt.of(batch)
                if mine:
                    yield b"".join([one.wire or written(one) for one in mine])
                if excerpt.ended:
                    yield end_event("the run has ended")
                    return
    except SessionError as error:
        yield end_event(str(error))
