"""Neighbour: a process that shares a file: `worker` serves a session, `writer` writes and tells.

What it says is done goes to its output, a line each.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from andon.adapters.sqlite import SqliteSubstrate
from andon.core.command import Key


def say(*words: object) -> None:
    """Tell the other process."""
    print(*words, flush=True)  # noqa: T201 — the pipe is what is read


async def worker(substrate: SqliteSubstrate) -> None:
    """Claim a session, wait for a second command, tell something, append, and leave."""
    say("ready")
    claim = await substrate.claim("neighbour")
    commands = await substrate.commands(claim.key)
    say("claimed", claim.key, claim.deliveries, *(command.decode() for _, command in commands))
    while len(commands) < 2:
        await claim.rung()
        commands = await substrate.commands(claim.key)
    say("heard", commands[-1][1].decode())
    substrate.tell(claim.key, b"token")
    head = await substrate.append(claim.key, b"record", head=0)
    say("released", head, await claim.release(commands[-1][0]))


async def writer(substrate: SqliteSubstrate) -> None:
    """Append to three sessions and send to three others, for ever; say what was acknowledged."""
    async with asyncio.TaskGroup() as group:
        for n in range(3):
            group.create_task(_append(substrate, Key("app", "ann", f"log{n}")))
            group.create_task(_send(substrate, Key("app", "ann", f"box{n}")))
        say("ready")


async def _append(substrate: SqliteSubstrate, key: Key) -> None:
    records = await substrate.read(key)
    head, count = (records[-1][0], len(records)) if records else (0, 0)
    while True:
        rows = {key.session: b"%d" % count}
        head = await substrate.append(key, b"%d" % count, head=head, rows=rows)
        say("appended", key.session, head, count)
        count += 1


async def _send(substrate: SqliteSubstrate, key: Key) -> None:
    count = len(await substrate.commands(key))
    while True:
        number = await substrate.send(key, f"c{count}", b"%d" % count)
        say("sent", key.session, number, count)
        count += 1


PARTS: dict[str, Callable[[SqliteSubstrate], Coroutine[Any, Any, None]]] = {
    "worker": worker,
    "writer": writer,
}


async def main(part: str, path: str) -> None:
    """Play a part."""
    async with SqliteSubstrate(path, mailbox=100_000) as substrate:
        await PARTS[part](substrate)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
