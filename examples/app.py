"""An app for the command line: `andon run examples/app.py:agent "What is open today?"`.

Press Ctrl-C while it works, and once more if you cannot wait.
"""

from collections.abc import AsyncIterator

import anyio

from andon import Agent, Call, tool
from andon.ports import ModelRequest


@tool
async def opening_hours(place: str) -> str:
    """Say when a place is open."""
    await anyio.sleep(1)
    return f"{place} is open from 10 to 18"


@tool
def weather(day: str) -> str:
    """Say what the weather will be."""
    return f"rain {day}"


async def model(request: ModelRequest) -> AsyncIterator[str | Call]:
    """Stand for a model; give Agent a string such as "openai:gpt-5" to ask a real one."""
    if request.messages[-1].role == "user":
        yield "Let me look. "
        yield Call("opening_hours", {"place": "The museum"})
        yield Call("weather", {"day": "today"})
        return
    for words in ("The museum ", "is open ", "until 18, ", "which suits ", "the rain."):
        await anyio.sleep(0.1)
        yield words


agent = Agent(model, tools=[opening_hours, weather], instructions="Be brief.", name="days out")
