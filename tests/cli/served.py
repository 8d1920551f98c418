"""Agents that are served: each waits at one place until somebody says or stops something."""

from collections.abc import AsyncIterator

import anyio

from andon import Agent, Call, ToolContext, tool
from andon.core.draft import Chunk
from andon.ports import ModelRequest


@tool
async def wait() -> str:
    """Wait for ever."""
    await anyio.sleep_forever()
    return "never"


@tool
async def buy(what: str, context: ToolContext) -> str:
    """Buy something, once a human has agreed."""
    return f"bought {what}" if await context.interrupt(f"buy {what}?") is True else "left it"


async def waits(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Wait in a tool until it was cut, or in the model until somebody says something more."""
    said = request.messages[-1].text
    if request.messages[-1].role == "tool":
        yield "There it is."
    elif said == "think":
        yield "Well "
        await anyio.sleep_forever()
    elif said.startswith("wait"):
        yield "Let me wait. "
        yield Call("wait", {})
    else:
        yield f"You said: {said}"


async def asks(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Ask before it buys."""
    last = request.messages[-1]
    if last.role == "tool":
        yield last.results[0].content
    else:
        yield Call("buy", {"what": "bread"})


waiter = Agent(waits, tools=[wait], name="the waiter", tool_grace=0.05)
buyer = Agent(asks, tools=[buy])
