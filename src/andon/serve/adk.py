"""ADK: the routes of Google ADK's server, in its own shapes, so that its clients work unchanged."""

from base64 import b64decode
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from andon.core.command import Key
from andon.core.messages import Image, Text
from andon.runtime.feed import Told
from andon.runtime.office import Office, new_id
from andon.runtime.prompt import Prompt
from andon.serve.adk_event import AdkEvent, Teller, adk_json
from andon.serve.auth import Who
from andon.serve.desk import Desk, InDesk, Open, Reader, Runner
from andon.serve.patience import while_there
from andon.serve.presence import Leash
from andon.serve.shape import MOST_PARTS, PROBLEMS, GivenId, Grace, JsonObject, OnDisconnect, Words
from andon.serve.stream import EventStream

router = APIRouter(tags=["adk"], responses=PROBLEMS)

RUN_ID = "Andon-Run-Id"
PLAIN = str.maketrans("-_", "+/")
BASE_64 = r"^([A-Za-z0-9+/_-]{4})*([A-Za-z0-9+/_-]{2,3}={0,2})?$"
MimeType = Annotated[str, Field(pattern=r"^image/[A-Za-z0-9.+-]+$")]
# The state of a session is what it was created with: to take a change, and lose it, would be a lie.
NoChange = Annotated[dict[str, object], Field(max_length=0)]

EVENT: dict[str, object] = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
RAN: dict[str, object] = {
    "description": "The events of the run, in ADK's JSON.",
    "content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}},
}
STREAMED: dict[str, object] = {
    "description": "The events of the run, as they come; `data` is ADK's JSON.",
    "content": {"text/event-stream": {"schema": EVENT}},
}


class Adk(BaseModel):
    """What ADK's clients send: names in camel case, and more than is read here."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class InlineData(Adk):
    """The bytes of a picture, in base 64 of either alphabet, with or without its padding."""

    mime_type: MimeType = "image/png"
    data: Annotated[str, Field(min_length=2, pattern=BASE_64)]

    def image(self) -> Image:
        """Give the picture."""
        plain = self.data.rstrip("=").translate(PLAIN)
        return Image(data=b64decode(plain + "=" * (-len(plain) % 4)), media_type=self.mime_type)


class FileData(Adk):
    """The address of a picture."""

    mime_type: MimeType = "image/png"
    file_uri: Annotated[str, Field(min_length=1)]

    def image(self) -> Image:
        """Give the picture."""
        return Image(url=self.file_uri, media_type=self.mime_type)


class FunctionResponse(Adk):
    """The answer to a question, which ADK's clients were told of as a long-running call."""

    id: GivenId
    response: JsonObject = {}

    def answer(self) -> object:
        """Give it; what is no object comes inside one."""
        return self.response["result"] if self.response.keys() == {"result"} else self.response


class TextPart(Adk):
    """Words."""

    text: Words

    def given(self) -> Text | Image:
        """Give it as a part of a prompt."""
        return Text(self.text)


class DataPart(Adk):
    """A picture, by its bytes."""

    inline_data: InlineData

    def given(self) -> Text | Image:
        """Give it as a part of a prompt."""
        return self.inline_data.image()


class FilePart(Adk):
    """A picture, by its address."""

    file_data: FileData

    def given(self) -> Text | Image:
        """Give it as a part of a prompt."""
        return self.file_data.image()


class AnswerPart(Adk):
    """An answer."""

    function_response: FunctionResponse


class NewMessage(Adk):
    """What the user says: words and pictures, or answers; not both at once."""

    role: str | None = "user"
    parts: (
        Annotated[list[TextPart | DataPart | FilePart], Field(min_length=1, max_length=MOST_PARTS)]
        | Annotated[list[AnswerPart], Field(min_length=1, max_length=MOST_PARTS)]
    )

    def prompt(self) -> Prompt:
        """Give it as a prompt."""
        return [part.given() for part in self.parts if not isinstance(part, AnswerPart)]

    def answers(self) -> dict[str, object]:
        """Give the answers in it, by the ids of the questions."""
        given = [part.function_response for part in self.parts if isinstance(part, AnswerPart)]
        return {one.id: one.answer() for one in given}


