"""Cancel: `andon cancel`, and how a stop is asked for and told on the command line."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from andon.cli.asking import SERVER, AsJson, Grace, Reason, Token, Url, Wait, ask, find_run, key_of, out
from andon.cli.streams import FAILED, OK
from andon.client.client import WAIT, Client
from andon.core.stop import Point, Stop, StopReport
from andon.errors import UserError

app = typer.Typer(add_completion=False)

HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
    (
        "Cancel a run, and say how it ended.",
        "[bold]andon cancel 3fa9[/bold]   now",
        "[bold]andon cancel 3fa9 --at tools --grace 10[/bold]   once its tools have ended, in 10 s at most",
        "[bold]andon cancel trips/ann/s1 --queued[/bold]   what is live in a session, and what waits there",
        (
            "It waits until the run has really ended. Exit codes: 0 it has, or nothing was running; "
            "1 it has not yet, and the request stands; 2 wrong usage."
        ),
    )
)


class Place(StrEnum):
    """A point, as one types it."""

    STREAM = "stream"
    MODEL = "model"
    TOOLS = "tools"


POINTS = {Place.STREAM: Point.STREAM, Place.MODEL: Point.MODEL, Place.TOOLS: Point.TOOLS}
At = Annotated[
    list[Place] | None,
    typer.Option(
        help="Where it may stop: in a model call, when the model has answered, or when the tools have ended; "
        "may be given twice, and the first counts. Without it: now"
    ),
]


@app.command(help=HELP)
def cancel(
    where: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or what it begins with")],
    *,
    at: At = None,
    grace: Grace = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="The points count in the runs inside it, too")
    ] = False,
    queued: Annotated[
        bool, typer.Option("--queued", help="Of a session: cancel the runs that wait, too")
    ] = False,
    reason: Reason = None,
    wait: Wait = WAIT,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """Cancel a run."""

    async def act(client: Client) -> int:
        stop = stop_of(at, grace, recursive=recursive)
        if "/" in where:
            report = await client.cancel(key_of(where), stop, queued=queued, reason=reason, wait=wait)
        else:
            row = await find_run(client, where)
            report = await client.cancel(row.run_id, stop, reason=reason, wait=wait)
        return tell(report, where, as_json=as_json)

    ask(url, token, act)


def stop_of(at: list[Place] | None, grace: float | None, *, recursive: bool) -> Stop:
    """Make the stop that was asked for."""
    points = Point(0)
    for place in at or ():
        points |= POINTS[place]
    if not points and grace is not None:
        raise UserError("--grace is how long to wait for a safe point: name one as well, such as --at tools")
    try:
        return Stop.at(points, grace=grace, recursive=recursive) if points else Stop.now(recursive=recursive)
    except ValueError as error:
        raise UserError(str(error)) from error


def tell(report: StopReport | None, where: str, *, as_json: bool) -> int:
    """Print what became of a stop, and give the exit code."""
    if report is None:
        sys.stderr.write(f"it has not ended yet; the request stands: andon logs {where} --follow\n")
        return FAILED
    if as_json:
        out(report)
        return OK
    from andon.cli.report import print_report  # noqa: PLC0415 - rich takes longer than the answer
    from andon.cli.screen import Plainly  # noqa: PLC0415

    print_report(Plainly(file=sys.stdout), report)
    return OK
