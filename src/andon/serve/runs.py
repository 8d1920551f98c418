"""Runs: what a session was told to do, and what became of it."""

import hashlib

from fastapi import APIRouter, Request, Response

from andon.core.command import Key
from andon.core.items import MessageAdded, RunStarted
from andon.core.journal import record_from_json
from andon.core.row import Row
from andon.runtime.office import Office, new_id
from andon.serve.auth import Who
from andon.serve.desk import Canceller, Desk, InDesk, Reader, Runner
from andon.serve.patience import while_there
from andon.serve.presence import Leash
from andon.serve.shape import (
    PROBLEMS,
    STOPPED,
    TAKEN,
    CancellingRun,
    Ended,
    Id,
    Running,
    Saying,
    SteeringRun,
    Taken,
    prompt_of,
    reported,
    says,
    wire,
)
from andon.serve.verbs import SESSION, InSession

router = APIRouter(tags=["runs"], responses=PROBLEMS)


def run_of(key: Key, idempotency_key: str) -> str:
    """Give the id of the run that a client names so: the same every time."""
    return hashlib.sha256(f"{key}/{idempotency_key}".encode()).hexdigest()[:32]


_CREATED: dict[int | str, dict[str, object]] = {
    202: says("Row", "It waits, or is under way."),
    200: says("Ended", "It has ended."),
}


async def say(desk: Desk, who: Who, key: Key, said: Saying, run_id: str) -> str:
    """Say something to a session; gives the id of the run that it became, or joined."""
    return await desk.office.push(
        key,
        prompt_of(said.input),
        run_id=run_id,
        on_busy=said.on_busy,
        limits=None if said.limits is None else said.limits.limits(),
        by=who.name,
    )


def named(key: Key, said: Saying) -> str:
    """Give a run its id."""
    return new_id() if said.idempotency_key is None else run_of(key, said.idempotency_key)


@router.post(SESSION + ":push", status_code=202, responses=_CREATED)
@router.post(SESSION + "/runs", status_code=202, responses=_CREATED)
async def create(key: InSession, who: Runner, desk: InDesk, body: Running, request: Request) -> Response:
    """Say something to a session, which becomes a run."""
    desk.check_app(key.app)
    office = desk.office
    head = await office.substrate.head(key)
    run_id = named(key, body)
    grace = desk.grace(body.on_disconnect, body.disconnect_grace)
    leash = None if grace is None or not body.wait else Leash(key, run_id, grace)
    with desk.presence.starts(leash):
        run_id = await say(desk, who, key, body, run_id)
        waited = await while_there(request, _wait(office, key, run_id, body.wait)) if body.wait else None
        if waited is not None and leash is not None:
            desk.presence.ended(leash.run_id)  # it has, or goes on in the background: nobody waits any more
    row = None if waited is None else waited[0]
    answer = wire(await office.run(run_id), 202) if row is None else wire(await ended(office, row, head))
    answer.headers["Andon-Run-Id"] = run_id
    return answer


async def _wait(office: Office, key: Key, run_id: str, wait: float) -> tuple[Row | None]:
    return (await office.ended(key, run_id, wait),)


async def ended(office: Office, row: Row, head: int) -> Ended:
    """Add the last words of its agent to a run, from the journal behind a head where they are."""
    text = await _text(office, row, head)
    if text is None and head:
        text = await _text(office, row, 0)
    return Ended(**{name: getattr(row, name) for name in Row.__struct_fields__}, text=text or "")


async def _text(office: Office, row: Row, head: int) -> str | None:
    """Look for what an agent said last in a run; None if the run began before."""
    text = ""
    for _, record in reversed(await office.substrate.read(row.key, after=head)):
        for entry in reversed(record_from_json(record)):
            match entry:
                case MessageAdded(message=message, path=()) if entry.n < row.n and not text:
                    text = message.text if message.role == "assistant" else text
                case RunStarted(run_id=run_id, path=()) if run_id == row.run_id:
                    return text
                case _:
                    pass
    return None


@router.post("/runs/{run}:cancel", responses=STOPPED)
async def cancel(run: Id, who: Canceller, desk: InDesk, body: CancellingRun | None = None) -> Response:
    """Cancel a run, and tell what became of it once it has really ended."""
    row = await desk.row(who, run)
    given = body or CancellingRun()
    report = await desk.office.cancel(
        row.key, given.stop(), run_id=run, reason=given.reason, by=who.name, wait=given.wait
    )
    return reported(report)


@router.post("/runs/{run}:steer", responses=TAKEN)
async def steer(run: Id, who: Runner, desk: InDesk, body: SteeringRun) -> Response:
    """Say something to a run that is live."""
    row = await desk.row(who, run)
    await desk.office.steer(
        row.key,
        prompt_of(body.input),
        when=body.when,
        run_id=run,
        steer_id=body.steer_id,
        by=who.name,
    )
    return wire(Taken(run_id=run))


@router.get("/runs/{run:name}", responses={200: says("Row", "The run.")})
async def get(run: Id, who: Reader, desk: InDesk) -> Response:
    """Tell of one run."""
    return wire(await desk.row(who, run))
