"""Load: find the agent that `path.py:name` or `package.module:name` means."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from andon.errors import UserError
from andon.runtime.agent import Agent

HOW = "write path.py:name or package.module:name, for example app.py:agent"


def load(target: str) -> Agent:
    """Import the module, and give the agent in it."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        msg = f"{target!r} names no agent: {HOW}"
        raise UserError(msg)
    module = module_of(place)
    try:
        found: object = getattr(module, name)
    except AttributeError:
        msg = f"{place} has no {name!r}; {_agents(module)}"
        raise UserError(msg) from None
    if not isinstance(found, Agent):
        msg = f"{target} is no Agent but a {type(found).__name__}; {_agents(module)}"
        raise UserError(msg)
    return found


def _agents(module: ModuleType) -> str:
    names = ", ".join(agents_in(module))
    return f"its agents are: {names}" if names else "there is no Agent in it"


def agents_in(module: ModuleType) -> dict[str, Agent]:
    """Give the agents of a module by their variables, each once."""
    found: dict[str, Agent] = {}
    for name, value in vars(module).items():
        if isinstance(value, Agent) and all(value is not other for other in found.values()):
            found[name] = value
    return found


def module_of(place: str, *, folder: Path | None = None) -> ModuleType:
    """Import the module at a path, or of a name; with a folder, it must be from there."""
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            msg = f"there is no file {place}: {HOW}"
            raise UserError(msg)
        folder, name = path.parent, path.stem
    else:
        path = None if folder is None else folder.joinpath(*place.split(".")).with_suffix(".py")
        folder, name = folder or Path.cwd(), place
    # As `python path.py` does; a tool with isolate="process" finds its module there too.
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UserError(_why(place, name, error)) from error
    if path is not None and module.__file__ != str(path):
        msg = f"{place} is hidden by another module called {name!r} ({module.__file__}): rename the file"
        raise UserError(msg)
    return module


def _why(place: str, name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in {name, name.partition(".")[0]}:
        return f"there is no module {error.name!r} to be seen from here: {HOW}"
    return f"{place} could not be imported:\n{''.join(_own_lines(error)).rstrip()}"


def _own_lines(error: BaseException) -> list[str]:
    """Give the traceback's last line, where the failure is, and the error itself."""
    told = traceback.TracebackException.from_exception(error)
    last = [frame for frame in told.stack if not frame.filename.startswith("<frozen")][-1:]
    where = [] if isinstance(error, SyntaxError) else traceback.format_list(last)
    return [*where, *told.format_exception_only()]
