"""A tree of three agents whose tools count themselves; a fresh process may import it and go on."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from andon import Agent, AndonError, Call, Message, Outcome, ToolContext, Usage, tool
from andon.core.draft import Chunk
from andon.ports import ModelRequest, Observer, Store
from andon.runtime.tools import Tool
from andon.testing import run_virtual

Replies = Sequence[Sequence[Chunk]]

ROOT: Replies = [
    [Call("pay", {"what": "root 1"}, "r1"), Call("leave_to", {"request": "plan"}, "r2")],
    [Call("wrap", {}, "r3"), Call("pay", {"what": "root 2"}, "r4")],
    ["All is done."],
]
MIDDLE: Replies = [
    [Call("read", {}, "m1"), Call("leaf", {"request": "dig"}, "m2"), Call("pay", {"what": "middle 1"}, "m3")],
    [Call("pay", {"what": "middle 2"}, "m4")],
    ["The middle is done."],
]
LEAF: Replies = [
    ["I ", Call("pay", {"what": "leaf 1"}, "l1")],
    [Call("ask", {}, "l2"), Call("read", {}, "l3")],
    ["The leaf ", "is done."],
]
SIDE: Replies = [[Call("pay", {"what": "side 1"}, "s1")], ["The side is done."]]


class Tree:
    """Fresh agents, as a new process makes them; `counts` may be shared by several trees.

    With `again` all tools are idempotent.
    """

    def __init__(
        self,
        counts: Counter[str] | None = None,
        *,
        store: Store | None = None,
        observers: Sequence[Observer] = (),
        again: bool = False,
    ) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.again = again
        self._observers = observers
        pay, read, ask, wrap = self._tools()
        self.side = self._agent("side", SIDE, pay)
        self.leaf = self._agent("leaf", LEAF, pay, read, ask)
        self.middle = self._agent("middle", MIDDLE, pay, read, self.leaf.as_tool(description="Digs."))
        behind = self.middle.as_tool(name="leave_to", description="Plans.", history=True)
        self.root = self._agent("root", ROOT, pay, wrap, behind, store=store)

    def _agent(
        self, name: str, replies: Replies, *tools: Tool[..., Any], store: Store | None = None
    ) -> Agent:
        async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
            said = len(own(request.messages))
            self.counts[f"{name} model {said}, shown {len(request.messages)}"] += 1
            for chunk in replies[said]:
                await anyio.sleep(0.1)
                yield chunk
            yield Usage(input_tokens=10, output_tokens=5)

        def own(messages: Sequence[Message]) -> list[Message]:
            start = max(n for n, message in enumerate(messages) if message.role == "user")
            return [message for message in messages[start:] if message.role == "assistant"]

        model.__name__ = f"{name}_model"
        observers = self._observers if name == "root" else ()
        return Agent(
            model, tools=tools, name=name, instructions=f"You are {name}.", store=store, observers=observers
        )

    def _tools(self) -> tuple[Tool[..., Any], ...]:
        counts, again = self.counts, self.again

        @tool(idempotent=again)
        async def pay(what: str) -> str:
            """Pay, which must never be done twice unless it may be."""
            counts[f"pay {what}"] += 1
            await anyio.sleep(0.1)
            return f"paid {what}"

        @tool(idempotent=True)
        async def read() -> str:
            """Read, which may be done again."""
            counts["read"] += 1
            await anyio.sleep(0.1)
            return "read"

        @tool(idempotent=again)
        async def ask(context: ToolContext) -> str:
            """Ask twice, and act on the answers."""
            first = await context.interrupt("first?")
            second = await context.interrupt({"after": first})
            counts["ask"] += 1
            await anyio.sleep(0.1)
            return f"{first} {second}"

        @tool(idempotent=again)
        async def wrap() -> str:
            """Ask an agent from inside plain code, and act on its answer."""
            outcome = await self.side.run("look")
            counts["wrap"] += 1
            await anyio.sleep(0.1)
            return outcome.text

        return pay, read, ask, wrap


class FileStore:
    """Keeps each checkpoint in a file of one folder, for other processes to find."""

    def __init__(self, folder: Path) -> None:
        self._folder = anyio.Path(folder)

    async def get(self, checkpoint_id: str, /) -> bytes | None:
        """Give what is stored, or None."""
        path = self._folder / checkpoint_id
        return await path.read_bytes() if await path.exists() else None

    async def set(self, checkpoint_id: str, data: bytes, /) -> None:
        """Store."""
        await (self._folder / checkpoint_id).write_bytes(data)

    async def delete(self, checkpoint_id: str, /) -> None:
        """Forget it."""
        await (self._folder / checkpoint_id).unlink(missing_ok=True)


class Order(msgspec.Struct):
    """What a new process is to go on from: a checkpoint as text, or one that it finds in a store."""

    checkpoint: str = ""
    folder: str = ""
    checkpoint_id: str = ""
    answers: dict[str, str] = {}


class Told(msgspec.Struct):
    """What became of it there; with an error, nothing else."""

    error: str = ""
    outcome: Outcome | None = None
    counts: dict[str, int] = {}


async def in_new_process(*orders: Order) -> list[Told]:
    """Let a fresh interpreter go on, order by order."""
    ended = await anyio.run_process(
        [sys.executable, "-m", "tests.runtime.tree_of_three"],
        input=msgspec.json.encode(orders),
        cwd=Path(__file__).parents[2],
    )
    return msgspec.json.decode(ended.stdout, type=list[Told])


async def _obey(order: Order) -> Told:
    tree = Tree()
    try:
        found = order.checkpoint or await FileStore(Path(order.folder)).get(order.checkpoint_id)
        outcome = await tree.root.resume(found, answers=order.answers)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except AndonError as error:
        return Told(f"{type(error).__name__}: {error}")
    return Told("", outcome, dict(tree.counts))


def main() -> None:
    """Read orders from stdin, go on, tell on stdout; the clock is virtual here, too."""
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Order])
    told = [run_virtual(_obey, order) for order in orders]
    sys.stdout.buffer.write(msgspec.json.encode(told))


if __name__ == "__main__":
    main()
