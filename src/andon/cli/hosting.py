"""Hosting: what `andon serve` and `andon worker` share: where the journal is, and how they end."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from andon.cli.leave import CUT_SHORT, leave_at_once
from andon.cli.signals import hearing
from andon.cli.streams import FAILED, OK, USAGE, complain
from andon.errors import SessionError, UserError

TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
JOURNAL = Path(".andon") / "andon.db"
DRAINING = "live runs come to a safe point, and are left to who works on next; once more to leave now"
LEFT = "left now; what was live goes on from its last step with who works on next"

Targets = Annotated[
    list[str],
    typer.Argument(metavar="TARGET", help="app.py:agent, app.py with several agents, or a folder of apps"),
]
Db = Annotated[
    Path, typer.Option("--db", envvar="ANDON_DB", metavar="PATH", help="Where the journal is kept")
]
DrainGrace = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.001, help="How long live runs have to reach a safe point"),
]


def carry_out(work: Callable[[], None]) -> NoReturn:
    """Work until it is over, and end with the exit code."""
    try:
        work()
        code = OK
    except SessionError as error:
        complain(str(error))
        code = FAILED
    except UserError as error:
        complain(str(error))
        code = USAGE
    except KeyboardInterrupt:  # before anybody heard the signals
        code = CUT_SHORT
    raise typer.Exit(code)


def make_place(journal: Path) -> Path:
    """Make the folder of a journal, for this user alone, if it is not there."""
    try:
        journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the journal cannot be kept in {journal.parent}: {error.strerror}") from error
    return journal


@contextmanager
def ending(drain: Callable[[], None]) -> Generator[None]:
    """Say with the first signal that it drains, and see to that; with the second, leave at once.

    Nobody waits then, and no run is cancelled: the claims of this process end, and others go on.
    """
    came: list[signal.Signals] = []

    def heard(number: signal.Signals) -> None:
        before = tuple(came)
        came.append(number)
        if number is signal.SIGHUP:  # the terminal was closed, of which a shell may tell once more
            if not before:
                os.kill(os.getpid(), signal.SIGTERM)
        elif not set(before) - {signal.SIGHUP}:
            complain(DRAINING)
            drain()
        else:
            complain(LEFT)
            leave_at_once(CUT_SHORT)

    with hearing(TAKEN, heard):
        yield
