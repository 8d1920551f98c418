"""Serve: `andon serve`, a server and its worker in one process."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from andon.cli.apps import load_apps
from andon.cli.hosting import JOURNAL, Db, DrainGrace, Targets, carry_out, ending, make_place
from andon.cli.streams import complain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from andon.runtime.agent import Agent
    from andon.serve.settings import Settings

app = typer.Typer(add_completion=False)


HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
    (
        "Serve agents over HTTP, with a page to watch and stop them, and work on their sessions.",
        "[bold]andon serve app.py:agent[/bold]   one agent, at http://127.0.0.1:8484",
        "[bold]andon serve app.py[/bold]   all agents of a file",
        "[bold]andon serve apps[/bold]   root_agent or agent of each apps/*/agent.py",
        (
            "An app has the name of its agent, or of its variable if that has none; in a folder, of the "
            "sub-folder. What must last is in one SQLite file, which workers of this machine may share."
        ),
        (
            "Ctrl-C or SIGTERM drains: live runs come to a safe point and go on when somebody serves again; "
            "a second one leaves now. Exit codes: 0 drained, 1 failed, 2 wrong usage, 130 left."
        ),
        "ANDON_MAX_BODY, ANDON_KEEP_ALIVE and the like set in the environment what has no option.",
    )
)


Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen; 127.0.0.1 by default")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="8484 by default; 0 is any that is free")]
Keys = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Ask for a token, and believe those in this file")
]
Issuer = Annotated[
    str | None, typer.Option(metavar="URL", help="Ask for a token, and believe JWTs of this issuer")
]
Audience = Annotated[str | None, typer.Option(metavar="NAME", help="… that are for this")]
Jwks = Annotated[str | None, typer.Option(metavar="URL|PATH", help="… signed with these keys")]
Origins = Annotated[list[str] | None, typer.Option(metavar="URL", help="Let web pages of elsewhere use it")]
Names = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Answer to this name, too, if nobody needs a token")
]


@app.command(help=HELP)
def serve(
    targets: Targets,
    *,
    host: Host = None,
    port: Port = None,
    db: Db = JOURNAL,
    keys: Keys = None,
    jwt_issuer: Issuer = None,
    jwt_audience: Audience = None,
    jwt_jwks: Jwks = None,
    origin: Origins = None,
    hostname: Names = None,
    drain_grace: DrainGrace = None,
) -> None:
    """Serve agents over HTTP."""

    def work() -> None:
        from andon.cli.config import settings_of  # noqa: PLC0415 - others need no server

        jwt = {"issuer": jwt_issuer, "audience": jwt_audience, "jwks": jwt_jwks}
        settings = settings_of(
            host=host,
            port=port,
            keys=keys,
            jwt={field: value for field, value in jwt.items() if value is not None} or None,
            origins=tuple(origin or ()) or None,
            hosts=tuple(hostname or ()) or None,
            drain_grace=drain_grace,
        )
        _serve(load_apps(targets), make_place(db), settings)

    carry_out(work)


def _serve(apps: "Mapping[str, Agent]", journal: Path, settings: "Settings") -> None:
    from andon.adapters.sqlite import SqliteSubstrate  # noqa: PLC0415
    from andon.runtime.isolate import run_to_end  # noqa: PLC0415
    from andon.serve.server import serve  # noqa: PLC0415

    def started(url: str) -> None:
        complain(f"serving {', '.join(apps)} at {url}, journal {journal}; Ctrl-C to end")

    async def main() -> None:
        with ending(_left_to_uvicorn):
            await serve(apps, SqliteSubstrate(journal), settings, started=started)

    run_to_end(main)


def _left_to_uvicorn() -> None:
    """Do nothing: its own handler of the same signal has told the server."""
