"""The command line, through real processes, terminals and signals."""

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from andon.core.items import RunEnded, RunStarted, ToolEnded, ToolProgress, ToolStarted, from_json
from tests.cli.terminal import CTRL_C, PATIENCE, SCENES, Terminal, andon, spawn

ESCAPE = "\x1b"


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Keep the terminals of a test; no program outlives it."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()


def run(terminals: list[Terminal], scene: str, *options: str) -> Terminal:
    """Run an agent on a terminal."""
    terminals.append(Terminal(andon("run", *options, f"{SCENES}:{scene}", "hi")))
    return terminals[-1]


def piped(scene: str, *options: str, prompt: str = "hi", stdin: bytes = b"") -> tuple[int, str, str]:
    """Run an agent without a terminal."""
    process = spawn(andon("run", *options, f"{SCENES}:{scene}", prompt), stdin=subprocess.PIPE)
    out, err = process.communicate(stdin, timeout=PATIENCE)
    return process.returncode, out.decode(), err.decode()


def test_the_answer_goes_to_stdout_and_the_rest_to_stderr() -> None:
    """Piped, all of it is plain."""
    code, out, err = piped("plain")

    assert (code, out) == (0, "Let me see. \nThere are two trains.\n")
    assert err.startswith('First, a look at the trains.\n→ search(query="Oslo")\n')
    assert "✓ search completed" in err
    assert "✗ broken failed" in err
    assert ESCAPE not in out + err


def test_a_terminal_shows_reasoning_dimmed_and_what_is_awaited(terminals: list[Terminal]) -> None:
    """And gives its cursor back."""
    terminal = run(terminals, "plain")

    assert terminal.ends() == 0
    assert "\x1b[2mFirst, a look at the trains." in terminal.raw
    assert "asking the model" in terminal.seen
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")


def test_ctrl_c_stops_at_the_next_safe_point(terminals: list[Terminal]) -> None:
    """The tool in flight finishes, and its result is kept."""
    terminal = run(terminals, "gated")
    terminal.until("→ gate()")
    terminal.type(CTRL_C)
    terminal.until("stopping at the next safe point; Ctrl-C again to stop now")
    terminal.type("go\n")

    assert terminal.ends() == 3
    assert "cancelled" in terminal.seen
    assert "at a safe point: every tool of the round had ended" in terminal.seen
    assert "user, because: Ctrl-C" in terminal.seen
    assert "gate       completed" in terminal.seen
    assert "There are two trains." not in terminal.seen


def test_ctrl_c_twice_stops_now(terminals: list[Terminal]) -> None:
    """The tool in flight is cut, and the exit code says that somebody could not wait."""
    terminal = run(terminals, "hanging")
    terminal.until("→ hangs()")
    terminal.type(CTRL_C)
    terminal.until("Ctrl-C again to stop now")
    terminal.type(CTRL_C)
    terminal.until("stopping now")

    assert terminal.ends() == 130
    assert "while tools ran, which were cut" in terminal.seen
    assert "escalated  yes: a later request asked for more" in terminal.seen
    assert "hangs      was stopped; whether it took effect is not known" in terminal.seen


def test_ctrl_c_three_times_does_not_lose_the_report(terminals: list[Terminal]) -> None:
    """A payment finishes, and the report tells of it."""
    terminal = run(terminals, "paying")
    terminal.until("→ hangs()")
    terminal.type(CTRL_C)
    terminal.until("Ctrl-C again to stop now")
    terminal.type(CTRL_C)
    terminal.until("stopping now")
    terminal.type(CTRL_C)
    terminal.until("still ending")
    terminal.type("received\n")

    assert terminal.ends() == 130
    assert "pay        completed" in terminal.seen


def test_a_tool_that_will_not_stop_does_not_hold_the_exit(terminals: list[Terminal]) -> None:
    """It is abandoned, and the report names it."""
    terminal = run(terminals, "swallowing")
    terminal.until("→ stubborn()")
    terminal.type(CTRL_C)
    terminal.until("Ctrl-C again")
    terminal.type(CTRL_C)

    assert terminal.ends() == 130
    assert "abandoned  stubborn: would not stop" in terminal.seen


def test_a_thread_that_never_ends_does_not_hold_the_exit(terminals: list[Terminal]) -> None:
    """The interpreter itself would wait for it."""
    terminal = run(terminals, "threading_")
    terminal.until("→ leaves_a_thread()")
    terminal.type(CTRL_C)
    terminal.until("Ctrl-C again")
    terminal.type(CTRL_C)

    assert terminal.ends() == 130


