"""Program: the server that is killed: agents that work as told, and tools that write down what they do.

A message reads "do TOKEN PLAN": each letter of the plan is a round of tool calls, and each call has a token
of its own, by which the ledger knows it whatever became of the process.
"""

import json
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Self
from zlib import crc32

import anyio
import msgspec

from andon import Agent, Call, ToolContext, tool
from andon.adapters.sqlite import SqliteSubstrate
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from andon.serve.server import serve
from andon.serve.settings import Settings

ROUNDS = {
    "i": ("look",),
    "w": ("write",),
    "t": ("grind",),
    "f": ("settle",),
    "h": ("helper",),
    "b": ("look", "write"),
    "p": ("write", "grind", "helper"),
}
LETTERS = "".join(ROUNDS)
IDEMPOTENT = frozenset({"look"})
WORDS = ("Let", "me", "see", "what", "there", "is.")
SETTINGS = Settings(drain_grace=2.0, streams_per_user=1_000)
LEDGER = "ANDON_LEDGER"


class Plan(msgspec.Struct, frozen=True):
    """What a server is started with; with `room`, the file may only grow by so many pages."""

    file: str
    ledger: str
    port: int
    lease: float
    room: int | None = None


async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Say something, word by word, and call the tools of the round that is next."""
    place = max(n for n, message in enumerate(request.messages) if message.text.startswith("do "))
    _, token, plan = request.messages[place].text.split()
    done = sum(bool(message.calls) for message in request.messages[place:])
    for n, word in enumerate(WORDS):
        await anyio.sleep(_pace(f"{token}{done}{n}") / 4)
        yield f"{word} "
    if done < len(plan):
        for n, name in enumerate(ROUNDS[plan[done]]):
            own = f"{token}.{done}.{n}"
            yield Call(name, {"request": f"do {own} iw"} if name == "helper" else {"token": own})


def _pace(token: str) -> float:
    """Give seconds, up to 40 ms, that are the same whenever this is done again."""
    return crc32(token.encode()) % 40 / 1_000


def note(event: str, context: ToolContext, token: str) -> None:
    """Write a line that stays, whatever becomes of this process."""
    line = {"event": event, "tool": context.tool, "token": token, "call": context.call_id, "pid": os.getpid()}
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


async def act(context: ToolContext, token: str) -> str:
    """Have an effect, which takes a while."""
    note("begin", context, token)
    await anyio.sleep(_pace(token))
    note("end", context, token)
    return f"did {token}"


@tool(idempotent=True)
async def look(context: ToolContext, token: str) -> str:
    """Look at something."""
    return await act(context, token)


@tool
async def write(context: ToolContext, token: str) -> str:
    """Write something, which must not happen twice."""
    return await act(context, token)


@tool(finish=True)
async def settle(context: ToolContext, token: str) -> str:
    """Pay for something, to the end."""
    return await act(context, token)


@tool
def grind(context: ToolContext, token: str) -> str:
    """Do something in a thread."""
    note("begin", context, token)
    Event().wait(_pace(token))
    note("end", context, token)
    return f"did {token}"


helper = Agent(model, tools=[look, write], name="helper", instructions="Help.")
agent = Agent(model, tools=[look, write, settle, grind, helper.as_tool()], name="trips")


class Small(SqliteSubstrate):
    """A substrate whose disk is soon full."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.file, lease=plan.lease)
        self._room = plan.room

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.writer.ask(self._bound)
        return self

    def _bound(self, db: sqlite3.Connection) -> None:
        if self._room is not None:
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {pages + self._room}").fetchone()


def run(plan: Plan) -> None:
    """Serve until a signal comes."""
    os.environ[LEDGER] = plan.ledger
    Path(plan.ledger).touch()
    anyio.run(serve, {"trips": agent}, Small(plan), msgspec.structs.replace(SETTINGS, port=plan.port))
