"""Worker: `andon worker`, which works on sessions and serves nobody."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from andon.adapters.sqlite import SqliteSubstrate
from andon.cli.apps import load_apps
from andon.cli.hosting import JOURNAL, Db, DrainGrace, Targets, carry_out, ending, make_place
from andon.cli.streams import complain
from andon.runtime.agent import Agent
from andon.runtime.isolate import run_to_end
from andon.runtime.worker import Worker

app = typer.Typer(add_completion=False)

DRAIN_GRACE = 10.0

HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
    (
        "Work on sessions beside the server that has the same journal, without a server of its own.",
        "[bold]andon worker app.py:agent[/bold]",
        (
            "Ctrl-C or SIGTERM drains: live runs come to a safe point and are left to the next worker; "
            "a second one leaves now. Exit codes: 0 drained, 1 failed, 2 wrong usage, 130 left."
        ),
    )
)


@app.command(help=HELP)
def worker(
    targets: Targets,
    *,
    db: Db = JOURNAL,
    concurrency: Annotated[int, typer.Option(min=1, help="How many sessions to work on at a time")] = 100,
    drain_grace: DrainGrace = None,
) -> None:
    """Work on sessions."""

    def work() -> None:
        apps, journal = load_apps(targets), make_place(db)
        run_to_end(lambda: _work(apps, journal, concurrency, drain_grace or DRAIN_GRACE))

    carry_out(work)


async def _work(apps: Mapping[str, Agent], journal: Path, concurrency: int, drain_grace: float) -> None:
    loop = asyncio.get_running_loop()

    def drain() -> None:
        loop.call_soon_threadsafe(worker.drain)

    async with SqliteSubstrate(journal) as substrate:
        worker = Worker(apps, substrate=substrate, concurrency=concurrency, drain_grace=drain_grace)
        with ending(drain):
            complain(f"{worker.name} works for {', '.join(apps)}, journal {journal}; Ctrl-C to end")
            await worker.run()