def test_a_blocked_loop_is_told_and_can_be_left(terminals: list[Terminal]) -> None:
    """Each press is acknowledged at once, and what cannot be stopped is told before anybody leaves."""
    terminal = run(terminals, "blocking")
    terminal.until("→ blocks()")
    for said in ("Ctrl-C again to stop now", "stopping now", "something blocks the event loop"):
        terminal.type(CTRL_C)
        terminal.until(said)
    terminal.type(CTRL_C)

    assert terminal.ends() == 130
    assert "left without a report" in terminal.seen


def test_ctrl_c_while_a_tool_blocks_the_loop_takes_effect_right_after_it(terminals: list[Terminal]) -> None:
    """One press is enough: the model is not asked again."""
    terminal = run(terminals, "stalling")
    terminal.until("→ stalls()")
    terminal.type(CTRL_C)
    terminal.until("stopping at the next safe point")
    terminal.type("go\n")

    assert terminal.ends() == 3
    assert "at a safe point: every tool of the round had ended" in terminal.seen
    assert "stalls     completed" in terminal.seen
    assert "There are two trains." not in terminal.seen


def test_ctrl_c_twice_while_a_tool_blocks_the_loop_is_now(terminals: list[Terminal]) -> None:
    """The second press counts although the loop has not heard the first."""
    terminal = run(terminals, "stalling")
    terminal.until("→ stalls()")
    terminal.type(CTRL_C)
    terminal.until("Ctrl-C again to stop now")
    terminal.type(CTRL_C)
    terminal.until("stopping now")
    terminal.type("go\n")

    assert terminal.ends() == 130
    assert "and by     user, because: Ctrl-C, twice (asked for: now)" in terminal.seen


