"""Verbs: what may be asked of a session; their routes come before those that name one."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from andon.core.command import Key
from andon.serve.desk import Anyone, Canceller, InDesk
from andon.serve.shape import (
    PROBLEMS,
    STOPPED,
    Cancelling,
    Id,
    reported,
    says,
)

SESSIONS = "/apps/{app}/users/{user}/sessions"
SESSION = SESSIONS + "/{session}"

router = APIRouter(tags=["sessions"], responses=PROBLEMS)


async def _key(who: Anyone, desk: InDesk, app: Id, user: Id, session: Id) -> Key:
    return desk.key(who, app, user, session)


InSession = Annotated[Key, Depends(_key)]

TAKEN: dict[int | str, dict[str, object]] = {200: says("Taken", "It has its effect.")}


@router.post(SESSION + ":cancel", responses=STOPPED)
async def cancel(key: InSession, who: Canceller, desk: InDesk, body: Cancelling | None = None) -> Response:
    """Cancel what is live, and tell what became of it once it has really ended."""
    given = body or Cancelling()
    report = await desk.office.cancel(
        key,
        given.stop(),
        run_id=given.run_id,
        queued=given.queued,
        reason=given.reason,
        by=who.name,
        wait=given.wait,
    )
    return reported(report)
