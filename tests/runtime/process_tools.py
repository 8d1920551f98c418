"""Tools for processes of their own: a fresh interpreter imports them by name."""

import os
import signal
import socket
import subprocess
import sys

from pydantic import BaseModel

from andon import ToolError, tool

GRANDCHILD = """
import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Event().wait()
"""


class Pair(BaseModel):
    """Two numbers."""

    a: int
    b: int


@tool(isolate="process")
def add(pair: Pair) -> dict[str, int]:
    """Add in a process of its own."""
    print("this goes to stderr")  # noqa: T201 - what is tested
    return {"sum": pair.a + pair.b, "pid": os.getpid()}


@tool(isolate="process")
async def later() -> str:
    """Answer from a coroutine."""
    return "later"


@tool(isolate="process")
def wrapped_double(number: int) -> object:
    """Give what an async function gives, as a plain wrapper does."""
    return _double(number)


async def _double(number: int) -> int:
    return 2 * number


@tool(isolate="process")
def fail(kind: str) -> object:
    """Fail in one way or another."""
    if kind == "tool":
        msg = "no seats left"
        raise ToolError(msg)
    if kind == "die":
        sys.stderr.write("out of luck")
        sys.stderr.flush()
        os._exit(3)
    if kind == "json":
        return object()
    msg = "bad date"
    raise ValueError(msg)


@tool(isolate="process")
def hold(port: int, *, deaf: bool = False) -> str:
    """Start a grandchild that ignores SIGTERM, tell both pids, and wait for ever."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen([sys.executable, "-c", GRANDCHILD])  # noqa: S603 - our own program
    with socket.create_connection(("127.0.0.1", port)) as told:
        told.sendall(f"{os.getpid()} {grandchild.pid}\n".encode())
        told.recv(1)  # never comes
    return "done"
