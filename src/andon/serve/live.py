"""Live: one session over a WebSocket: its events go out, and verbs come in, in the JSON of HTTP.

Out: {"id": "12", "event": "tool_ended", "data": {…}}, and for each verb {"ref": …, "result": …} or
{"ref": …, "problem": {…}}. In: {"verb": "cancel", "ref": "1", …} with what the body of that verb has.
"""

from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal

import anyio
import msgspec
from anyio.abc import TaskGroup
from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, Field, TypeAdapter

from andon.core.command import Key
from andon.errors import SessionError, UserError
from andon.serve.auth import Scope, Who
from andon.serve.desk import Desk, InDesk
from andon.serve.problem import LONGEST, STATUS, Problem, clean
from andon.serve.runs import named, say
from andon.serve.shape import Answering, Cancelling, Saying, Steering, Taken, prompt_of
from andon.serve.socket import accept, hear, refuse, send, talk
from andon.serve.stream import MOST

router = APIRouter()

MOST_AT_ONCE = 20  # verbs of one connection that are under way


class Asked(BaseModel):
    """What the address of a connection says."""

    app: str = ""
    user: str = ""
    session: str = ""
    after: Annotated[int, Field(ge=0, le=MOST)] = 0


class _Named(msgspec.Struct):
    ref: object = None


class Push(Saying):
    """Say something, which becomes a run."""

    verb: Literal["push"]
    ref: str | int | None = None


class Steer(Steering):
    """Say something to the live run."""

    verb: Literal["steer"]
    ref: str | int | None = None


class Cancel(Cancelling):
    """Cancel what is live."""

    verb: Literal["cancel"]
    ref: str | int | None = None


class Answer(Answering):
    """Answer questions."""

    verb: Literal["answer"]
    ref: str | int | None = None


Verb = Push | Steer | Cancel | Answer
VERBS: TypeAdapter[Verb] = TypeAdapter(Annotated[Verb, Field(discriminator="verb")])
SCOPES: dict[str, Scope] = {"push": "run", "steer": "run", "cancel": "cancel", "answer": "run"}


@router.websocket("/sessions/live")
async def live(websocket: WebSocket, desk: InDesk) -> None:
    """Follow a session, and act on it; `after` is the last item that the client has."""
    with ExitStack() as held:
        try:
            who = await desk.authority.who(websocket)
            who.check("read")
            asked = Asked.model_validate(dict(websocket.query_params))
            key = desk.key(who, asked.app, asked.user, asked.session)
            await desk.office.state(key)
            held.enter_context(desk.streaming(who))
        except (Problem, SessionError, ValueError) as error:
            await refuse(websocket, error)
            return
        await accept(websocket)
        await Line(websocket, desk, key, who).hold(asked.after)


class Line:
    """One connection."""

    def __init__(self, websocket: WebSocket, desk: Desk, key: Key, who: Who) -> None:
        self._websocket = websocket
        self._desk = desk
        self._key = key
        self._who = who
        self._sending = anyio.Lock()
        self._under_way = 0

    async def hold(self, after: int) -> None:
        """Tell and hear until the client goes away, or nothing more is told."""
        await talk(self._websocket, self._hear, partial(self._tell, after))

    async def _tell(self, after: int, _group: TaskGroup) -> None:
        async with self._desk.office.follow(self._key, after=after) as batches:
            async for batch in batches:
                for one in batch:
                    head = f'{{"id":"{one.id}","event":"{one.kind}","data":'.encode()
                    await self._send(head + one.data + b"}")

    async def _send(self, data: bytes) -> None:
        async with self._sending:
            await send(self._websocket, data.decode())

    async def _hear(self, group: TaskGroup) -> None:
        while True:
            try:
                text = await hear(self._websocket)
            except UserError as error:
                await self._send(_problem(None, HTTPStatus.UNPROCESSABLE_ENTITY, str(error)))
            except Problem as error:
                await self._send(_problem(None, error.status, error.detail))
            else:
                await self._begin(text, group)

    async def _begin(self, text: str, group: TaskGroup) -> None:
        """Begin to do what was asked, beside what is under way."""
        try:
            asked = VERBS.validate_json(text)
        except ValueError as error:
            await self._send(_problem(_ref(text), HTTPStatus.UNPROCESSABLE_ENTITY, str(error)))
            return
        if self._under_way >= MOST_AT_ONCE:
            why = f"{MOST_AT_ONCE} verbs are under way here: wait for an answer, then ask again"
            await self._send(_problem(asked.ref, HTTPStatus.TOO_MANY_REQUESTS, why))
            return
        self._under_way += 1
        group.start_soon(self._take, asked)

    async def _take(self, asked: Verb) -> None:
        """Do what was asked, and say what became of it."""
        try:
            try:
                self._who.check(SCOPES[asked.verb])
                answer = msgspec.json.encode({"ref": asked.ref, "result": await self._do(asked)})
            except Problem as error:
                answer = _problem(asked.ref, error.status, error.detail)
            except SessionError as error:
                answer = _problem(asked.ref, STATUS[error.kind], str(error))
            except UserError as error:
                answer = _problem(asked.ref, HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
            await self._send(answer)
        except WebSocketDisconnect:  # whoever hears notices, too
            return
        finally:
            self._under_way -= 1

    async def _do(self, asked: Verb) -> object:
        office, key, by = self._desk.office, self._key, self._who.name
        match asked:
            case Push():
                self._desk.check_app(key.app)
                return Taken(run_id=await say(self._desk, self._who, key, asked, named(key, asked)))
            case Steer(input=words, when=when, run_id=run_id, steer_id=steer_id):
                said = prompt_of(words)
                steered = await office.steer(key, said, when=when, run_id=run_id, steer_id=steer_id, by=by)
                return Taken(run_id=steered)
            case Cancel():
                report = await office.cancel(
                    key,
                    asked.stop(),
                    run_id=asked.run_id,
                    queued=asked.queued,
                    reason=asked.reason,
                    by=by,
                    wait=asked.wait,
                )
                return Taken(result="ACCEPTED") if report is None else report
            case Answer():
                return Taken(run_id=await office.answer(key, asked.answers, by=by))


def _ref(text: str) -> object:
    """Give the name that a client gave to what could not be understood, if there is one."""
    try:
        ref = msgspec.json.decode(text, type=_Named).ref
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return ref if isinstance(ref, str | int) else None


def _problem(ref: object, status: HTTPStatus, detail: str) -> bytes:
    problem = {"title": status.phrase, "status": status.value, "detail": clean(detail[:LONGEST])}
    return msgspec.json.encode({"ref": ref, "problem": problem})
