"""A worker that SIGTERM lets finish its step, and that goes on from there when it is started again."""

import signal
import sys

import anyio
from folder import Folder

from andon import Agent, Call, Stop, Turn, TurnLoop, tool


@tool
async def work(step: str) -> str:
    print(f"working on {step}", flush=True)
    await anyio.sleep(0.3)
    return "done"


async def model(request):
    steps = sum(message.role == "tool" for message in request.messages)
    step = f"{request.messages[0].text}, step {steps + 1}"
    yield Call("work", {"step": step}) if steps < 3 else "ready"


async def main(orders):
    loop = TurnLoop(
        gen_input=lambda about, items: Turn(items[0], items[:1], items[1:]),
        gen_resume=lambda about, interrupted, waiting, new: Turn(None, interrupted, [*waiting, *new]),
        prepare_agent=lambda about, consumed: Agent(model, tools=[work]),
        store=Folder(),
        checkpoint_id="orders.json",
    )
    signal.signal(signal.SIGTERM, lambda *_: loop.stop(Stop.graceful(grace=10)))
    async with loop:
        [loop.push(order) for order in orders]
    exit_ = await loop.wait()
    print("left for later:", *(exit_.interrupted or ["nothing"]), *exit_.unhandled)


anyio.run(main, sys.argv[1:])
