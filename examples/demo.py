"""The demo: an agent with something to stop at every place, which `make demo` serves with its console.

Without a key its model is scripted; with OPENAI_API_KEY or ANTHROPIC_API_KEY in the environment a real
one answers (ANDON_MODEL names another). Ask it to plan a trip, to tell a story, or to book something.
"""

import os
from collections.abc import AsyncIterator

import anyio

from andon import Agent, Call, Reasoning, ToolContext, tool
from andon.core.draft import Chunk
from andon.ports import ModelRequest

HILL = (
    "The tram climbs the hill, bends round a church, and climbs again; a cat watches it from a "
    "window sill, and somebody in the third row begins to hum. "
)


@tool
async def find_trains(to: str) -> str:
    """Find trains to a city."""
    await anyio.sleep(1)
    return f"9:39 to {to}, 31 euros"


@tool
async def find_rooms(city: str, context: ToolContext) -> str:
    """Ask one hotel after the other for a room, which takes a while."""
    for hotel in range(1, 13):
        context.progress(f"asking hotel {hotel} of 12")
        await anyio.sleep(1)
    return f"Casa do Rio, {city}, 64 euros"


@tool
async def book(what: str, context: ToolContext) -> str:
    """Book something, once a human has agreed."""
    said = await context.interrupt(f"Shall I book {what}?")
    return f"booked: {what}" if str(said).lower() in {"yes", "y", "true"} else "not booked"


async def forecast(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Say what the weather will be."""
    for word in f"In {request.messages[-1].text}: sun in the morning, some clouds after noon. ".split(" "):
        await anyio.sleep(0.1)
        yield f"{word} "


async def script(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Answer as a model might, at the speed at which models talk."""
    last, asked = request.messages[-1], [m.text for m in request.messages if m.role == "user"][-1].lower()
    for chunk in chunks(asked, {result.name for result in last.results}):
        for piece in chunk.split(" ") if isinstance(chunk, str) else [chunk]:
            await anyio.sleep(0.06)
            yield f"{piece} " if isinstance(piece, str) else piece


def chunks(asked: str, done: set[str]) -> list[Chunk]:
    """Say what comes next, from what was asked and which tools have just answered."""
    if "find_trains" in done:
        return ["The train at 9:39 will do. Now a room;", Call("find_rooms", {"city": "Porto"})]
    if "find_rooms" in done:
        return ["There is a room by the river.", Call("book", {"what": "the 9:39 and the Casa do Rio"})]
    if "book" in done:
        return ["That is settled. Have a good trip!"]
    if "story" in asked:
        return [HILL * 40]
    if "book" in asked:
        return [Call("book", {"what": "a table for two"})]
    if any(word in asked for word in ("trip", "plan", "travel")):
        weather = Call("ask_weather", {"request": "Porto"})
        return [Reasoning("Porto, then."), "Let me look. ", Call("find_trains", {"to": "Porto"}), weather]
    return ["I can plan a trip, tell a story, or book something: ask me, and then stop me."]


def model() -> str | None:
    """Name the real model that there is a key for, if there is one."""
    known = {"OPENAI_API_KEY": "openai:gpt-5-mini", "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5"}
    found = [name for key, name in known.items() if os.environ.get(key)]
    return os.environ.get("ANDON_MODEL") or next(iter(found), None)


weather = Agent(model() or forecast, name="weather", instructions="Give a forecast for a city, in a line.")
agent = Agent(
    model() or script,
    tools=[find_trains, find_rooms, book, weather.as_tool(name="ask_weather")],
    name="demo",
    instructions="Plan trips. Look for trains and rooms, ask for the weather, and book what fits.",
)
