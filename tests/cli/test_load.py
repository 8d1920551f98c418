"""Finding the agent that a command line names, and saying clearly why there is none."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from andon.cli.load import load
from andon.errors import UserError

APP = """
from andon import Agent

async def model(request):
    yield "hello"

agent = Agent(model, name="greeter")
number = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder with an app; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "greeting.py").write_text(APP)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def why(target: str) -> str:
    """Give the words with which a target is refused."""
    with pytest.raises(UserError) as refused:
        load(target)
    return str(refused.value)


@pytest.mark.parametrize("target", ["greeting.py:agent", "./greeting.py:agent", "greeting:agent"])
def test_an_agent_is_found_by_file_and_by_module(target: str) -> None:
    """Seen from where the command is given."""
    assert load(target).name == "greeter"


def test_an_agent_is_found_in_a_package(folder: Path) -> None:
    """By its dotted name; its neighbours can be imported."""
    (folder / "crew").mkdir()
    (folder / "crew" / "__init__.py").touch()
    (folder / "crew" / "desk.py").write_text("from greeting import agent\n")

    assert load("crew.desk:agent").name == "greeter"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("greeting.py", "'greeting.py' names no agent: write path.py:name"),
        ("greeting.py:", "'greeting.py:' names no agent"),
        (":agent", "':agent' names no agent"),
        ("nowhere.py:agent", "there is no file nowhere.py"),
        ("nowhere:agent", "there is no module 'nowhere'"),
        ("greeting.nowhere:agent", "there is no module 'greeting.nowhere'"),
        ("greeting.py:agnet", "greeting.py has no 'agnet'; its agents are: agent"),
        ("greeting.py:number", "greeting.py:number is no Agent but a int; its agents are: agent"),
    ],
)
def test_a_target_that_leads_nowhere_is_refused(target: str, said: str) -> None:
    """What, which, and what now."""
    assert why(target).startswith(said)


def test_a_file_without_agents_says_so(folder: Path) -> None:
    """There is nothing to list."""
    (folder / "empty.py").touch()

    assert why("empty.py:agent") == "empty.py has no 'agent'; there is no Agent in it"


@pytest.mark.parametrize(
    ("source", "line", "error"),
    [
        ("import greeting\nimport no_such_library\n", "line 2", "No module named 'no_such_library'"),
        ("\n\n1 / 0\n", "line 3", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('not today')\n", "line 1", "SystemExit: not today"),
        ("def f(:\n    pass\n", "line 1", "SyntaxError"),
    ],
)
def test_a_file_that_fails_is_shown_where_it_fails(folder: Path, source: str, line: str, error: str) -> None:
    """One line of traceback, the file's own."""
    (folder / "failing.py").write_text(source)
    told = why("failing.py:agent")

    assert told.startswith("failing.py could not be imported:\n")
    assert 'failing.py", ' + line in told
    assert error in told
    assert told.count("File ") == 1


def test_a_file_that_another_module_hides_is_refused(folder: Path) -> None:
    """Nothing else is run in its place."""
    (folder / "json.py").write_text(APP)

    assert "json.py is hidden by another module called 'json'" in why("json.py:agent")
