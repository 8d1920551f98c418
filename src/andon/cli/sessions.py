"""Sessions: `andon sessions`, the list of a user's conversations with an app, and what one of them is."""

import time
from typing import Annotated

import typer

from andon.cli.asking import SERVER, SHORT, AsJson, Token, Url, ask, key_of, me, out
from andon.cli.ps import age
from andon.cli.streams import OK
from andon.cli.table import print_table
from andon.client.client import Client
from andon.client.shape import Session

app = typer.Typer(add_completion=False)

HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
    (
        "List sessions, or tell what one is.",
        "[bold]andon sessions trips[/bold]   yours with the app trips",
        "[bold]andon sessions trips/ann[/bold]   those of ann",
        "[bold]andon sessions trips/ann/s1[/bold]   what that one does, and what it asks",
    )
)
LIST_HEAD = ("SESSION", "TOUCHED")
HEAD = ("SESSION", "TOUCHED", "STATE", "LIVE", "QUEUED", "ASKS")
SLASHES = 2  # of a session's name


@app.command(help=HELP)
def sessions(
    where: Annotated[str, typer.Argument(metavar="APP", help="app, app/user, or app/user/session")],
    *,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """List sessions."""

    async def act(client: Client) -> int:
        one = where.count("/") == SLASHES
        app_name, _, user = where.partition("/")
        found = (
            [await client.session(key_of(where))] if one else await client.sessions(app_name, user or me())
        )
        if as_json:
            for session in found:
                out(session)
            return OK
        now = time.time()
        rows = [(str(each.key), age(now - each.last_update_time)) for each in found]
        if one:
            print_table(HEAD, [(*rows[0], *details(found[0]))], "")
        else:
            print_table(LIST_HEAD, rows, "no sessions")
        return OK

    ask(url, token, act)


def details(session: Session) -> tuple[str, ...]:
    """Give what is shown of one session."""
    return (
        state(session),
        (session.live_run_id or "")[:SHORT],
        str(len(session.queued_run_ids)),
        "; ".join(f"{question.id}: {question.payload}" for question in session.interrupts),
    )


def state(session: Session) -> str:
    """Say in a word what a session is."""
    if session.quarantined:
        return "quarantined"
    if session.closed:
        return "stopped"
    if session.held:
        return "paused"
    if session.live_run_id:
        return "running"
    return "asks" if session.interrupts else "idle"
