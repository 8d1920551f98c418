"""Streams that are closed, full, or hold what cannot be read; through real processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import PATIENCE, SCENES, Terminal, andon, environment, spawn

FULL = "/dev/full"
NO_SPACE = "andon: the output could not be written: No space left on device"


def shell(redirected: str, *arguments: str, stdin: bytes = b"", **changes: str) -> tuple[int, bytes, str]:
    """Give the command line's exit code and output, its streams redirected as a shell does."""
    done = subprocess.run(  # noqa: S603 - our own program
        ["/bin/sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, *andon(*arguments)],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env=environment(**changes),
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("arguments", [["run", f"{SCENES}:echoing", "hi"], ["version"]])
def test_without_a_stdout_there_is_nobody_to_answer(arguments: list[str]) -> None:
    """One line says so, and it is no success."""
    assert shell(">&-", *arguments) == (
        1,
        b"",
        "andon: stdout is closed, and the answer goes there: leave it open, or send it to a file\n",
    )


@pytest.mark.skipif(not Path(FULL).exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", f"{SCENES}:flooding", "hi"],
        ["run", "--json", f"{SCENES}:flooding", "hi"],
        ["version"],
        ["run", "--help"],
    ],
)
def test_an_output_that_is_full_is_a_failure(arguments: list[str]) -> None:
    """One line says why; a run is ended."""
    assert shell(f">{FULL}", *arguments) == (1, b"", f"{NO_SPACE}\n")


@pytest.mark.skipif(not Path(FULL).exists(), reason="this system has no device that is always full")
def test_words_that_cannot_be_said_leave_the_exit_code() -> None:
    """Nothing is left to say it on."""
    assert shell(f"2>{FULL}", "run", f"{SCENES}:plain", "hi")[0] == 1


def test_without_a_stderr_the_answer_is_alone() -> None:
    """What goes to stderr does not turn up elsewhere."""
    assert shell("2>&-", "run", f"{SCENES}:plain", "hi") == (0, b"Let me see. \nThere are two trains.\n", "")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_prompt_that_is_not_utf_8_is_refused(locale: str) -> None:
    """Also where the locale would let it through."""
    code, out, err = shell("", "run", f"{SCENES}:echoing", "-", stdin=b"caf\xe9", LC_ALL=locale)

    assert (code, out) == (2, b"")
    assert err.startswith("andon: the prompt on stdin is not UTF-8: it holds the byte 0xe9; convert it first")


def test_a_prompt_from_a_stdin_that_is_closed_is_refused() -> None:
    """And not met with a traceback."""
    code, _, err = shell("<&-", "run", f"{SCENES}:echoing", "-")

    assert code == 2
    assert err.startswith("andon: stdin is closed")


def test_a_prompt_is_read_from_a_terminal_until_ctrl_d() -> None:
    """Which is said, for nothing else would move."""
    terminal = Terminal(andon("run", f"{SCENES}:echoing", "-"))
    terminal.until("end it with Ctrl-D")
    terminal.type("well met\n\x04")

    assert terminal.ends() == 0
    assert "You said: well met" in terminal.seen


def test_a_message_is_plain_where_the_encoding_is() -> None:
    """An ellipsis is three dots there."""
    _, _, err = shell("", "run", f"{SCENES}:echoing", PYTHONIOENCODING="ascii")

    assert "..." in err
    assert "?" not in err


ASKED = """
import errno, sys
from andon.cli.streams import is_gone
sys.exit(3 if is_gone(OSError(errno.EIO, "")) else 4)
"""


def test_a_terminal_that_was_closed_is_told_from_a_disk_that_fails() -> None:
    """Both are errors of input and output."""
    disk = spawn(["-c", ASKED])
    disk.communicate(timeout=PATIENCE)

    assert disk.returncode == 4
    assert Terminal(["-c", ASKED]).ends() == 3
