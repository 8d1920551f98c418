"""Sessions: conversations of a user with an app, in the shape in which ADK tells of them."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from andon.core.command import Key
from andon.core.journal import record_from_json
from andon.core.session import SessionState
from andon.ports import SessionInfo
from andon.runtime.office import new_id
from andon.serve.adk_event import AdkEvent, history
from andon.serve.desk import Canceller, Desk, InDesk, Reader, Runner
from andon.serve.shape import PROBLEMS, Creating, Id, JsonObject, Session, says, wire
from andon.serve.verbs import NAMED, SESSIONS, InSession

router = APIRouter(tags=["sessions"], responses=PROBLEMS)

MOST = 1_000


def shown(state: SessionState, events: Sequence[AdkEvent] = ()) -> Session:
    """Tell of a session."""
    waiting, live = state.waiting, state.live
    return Session(
        id=state.key.session,
        app_name=state.key.app,
        user_id=state.key.user,
        state={} if state.created is None else state.created.state,
        events=events,
        last_update_time=state.touched,
        live_run_id=None if live is None else live.run_id,
        queued_run_ids=[queued.run_id for queued in state.queue],
        waiting_run_id=None if waiting is None else waiting.run_id,
        interrupts=() if waiting is None else waiting.interrupts,
        held=state.held,
        closed=state.closed,
        quarantined=state.quarantined,
        n=state.n,
    )


def listed(info: SessionInfo) -> Session:
    """Tell of a session without a look into it."""
    key = info.key
    return Session(
        id=key.session, app_name=key.app, user_id=key.user, state={}, last_update_time=info.touched
    )


_SESSIONS: dict[str, object] = {
    "description": "The sessions.",
    "content": {
        "application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Session"}}}
    },
}


async def begin(desk: Desk, key: Key, state: dict[str, object]) -> Response:
    """Begin a session, and tell of it."""
    desk.check_app(key.app)
    await desk.office.create(key, state)
    return wire(shown(await desk.office.state(key)))


@router.post(SESSIONS, responses={200: says("Session", "The session.")})
async def create(app: Id, user: Id, who: Runner, desk: InDesk, body: Creating | None = None) -> Response:
    """Begin a session."""
    given = body or Creating()
    desk.check_user(who, app, user)
    key = desk.key(who, app, user, given.session_id or new_id())
    return await begin(desk, key, given.state or {})


@router.post(NAMED, responses={200: says("Session", "The session.")})
async def create_named(
    key: InSession, _who: Runner, desk: InDesk, state: Annotated[JsonObject | None, Body()] = None
) -> Response:
    """Begin a session of this id."""
    return await begin(desk, key, state or {})


@router.get(NAMED, responses={200: says("Session", "The session.")})
async def get(key: InSession, _who: Reader, desk: InDesk) -> Response:
    """Tell of a session, and of all that was said in it."""
    state = await desk.office.state(key)
    records = await desk.office.substrate.read(key)
    entries = [entry for _, record in records for entry in record_from_json(record)]
    return wire(shown(state, history(entries)))


@router.get(SESSIONS, responses={200: _SESSIONS})
async def sessions(
    app: Id,
    user: Id,
    who: Reader,
    desk: InDesk,
    limit: Annotated[int, Query(ge=1, le=MOST, description="Tell of so many at most.")] = MOST,
) -> Response:
    """Tell of a user's sessions, without what happened in them; what was used last comes first."""
    desk.check_user(who, app, user)
    found = sorted(await desk.office.sessions(app, user), key=lambda one: one.touched, reverse=True)
    return wire([listed(one) for one in found[:limit]])


@router.delete(
    NAMED,
    responses={
        200: {"description": "It is gone.", "content": {"application/json": {"schema": {"type": "null"}}}}
    },
)
async def delete(key: InSession, who: Canceller, desk: InDesk) -> Response:
    """Cancel what is live in a session, and forget all of it."""
    who.check("run")
    await desk.office.delete(key, by=who.name)
    return wire(None)
