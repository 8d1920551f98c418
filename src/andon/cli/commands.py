"""Commands: what `andon` can do; the module of a command is loaded when that is asked for."""

import importlib
from collections.abc import Iterable
from typing import cast

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from andon.cli.leave import leave
from andon.cli.streams import FAILED, complain, flush, is_gone, output_failed, prepare

# In the order of the help, which is that in which one needs them.
MODULES = {
    "run": "run",
    "serve": "serve",
    "worker": "worker",
    "ps": "ps",
    "logs": "logs",
    "cancel": "cancel",
    "steer": "say",
    "push": "say",
    "answer": "answer",
    "pause": "hold",
    "resume": "hold",
    "stop": "hold",
    "release": "hold",
    "sessions": "sessions",
    "version": "version",
}


class Commands(TyperGroup):
    """The commands by their names; `andon ps` pays for nothing that only a server needs."""

    @override
    def list_commands(self, ctx: object) -> list[str]:
        self._load(MODULES)
        return list(MODULES)

    @override
    def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | None:
        # Of an unknown name, all of them tell which one it may have been meant for.
        self._load([cmd_name] if cmd_name in MODULES else MODULES)
        found = self.commands.get(cmd_name)
        return found if isinstance(found, TyperCommand) else None

    def _load(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.commands:
                module = importlib.import_module(f"andon.cli.{MODULES[name]}")
                self.commands[name] = _command(module.app, name)


def _command(loaded: typer.Typer, name: str) -> TyperCommand:
    command = typer.main.get_command(loaded)
    found = command.commands[name] if isinstance(command, TyperGroup) else command
    return cast("TyperCommand", found)


app = typer.Typer(
    name="andon",
    cls=Commands,
    help="Run agents that can be stopped, truthfully, at any moment.",
    epilog='Begin with:  andon run app.py:agent "Plan my trip"   or:  andon serve app.py:agent',
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Make `andon` a command of commands."""


def main() -> None:
    """Do what the command line says."""
    if not prepare():
        complain("stdout is closed, and the answer goes there: leave it open, or send it to a file")
        leave(FAILED)
    try:
        app()
    except SystemExit as end:
        leave(flush(end.code if isinstance(end.code, int) else FAILED))
    except OSError as error:
        flush(FAILED)
        if not is_gone(error):
            output_failed(error)
        leave(FAILED)
