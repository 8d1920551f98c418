"""Agents for the command line's tests: each waits for a line on stdin, or for ever, at one place."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio

from andon import Agent, Call, Limits, ModelError, Reasoning, ToolContext, ToolError, run_process, tool
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from andon.runtime.isolate import in_thread
from andon.runtime.tools import Tool


@tool
async def search(query: str) -> str:
    """Answer at once."""
    return f"two trains for {query}"


@tool
async def broken() -> str:
    """Fail."""
    raise ToolError("the desk is closed")


@tool
async def gate() -> str:
    """End when a line comes in."""
    return f"let go by {await in_thread(sys.stdin.readline)!r}"


@tool(finish=True)
async def pay() -> str:
    """End when a line comes in, whatever is asked."""
    return f"paid, {await in_thread(sys.stdin.readline)!r}"


@tool
async def hangs() -> None:
    """Wait for ever, and let itself be cut."""
    await anyio.sleep_forever()


@tool
async def stubborn() -> None:
    """Wait for ever, whatever is asked."""
    while True:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            continue


@tool
async def leaves_a_thread() -> None:
    """Wait for a thread that no interpreter would leave behind, and that never ends."""
    threading.Thread(target=threading.Event().wait).start()
    await anyio.sleep_forever()


@tool
async def blocks() -> None:
    """Block the event loop for ever."""
    threading.Event().wait()


@tool
async def stalls() -> str:
    """Block the event loop until a line comes in."""
    return f"let go by {sys.stdin.readline()!r}"


@tool
async def parents(held: str) -> None:
    """Start a child that says on a pipe that it has begun, holds the pipe, and never ends."""
    program = (
        "import signal, sys; p = open(sys.argv[1], 'w'); print('begun', file=p, flush=True); signal.pause()"
    )
    await run_process([sys.executable, "-c", program, held])


@tool
async def tells(context: ToolContext) -> str:
    """Tell what JSON cannot say, and what a terminal should not be told."""
    context.progress(object())
    context.progress("\x1b]0;owned\x07half way")
    return "told"


@tool(isolate="process")
def elsewhere(number: int) -> int:
    """Work in a process of its own."""
    return number + 1


def uses(*tools: Tool[..., Any], limits: Limits | None = None) -> Agent:
    """Make an agent that calls its tools, all at once, then answers."""
    arguments: dict[str, dict[str, object]] = {"search": {"query": "Oslo"}, "elsewhere": {"number": 41}}

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        if request.messages[-1].role == "tool":
            yield "There are two trains."
            return
        yield Reasoning("First, a look at the trains.")
        yield "Let me see. "
        for each in tools:
            yield Call(each.name, arguments.get(each.name, {}))

    return Agent(model, tools=tools, tool_grace=0.05, limits=limits)


async def starts(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Start a child that holds the pipe that was named."""
    yield Call("parents", {"held": request.messages[0].text})


async def echo(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Say what was asked."""
    yield f"You said: {request.messages[-1].text}"


async def asks(_request: ModelRequest) -> AsyncIterator[Chunk]:
    """Answer, and end when a line comes in."""
    yield "Almost "
    await in_thread(sys.stdin.readline)
    yield "there."


async def mangles(_request: ModelRequest) -> AsyncIterator[Chunk]:
    """Answer with half a character."""
    yield "half \ud83d"


async def floods(_request: ModelRequest) -> AsyncIterator[Chunk]:
    """Answer without an end."""
    while True:
        yield "words and more words\n" * 100
        await anyio.lowlevel.checkpoint()


async def fails(_request: ModelRequest) -> AsyncIterator[Chunk]:
    """Fail for good."""
    yield "I was about "
    raise ModelError("the provider is on holiday")


plain = uses(search, broken)
gated = uses(search, gate)
paying = uses(pay, hangs)
hanging = uses(hangs)
swallowing = uses(search, stubborn)
threading_ = uses(leaves_a_thread)
blocking = uses(blocks)
stalling = uses(stalls)
parenting = Agent(starts, tools=[parents])
telling = uses(tells)
apart = uses(elsewhere)
limited = uses(search, limits=Limits(model_calls=1))
echoing = Agent(echo)
answering = Agent(asks)
flooding = Agent(floods)
mangling = Agent(mangles)
failing = Agent(fails)
not_an_agent = echo
