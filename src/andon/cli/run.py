"""Run: `andon run`, which runs an agent in this process and shows it."""

from typing import Annotated

import typer

from andon.cli.leave import CUT_SHORT, LEFT
from andon.cli.load import load
from andon.cli.play import play
from andon.cli.screen import screen
from andon.cli.streams import USAGE, complain, read_prompt
from andon.core.stop import check_seconds
from andon.errors import UserError
from andon.runtime.agent import Agent

app = typer.Typer(add_completion=False)

HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
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


@app.command(help=HELP)
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
