"""The front door: few names, each documented, and an import that costs little."""

import inspect
import subprocess
import sys
from importlib import metadata
from textwrap import dedent
from typing import TypeVar

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import andon

NAMES: list[str] = [
    "Agent",
    "AndonError",
    "Call",
    "Cancelled",
    "Image",
    "Limits",
    "Message",
    "ModelError",
    "Outcome",
    "Point",
    "Preempt",
    "Price",
    "Reasoning",
    "Run",
    "Stop",
    "StopReport",
    "StopResult",
    "TextDelta",
    "ToolContext",
    "ToolEnded",
    "ToolError",
    "ToolStarted",
    "Turn",
    "TurnLoop",
    "Usage",
    "loop",
    "parallel",
    "run_process",
    "sequence",
    "tool",
]

MOST_NAMES = 30
MOST_PACKAGES = 10
LATE = {
    "anthropic",
    "fastapi",
    "griffe",
    "mcp",
    "openai",
    "opentelemetry",
    "pydantic",
    "pydantic_ai",
    "rich",
    "typer",
}


T = TypeVar("T")


def fresh(program: str, shape: type[T]) -> T:
    """Run a program in an interpreter of its own, and read the JSON that it prints."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=shape)


def packages(name: str) -> set[str]:
    """Everything that installing a distribution brings here, itself included."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        distribution = canonicalize_name(waiting.pop())
        if distribution not in found:
            found.add(distribution)
            waiting += [wanted.name for wanted in requirements(distribution)]
    return found


def requirements(distribution: str) -> list[Requirement]:
    """Give what a distribution needs on this machine, without its extras."""
    wanted = [Requirement(line) for line in metadata.requires(distribution) or []]
    return [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]


def test_the_public_names_are_these() -> None:
    """A name is added here on purpose, or not at all."""
    assert sorted(andon.__all__) == NAMES
    assert len(andon.__all__) <= MOST_NAMES


def test_nothing_else_is_at_the_front_door() -> None:
    """What is not listed is not there, sub-packages aside."""
    there = {name for name in dir(andon) if not inspect.ismodule(getattr(andon, name))}
    assert {name for name in there if not name.startswith("_")} == set(andon.__all__)


@pytest.mark.parametrize("name", andon.__all__)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    """A class's docstring is its own, not its base's."""
    thing: object = getattr(andon, name)
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert text, f"andon.{name} has no docstring"


def test_what_a_plain_run_does_without_is_loaded_at_its_first_use() -> None:
    """A turn loop costs who asks for one; the name is the same either way."""
    program = """
        import asyncio, json, sys
        from andon import Agent

        async def model(request):
            yield "Four."

        asyncio.run(Agent(model).run("What is two and two?"))
        before = "andon.runtime.loop" in sys.modules
        from andon import TurnLoop
        print(json.dumps([before, TurnLoop is sys.modules["andon.runtime.loop"].TurnLoop]))
    """
    assert fresh(program, list[bool]) == [False, True]


def test_a_wrong_name_is_said() -> None:
    """As any module does, with the name that was nearly meant."""
    message = "module 'andon' has no attribute 'TurnLop'"
    with pytest.raises(AttributeError, match=message) as raised:
        getattr(andon, "TurnLop")  # noqa: B009 — a plain access does not pass the type check

    assert (raised.value.name, raised.value.obj) == ("TurnLop", andon)


def test_import_andon_loads_no_provider_and_no_schema() -> None:
    """`andon ps` must not pay for an SDK: pydantic and griffe come with the first tool."""
    loaded = fresh("import json, sys, andon; print(json.dumps(sorted(sys.modules)))", list[str])
    assert LATE.isdisjoint(loaded)


def test_the_core_installs_ten_packages_at_most() -> None:
    """Counted with Andon itself, and without extras."""
    assert len(packages("andon")) <= MOST_PACKAGES, sorted(packages("andon"))


def test_importing_any_module_does_nothing() -> None:
    """No thread, no child, no output, no handler: wiring happens once, in the command line."""
    program = """
        import importlib, json, logging, multiprocessing, pkgutil, signal, sys, threading
        import andon

        signals = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        hook = sys.excepthook
        for module in pkgutil.walk_packages(andon.__path__, "andon."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        print(json.dumps({
            "threads": threading.active_count() - 1,
            "children": len(multiprocessing.active_children()),
            "handlers": len(logging.getLogger("andon").handlers),
            "signals": +(signals != (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))),
            "hooks": +(hook is not sys.excepthook),
        }))
    """
    left = fresh(program, dict[str, int])
    assert left == {"threads": 0, "children": 0, "handlers": 0, "signals": 0, "hooks": 0}
