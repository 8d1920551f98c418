"""Kill servers as often as is wished: `python -m tests.chaos --kills 200`."""

import argparse
import sys
import tempfile
from pathlib import Path
from time import monotonic

import anyio

from tests.chaos.scene import Chaos
from tests.chaos.verdict import Ledger, books


def main() -> int:
    """Kill, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--drains", type=float, default=0.0)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="andon-chaos-"))
    chaos = Chaos(
        folder,
        given.seed,
        sessions=given.sessions,
        servers=given.servers,
        drains=given.drains,
        full=given.full,
    )
    began = monotonic()
    wrong = anyio.run(chaos.play, given.kills)
    did, found = Ledger(chaos.ledger), books(chaos.file)
    gaps = sorted(chaos.gaps)
    counts = {
        "sessions": len(found),
        "pushes": sum(len(one.pushed) for one in chaos.told),
        "steers": sum(len(one.steered) for one in chaos.told),
        "cancels": sum(len(one.reports) for one in chaos.told),
        "items": sum(len(book.items) for book in found.values()),
        "quarantines": sum(len(book.of("quarantined")) for book in found.values()),
        "tool calls begun": sum(did.begun.values()),
        "ended": sum(did.ended.values()),
    }
    told = [
        f"seed {given.seed}: {chaos.kills} kills, {chaos.left} orderly leaves, {monotonic() - began:.0f} s",
        ", ".join(f"{count} {what}" for what, count in counts.items()),
        f"from a kill to the next item: median {gaps[len(gaps) // 2]:.2f} s, most {gaps[-1]:.2f} s",
        *(wrong or ["nothing lost, nothing twice, order kept"]),
    ]
    print("\n".join(told))  # noqa: T201 — it is what this is for
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
