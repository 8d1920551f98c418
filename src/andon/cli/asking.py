"""Asking: what the commands share that ask a server: which one, as whom, and what its answer is worth."""

import asyncio
import getpass
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, NoReturn

import msgspec
import typer

from andon.cli.leave import CUT_SHORT
from andon.cli.streams import FAILED, USAGE, complain
from andon.client.client import URL, Client
from andon.core.command import Key
from andon.core.row import LIVE, Row
from andon.errors import ServerError, SessionError, UserError

WHOLE = 32  # characters of a run's id
SHORT = 12  # characters of a run's id that are shown; any that are unique will do

Url = Annotated[str, typer.Option("--url", envvar="ANDON_URL", metavar="URL", help="The server to ask")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="ANDON_TOKEN",
        metavar="TOKEN",
        show_envvar=True,
        help="What it asks for to let you in",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON, and nothing else, to stdout")]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; the run's outcome tells it")]
Grace = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0, help="How long to wait for a safe point; then now")
]
Wait = Annotated[float, typer.Option(metavar="SECONDS", min=0, max=60, help="How long to wait for its end")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or what it begins with")]
Somewhere = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="app/user/session, or the id of a run in it"),
]
SERVER = URL


def ask(url: str, token: str | None, act: Callable[[Client], Awaitable[int]]) -> NoReturn:
    """Ask a server, and end with the exit code."""
    try:
        code = asyncio.run(_ask(url, token, act))
    except (ServerError, SessionError) as error:
        complain(str(error))
        code = FAILED
    except UserError as error:
        complain(str(error))
        code = USAGE
    except KeyboardInterrupt:
        code = CUT_SHORT
    raise typer.Exit(code)


async def _ask(url: str, token: str | None, act: Callable[[Client], Awaitable[int]]) -> int:
    async with Client(url, token=token) as client:
        return await act(client)


async def find_run(client: Client, given: str) -> Row:
    """Find the run whose id begins so: one that is live, if there is one."""
    if len(given) >= WHOLE:
        return await client.run(given)
    for rows in (await client.runs(state=sorted(LIVE)), await client.runs()):
        found = [row for row in rows if row.run_id.startswith(given)]
        if len(found) == 1:
            return found[0]
        if found:
            told = ", ".join(row.run_id[: max(SHORT, len(given) + 4)] for row in found[:5])
            raise UserError(f"{given!r} may be one of {len(found)} runs, such as {told}: give more of the id")
    raise SessionError(f"there is no run {given!r}: `andon ps --all` lists them", "missing")


async def find(client: Client, given: str) -> Key:
    """Find the session that is named, or that of a run."""
    if "/" not in given:
        return (await find_run(client, given)).key
    return key_of(given)


def key_of(given: str) -> Key:
    """Read the name of a session."""
    parts = given.split("/")
    try:
        return Key(*parts)
    except (TypeError, ValueError) as error:
        raise UserError(f"{given!r} is no session: write app/user/session, or a run's id") from error


def out(value: object) -> None:
    """Write a value as a line of JSON."""
    line(msgspec.json.encode(value).decode())


def line(text: str) -> None:
    """Write a line to stdout, now."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def me() -> str:
    """Name whoever uses this terminal, as an id."""
    return re.sub(r"[^A-Za-z0-9_.@+=~-]", "-", getpass.getuser())[:128]
