"""Say: `andon steer` to a run that is live, `andon push` to a session: words become part of it."""

import re
import sys
from enum import StrEnum
from typing import Annotated

import typer

from andon.cli.asking import SERVER, SHORT, AsJson, RunId, Token, Url, ask, find, find_run, line, me, out
from andon.cli.hold import took
from andon.cli.streams import OK, read_prompt
from andon.client.client import Client
from andon.client.shape import Told
from andon.core.command import Key
from andon.errors import SessionError

app = typer.Typer(add_completion=False)

PUSH_HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
    (
        "Say something to a session, which becomes a run on the server, and print the id of that.",
        '[bold]andon push trips "Plan my trip" --follow[/bold]   in a new session of yours',
        '[bold]andon push trips/ann/s1 "And back?"[/bold]   in that one, which is begun if need be',
        "Exit codes with --follow: 0 answered, 1 failed, 3 cancelled, 130 left, and the run goes on.",
    )
)


class When(StrEnum):
    """When a steer is heard."""

    NEXT = "next"
    IDLE = "idle"
    NOW = "now"


class OnBusy(StrEnum):
    """What a push does while a run is live."""

    ENQUEUE = "enqueue"
    PREEMPT = "preempt"
    STEER = "steer"
    REJECT = "reject"
    ROLLBACK = "rollback"


Words = Annotated[str, typer.Argument(metavar="PROMPT", help="What to say; - reads it from stdin")]


@app.command()
def steer(
    run: RunId,
    prompt: Words,
    *,
    when: Annotated[
        When,
        typer.Option(help="Heard with the next model call, when it would end, or by cutting the model now"),
    ] = When.NEXT,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """Say something to a live run, which it hears on its way."""

    async def act(client: Client) -> int:
        row = await find_run(client, run)
        steered = await client.steer(row.run_id, words(prompt), when=when.value)
        return took(steered, "said", as_json=as_json)

    ask(url, token, act)


@app.command(help=PUSH_HELP)
def push(
    session: Annotated[
        str,
        typer.Argument(metavar="SESSION", help="app, app/user, app/user/session, or the id of a run in it"),
    ],
    prompt: Words,
    *,
    on_busy: Annotated[OnBusy, typer.Option(help="What to do while a run is live")] = OnBusy.ENQUEUE,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Show the run until it ends")] = False,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """Say something to a session."""

    async def act(client: Client) -> int:
        said = words(prompt)
        key = await _place(client, session)
        told = await _push(client, key, said, on_busy)
        if following:
            from andon.cli.follow import follow  # noqa: PLC0415 - rich takes longer than the answer

            return await follow(client, told.run_id, as_json=as_json)
        if as_json:
            out(told)
            return OK
        sys.stderr.write(f"{told.state} in session {told.key}: andon logs {told.run_id[:SHORT]} --follow\n")
        line(told.run_id)
        return OK

    ask(url, token, act)


async def _place(client: Client, session: str) -> Key:
    """Find the session that is meant; one that is not named is begun."""
    app_name, _, rest = session.partition("/")
    if "/" in rest or _is_run(session):
        return await find(client, session)
    return (await client.create(app_name, rest or me())).key


async def _push(client: Client, key: Key, prompt: str, on_busy: OnBusy) -> Told:
    try:
        return await client.push(key, prompt, on_busy=on_busy.value)
    except SessionError as error:
        if error.kind != "missing":
            raise
    await client.create(key.app, key.user, key.session)
    return await client.push(key, prompt, on_busy=on_busy.value)


def _is_run(given: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{12,32}", given) is not None


def words(prompt: str) -> str:
    """Take what is to be said, perhaps from stdin."""
    return read_prompt() if prompt == "-" else prompt
