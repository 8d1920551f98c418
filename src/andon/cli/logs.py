"""Logs: `andon logs`, which shows what a run or a session has done, and does."""

from typing import Annotated

import typer

from andon.cli.asking import SERVER, AsJson, Token, Url, ask, find_run, key_of
from andon.cli.follow import follow, replay
from andon.client.client import Client

app = typer.Typer(add_completion=False)

HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
    (
        "Show what a run or a session has done.",
        "[bold]andon logs 3fa9 --follow[/bold]   and what it does, until the run ends",
        "[bold]andon logs trips/ann/s1 --follow --json | jq[/bold]   a session, as lines of JSON",
        (
            "The server may be restarted meanwhile. Ctrl-C leaves, and the run goes on. Exit codes with "
            "--follow: 0 answered, 1 failed, 3 cancelled, 130 left."
        ),
    )
)


@app.command(help=HELP)
def logs(
    where: Annotated[
        str, typer.Argument(metavar="RUN", help="A run's id, what it begins with, or app/user/session")
    ],
    *,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it goes on")] = False,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """Show what a run has done."""

    async def act(client: Client) -> int:
        place = key_of(where) if "/" in where else (await find_run(client, where)).run_id
        if following:
            return await follow(client, place, as_json=as_json)
        return await replay(client, place, as_json=as_json)

    ask(url, token, act)
