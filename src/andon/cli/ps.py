"""Ps: `andon ps`, the list of runs."""

import time
from typing import Annotated

import typer

from andon.cli.asking import SERVER, SHORT, AsJson, Token, Url, ask, out
from andon.cli.streams import OK
from andon.cli.table import print_table
from andon.client.client import Client
from andon.core.row import LIVE, Row

app = typer.Typer(add_completion=False)

HEAD = ("STATE", "RUN", "SESSION", "AGE", "TOKENS", "COST", "STEP")
MINUTE, HOUR, DAY = 60, 3600, 86400
THOUSAND = 1_000


@app.command()
def ps(
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended, too")] = False,
    of_app: Annotated[str | None, typer.Option("--app", metavar="APP", help="Only those of an app")] = None,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only those of a user")] = None,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """List the live runs: what each does, for how long, and what it has spent."""

    async def act(client: Client) -> int:
        rows = await client.runs(state=() if everything else sorted(LIVE), app=of_app, user=user)
        if as_json:
            for row in rows:
                out(row)
        else:
            now = time.time()
            print_table(
                HEAD, [cells(row, now) for row in rows], "nothing runs" if not everything else "no runs"
            )
        return OK

    ask(url, token, act)


def cells(row: Row, now: float) -> tuple[str, ...]:
    """Give what is shown of a run."""
    began = row.queued if row.began is None else row.began
    return (
        row.state,
        row.run_id[:SHORT],
        str(row.key),
        age((row.ended or now) - began) if row.state != "queued" else f"{age(now - row.queued)} waiting",
        amount(row.usage.total_tokens),
        "" if row.usage.cost is None else f"${row.usage.cost:.4f}",
        row.step or how_it_ended(row),
    )


def how_it_ended(row: Row) -> str:
    """Say in a few words why a run is no longer live, if there is more to say than its state."""
    if row.interrupts:
        return f"asks: {row.interrupts[0].payload}"
    if row.cancelled is not None and row.cancelled.cause is not None:
        cause = row.cancelled.cause
        return f"by {cause.by or cause.source}" + (f": {cause.reason}" if cause.reason else "")
    return row.error or row.limit or ""


def age(seconds: float) -> str:
    """Write a duration in its two largest units."""
    whole = max(0, int(seconds))
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02}m"
    return f"{whole // DAY}d{whole % DAY // HOUR:02}h"


def amount(number: int) -> str:
    """Write a number in few characters."""
    if number < 10 * THOUSAND:
        return str(number)
    return f"{number / THOUSAND:.0f}k" if number < THOUSAND**2 else f"{number / THOUSAND**2:.1f}M"
