"""A tree: a desk asks two agents, is stopped inside them, and goes on there, asking nobody twice."""

import asyncio
from collections.abc import AsyncIterator

from andon import Agent, Call, Point, Stop, ToolContext, ToolStarted, tool
from andon.ports import ModelRequest


async def find(request: str, context: ToolContext) -> str:
    """Find something."""
    print(f"{context.tool} for {request}")
    return f"{context.tool} has found one"


async def model(request: ModelRequest) -> AsyncIterator[str | Call]:
    """Stand for a model that calls each of its tools once, and tells what they say."""
    last = request.messages[-1]
    for spec in () if last.results else request.tools:
        yield Call(spec.name, {"request": last.text})
    yield ", ".join(result.content for result in last.results)


train = Agent(model, tools=[tool(name="find_train")(find)], name="train", instructions="Finds trains.")
room = Agent(model, tools=[tool(name="find_room")(find)], name="room", instructions="Finds rooms.")
desk = Agent(model, tools=[train.as_tool(), room.as_tool()], name="desk")


async def main() -> None:
    """Stop the whole tree where its tools have ended, and go on."""
    async with desk.start("Porto") as run:
        async for event in run:
            if isinstance(event, ToolStarted) and event.path:
                run.cancel(Stop.at(Point.TOOLS, recursive=True), reason="lunch")
        outcome = await run.outcome()
    print(outcome.stop_reason, "at", outcome.cancelled.stopped_at)
    print((await desk.resume(outcome.checkpoint)).text)


asyncio.run(main())
