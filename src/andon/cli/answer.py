"""Answer: `andon answer`, which tells a run what it has asked a human."""

from typing import Annotated

import msgspec
import typer

from andon.cli.asking import SERVER, AsJson, RunId, Token, Url, ask, find_run
from andon.cli.hold import took
from andon.client.client import Client
from andon.core.outcome import Interrupt
from andon.errors import SessionError, UserError

app = typer.Typer(add_completion=False)

HELP = "\n\n".join(  # noqa: FLY002 - a paragraph a line
    (
        "Answer what a run asks, so that it goes on.",
        "[bold]andon answer 3fa9 yes[/bold]   its one question",
        "[bold]andon answer 3fa9 approve-1=true note-2='by train'[/bold]   several, by their ids",
        "[bold]andon answer 3fa9[/bold]   shows the questions",
        "What is JSON (true, 42, {…}) is given as that, and all else as text.",
    )
)


@app.command(help=HELP)
def answer(
    run: RunId,
    answers: Annotated[
        list[str] | None, typer.Argument(metavar="[ID=]ANSWER", help="What to answer, and which question")
    ] = None,
    *,
    as_json: AsJson = False,
    url: Url = SERVER,
    token: Token = None,
) -> None:
    """Answer what a run asks."""

    async def act(client: Client) -> int:
        row = await find_run(client, run)
        if not row.interrupts:
            raise SessionError(f"run {row.run_id} is {row.state}, and asks nothing", "conflict")
        given = read(answers or [], row.interrupts)
        return took(await client.answer(row.key, given), "answered, and goes on", as_json=as_json)

    ask(url, token, act)


def read(answers: list[str], questions: tuple[Interrupt, ...]) -> dict[str, object]:
    """Tell which answer is for which question."""
    ids = {question.id for question in questions}
    if not answers:
        raise UserError(f"there is no answer to:\n{_told(questions)}")
    if len(answers) == 1 and len(ids) == 1 and answers[0].partition("=")[0] not in ids:
        return {questions[0].id: value(answers[0])}
    read: dict[str, object] = {}
    for each in answers:
        name, equals, text = each.partition("=")
        if not equals or name not in ids:
            raise UserError(f"{each!r} answers none of them; write ID=ANSWER:\n{_told(questions)}")
        read[name] = value(text)
    return read


def value(text: str) -> object:
    """Read an answer: as JSON if it is, else as text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _told(questions: tuple[Interrupt, ...]) -> str:
    return "\n".join(f"  {question.id}: {question.payload}" for question in questions)
