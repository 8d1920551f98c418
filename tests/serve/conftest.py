"""An environment with Google's ADK in it, made once and kept: our own must not depend on what it pins."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

PLACE = Path(sys.prefix) / "adk"
CONSTRAINTS = Path(__file__).with_name("adk-constraints.txt")


@pytest.fixture(scope="session")
def adk_python() -> Path:
    """Give the interpreter of the environment."""
    python, made = PLACE / "bin" / "python", PLACE / "made"
    wanted = CONSTRAINTS.read_text()
    if not made.exists() or made.read_text() != wanted:
        venv.create(PLACE, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", str(CONSTRAINTS), "google-adk"], check=True)  # noqa: S603
        made.write_text(wanted)
    return python
