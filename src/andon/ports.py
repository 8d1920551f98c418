"""Ports: the Protocols through which a run meets the world."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct
from msgspec.structs import force_setattr

from andon.core.command import Key
from andon.core.draft import Chunk
from andon.core.frozen import frozen
from andon.core.items import Item, RunEnded
from andon.core.messages import Message
from andon.core.stop import Stop


class ToolSpec(Struct, frozen=True, gc=False):
    """What a model is told of a tool."""

    name: str
    description: str
    parameters: dict[str, object]

    def __post_init__(self) -> None:
        force_setattr(self, "parameters", frozen(self.parameters))  # all requests of an agent share it


class ModelRequest(Struct, frozen=True, gc=False):
    """What a model is asked: a read-only view of the run, its dicts and lists included.

    An object among the settings that is neither is the caller's own, and the same with every request.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    instructions: str = ""
    settings: Mapping[str, object] = {}


class Model(Protocol):
    """Answer a request with chunks as they come; an async generator function is one.

    When the run cuts the call, CancelledError is raised at the generator's await, or GeneratorExit
    at its yield: close what is open and let it pass.
    """

    def __call__(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer."""
        ...


class Observer(Protocol):
    """Read the items of runs as they happen: telemetry, audit, a console.

    The observers of a run observe its children too, each under its own id. In their parent the items
    of a child come once more, with their `path`: pass those over, or take no others.
    """

    def observe(self, run_id: str, item: Item, /) -> None:
        """Take one item; called on the run's own thread, so be quick."""
        ...


class Store(Protocol):
    """Keep checkpoints by id."""

    async def get(self, checkpoint_id: str, /) -> bytes | None:
        """Give what is stored, or None."""
        ...

    async def set(self, checkpoint_id: str, data: bytes, /) -> None:
        """Store durably before returning."""
        ...

    async def delete(self, checkpoint_id: str, /) -> None:
        """Forget it."""
        ...


class Journal(Protocol):
    """Where the items of one run are written down before they have an effect outside.

    All of it is called on the run's own loop.
    """

    @property
    def run_id(self) -> str:
        """The id of the run that is written down here."""
        ...

    def take(self, item: Item, /) -> None:
        """Take an item that has happened, all but the terminal one; it need not be durable yet."""
        ...

    async def sync(self) -> None:
        """Wait until all that was taken is durable; `SessionError` if another worker has the run now.

        A stop cancels whoever waits here, and what was taken stays taken.
        """
        ...

    def seal(self, stop: Stop | None, /) -> None:
        """Hear that the run ends before its answer, and by which stop if one was it.

        What is taken from here on only makes its history whole, and is to be durable with its end.
        """
        ...

    async def end(self, item: RunEnded, /) -> None:
        """Write down the terminal item, durably, before anybody is told."""
        ...


class SessionInfo(Struct, frozen=True, gc=False):
    """What a list of sessions says of one: its key, and the wall times of its first and its last record."""

    key: Key
    created: float
    touched: float


class Claim(Protocol):
    """The hold that one worker has on a session, for as long as it keeps it up."""

    @property
    def key(self) -> Key:
        """The session."""
        ...

    @property
    def deliveries(self) -> int:
        """How often the session was claimed since a worker last released it whole, this time included."""
        ...

    async def rung(self) -> None:
        """Wait until there may be something new in the mailbox; it may wake for nothing."""
        ...

    async def beat(self) -> bool:
        """Say that the worker lives; False if the session was given to another."""
        ...

    async def release(self, cursor: int) -> bool:
        """Leave the session; False, and go on, if its mailbox has commands behind number `cursor`."""
        ...

    async def give_back(self, delay: float = 0.0) -> None:
        """Leave the session to the next worker, which may claim it after so many seconds.

        A delay says that this worker failed; without one it hands over, and `deliveries` begins anew.
        """
        ...


class Substrate(Protocol):
    """Journals, mailboxes, claims and doorbells of sessions; entered before it is used.

    All implementations pass one conformance suite, and the rest of the code cannot tell them apart. A head is
    the substrate's own number of a journal's last record, 0 of an empty one; heads grow, and that is all.
    `SessionError` says what cannot be done: `fenced`, `full`, `closed`, `newer` or `broken`.
    """

    async def __aenter__(self) -> Self:
        """Open it; what was written by a newer version is refused."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; whoever waits is told that it is closed."""
        ...

    async def append(
        self, key: Key, record: bytes, *, head: int, rows: Mapping[str, bytes] | None = None
    ) -> int:
        """Append a record durably if `head` is still the journal's; gives the new head, else `fenced`.

        `rows` are what the index says of runs from here on, by run id.
        """
        ...

    async def head(self, key: Key) -> int:
        """Give the head of a journal; 0 if there is none."""
        ...

    async def read(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        """Give the records behind a head, each with its own."""
        ...

    async def send(self, key: Key, command_id: str, command: bytes) -> int:
        """Put a command into the mailbox, durably, and see to it that somebody claims the session.

        Gives the command's number, which grows; for an id that was sent before, that of then. `full` if too
        many wait there.
        """
        ...

    async def commands(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        """Give the commands behind a number, in order; those up to it were consumed, and are forgotten."""
        ...

    async def ring(self, key: Key) -> bool:
        """Ask whoever has the session to look into its mailbox; False if nobody has."""
        ...

    def tell(self, key: Key, delta: bytes) -> None:
        """Send something that passes by to whoever watches now; it may be lost, and never waits."""
        ...

    def watch(self, key: Key) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Hear what is told from here on, and None when the journal may have grown."""
        ...

    async def claim(self, worker: str) -> Claim:
        """Wait for a session that has something to do and that nobody has, and take it."""
        ...

    async def sessions(self, app: str | None = None, user: str | None = None) -> Sequence[SessionInfo]:
        """List sessions."""
        ...

    async def row(self, run_id: str) -> bytes | None:
        """Give what the index says of a run."""
        ...

    async def rows(self) -> Sequence[bytes]:
        """Give what the index says of all runs."""
        ...

    async def delete(self, key: Key) -> None:
        """Forget a session: its journal, its mailbox, its claim and its rows. Whoever has it is fenced."""
        ...

    async def trouble(self) -> str | None:
        """Say what keeps it from working now, if anything does."""
        ...
