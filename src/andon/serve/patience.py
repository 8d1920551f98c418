"""Patience: wait on behalf of a client for as long as it is there."""

from collections.abc import Awaitable
from typing import TypeVar

import anyio
from fastapi import Request

from andon.errors import UserError
from andon.serve.problem import Problem

T = TypeVar("T")


async def while_there(request: Request, awaited: Awaitable[T]) -> T | None:
    """Wait for something; None if the client goes away first. What is awaited must bear to be cut."""
    found: T | None = None
    failure: UserError | Problem | None = None
    async with anyio.create_task_group() as group:

        async def leave() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(leave)
        try:
            found = await awaited
        except (UserError, Problem) as error:  # raised behind the group, which would hide it in another
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return found
