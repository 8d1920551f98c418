"""Commands: what `andon` can do, and what it says when asked for help."""

import sys
from importlib.metadata import version as installed
from typing import Annotated

import typer

from andon.cli.leave import CUT_SHORT, LEFT, leave
from andon.cli.load import load
from andon.cli.play import play
from andon.cli.screen import screen
from andon.cli.streams import FAILED, complain, flush, is_gone, output_failed, prepare, read_prompt
from andon.core.stop import check_seconds
from andon.errors import UserError
from andon.runtime.agent import Agent

USAGE = 2

app = typer.Typer(
    name="andon",
    help="Run agents that can be stopped, truthfully, at any moment.",
    epilog='Begin with:  andon run app.py:agent "Plan my trip"',
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

RUN_HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
    (
        "Run an agent, and show what it says and does as it comes.",
        '[bold]andon run app.py:agent "Plan my trip"[/bold]',
        (
            "Ctrl-C stops at the next safe point, where nothing in flight is cut; Ctrl-C again stops now. "
            "SIGTERM is the first with a grace. The stop report then says who asked, where the run stopped, "
            "and what became of each tool call. The answer goes to stdout, all else to stderr."
        ),
        '[bold]andon run --model openai:gpt-5 "hi"[/bold]   without an app',
        "[bold]git diff | andon run review.py:agent -[/bold]   with the prompt from stdin",
        (
            "Exit codes: 0 answered, 1 failed or ended at a limit, 2 wrong usage, 3 cancelled, "
            "130 cancelled by a second Ctrl-C."
        ),
    )
)


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


@app.callback()
def root() -> None:
    """Make `andon` a command of commands."""


@app.command(help=RUN_HELP)
def run(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="path.py:name or package.module:name")],
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to ask; - reads it from stdin")
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(metavar="PROVIDER:NAME", help="Ask a model; AGENT is left out"),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long the first Ctrl-C waits for a safe point; then now"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write each event as a line of JSON, and nothing else, to stdout")
    ] = False,
) -> None:
    """Run an agent."""
    try:
        _check(grace)
        asked, words = _asked(agent, prompt, model)
        code = play(asked, words, screen(as_json=as_json), grace=grace)
    except UserError as error:
        complain(str(error))
        code = USAGE
    except KeyboardInterrupt:  # before the run took the signals over
        complain(LEFT)
        code = CUT_SHORT
    raise typer.Exit(code)


@app.command()
def version() -> None:
    """Say which version this is."""
    sys.stdout.write(f"andon {installed('andon')}\n")


def _asked(agent: str, prompt: str | None, model: str | None) -> tuple[Agent, str]:
    if model is not None:
        if prompt is not None:
            msg = 'with --model there is no AGENT, only a prompt: andon run --model openai:gpt-5 "hi"'
            raise UserError(msg)
        return Agent(model), _read(agent)
    if prompt is None:
        msg = f'there is no prompt: andon run {agent} "…", or - to read it from stdin'
        raise UserError(msg)
    return load(agent), _read(prompt)


def _check(grace: float | None) -> None:
    try:
        check_seconds("--grace", grace)
    except ValueError as error:
        raise UserError(str(error)) from error


def _read(prompt: str) -> str:
    return read_prompt() if prompt == "-" else prompt
