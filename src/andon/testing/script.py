"""Script: a model whose every chunk, wait and failure is written down by the test."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from itertools import repeat

import anyio
from msgspec import Struct

from andon.core.draft import Chunk
from andon.core.items import CallDelta
from andon.core.limits import Usage
from andon.core.messages import Call, Message, Payload, Reasoning, Text
from andon.ports import ModelRequest
from andon.runtime.isolate import turn
from andon.testing.gates import Gate


class Hang(Struct, frozen=True):
    """Never goes on: a provider that has stalled."""


class Yield(Struct, frozen=True):
    """Lets the event loop turn once: a chunk that had to be waited for."""


class Delay(Struct, frozen=True):
    """Goes on after some seconds, which a virtual clock jumps over."""

    seconds: float


class Burst(Struct, frozen=True):
    """Gives the same words `n` times without ever waiting, as a fast provider does."""

    n: int
    text: str = "word "


class ScriptError(AssertionError):
    """The model was asked more often than its script has replies."""


Step = Chunk | Gate | Hang | Yield | Delay | Burst | BaseException
Reply = Step | Sequence[Step]
_SINGLE = (
    str,
    Text,
    Reasoning,
    Call,
    CallDelta,
    Usage,
    Payload,
    Gate,
    Hang,
    Yield,
    Delay,
    Burst,
    BaseException,
)


class ScriptedModel:
    """A model that answers its requests in turn with the replies it was given.

    A reply is one step or a sequence of steps: a chunk is given, a Gate waits until it is opened,
    `Hang()` waits for ever, `Yield()` lets the loop turn, `Delay(seconds)` waits, `Burst(n, text)`
    gives many chunks without waiting, and an exception is raised.

    With `by_round` the replies are not used up: which one is given depends on the request alone, on
    how many rounds of tools it shows since the user last spoke. A fresh model then answers a
    resumed run as the old one would have.

    `requests` keeps what it was asked. `made` counts the chunks that it made; `opened` and `closed`
    count its answers that were begun and that are over, so that after a run both are equal.
    """

    def __init__(self, *replies: Reply, name: str = "scripted", by_round: bool = False) -> None:
        self.name = name
        self.by_round = by_round
        self.requests: list[ModelRequest] = []
        self.made = 0
        self.opened = 0
        self.closed = 0
        self.on_step: Callable[[str], None] | None = None
        self._replies: deque[Reply] = deque(replies)

    def script(self, *replies: Reply) -> None:
        """Replace the replies that are left."""
        self._replies = deque(replies)

    @property
    def left(self) -> int:
        """How many replies are left."""
        return len(self._replies)

    @property
    def live(self) -> int:
        """How many answers are open."""
        return self.opened - self.closed

    async def __call__(self, request: ModelRequest, /) -> AsyncGenerator[Chunk]:
        """Give the next reply, chunk by chunk."""
        self.requests.append(request)
        number = _rounds(request) if self.by_round else 0
        if number >= len(self._replies):
            raise ScriptError(self._used_up(request))
        reply = self._replies[number] if self.by_round else self._replies.popleft()
        self.opened += 1
        try:
            for step in (reply,) if isinstance(reply, _SINGLE) else reply:
                await _wait(step)
                for chunk in _chunks(step):
                    self.made += 1
                    self._tell("pull")
                    yield chunk
        finally:
            self.closed += 1
            self._tell("close")

    def _tell(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(what)

    def _used_up(self, request: ModelRequest) -> str:
        last = request.messages[-1] if request.messages else Message.user("nothing")
        return (
            f"the script of {self.name!r} is used up: it was asked {len(self.requests)} times, "
            f"now after {last.role} {last.text or last.parts!r:.200}; give ScriptedModel(…) one more reply"
        )

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name}, {len(self.requests)} asked, {self.left} left, {self.live} open>"


def _rounds(request: ModelRequest) -> int:
    count = 0
    for message in request.messages:
        count = 0 if message.role == "user" else count + (message.role == "tool")
    return count


async def _wait(step: Step) -> None:
    match step:
        case BaseException():
            raise step
        case Gate():
            await step
        case Hang():
            await asyncio.get_running_loop().create_future()
        case Yield():
            await turn()
        case Delay(seconds):
            await anyio.sleep(seconds)
        case _:
            return


def _chunks(step: Step) -> Iterable[Chunk]:
    match step:
        case Burst(n, text):
            return repeat(text, n)
        case BaseException() | Gate() | Hang() | Yield() | Delay():
            return ()
        case _:
            return (step,)
