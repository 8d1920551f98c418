"""The demo tells its story, on a terminal and without one, and the example app runs."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.terminal import CTRL_C, PATIENCE, Terminal, andon, environment

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "examples" / "story.py"

STORY = [
    "1. Stop now, in the middle of an answer",
    "where: in a model call, which was cut; the partial answer is kept",
    "asked by: user ada, because: not Lisbon (asked for: now)",
    "2. Stop when both tools have ended",
    "result: stopped, as asked",
    "where: at a safe point: every tool of the round had ended",
    "find_trains: completed",
    "find_rooms: completed",
    "3. The same, but within a second",
    "result: stopped at once, because no safe point came within the grace",
    "escalated: yes: the grace ran out",
    "abandoned: call_hotel: would not stop",
    "pay: completed",
    "call_hotel: was stopped; whether it took effect is not known",
    "4. Say something else instead",
    "> With two suitcases?",
    "Then take a taxi: ten minutes, 8 euros.",
    "climb the 180 steps",
    "5. An agent asks another, which asks you",
    "  … reserve goes on when the run is resumed",
    "waits for an answer: It costs 20 euros if you do not come. Reserve?",
    "asked by: trips → ask_concierge → concierge → reserve",
    "> yes",
    "  ✓ reserve completed",
    "You have two seats at eight, by the window.",
    "6. The conversation goes on",
    "I would ring them before you leave.",
]


def python(*arguments: str | Path) -> str:
    """Run Python, and give what it prints."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_demo_tells_its_story() -> None:
    """Each scene's key lines, in order, and nothing but text where there is no terminal."""
    told = python(SCRIPT, "--fast")
    at = 0
    for line in STORY:
        assert line in told[at:]
        at = told.index(line, at)
    assert "\x1b" not in told


def test_the_demo_is_coloured_on_a_terminal() -> None:
    """By the sixteen colours of the terminal's own theme, dark or light."""
    terminal = Terminal([str(SCRIPT), "--fast"])

    assert terminal.ends() == 0
    styles = {code for codes in re.findall(r"\x1b\[([0-9;]+)m", terminal.raw) for code in codes.split(";")}
    assert styles >= {"1", "2", "32", "35", "36"}
    assert styles.isdisjoint({"30", "37", "38", "40", "47", "48", "97"})


def test_ctrl_c_ends_the_demo_with_a_line() -> None:
    """And not with a traceback."""
    terminal = Terminal([str(SCRIPT)])
    terminal.until("On the first day")
    terminal.type(CTRL_C)

    assert terminal.ends() == 130
    assert terminal.seen.endswith("ended by Ctrl-C; nothing of it is left running\n")


def test_the_demo_can_be_drawn(tmp_path: Path) -> None:
    """A picture for the README: it loads nothing, and knows no machine."""
    picture = tmp_path / "demo.svg"
    python(SCRIPT, "--fast", "--svg", picture)
    drawn = picture.read_text()

    assert drawn.startswith("<svg")
    assert "find_trains" in drawn
    assert "@font-face" not in drawn
    assert str(ROOT) not in drawn


def test_the_readme_picture_is_of_this_demo() -> None:
    """Draw it again with `python examples/story.py --svg docs/demo.svg`."""
    drawn = (ROOT / "docs" / "demo.svg").read_text().replace("&#160;", " ")

    assert [line for line in STORY if line[0].isdigit() and line not in drawn] == []


def test_the_example_app_runs_from_the_command_line() -> None:
    """As its first line says."""
    told = python(*andon("run", str(ROOT / "examples" / "app.py") + ":agent", "What is open?", "--json"))

    assert told.count('"type":"tool_ended"') == 2
    assert "which suits the rain." in told.splitlines()[-1]
