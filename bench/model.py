"""Model: the scripted models that the floor and Andon both run."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator

from andon import Call

Script = Callable[[object], AsyncGenerator[str | Call]]
Words = Callable[[object], AsyncGenerator[str]]

BURST = 2_000
ANSWER = ("Two ", "and ", "two ", "is ", "four.")


class Turn:
    """A bare suspension: back to the loop, and on in its next round."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


TURN = Turn()


def burst(count: int) -> Script:
    """Make a model whose chunks come without ever waiting."""

    async def model(_: object) -> AsyncGenerator[str]:
        for _ in range(count):
            yield "word "

    return model


def yielding(count: int) -> Script:
    """Make a model that suspends once before each chunk."""

    async def model(_: object) -> AsyncGenerator[str]:
        for _ in range(count):
            await TURN
            yield "word "

    return model


async def short(_: object) -> AsyncGenerator[str]:
    """Answer in five words."""
    for word in ANSWER:
        yield word


def calling(cycles: int, tool: str) -> Script:
    """Make a model that calls a tool that many times, and then answers; it can be run again."""
    left = cycles

    async def model(_: object) -> AsyncGenerator[str | Call]:
        nonlocal left
        if not left:
            left = cycles
            yield "Done."
            return
        left -= 1
        yield "Let me look."
        yield Call(tool, {"query": "cord"})

    return model


def always_calling(tool: str) -> Script:
    """Make a model that calls a tool with every answer."""

    async def model(_: object) -> AsyncGenerator[Call]:
        yield Call(tool, {"query": "cord"})

    return model


class Provider:
    """Models that count what they make and which of their streams are open."""

    def __init__(self) -> None:
        self.open = 0
        self.made = 0
        self.ready = asyncio.Event()
        self.stop: Callable[[], object] = lambda: None

    async def hung(self, _: object) -> AsyncGenerator[str]:
        """Say a word, and then nothing any more."""
        self.open += 1
        try:
            yield "word "
            self.ready.set()
            await asyncio.get_running_loop().create_future()
        finally:
            self.open -= 1

    async def drip(self, _: object) -> AsyncGenerator[str]:
        """Say a word every millisecond, for ever."""
        self.open += 1
        try:
            while True:
                yield "word "
                self.ready.set()
                await asyncio.sleep(0.001)
        finally:
            self.open -= 1

    async def burst(self, _: object) -> AsyncGenerator[str]:
        """Say words without ever waiting, call `stop` on the way, and count the words made after that."""
        self.open += 1
        try:
            for number in range(BURST):
                if number == BURST // 2:
                    self.stop()
                if number >= BURST // 2:
                    self.made += 1
                yield "word "
        finally:
            self.open -= 1

    async def flood(self, _: object) -> AsyncGenerator[str]:
        """Say words without ever waiting until `stop` says that it is over; count those after that."""
        self.open += 1
        try:
            yield "word "
            self.ready.set()
            while True:
                if self.stop():
                    self.made += 1
                yield "word "
        finally:
            self.open -= 1

    async def waiting(self, _: object) -> AsyncGenerator[str]:
        """Answer in five words, each of which has to be waited for."""
        self.open += 1
        try:
            for word in ANSWER:
                await TURN
                yield word
        finally:
            self.open -= 1
