"""Patience: wait on behalf of a client for as long as it is there."""

from collections.abc import Awaitable
from typing import TypeVar

import anyio
from fastapi import Request

T = TypeVar("T")


async def while_there(request: Request, awaited: Awaitable[T]) -> T | None:
    """Wait for something; None if the client goes away first. What is awaited must bear to be cut."""
    async with anyio.create_task_group() as group:

        async def leave() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(leave)
        found = await awaited
        group.cancel_scope.cancel()
        return found
    return None
