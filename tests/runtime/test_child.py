"""A script is run again for a tool in a process of its own only if it must be, and then begins no run."""

import subprocess
import sys
from pathlib import Path

import pytest

from andon.errors import RunStateError
from andon.runtime.agent import Agent
from andon.runtime.nested import Loading, at
from andon.testing import ScriptedModel

TOOLS = """
from andon import tool

@tool(isolate="process")
def count(numbers: list[int]) -> int:
    '''Count.'''
    return len(numbers)
"""
SCRIPT = """
from pathlib import Path
from andon import Agent, Call
Path("loaded").open("a").write("x")
{tools}

async def model(request):
    Path("asked").open("a").write("x")
    if len(request.messages) > 1:
        yield request.messages[-1].results[0].content
    else:
        yield Call("count", {{"numbers": [1, 2]}})

{begin}
"""
BEGIN = 'print(Agent(model, tools=[count]).run_sync("go").text)'
GUARDED = f'if __name__ == "__main__":\n    {BEGIN}'
OWN_CLASS = """
from enum import Enum

class Kind(Enum):
    RED = "red"
"""
PASSES_IT = """
if __name__ == "__main__":
    import asyncio, counting
    from andon.runtime.foreign import call_in_process
    Path("asked").touch()
    print(asyncio.run(call_in_process(counting.count.function, {"numbers": [Kind.RED]}, 5)))
"""


def run(folder: Path, tools: str, begin: str) -> tuple[str, str, str]:
    """Run a script; give what it printed, and how often it was loaded and its model was asked."""
    (folder / "counting.py").write_text(TOOLS)
    (folder / "script.py").write_text(SCRIPT.format(tools=tools, begin=begin))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), (folder / "loaded").read_text(), (folder / "asked").read_text()


def test_a_script_without_a_guard_runs_once_if_its_tool_is_in_a_module(tmp_path: Path) -> None:
    """The process imports the module, and has no need of the script."""
    assert run(tmp_path, "from counting import count", BEGIN) == ("2", "x", "xx")


def test_a_script_with_a_guard_may_hold_the_tool(tmp_path: Path) -> None:
    """It is loaded once more, and begins nothing."""
    assert run(tmp_path, TOOLS, GUARDED) == ("2", "xx", "xx")


def test_a_script_without_a_guard_that_holds_the_tool_is_told_to_guard_itself(tmp_path: Path) -> None:
    """No model is asked by it a second time."""
    said, loaded, asked = run(tmp_path, TOOLS, BEGIN)
    assert said.startswith("RunStateError: a tool with isolate='process' is loaded in a process of its own")
    assert said.endswith("put what begins it under `if __name__ == '__main__':`")
    assert (loaded, asked) == ("xx", "xx")


def test_a_script_whose_class_goes_along_is_loaded_for_it(tmp_path: Path) -> None:
    """An argument is of it, and the tool is in a module."""
    assert run(tmp_path, OWN_CLASS, PASSES_IT) == ("1", "xx", "")


async def test_where_code_is_loaded_no_run_begins() -> None:
    """Not even one that nobody waits for."""
    started = Agent(ScriptedModel("Done.")).start("go")
    with at(Loading()), pytest.raises(RunStateError, match="begins a run: put what begins it under"):
        started.events()
    assert (await started.outcome()).text == "Done."
