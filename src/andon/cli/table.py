"""Table: rows under a head, aligned; on a terminal, in colour and no wider than it."""

import shutil
import sys
from collections.abc import Sequence

from andon.cli.streams import safe

GAP = "  "
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
COLOURS = {
    "running": "\x1b[32m",
    "queued": "\x1b[36m",
    "stopping": "\x1b[35m",
    "cancelled": "\x1b[35m",
    "interrupted": "\x1b[33m",
    "failed": "\x1b[31m",
    "quarantined": "\x1b[31m",
    "limit": "\x1b[31m",
}


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Print a table to stdout; without rows, to stderr that there are none."""
    if not rows:
        sys.stderr.write(f"{empty}\n")
        return
    clean = [[" ".join(safe(cell).split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *clean, strict=True)]
    is_terminal = sys.stdout.isatty()
    most = shutil.get_terminal_size().columns if is_terminal else None
    lines = [
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *clean)
    ]
    shown = [line.rstrip()[:most] for line in lines]
    if is_terminal:
        shown = [f"{BOLD}{shown[0]}{PLAIN}", *map(_coloured, shown[1:])]
    sys.stdout.write("\n".join(shown) + "\n")


def _coloured(line: str) -> str:
    word, gap, rest = line.partition(" ")
    return f"{COLOURS[word]}{word}{PLAIN}{gap}{rest}" if word in COLOURS else line
