"""Command line: the one place that wires agents to a terminal; `main` is the `andon` command."""

import importlib
import sys

from andon.cli.leave import CUT_SHORT, LEFT
from andon.errors import MissingExtraError

EXTRA = {
    "fastapi": "serve",
    "httpx2": "cli",
    "pydantic_settings": "cli",
    "rich": "cli",
    "typer": "cli",
    "uvicorn": "serve",
}


def main() -> None:
    """Do what the command line says; without the extra that it needs, say how to install it."""
    try:
        importlib.import_module("andon.cli.commands").main()
    except ModuleNotFoundError as error:
        extra = EXTRA.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        what = "the command line" if extra == "cli" else "a server"
        sys.stderr.write(f"andon: {MissingExtraError(what, extra)}\n")
        sys.exit(2)
    except KeyboardInterrupt:  # the first load takes a moment, and nothing has begun
        sys.stderr.write(f"andon: {LEFT}\n")
        sys.exit(CUT_SHORT)
