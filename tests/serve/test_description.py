"""The description is exact: what schemathesis makes of it is answered as it says, and never by a failure."""

import sys
from pathlib import Path

import anyio
import pytest

from tests.serve.scene import Scene, guarded

CONFIG = """
[parameters]
"path.app" = "trips"
"path.user" = "ann"
"path.session" = "s1"
"path.run" = "{run}"
"""


async def drive(s: Scene, folder: Path, *options: str) -> tuple[int, str]:
    """Let schemathesis send what the description allows, and what it does not; gives what it says of it."""
    s.gate.open()
    await s.begin(by="root")
    run = await s.push("hello", by="root")
    config = anyio.Path(folder / "schemathesis.toml")
    await config.write_text(CONFIG.format(run=run))
    program = str(Path(sys.executable).with_name("st"))
    given = ["--config-file", str(config), "run", f"{s.server.address}/openapi.json", *options]
    given += ["--header", f"Authorization: Bearer {s.tokens['root']}", "--seed", "1", "--max-examples", "5"]
    told = await anyio.run_process([program, *given], check=False, cwd=folder)
    return told.returncode, told.stdout.decode()


# A stopped session takes nothing more, so what stops it has a turn of its own; that of a session never ends.
TURNS = {
    "all but": ("--exclude-path-regex", "(:pause|:stop|/events)$"),
    "those": ("--include-path-regex", "(:pause|:stop|:resume|/runs/.*/events)$"),
}


@pytest.mark.parametrize("turn", TURNS)
async def test_nothing_that_is_sent_breaks_the_description(tmp_path: Path, turn: str) -> None:
    """No 5xx, no answer that is not described, nothing valid refused and nothing invalid taken."""
    async with guarded(tmp_path) as s:
        code, said = await drive(s, tmp_path, "--phases", "coverage,fuzzing", *TURNS[turn])
    assert code == 0, said
