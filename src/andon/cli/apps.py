"""Apps: the agents that a server or a worker answers with, by the names of their apps."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from andon.cli.load import agents_in, load, module_of
from andon.errors import UserError
from andon.runtime.agent import Agent

HOW = "write app.py:agent, app.py, or a folder whose sub-folders have an agent.py each"
UNNAMED = "agent"  # what an agent is called to which nobody has given a name
ROOTS = ("root_agent", "agent")


def load_apps(targets: Iterable[str]) -> dict[str, Agent]:
    """Load all agents that are meant.

    An app has the name of its agent or, if nobody gave it one, of its variable; in a folder of apps, of its
    sub-folder.
    """
    apps: dict[str, Agent] = {}
    for target in targets:
        for name, agent in _found(target):
            if apps.get(name, agent) is not agent:
                raise UserError(
                    f"two apps are called {name!r}: rename an agent, as in Agent(…, name='trips')"
                )
            apps[name] = agent
    return apps


def _found(target: str) -> Iterator[tuple[str, Agent]]:
    if Path(target).is_dir():
        yield from _in_folder(Path(target))
    elif target.endswith(".py") or ":" not in target:
        found = agents_in(module_of(target))
        if not found:
            raise UserError(f"there is no Agent in {target}: {HOW}")
        for variable, agent in found.items():
            yield _name(agent, variable), agent
    else:
        agent = load(target)
        yield _name(agent, target.rpartition(":")[2]), agent


def _in_folder(folder: Path) -> Iterator[tuple[str, Agent]]:
    places = sorted(place.parent for place in folder.glob("*/agent.py"))
    if not places:
        raise UserError(f"no sub-folder of {folder} has an agent.py: {HOW}")
    for place in places:
        found = vars(module_of(f"{place.name}.agent", folder=folder.resolve()))
        root = next((found[name] for name in ROOTS if isinstance(found.get(name), Agent)), None)
        if root is None:
            raise UserError(f"{place / 'agent.py'} has no Agent called {' or '.join(ROOTS)}")
        yield _as_id(place.name), root


def _name(agent: Agent, variable: str) -> str:
    return _as_id(variable if agent.name == UNNAMED else agent.name)


def _as_id(name: str) -> str:
    """Make a name that can stand in a path."""
    return re.sub(r"[^A-Za-z0-9_.@+=~-]+", "-", name)[:128]
