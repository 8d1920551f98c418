"""Version: `andon version`."""

import sys
from importlib.metadata import version as installed

import typer

app = typer.Typer(add_completion=False)


@app.command()
def version() -> None:
    """Say which version this is."""
    sys.stdout.write(f"andon {installed('andon')}\n")
