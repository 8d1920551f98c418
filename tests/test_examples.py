"""Each example fits on a screen, and does what it says."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import PATIENCE, environment

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = sorted(
    {*EXAMPLES.glob("*.py")} - {EXAMPLES / "story.py", EXAMPLES / "demo.py"}
)  # with tests of their own


def told(name: str, *arguments: str, cwd: Path | None = None) -> list[str]:
    """Run an example in a process of its own, and give the lines that it prints."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment(),
        cwd=cwd,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.name)
def test_an_example_fits_on_a_screen(path: Path) -> None:
    """40 lines, and the first says what it shows."""
    lines = path.read_text().splitlines()

    assert len(lines) <= 40
    assert lines[0].startswith('"""')


def test_a_tree_is_stopped_inside_and_goes_on_there() -> None:
    """Each tool runs once, the second half of the work comes after the resume."""
    assert told("tree.py") == [
        "find_train for Porto",
        "find_room for Porto",
        "cancelled at point:tools",
        "find_train has found one, find_room has found one",
    ]


def test_a_question_is_answered_in_another_process(tmp_path: Path) -> None:
    """The first process prints how, and the second pays."""
    asked, how = told("ask_human.py", cwd=tmp_path)
    *_, question, yes = how.split()

    assert asked == "Pay 31 euros?"
    assert told("ask_human.py", question, yes, cwd=tmp_path) == ["Well: 31 euros paid."]


def test_an_agent_is_steered_while_it_talks() -> None:
    """What it had said stays, and the rest is an answer to the new words."""
    assert told("steer.py") == [
        "user: How do I get to Porto?",
        "assistant: Take the A1 to the north,  (cut)",
        "user: By train, please.",
        "assistant: Take the 9:39, it is there at noon.",
    ]


def test_a_chat_deals_with_a_busy_agent_in_five_ways() -> None:
    """Each policy leaves a history of its own."""
    calls = "look up cords | (assistant) | (tool)"

    assert told("chat.py") == [
        f"enqueue, taken: {calls} | Heard: look up cords. | and bells | Heard: look up cords, and bells.",
        f"preempt, taken: {calls} | Cancelled by user | and bells | Heard: look up cords, and bells.",
        f"steer, taken: {calls} | and bells | Heard: look up cords, and bells.",
        f"reject, not taken: {calls} | Heard: look up cords.",
        "rollback, taken: and bells | Heard: and bells.",
    ]


def test_a_worker_that_is_terminated_goes_on_where_it_was(tmp_path: Path) -> None:
    """SIGTERM lets it finish its step; no step is done twice, and no order is lost."""
    command = [sys.executable, EXAMPLES / "drain.py", "tea", "coffee"]
    with subprocess.Popen(  # noqa: S603 - our own program
        command, stdout=subprocess.PIPE, text=True, env=environment(), cwd=tmp_path
    ) as worker:
        assert worker.stdout is not None
        first = worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        rest = worker.stdout.read()

    assert (first, worker.returncode) == ("working on tea, step 1\n", 0)
    assert rest == "left for later: tea coffee\n"
    assert told("drain.py", "soup", cwd=tmp_path) == [
        *("working on tea, step 2", "working on tea, step 3"),
        *(f"working on {order}, step {step}" for order in ("coffee", "soup") for step in (1, 2, 3)),
        "left for later: nothing",
    ]