def test_the_latency_of_a_stop_is_counted_from_the_press() -> None:
    """And not from when the loop came to hear of it."""
    process = spawn(andon("run", "--json", f"{SCENES}:stalling", "hi"), stdin=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    with process.stdin, process.stdout, process.stderr:
        events = [from_json(process.stdout.readline())]
        while not isinstance(events[-1], ToolStarted):
            events.append(from_json(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith(b"stopping at the next safe point")
        process.stdin.write(b"go\n")
        process.stdin.flush()
        events += map(from_json, process.stdout)

    assert process.wait(PATIENCE) == 3
    (ended,) = [event for event in events if isinstance(event, ToolEnded)]
    assert isinstance(events[-1], RunEnded)
    report = events[-1].outcome.cancelled
    assert report is not None
    assert report.causes[0].at < ended.at
    assert report.latency >= ended.at - report.causes[0].at


def test_ctrl_c_in_the_last_answer_lets_it_finish(terminals: list[Terminal]) -> None:
    """A final answer is no safe point: the run finishes first, and says so."""
    terminal = run(terminals, "answering")
    terminal.until("Almost")
    terminal.type(CTRL_C)
    terminal.until("stopping at the next safe point")
    terminal.type("\n")

    assert terminal.ends() == 0
    assert "there." in terminal.seen
    assert "the run ended by itself before the stop took effect" in terminal.seen


def test_the_grace_of_ctrl_c_can_be_told(terminals: list[Terminal]) -> None:
    """No safe point comes within it, so it becomes now."""
    terminal = run(terminals, "hanging", "--grace", "0.05")
    terminal.until("→ hangs()")
    terminal.type(CTRL_C)

    assert terminal.ends() == 3
    assert "escalated  yes: the grace ran out" in terminal.seen


def test_sigterm_is_graceful_within_a_grace(terminals: list[Terminal]) -> None:
    """The supervisor's stop is a shutdown, and not an error."""
    terminal = run(terminals, "hanging", "--grace", "0.05")
    terminal.until("→ hangs()")
    terminal.process.send_signal(signal.SIGTERM)

    assert terminal.ends() == 3
    assert "asked to end: stopping at the next safe point, within 0.05 s" in terminal.seen
    assert "shutdown, because: SIGTERM" in terminal.seen


def test_sighup_is_a_shutdown_too() -> None:
    """Graceful within the grace; a second one is no hurry: a shell and the terminal each send one."""
    process = spawn(andon("run", f"{SCENES}:stalling", "hi"), stdin=subprocess.PIPE)
    assert process.stderr
    for line in process.stderr:
        if "stalls()" in line.decode():
            break
    process.send_signal(signal.SIGHUP)
    assert process.stderr.readline() == b"asked to end: stopping at the next safe point, within 5 s\n"
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(b"go\n", timeout=PATIENCE)

    assert process.returncode == 3
    assert (
        "asked by: shutdown, because: SIGHUP (asked for: at the next safe point, within 5 s)" in err.decode()
    )
    assert "stalls: completed" in err.decode()


def test_a_terminal_that_is_closed_leaves_no_child_of_a_tool(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    """What a tool has started ends with the run."""
    held = tmp_path / "held"
    os.mkfifo(held)
    terminal = Terminal(andon("run", "--grace", "0.05", f"{SCENES}:parenting", str(held)))
    terminals.append(terminal)
    with held.open("rb") as pipe:
        assert pipe.readline() == b"begun\n"

        assert terminal.close() == 3
        assert select.select([pipe], [], [], PATIENCE)[0]
        assert pipe.read() == b""


def test_json_is_one_event_a_line_and_nothing_else() -> None:
    """What JSON cannot say is said as text."""
    code, out, err = piped("telling", "--json")
    events = [from_json(line) for line in out.splitlines()]

    assert (code, err) == (0, "")
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)
    (first, _) = [event.value for event in events if isinstance(event, ToolProgress)]
    assert "object" in str(first)


@pytest.mark.parametrize("options", [("--json",), ()])
def test_half_a_character_can_be_shown(options: tuple[str, ...]) -> None:
    """A model may say anything."""
    code, out, err = piped("mangling", *options)

    assert (code, err) == (0, "")
    assert "half \ufffd" in out


def test_what_a_tool_says_cannot_steer_the_terminal(terminals: list[Terminal]) -> None:
    """Control characters are left out."""
    terminal = run(terminals, "telling")

    assert terminal.ends() == 0
    assert "\x1b]0;" not in terminal.raw
    assert "tells: ]0;ownedhalf way" in terminal.seen


def test_the_prompt_can_come_from_stdin() -> None:
    """`-` reads it."""
    code, out, _ = piped("echoing", prompt="-", stdin=b"from a pipe")

    assert (code, out) == (0, "You said: from a pipe\n")


def test_a_reader_that_leaves_ends_the_run_quietly() -> None:
    """`| head -1` is no failure, and no tokens are burnt after it."""
    process = spawn(andon("run", f"{SCENES}:flooding", "hi"))
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"words and more words\n"
        process.stdout.close()

        assert process.stderr.read() == b""
    assert process.wait(PATIENCE) == 3


def test_a_reader_that_stalls_does_not_hold_the_exit() -> None:
    """The output is full, and yet the run can be stopped."""
    process = spawn(andon("run", "--grace", "0.05", f"{SCENES}:flooding", "hi"))
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        assert select.select([process.stdout], [], [], PATIENCE)[0]
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 3


@pytest.mark.parametrize(
    ("scene", "said"),
    [("failing", "failed: ModelError: the provider is on holiday"), ("limited", "ended at a limit: model_c")],
)
def test_an_error_and_a_limit_are_failures(scene: str, said: str) -> None:
    """They are told, and the exit code is 1."""
    code, _, err = piped(scene)

    assert code == 1
    assert said in err


def test_a_tool_in_a_process_of_its_own_is_found_there() -> None:
    """Its module is the file that was named."""
    code, _, err = piped("apart")

    assert code == 0
    assert "✓ elsewhere completed" in err
    assert err.rstrip().endswith("42")


def test_asking_a_server_loads_no_server_and_no_colours() -> None:
    """`andon ps` is quick because it pays for what it uses."""
    late = {
        "anthropic",
        "fastapi",
        "openai",
        "pydantic_ai",
        "pydantic_settings",
        "rich",
        "sqlite3",
        "uvicorn",
    }
    program = (
        "import atexit, sys; before = set(sys.modules);"  # what measures coverage has a database
        f"atexit.register(lambda: print(sorted({late} & (set(sys.modules) - before))));"
        "sys.argv[1:] = ['ps', '--url', 'http://127.0.0.1:1']; from andon.cli import main; main()"
    )
    process = spawn(["-c", program])
    out, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 1
    assert (out.decode(), "no server answers" in err.decode()) == ("[]\n", True)


@pytest.mark.parametrize("module", ["typer", "rich", "httpx2"])
def test_without_the_extra_the_command_says_how_to_install_it(module: str) -> None:
    """No traceback."""
    program = f"import sys; sys.modules[{module!r}] = None; from andon.cli import main; main()"
    process = spawn(["-c", program])
    _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 2
    assert err.decode() == (
        "andon: the command line needs an optional package; install it with: pip install 'andon[cli]'\n"
    )


def test_a_ctrl_c_while_it_loads_leaves_without_a_traceback() -> None:
    """The first load takes a moment, and some are impatient."""
    program = """
import signal, sys
from andon.cli import main

class Impatient:
    def find_spec(*_):
        signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Impatient)
main()
"""
    process = spawn(["-c", program])
    _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 130
    assert err.decode() == "andon: left without a report\n"


def test_a_terminal_that_is_closed_ends_the_run() -> None:
    """Nobody reads on, so nobody pays on."""
    terminal = Terminal(andon("run", f"{SCENES}:flooding", "hi"))
    terminal.until("words")

    assert terminal.close() == 3