class RunRequest(Adk):
    """The body of `/run` and `/run_sse`; what is to become of the run if the client goes away is ours."""

    app_name: GivenId
    user_id: GivenId
    session_id: GivenId
    new_message: NewMessage
    streaming: bool = False
    state_delta: NoChange | None = None
    on_disconnect: OnDisconnect = "cancel"
    disconnect_grace: Grace | None = None


class Talking(Struct, frozen=True):
    """Something that a client says, what becomes of it, and how long that goes on without the client."""

    key: Key
    message: NewMessage
    run_id: str
    by: str
    grace: float | None

    @property
    def leash(self) -> Leash | None:
        """How the run hangs on its client, if it does."""
        return None if self.grace is None else Leash(self.key, self.run_id, self.grace)

    async def begin(self, office: Office) -> None:
        """Say it."""
        answers = self.message.answers()
        if answers:
            await office.answer(self.key, answers, run_id=self.run_id, by=self.by)
        else:
            await office.push(self.key, self.message.prompt(), run_id=self.run_id, by=self.by)


def _talking(desk: Desk, who: Who, given: RunRequest) -> Talking:
    key = desk.key(who, given.app_name, given.user_id, given.session_id)
    desk.check_app(key.app)
    grace = desk.grace(given.on_disconnect, given.disconnect_grace)
    return Talking(key, given.new_message, new_id(), who.name, grace)


async def tell(desk: Desk, talking: Talking, *, streaming: bool) -> AsyncGenerator[list[AdkEvent]]:
    """Say something, and tell of its run: nothing once it is said, then its events up to the terminal one."""
    office, run_id = desk.office, talking.run_id
    after = (await office.state(talking.key)).n
    teller = Teller({run_id}, streaming=streaming)
    async with office.follow(talking.key, after=after) as batches:
        with desk.presence.starts(talking.leash):
            await talking.begin(office)
            yield []
            while teller.ended is None:
                yield _take(desk, teller, await anext(batches))


def _take(desk: Desk, teller: Teller, batch: Sequence[Told]) -> list[AdkEvent]:
    events = [event for one in batch for event in teller.told(one)]
    if teller.ended is not None:
        desk.presence.ended(teller.ended.run_id)
    return events


@router.get("/list-apps")
async def list_apps(_who: Reader, desk: InDesk) -> list[str]:
    """Name the apps."""
    return sorted(desk.agents)


@router.post("/run", responses={200: RAN})
async def run(given: RunRequest, who: Runner, desk: InDesk, request: Request) -> Response:
    """Run to the end, and give all events; a run that was cancelled ends with the event that says so."""
    talking = _talking(desk, who, given)
    made = await while_there(request, _all(tell(desk, talking, streaming=False)))
    content = b"[%s]" % b",".join(map(adk_json, made or []))
    return Response(content, headers={RUN_ID: talking.run_id}, media_type="application/json")


async def _all(events: AsyncGenerator[list[AdkEvent]]) -> list[AdkEvent]:
    async with aclosing(events):
        return [event async for batch in events for event in batch]


@router.post("/run_sse", status_code=200, response_class=EventStream, responses={200: STREAMED})
async def run_sse(given: RunRequest, who: Runner, desk: InDesk, _open: Open) -> Response:
    """Run, and tell of it as it comes."""
    talking = _talking(desk, who, given)
    stream = _written(tell(desk, talking, streaming=given.streaming))
    await anext(stream)
    response = EventStream(stream, desk.settings.keep_alive, when_cut=_error)
    response.headers[RUN_ID] = talking.run_id
    return response


async def _written(events: AsyncGenerator[list[AdkEvent]]) -> AsyncGenerator[bytes]:
    """Write events down; the first thing given is nothing, once it is said."""
    async with aclosing(events):
        await anext(events)
        yield b""
        async for batch in events:
            if batch:
                yield b"".join([b"id: %s\ndata: %s\n\n" % (one.id.encode(), adk_json(one)) for one in batch])


def _error(why: str) -> bytes:
    """Write down that the session was deleted, or that the server ends."""
    return b"data: %s\n\n" % msgspec.json.encode({"error": why})
