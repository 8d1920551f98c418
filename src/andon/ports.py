"""Ports: the Protocols through which a run meets the world."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from andon.core.draft import Chunk
from andon.core.frozen import frozen
from andon.core.items import Item
from andon.core.messages import Message


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
