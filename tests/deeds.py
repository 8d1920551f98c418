"""Deeds: an agent whose model says what the last message asks for, and whose tools count what they did."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import anyio

from andon import Agent, Call, ToolContext, tool
from andon.core.draft import Chunk
from andon.core.messages import Message
from andon.ports import ModelRequest
from andon.runtime.tools import Tool
from andon.testing import Gate, Tally

WORDS = ("This ", "is ", "the ", "answer.")


class Deeds:
    """What is said, and what is done about it.

    "tools" uses a tool that must not be repeated, one that may be, and an agent inside; "ask" asks a human;
    "hang" says a word and stalls; "slow" uses a tool of 100 seconds; "stay" one that stays until the gate
    is open, "never" one that does not stop. All else is answered.
    """

    def __init__(self) -> None:
        self.tally = Tally("once", "slow", "stay", "never", "child", again=["again"])
        self.gate = Gate("stay")
        self.asked = 0
        self.inner = Agent(self._inner_model, tools=[self._counting("child", idempotent=False)], name="inner")
        self.agent = Agent(
            self.model,
            tools=[
                self._counting("once", idempotent=False),
                self._counting("again", idempotent=True),
                self.inner.as_tool(name="inner", description="Ask inside."),
                self._asking(),
                self._slow(),
                self._staying(),
                self._never(),
            ],
            name="deeds",
        )

    async def model(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Do what the last message says."""
        self.asked += 1
        last = request.messages[-1]
        names = {"tools": ("once", "again", "inner")}.get(last.text, (last.text,))
        if last.role == "user" and any(spec.name in names for spec in request.tools):
            yield "Well. "
            for name in names:
                arguments: dict[str, object] = {"request": "go"} if name == "inner" else {}
                yield Call(name, arguments, id=f"{name}-{len(request.messages)}")
            return
        if last.text == "hang":
            yield "Hm. "
            await anyio.sleep_forever()
        for word in WORDS:
            yield word

    async def _inner_model(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if request.messages[-1].role == "user":
            yield Call("child", {}, id="child-1")
        else:
            yield "Inside."

    def _counting(self, name: str, *, idempotent: bool) -> Tool[..., Any]:
        @tool(name=name, idempotent=idempotent)
        async def count() -> str:
            """Take a second, and count it."""
            with self.tally.of(name):
                await anyio.sleep(1)
            return f"did {name}"

        return count

    def _asking(self) -> Tool[..., Any]:
        @tool(name="ask", idempotent=True)
        async def ask(context: ToolContext) -> str:
            """Ask a human."""
            return f"was told {await context.interrupt('Really?')}"

        return ask

    def _slow(self) -> Tool[..., Any]:
        @tool(name="slow")
        async def slow() -> str:
            """Take long."""
            with self.tally.of("slow"):
                await anyio.sleep(100)
            return "was slow"

        return slow

    def _staying(self) -> Tool[..., Any]:
        @tool(name="stay")
        async def stay() -> str:
            """Stay until it is let go."""
            with self.tally.of("stay"):
                await self.gate
            return "stayed"

        return stay

    def _never(self) -> Tool[..., Any]:
        @tool(name="never")
        async def never() -> str:
            """Swallow every cancellation."""
            with self.tally.of("never"):
                end = anyio.current_time() + 1_000
                while anyio.current_time() < end:
                    with suppress(anyio.get_cancelled_exc_class()):
                        await anyio.sleep(end - anyio.current_time())
            return "too late"

        return never


def lines(messages: Sequence[Message]) -> list[str]:
    """Give a history in words, one line a message."""
    return [
        f"{one.role}: "
        + " | ".join(
            [one.text, *(call.name for call in one.calls), *(f"{r.name}={r.content}" for r in one.results)]
        )
        for one in messages
    ]
