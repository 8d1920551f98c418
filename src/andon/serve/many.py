"""Many: runs by a filter: listed, page by page, and cancelled all at once."""

from collections.abc import Sequence
from typing import Annotated

import anyio
import msgspec
from fastapi import APIRouter, Query, Response
from msgspec import Struct

from andon.core.row import LIVE, Row, RunState
from andon.core.stop import StopReport, StopResult, summarise
from andon.errors import SessionError
from andon.runtime.office import Office
from andon.serve.auth import Who
from andon.serve.desk import Admin, Desk, InDesk, Reader
from andon.serve.problem import missing
from andon.serve.shape import (
    PATTERN,
    PROBLEMS,
    STOPPED,
    CancellingApp,
    CancellingMany,
    HowToStop,
    Id,
    Page,
    reported,
    says,
    wire,
)

router = APIRouter(tags=["runs"], responses=PROBLEMS)

MOST = 1_000
CURSOR = r"^([0-9]{1,12}\.[0-9]{1,9}_[A-Za-z0-9_.@+=~-]{1,128})?$"


class Filter(Struct, frozen=True, kw_only=True):
    """Which runs: those of which all that is said here is so."""

    app: str | None = None
    user: str | None = None
    session: str | None = None
    states: frozenset[RunState] | None = None

    def takes(self, head: "Head") -> bool:
        """Whether a run is one of them."""
        return (
            self.app in {None, head.app}
            and self.user in {None, head.user}
            and self.session in {None, head.session}
            and (self.states is None or head.state in self.states)
        )


class Head(Struct):
    """What of a row is needed to choose it, which is read much faster than all of it."""

    run_id: str
    app: str
    user: str
    session: str
    state: RunState
    queued: float = 0.0


_head = msgspec.json.Decoder(Head)


async def chosen(office: Office, which: Filter) -> list[tuple[Head, bytes]]:
    """Give the rows of some runs, the newest first."""
    rows = [(_head.decode(row), row) for row in await office.substrate.rows()]
    return sorted((one for one in rows if which.takes(one[0])), key=lambda one: _place(one[0]))


def _place(head: Head) -> tuple[float, str]:
    return -head.queued, head.run_id


def _behind(cursor: str) -> tuple[float, str]:
    queued, _, run_id = cursor.partition("_")
    return -float(queued), run_id


GivenId = Annotated[str | None, Query(pattern=PATTERN)]


@router.get("/runs", responses={200: says("Page", "Some of the runs.")})
async def runs(
    who: Reader,
    desk: InDesk,
    *,
    app: GivenId = None,
    user: GivenId = None,
    session: GivenId = None,
    state: Annotated[list[RunState] | None, Query(description="In one of these states.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="Tell of so many at most.")] = 100,
    cursor: Annotated[str, Query(pattern=CURSOR, description="Go on with `next` of a page.")] = "",
) -> Response:
    """Tell of runs, the newest first."""
    if user is not None and not who.reaches(user):
        raise missing(f"there is no user {user} here")
    states = None if state is None else frozenset(state)
    found = await chosen(desk.office, Filter(app=app, user=user or who.user, session=session, states=states))
    if cursor:
        found = [one for one in found if _place(one[0]) > _behind(cursor)]
    page = found[:limit]
    last = page[-1][0] if len(found) > limit else None
    return wire(
        Page(
            runs=[Row.from_json(row) for _, row in page],
            next=None if last is None else f"{last.queued:.9f}_{last.run_id}",
        )
    )


@router.post("/runs:cancel", responses=STOPPED)
async def cancel(who: Admin, desk: InDesk, body: CancellingMany | None = None) -> Response:
    """Cancel all live runs, or those of a filter, and tell what became of them."""
    given = body or CancellingMany()
    states = LIVE if given.state is None else frozenset(given.state)
    which = Filter(app=given.app, user=given.user, session=given.session, states=frozenset(states))
    return await cancel_all(desk, who, which, given)


@router.post("/apps/{app}:cancel", responses=STOPPED)
async def cancel_app(app: Id, who: Admin, desk: InDesk, body: CancellingApp | None = None) -> Response:
    """Cancel all live runs of an app, or those of one user of it, and tell what became of them."""
    given = body or CancellingApp()
    return await cancel_all(desk, who, Filter(app=app, user=given.user, states=LIVE), given)


async def cancel_all(desk: Desk, who: Who, which: Filter, given: HowToStop) -> Response:
    """Cancel runs at the same time; one that has ended by then has finished first."""
    rows = [Row.from_json(row) for _, row in await chosen(desk.office, which)]
    reports: list[StopReport | None] = []

    async def one(row: Row) -> None:
        try:
            report = await desk.office.cancel(
                row.key,
                given.stop(),
                run_id=row.run_id,
                reason=given.reason,
                by=who.name,
                wait=given.wait,
            )
        except SessionError as error:
            if error.kind not in {"missing", "conflict"}:
                raise
            report = StopReport(result=StopResult.FINISHED_FIRST, run_id=row.run_id)
        reports.append(report)

    async with anyio.create_task_group() as group:
        for row in rows:
            group.start_soon(one, row)
    return reported(summary(reports))


def summary(reports: Sequence[StopReport | None]) -> StopReport | None:
    """Make one report of many; none, if some run has not ended yet."""
    ended = [report for report in reports if report is not None]
    return None if len(ended) < len(reports) else summarise(tuple(ended))
