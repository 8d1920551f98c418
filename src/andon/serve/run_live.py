"""Run live: ADK's WebSocket by text: what comes in becomes runs, and their events go out."""

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus

from anyio.abc import TaskGroup
from fastapi import APIRouter, WebSocket

from andon.core.command import Key
from andon.core.outcome import Outcome
from andon.errors import SessionError, UserError
from andon.runtime.feed import Told
from andon.runtime.office import new_id
from andon.serve.adk import Adk, NewMessage, Talking
from andon.serve.adk_event import AdkEvent, Teller, adk_json
from andon.serve.desk import Desk, InDesk
from andon.serve.problem import Problem
from andon.serve.shape import Grace, OnDisconnect
from andon.serve.socket import accept, hear, refuse, send, talk

router = APIRouter()

MOST = 100  # runs of one connection that have not ended


class Asked(Adk):
    """What the address of a connection says."""

    app_name: str = ""
    user_id: str = ""
    session_id: str = ""
    on_disconnect: OnDisconnect = "cancel"
    disconnect_grace: Grace | None = None


class LiveRequest(Adk):
    """What a client of `/run_live` sends."""

    content: NewMessage | None = None
    close: bool = False


@router.websocket("/run_live")
async def run_live(websocket: WebSocket, desk: InDesk) -> None:
    """Talk by text: each content becomes a run, whose events come back; after a cancelled one it closes."""
    with ExitStack() as held:
        try:
            who = await desk.authority.who(websocket)
            who.check("run")
            asked = Asked.model_validate(dict(websocket.query_params))
            key = desk.key(who, asked.app_name, asked.user_id, asked.session_id)
            desk.check_app(key.app)
            after = (await desk.office.state(key)).n
            held.enter_context(desk.streaming(who))
        except (Problem, SessionError, ValueError) as error:
            await refuse(websocket, error)
            return
        await accept(websocket)
        grace = desk.grace(asked.on_disconnect, asked.disconnect_grace)
        await Talk(websocket, desk, key, by=who.name, grace=grace).hold(after)


class Talk:
    """One connection: it hears on one side, and tells of its runs, one after the other, on the other."""

    def __init__(self, websocket: WebSocket, desk: Desk, key: Key, *, by: str, grace: float | None) -> None:
        self._websocket = websocket
        self._desk = desk
        self._key = key
        self._by = by
        self._grace = grace
        self._begun: dict[str, ExitStack] = {}
        self._teller = Teller(self._begun, streaming=True)
        self._bye = False

    async def hold(self, after: int) -> None:
        """Talk until one of the two has had enough."""
        try:
            async with self._desk.office.follow(self._key, after=after) as batches:
                await talk(self._websocket, self._hear, partial(self._tell, batches))
        finally:
            for begun in self._begun.values():
                begun.close()

    async def _hear(self, _group: TaskGroup) -> None:
        while True:
            asked = LiveRequest.model_validate_json(await hear(self._websocket))
            if asked.close:
                self._bye = True
                if not self._begun:
                    return
            elif not self._bye:
                await self._begin(asked.content)

    async def _begin(self, content: NewMessage | None) -> None:
        if content is None:
            raise UserError('only text is heard here: send {"content": {"parts": [{"text": "…"}]}}')
        if len(self._begun) >= MOST:
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, f"{MOST} runs wait here: let some of them end first")
        talking = Talking(self._key, content, new_id(), self._by, self._grace)
        begun = self._begun[talking.run_id] = ExitStack()
        begun.enter_context(self._desk.presence.starts(talking.leash))
        await talking.begin(self._desk.office)

    async def _tell(self, batches: AsyncIterator[Sequence[Told]], _group: TaskGroup) -> None:
        """Tell of one run after the other; one that was cancelled is the last."""
        async for batch in batches:
            for one in batch:
                for event in self._teller.told(one):
                    await send(self._websocket, adk_json(event).decode())
                ended, self._teller.ended = self._teller.ended, None
                if ended is not None and await self._is_last(ended):
                    return

    async def _is_last(self, ended: Outcome) -> bool:
        self._desk.presence.ended(ended.run_id)
        self._begun.pop(ended.run_id).close()
        if ended.stop_reason == "end_turn":
            done = AdkEvent(
                id=f"{ended.run_id}.end",
                invocation_id=ended.run_id,
                author=self._key.app,
                timestamp=self._desk.office.now(),
                turn_complete=True,
            )
            await send(self._websocket, adk_json(done).decode())
        return ended.stop_reason == "cancelled" or (self._bye and not self._begun)
