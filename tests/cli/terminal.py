"""Terminal: the command line in a process of its own, on a terminal of its own."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SCENES = Path(__file__).with_name("scenes.py")
PATIENCE = 20.0
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# Makes the terminal on stdin the controlling one, so that a typed Ctrl-C is a signal.
ADOPT = (
    "import fcntl, os, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
CTRL_C = "\x03"
HEARD = ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL))


def andon(*arguments: str) -> list[str]:
    """Give the command that does what `andon …` does."""
    return ["-m", "andon.cli", *arguments]


def environment(**changes: str) -> dict[str, str]:
    """Give an environment in which only the terminal decides about colours."""
    settings = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR"}}
    return {**settings, "TERM": "xterm-256color", "COLUMNS": "200", "PYTHONWARNINGS": "default", **changes}


def spawn(
    arguments: Sequence[str], *, stdin: int = subprocess.DEVNULL, pipes: bool = True, session: bool = False
) -> subprocess.Popen[bytes]:
    """Start Python; a Ctrl-C or hang-up that the tests were told to ignore is not ignored there."""
    before = [(number, signal.signal(number, heard)) for number, heard in HEARD]
    try:
        output = subprocess.PIPE if pipes else stdin
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, *arguments],
            stdin=stdin,
            stdout=output,
            stderr=output,
            env=environment(),
            start_new_session=session,
        )
    finally:
        for number, handler in before:
            signal.signal(number, handler)


class Terminal:
    """A program on a pseudo-terminal; what it shows is read as it comes."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = spawn(["-c", ADOPT, *arguments], stdin=theirs, pipes=False, session=True)
        os.close(theirs)
        self.raw = ""
        self._read_to = 0

    @property
    def seen(self) -> str:
        """What has been shown, without colours."""
        return ANSI.sub("", self.raw).replace("\r", "")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._ours, text.encode())

    def until(self, text: str) -> None:
        """Read until something new shows this."""
        while (at := self.seen.find(text, self._read_to)) < 0:
            assert self.read(PATIENCE), f"{text!r} was not shown, but: {self.seen}"
        self._read_to = at + len(text)

    def shows(self, text: str, *, within: float) -> bool:
        """Read for a while, or until something shows this."""
        deadline = time.monotonic() + within
        while text not in self.seen and (left := deadline - time.monotonic()) > 0:
            self.read(left)
        return text in self.seen

    def read(self, timeout: float) -> bool:
        """Read what there is; False at the end, or if nothing comes in time."""
        if not select.select([self._ours], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # Linux says so when the other end is closed
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)

    def ends(self) -> int:
        """Read to the end, and give the exit code."""
        while self.read(PATIENCE):
            continue
        return self.close()

    def close(self) -> int:
        """Close the window, and give the exit code."""
        os.close(self._ours)
        return self.process.wait(PATIENCE)
