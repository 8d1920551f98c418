"""Floor: the raw loops that Andon is held against; they parse, check, record and promise nothing."""

from collections.abc import Awaitable, Callable, Mapping, Sized
from contextlib import aclosing
from typing import Any

from andon import Call
from bench.model import Script, Words

Messages = list[dict[str, Any]]
Tools = Mapping[str, Callable[..., Awaitable[str]]]


async def turn(model: Words, prompt: str) -> Messages:
    """Ask once: gather the words, keep them as a message."""
    messages: Messages = [{"role": "user", "content": prompt}]
    words: list[str] = []
    async with aclosing(model(messages)) as chunks:
        async for chunk in chunks:
            words.append(chunk)  # noqa: PERF401 — as a loop has it
    messages.append({"role": "assistant", "content": "".join(words)})
    return messages


async def cycles(model: Script, tools: Tools, prompt: str) -> Messages:
    """Ask and call tools until there is an answer without calls."""
    messages: Messages = [{"role": "user", "content": prompt}]
    while True:
        words: list[str] = []
        calls: list[Call] = []
        async with aclosing(model(messages)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, str):
                    words.append(chunk)
                else:
                    calls.append(chunk)
        messages.append({"role": "assistant", "content": "".join(words), "calls": calls})
        if not calls:
            return messages
        for call in calls:
            result = await tools[call.name](**call.arguments)
            messages.append({"role": "tool", "name": call.name, "content": result})


async def flagged(model: Script, flag: Sized) -> None:
    """Gather words until a flag is raised."""
    words: list[object] = []
    async with aclosing(model(None)) as chunks:
        async for chunk in chunks:
            words.append(chunk)
            if flag:
                return
