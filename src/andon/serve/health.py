"""Health: whether it lives, whether it can work, and what Prometheus reads of it."""

from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus

import msgspec
from fastapi import APIRouter, Response
from msgspec import Struct

from andon.core.row import RUN_STATES
from andon.core.stop import Cause, StopResult
from andon.errors import SessionError
from andon.serve.desk import Admin, Desk, InDesk
from andon.serve.problem import Problem
from andon.serve.shape import PROBLEMS, Health, says, wire

router = APIRouter(tags=["health"], responses=PROBLEMS)

BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class _Report(Struct):
    result: StopResult
    causes: tuple[Cause, ...] = ()
    latency: float = 0.0


class _Row(Struct):
    """What of a row is counted."""

    state: str
    cancelled: _Report | None = None


_row = msgspec.json.Decoder(_Row)


@router.get("/healthz", responses={200: says("Health", "It lives.")})
async def healthz() -> Response:
    """Tell that the process lives; nothing else is looked at."""
    return wire(Health())


@router.get("/readyz", responses={200: says("Health", "It can work.")})
async def readyz(desk: InDesk) -> Response:
    """Tell whether it can work: it does not shut down, and what keeps the sessions is there."""
    try:
        trouble = await desk.office.substrate.trouble()
    except SessionError as error:
        trouble = str(error)
    if trouble is not None:
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, f"it cannot work now: {trouble}")
    if desk.worker is not None and desk.worker.draining:
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "it shuts down: send requests elsewhere")
    return wire(Health())


_METRICS: dict[int | str, dict[str, object]] = {
    200: {"description": "The text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/metrics", responses=_METRICS)
async def metrics(_who: Admin, desk: InDesk) -> Response:
    """Tell Prometheus what goes on; runs and stops are counted in the index, so any replica says the same."""
    rows = [_row.decode(row) for row in await desk.office.substrate.rows()]
    return Response("\n".join([*_of_rows(rows), *_of_process(desk), ""]), media_type=TEXT)


def _of_rows(rows: list[_Row]) -> Iterable[str]:
    states = Counter(row.state for row in rows)
    yield from _head("andon_runs", "gauge", "Runs in the index, by state.")
    yield from (f'andon_runs{{state="{state}"}} {states[state]}' for state in RUN_STATES)
    yield from _head("andon_sessions_quarantined", "gauge", "Sessions on which workers have died too often.")
    yield f"andon_sessions_quarantined {states['quarantined']}"
    reports = [row.cancelled for row in rows if row.cancelled is not None]
    stops = Counter((cause.source, report.result.value) for report in reports for cause in report.causes[:1])
    yield from _head("andon_stops", "gauge", "Stopped runs in the index, by who asked first and the result.")
    for (source, result), count in sorted(stops.items()):
        yield f'andon_stops{{source="{source}",result="{result}"}} {count}'
    yield from _histogram("andon_stop_latency_seconds", [report.latency for report in reports])


def _histogram(name: str, values: list[float]) -> Iterable[str]:
    yield from _head(name, "histogram", "Seconds from the first request to stop to the end of the run.")
    for bound in BUCKETS:
        yield f'{name}_bucket{{le="{bound:g}"}} {sum(value <= bound for value in values)}'
    yield f'{name}_bucket{{le="+Inf"}} {len(values)}'
    yield f"{name}_sum {sum(values):.9g}"
    yield f"{name}_count {len(values)}"


def _of_process(desk: Desk) -> Iterable[str]:
    yield from _head("andon_streams", "gauge", "Readers of events that are connected to this process.")
    yield f"andon_streams {desk.streams.total()}"
    if desk.worker is not None:
        yield from _head("andon_sessions_busy", "gauge", "Sessions that this process works on.")
        yield f"andon_sessions_busy {desk.worker.busy}"


def _head(name: str, kind: str, words: str) -> Iterable[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"
