"""A chat in which the user types on while the agent works, with each way to be busy."""

import anyio

from andon import Agent, Call, tool
from andon.runtime.session import Session


async def model(request):
    said = [message.text for message in request.messages if message.role == "user"]
    if request.messages[-1].role == "user" and said[-1].startswith("look"):
        yield Call("look", {"what": said[-1]})
    else:
        yield f"Heard: {', '.join(said)}."


async def busy(on_busy):
    at_work = anyio.Event()

    @tool
    async def look(what: str) -> str:
        at_work.set()
        await anyio.sleep(0.05)
        return f"nothing on {what}"

    async with Session(Agent(model, tools=[look])) as session:
        session.push("look up cords")
        await at_work.wait()
        receipt = session.push("and bells", on_busy=on_busy)
    story = [message.text or f"({message.role})" for message in session.messages]
    print(f"{on_busy}, {'taken' if receipt.accepted else 'not taken'}: {' | '.join(story)}")


async def main():
    for on_busy in ("enqueue", "preempt", "steer", "reject", "rollback"):
        await busy(on_busy)


anyio.run(main)
