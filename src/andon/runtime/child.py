"""Child: the other end of a tool with isolate="process"; reads one order, writes one answer."""

import importlib
import inspect
import os
import pickle
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from io import BytesIO
from multiprocessing import spawn
from typing import Any

import anyio
import msgspec
from typing_extensions import override

from andon.errors import ToolError, tell
from andon.runtime.foreign import Answer
from andon.runtime.nested import Loading, at
from andon.runtime.tools import Tool, as_tool

_SCRIPT = ("init_main_from_name", "init_main_from_path")


def main() -> None:
    """Do what stdin says; what the tool prints goes to stderr, so that stdout carries the answer alone."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    preparation, call = pickle.load(sys.stdin.buffer)  # noqa: S301 — from our parent
    answers.write(msgspec.msgpack.encode(_work(preparation, call)))
    answers.close()


def _work(preparation: dict[str, Any], call: bytes) -> Answer:
    try:
        with at(Loading()):
            main = Main(preparation)
            module, qualname, arguments = Order(call, main).load()
            made = _find(module, qualname, main)
        work: Callable[[], Any] = partial(made.function, **arguments)
        value = work()
        if inspect.iscoroutine(value):
            value = anyio.run(_await, value)
        return Answer(made.text(value))
    except ToolError as error:
        return Answer(error=str(error))
    except Exception as error:  # noqa: BLE001 — the process edge: the parent tells the model
        return Answer(error=tell(error))


class Main:
    """The script that the parent runs: its code is run once more only if the order needs what is in it."""

    def __init__(self, preparation: dict[str, Any]) -> None:
        self._script = {key: preparation.pop(key) for key in _SCRIPT if key in preparation}
        spawn.prepare(preparation)

    def needed_for(self, module: str) -> None:
        """Run it, unless that was done, if what is wanted is defined in it."""
        if module == "__main__":
            script, self._script = self._script, {}
            spawn.prepare(script)


class Order(pickle.Unpickler):
    """An order of our parent's; an argument may be of a class that the script defines."""

    def __init__(self, call: bytes, main: Main) -> None:
        super().__init__(BytesIO(call))
        self._main = main

    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        self._main.needed_for(module_name)
        return super().find_class(module_name, global_name)


async def _await(work: Coroutine[Any, Any, object]) -> object:
    return await work


def _find(module: str, qualname: str, main: Main) -> Tool[..., Any]:
    main.needed_for(module)
    found: Any = importlib.import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    return as_tool(found)


if __name__ == "__main__":
    main()
