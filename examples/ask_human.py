"""An agent that asks before it pays: it ends with the question, and another process answers.

`python examples/ask_human.py` asks, and says how to answer.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from andon import Agent, Call, ToolContext, tool
from andon.ports import ModelRequest

KEPT = Path("payment.json")


@tool
async def pay(euros: int, context: ToolContext) -> str:
    """Pay, if somebody agrees."""
    said = await context.interrupt(f"Pay {euros} euros?")
    return f"{euros} euros paid" if said == "yes" else "nothing paid"


async def model(request: ModelRequest) -> AsyncIterator[str | Call]:
    """Stand for a model that wants to pay."""
    results = request.messages[-1].results
    yield f"Well: {results[0].content}." if results else Call("pay", {"euros": 31})


agent = Agent(model, tools=[pay], name="payer")
if len(sys.argv) > 1:
    question, answer = sys.argv[1:]
    print(asyncio.run(agent.resume(KEPT.read_bytes(), answers={question: answer})).text)
else:
    outcome = agent.run_sync("Pay the train")
    KEPT.write_bytes(outcome.checkpoint.to_json())
    print(outcome.interrupts[0].payload)
    print(f"answer with: python {sys.argv[0]} {outcome.interrupts[0].id} yes")
