"""Hold: `andon pause`, `resume`, `stop` and `release`: whether a session goes on."""

import sys
from typing import Annotated

import typer

from andon.cli.asking import (
    SERVER,
    AsJson,
    Grace,
    Reason,
    Somewhere,
    Token,
    Url,
    Wait,
    ask,
    find,
    line,
    out,
)
from andon.cli.cancel import At, stop_of, tell
from andon.cli.streams import OK
from andon.client.client import WAIT, Client
from andon.errors import UserError

app = typer.Typer(add_completion=False)


@app.command()
def pause(
    session: Somewhere,
    *,
    grace: Grace = None,
    reason: Reason = None,
    wait: Wait = WAIT,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """Stop the live run at a safe point so that it can go on, and hold its session until `resume`."""

    async def act(client: Client) -> int:
        report = await client.pause(await find(client, session), grace=grace, reason=reason, wait=wait)
        return tell(report, session, as_json=as_json)

    ask(url, token, act)


@app.command()
def resume(session: Somewhere, *, as_json: AsJson = False, url: Url = SERVER, token: Token = None) -> None:
    """Let a session go on that was paused or stopped, from where its run was."""

    async def act(client: Client) -> int:
        return took(await client.resume(await find(client, session)), "goes on", as_json=as_json)

    ask(url, token, act)


@app.command()
def stop(
    session: Somewhere,
    *,
    at: At = None,
    now: Annotated[bool, typer.Option("--now", help="Cancel the live run, now")] = False,
    grace: Grace = None,
    reason: Reason = None,
    wait: Wait = WAIT,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """Stop a session: what waits stays unhandled, and what comes is refused, until `resume`.

    The live run goes on to its end, unless --at or --now says how to stop that, too.
    """

    async def act(client: Client) -> int:
        if now and at:
            raise UserError("--now and --at say different things: give one of them")
        asked = stop_of(at, grace, recursive=False) if now or at or grace is not None else None
        report = await client.stop(await find(client, session), asked, reason=reason, wait=wait)
        return tell(report, session, as_json=as_json)

    ask(url, token, act)


@app.command()
def release(session: Somewhere, *, as_json: AsJson = False, url: Url = SERVER, token: Token = None) -> None:
    """Let a session be worked on again that is in quarantine, as workers died on it again and again."""

    async def act(client: Client) -> int:
        await client.release(await find(client, session))
        return took(None, "released", as_json=as_json)

    ask(url, token, act)


def took(run_id: str | None, words: str, *, as_json: bool) -> int:
    """Print what an answer says: the run that it concerns goes to stdout, if there is one."""
    if as_json:
        out({} if run_id is None else {"run_id": run_id})
        return OK
    sys.stderr.write(f"{words}\n")
    if run_id is not None:
        line(run_id)
    return OK
