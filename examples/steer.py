"""Change an agent's course while it talks: what it had said stays, and the same run goes on."""

import asyncio
from collections.abc import AsyncIterator

import anyio

from andon import Agent, TextDelta
from andon.ports import ModelRequest


async def model(request: ModelRequest) -> AsyncIterator[str]:
    """Stand for a model that has a lot to say, until it is told otherwise."""
    if request.messages[-1].text == "By train, please.":
        yield "Take the 9:39, it is there at noon."
        return
    for words in ("Take the A1 ", "to the north, ", "and leave it ", "at the third ", "exit, where "):
        await anyio.sleep(0.05)
        yield words
    await anyio.sleep_forever()


async def main() -> None:
    """Listen for a while, then say what was meant."""
    said = ""
    async with Agent(model).start("How do I get to Porto?") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                said += event.text
                if said.endswith("north, "):
                    run.steer("By train, please.", when="now")
        outcome = await run.outcome()
    for message in outcome.messages:
        print(f"{message.role}: {message.text}{' (cut)' if message.cut else ''}")


asyncio.run(main())
