"""Which agents are served, and what their apps are called."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from andon.cli.apps import load_apps
from andon.errors import UserError

MODEL = """
from andon import Agent

async def model(request):
    yield "hello"

"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty folder; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: str, *agents: str) -> None:
    """Write a module of agents."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(MODEL + "\n".join(agents))


def names(*targets: str) -> list[str]:
    """Give the names of the apps that are served."""
    return list(load_apps(targets))


def why(*targets: str) -> str:
    """Give the words with which targets are refused."""
    with pytest.raises(UserError) as refused:
        load_apps(targets)
    return str(refused.value)


def test_an_app_has_the_name_of_its_agent_or_of_its_variable() -> None:
    """A name that could not stand in a path is made to."""
    write("shop.py", "buyer = Agent(model)", "x = Agent(model, name='days out!')", "y = x", "n = 7")

    assert names("shop.py") == ["buyer", "days-out-"]
    assert names("shop.py:buyer") == ["buyer"]
    assert names("shop:x") == ["days-out-"]
    assert names("shop", "shop.py:buyer") == ["buyer", "days-out-"]


def test_a_folder_of_apps_is_served_by_the_names_of_its_sub_folders() -> None:
    """As ADK lays them out, with `root_agent` before `agent`; other files are passed over."""
    write("apps/trips/agent.py", "agent = Agent(model)", "root_agent = Agent(model, name='the root')")
    write("apps/shop/agent.py", "from .parts import agent")
    write("apps/shop/parts.py", "agent = Agent(model)")
    write("apps/notes/other.py")

    apps = load_apps(["apps"])
    assert list(apps) == ["shop", "trips"]
    assert apps["trips"].name == "the root"


def test_two_apps_of_one_name_are_refused() -> None:
    """The same agent twice is one."""
    write("one.py", "agent = Agent(model, name='trips')")
    write("two.py", "trips = Agent(model)")

    assert "two apps are called 'trips': rename an agent" in why("one.py", "two.py")
    assert names("one.py", "one.py:agent") == ["trips"]


def test_what_holds_no_agent_is_told() -> None:
    """And what to write instead."""
    write("empty.py")
    write("apps/trips/agent.py", "root_agent = model")
    Path("none").mkdir()

    assert "there is no Agent in empty.py: write app.py:agent" in why("empty.py")
    assert "agent.py has no Agent called root_agent or agent" in why("apps")
    assert "no sub-folder of none has an agent.py" in why("none")
    assert "there is no file gone.py" in why("gone.py")
    assert "its agents are" not in why("empty.py:agent")


def test_a_module_that_hides_an_app_is_told() -> None:
    """Its agents would be those of somewhere else."""
    write("apps/json/agent.py", "agent = Agent(model)")

    assert "json" in why("apps")
