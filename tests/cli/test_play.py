"""Signals become stops; with real signals, in this process."""

import io
import os
import signal
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest
from rich.console import Console
from typer.testing import CliRunner

from andon import Agent, ModelError
from andon.cli.commands import app
from andon.cli.play import play
from andon.cli.screen import Words
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from tests.cli.terminal import SCENES


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Start from what a program starts from, and hold that signals are given back."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def pulls(*numbers: signal.Signals) -> Agent:
    """Make an agent whose model gets signals while it answers, then waits for ever."""

    async def model(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Well"
        for number in numbers:
            os.kill(os.getpid(), number)
            await anyio.lowlevel.checkpoint()
        await anyio.sleep_forever()

    return Agent(model)


def played(agent: Agent, *, grace: float | None = None) -> tuple[int, str]:
    """Run an agent, and give the exit code and what was on stderr."""
    err = io.StringIO()
    code = play(agent, "hi", Words(io.StringIO(), Console(file=err, width=200)), grace=grace)
    return code, err.getvalue()


def test_ctrl_c_twice_is_now() -> None:
    """Nobody waits for a model that would never end."""
    code, err = played(pulls(signal.SIGINT, signal.SIGINT))

    assert code == 130
    assert "Ctrl-C again to stop now\nstopping now\ncancelled\n" in err
    assert "where: in a model call, which was cut; the partial answer is kept" in err
    assert "and by: user, because: Ctrl-C, twice (asked for: now)" in err


def test_ctrl_c_with_a_grace_ends_by_itself() -> None:
    """A second is not needed."""
    code, err = played(pulls(signal.SIGINT), grace=0.01)

    assert code == 3
    assert "asked by: user, because: Ctrl-C (asked for: at the next safe point, within 0.01 s)" in err


def test_sigterm_twice_is_now() -> None:
    """Whoever shuts down in a hurry is heard."""
    code, err = played(pulls(signal.SIGTERM, signal.SIGTERM))

    assert code == 3
    assert "within 5 s" in err
    assert "and by: shutdown, because: SIGTERM, again (asked for: now)" in err


def test_a_signal_that_was_ignored_from_the_start_stays_ignored() -> None:
    """A job in the background is not stopped by another's Ctrl-C."""

    async def model(_request: ModelRequest) -> AsyncIterator[Chunk]:
        os.kill(os.getpid(), signal.SIGINT)
        yield "Well"

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code, err = played(Agent(model))
    signal.signal(signal.SIGINT, signal.default_int_handler)

    assert (code, err) == (0, "")


def test_an_error_of_the_model_is_exit_code_1() -> None:
    """The run itself is whole."""

    async def model(_request: ModelRequest) -> AsyncIterator[Chunk]:
        raise ModelError("on holiday")
        yield

    assert played(Agent(model)) == (
        1,
        "✗ the model failed: ModelError: on holiday\nfailed: ModelError: on holiday\n",
    )


def test_an_output_that_breaks_ends_the_run() -> None:
    """Source: disconnect; and it is quiet."""

    class Broken(io.StringIO):
        def write(self, _text: str, /) -> int:
            raise BrokenPipeError

    err = io.StringIO()

    assert play(pulls(), "hi", Words(Broken(), Console(file=err))) == 3
    assert err.getvalue() == ""


def test_a_run_that_cannot_be_shown_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the reason: it is told, the run is ended, and nobody takes it for a success."""

    class Faulty(io.StringIO):
        def write(self, _text: str, /) -> int:
            raise ValueError("no such colour")

    assert play(pulls(), "hi", Words(Faulty(), Console(file=io.StringIO()))) == 1
    assert capsys.readouterr().err == "andon: the run could not be shown: ValueError: no such colour\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere.py:agent", "hi"], "andon: there is no file nowhere.py"),
        (["run", f"{SCENES}:echoing"], "andon: there is no prompt: andon run"),
        (["run", f"{SCENES}:echoing", " "], "andon: the prompt is empty"),
        (["run", f"{SCENES}:not_an_agent", "hi"], "is no Agent but a function"),
        (["run", "--model", "nobody:x", "hi"], "andon: unknown model 'nobody:x'"),
        (["run", "--model", "openai:x", "app.py:agent", "hi"], "andon: with --model there is no AGENT"),
        (["run", "--grace", "0", "app.py:agent", "hi"], "andon: --grace is 0"),
        (["run", "--grace", "soon", "app.py:agent", "hi"], "--grace"),
        (["run"], "AGENT"),
        (["walk"], "walk"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], said: str) -> None:
    """With a word that says what to write instead."""
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 2
    assert said in done.stderr


def test_a_run_by_the_command_line() -> None:
    """All the way."""
    done = CliRunner().invoke(app, ["run", f"{SCENES}:echoing", "-"], input="well met")

    assert (done.exit_code, done.stdout, done.stderr) == (0, "You said: well met\n", "")


def test_help_teaches_by_example() -> None:
    """Both levels of it."""
    assert "andon run app.py:agent" in CliRunner().invoke(app, ["--help"]).stdout
    help_of_run = " ".join(CliRunner().invoke(app, ["run", "--help"]).stdout.split())
    assert 'andon run app.py:agent "Plan my trip"' in help_of_run
    assert "Ctrl-C again" in help_of_run


def test_the_version_is_told() -> None:
    """One line."""
    assert CliRunner().invoke(app, ["version"]).stdout.startswith("andon 0.")
