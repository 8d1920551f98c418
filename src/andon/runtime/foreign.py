"""Foreign: call a function in a fresh interpreter; the parent's side of `child`."""

import pickle
import sys
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.spawn import get_preparation_data
from typing import Any

import msgspec
from msgspec import Struct

from andon.errors import ToolError
from andon.runtime.isolate import in_thread
from andon.runtime.process import run_process


async def call_in_process(
    function: Callable[..., Any], arguments: Mapping[str, object], grace: float
) -> object:
    """Call a function of some module in a fresh interpreter, and give its result."""
    preparation: Any = await in_thread(partial(get_preparation_data, function.__name__))  # it reads the disk
    preparation.pop("authkey", None)
    call = pickle.dumps((function.__module__, function.__qualname__, dict(arguments)))
    order = pickle.dumps((preparation, call))  # the call may hold what only the preparation can import
    command = [sys.executable, "-m", "andon.runtime.child"]
    done = await run_process(command, input=order, check=False, grace=grace / 2)
    try:
        answer = msgspec.msgpack.decode(done.stdout, type=Answer)
    except msgspec.MsgspecError:
        tail = done.stderr[-2_000:].decode(errors="replace").strip()
        msg = f"its process ended with code {done.returncode} and no result: {tail}"
        raise ToolError(msg) from None
    if answer.error is not None:
        raise ToolError(answer.error)
    return answer.text


class Answer(Struct, frozen=True):
    """What the child process writes: the result as text, or what went wrong."""

    text: str = ""
    error: str | None = None
