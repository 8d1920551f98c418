"""Socket: what the WebSockets of a server have in common: who may open one, what is heard, how it ends."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import anyio
from anyio.abc import TaskGroup
from fastapi import WebSocket, WebSocketDisconnect

from andon.errors import SessionError, UserError
from andon.serve.auth import protocol_of
from andon.serve.guard import check_depth
from andon.serve.problem import Problem, answer, of_session

NORMAL, GOING_AWAY, ABNORMAL, NOT_UNDERSTOOD, REFUSED = 1000, 1001, 1006, 1007, 1008
LONGEST = 120  # bytes of a reason, of which a close frame takes few

Side = Callable[[TaskGroup], Awaitable[None]]


async def accept(websocket: WebSocket) -> None:
    """Open it."""
    await websocket.accept(protocol_of(websocket))


async def refuse(websocket: WebSocket, error: Problem | SessionError | ValueError | UserError) -> None:
    """Answer with what HTTP would answer, before it is open."""
    match error:
        case Problem():
            response = error.response()
        case SessionError():
            response = of_session(error)
        case _:
            response = answer(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    await websocket.send_denial_response(response)


async def hear(websocket: WebSocket) -> str:
    """Wait for the next text."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text = message.get("text")
    if not isinstance(text, str):
        raise UserError("only text is heard here: send JSON in text frames")
    check_depth(text.encode("utf-8", "surrogatepass"))
    return text


async def talk(websocket: WebSocket, *sides: Side) -> None:
    """Hear and tell until one side has had enough, then say so and close."""
    ends: list[tuple[int, object]] = []

    async def hold(side: Side) -> None:
        try:
            await side(group)
            ends.append((NORMAL, ""))
        except WebSocketDisconnect:
            ends.append((0, ""))
        except SessionError as error:
            ends.append((GOING_AWAY if error.kind in {"closed", "missing"} else REFUSED, error))
        except Problem as error:
            ends.append((REFUSED, error.detail))
        except (ValueError, UserError) as error:
            ends.append((NOT_UNDERSTOOD, error))
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for side in sides:
            group.start_soon(hold, side)
    code, why = ends[0]
    if code:
        await close(websocket, code, why)


async def send(websocket: WebSocket, text: str) -> None:
    """Send a text."""
    try:
        await websocket.send_text(text)
    except RuntimeError as error:  # the server below has closed it, over a frame that was too large
        raise WebSocketDisconnect(ABNORMAL) from error


async def close(websocket: WebSocket, code: int, why: object = "") -> None:
    """Say why, and close, unless the client has left."""
    reason = str(why).encode()[:LONGEST].decode(errors="ignore")
    try:
        await websocket.close(code, reason)
    except (WebSocketDisconnect, RuntimeError):  # it is closed already
        return
