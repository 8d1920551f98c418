"""Verbs: what may be asked of a session; their routes come before those that name one."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from starlette.convertors import Convertor, register_url_convertor

from andon.core.command import Key
from andon.serve.desk import Admin, Anyone, Canceller, InDesk, Runner
from andon.serve.shape import (
    PROBLEMS,
    STOPPED,
    TAKEN,
    Answering,
    Cancelling,
    Id,
    Pausing,
    Steering,
    Stopping,
    Taken,
    prompt_of,
    reported,
    wire,
)

SESSIONS = "/apps/{app}/users/{user}/sessions"
SESSION = SESSIONS + "/{session}"
VERBS = ("cancel", "stop", "pause", "resume", "answer", "steer", "push", "release")


class Name(Convertor[str]):
    """Part of a path that is no verb: with another method, `s:cancel` is a verb still, and not an id."""

    regex = f"(?![^/]*:(?:{'|'.join(VERBS)})$)[^/]+"

    def convert(self, value: str) -> str:
        """Take it as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Give it as it is."""
        return value


register_url_convertor("name", Name())
NAMED = SESSIONS + "/{session:name}"

router = APIRouter(tags=["sessions"], responses=PROBLEMS)


async def _key(who: Anyone, desk: InDesk, app: Id, user: Id, session: Id) -> Key:
    return desk.key(who, app, user, session)


InSession = Annotated[Key, Depends(_key)]


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


@router.post(SESSION + ":stop", responses=STOPPED)
async def stop(key: InSession, who: Canceller, desk: InDesk, body: Stopping | None = None) -> Response:
    """Stop a session: until it is resumed, what waits stays unhandled, and what comes is refused."""
    given = body or Stopping()
    report = await desk.office.stop(key, given.asked(), reason=given.reason, by=who.name, wait=given.wait)
    return reported(report)


@router.post(SESSION + ":pause", responses=STOPPED)
async def pause(key: InSession, who: Canceller, desk: InDesk, body: Pausing | None = None) -> Response:
    """Stop the live run so that it can go on, and hold the session: pushes queue up until it is resumed."""
    given = body or Pausing()
    report = await desk.office.pause(
        key, grace=given.grace, reason=given.reason, by=who.name, wait=given.wait
    )
    return reported(report)


@router.post(SESSION + ":resume", responses=TAKEN)
async def resume(key: InSession, who: Runner, desk: InDesk) -> Response:
    """Let a session go on; tells the run that goes on from where one was stopped, if any."""
    return wire(Taken(run_id=await desk.office.resume(key, by=who.name)))


@router.post(SESSION + ":answer", responses=TAKEN)
async def answer(key: InSession, who: Runner, desk: InDesk, body: Answering) -> Response:
    """Answer questions; tells the run that goes on."""
    return wire(Taken(run_id=await desk.office.answer(key, body.answers, by=who.name)))


@router.post(SESSION + ":steer", responses=TAKEN)
async def steer(key: InSession, who: Runner, desk: InDesk, body: Steering) -> Response:
    """Say something to the live run; tells which one that is."""
    run_id = await desk.office.steer(
        key,
        prompt_of(body.input),
        when=body.when,
        run_id=body.run_id,
        steer_id=body.steer_id,
        by=who.name,
    )
    return wire(Taken(run_id=run_id))


@router.post(SESSION + ":release", responses=TAKEN)
async def release(key: InSession, who: Admin, desk: InDesk) -> Response:
    """Let a session be worked on again that was put into quarantine."""
    await desk.office.release(key, by=who.name)
    return wire(Taken())
