"""Command line: the one place that wires agents to a terminal; `main` is the `andon` command."""

import importlib
import sys

from andon.cli.leave import CUT_SHORT, LEFT
from andon.errors import MissingExtraError

EXTRA = {"rich", "typer"}


def main() -> None:
    """Do what the command line says; without the extra `cli`, say how to install it."""
    try:
        commands = importlib.import_module("andon.cli.commands")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.stderr.write(f"andon: {MissingExtraError('the command line', 'cli')}\n")
        sys.exit(2)
    except KeyboardInterrupt:  # the first load takes a moment, and nothing has begun
        sys.stderr.write(f"andon: {LEFT}\n")
        sys.exit(CUT_SHORT)
    commands.main()
