"""Streams: stdin, stdout and stderr as they are found: closed, full, or short of characters."""

import errno
import os
import stat
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from andon.errors import UserError, tell

OK, FAILED, USAGE, CANCELLED = 0, 1, 2, 3  # exit codes, with leave.CUT_SHORT
ELLIPSES = str.maketrans({"…": "..."})

# What a model or a tool says must not steer the terminal: all control characters but tab and new line.
CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def prepare() -> bool:
    """Make the streams bear whatever is written; False if there is no stdout to answer to."""
    if sys.stderr is None:
        # Otherwise what is meant for it would go to whatever is opened next.
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the program
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no failure
    return sys.stdout is not None


def says(encoding: str, text: str) -> bool:
    """Tell whether an encoding has all of these characters."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def safe(text: str) -> str:
    """Leave out what would steer a terminal."""
    return text.translate(CONTROLS)


def complain(text: str) -> None:
    """Say on stderr what went wrong; if that cannot be said either, the exit code must do."""
    line = f"andon: {text}\n"
    try:
        sys.stderr.write(line if says(sys.stderr.encoding or "utf-8", "…") else line.translate(ELLIPSES))
        sys.stderr.flush()
    except OSError:
        return


def is_gone(error: OSError) -> bool:
    """Tell a reader that has left, or a terminal that was closed, from an output that failed."""
    if error.errno == errno.EIO:
        return any(map(_is_device, (1, 2)))
    return error.errno in {errno.EPIPE, errno.ECONNRESET} or isinstance(error, BrokenPipeError)


def output_failed(error: Exception) -> None:
    """Say why what a run said could not be shown."""
    if isinstance(error, OSError):
        complain(f"the output could not be written: {error.strerror or error}")
    else:
        complain(f"the run could not be shown: {tell(error)}")


def flush(code: int) -> int:
    """Write what is left, and give the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # The interpreter must not complain of it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code == 0 and not is_gone(error):
            output_failed(error)
            return FAILED
    return code


def read_prompt() -> str:
    """Read the prompt from stdin to its end."""
    stdin: TextIO | None = sys.stdin
    if stdin is None:
        raise UserError("stdin is closed, so there is no prompt to read: give it as an argument")
    if stdin.isatty():
        complain("reading the prompt from this terminal; end it with Ctrl-D on a line of its own")
    if isinstance(stdin, TextIOWrapper):
        stdin.reconfigure(errors="strict")  # the C locale would let through what no model can read
    try:
        return stdin.read()
    except UnicodeDecodeError as error:
        what = f"the prompt on stdin is not {error.encoding.upper()}: it holds the byte 0x"
        raise UserError(f"{what}{error.object[error.start]:02x}; convert it first, as iconv does") from error


def _is_device(number: int) -> bool:
    try:
        return stat.S_ISCHR(os.fstat(number).st_mode)
    except OSError:
        return False
