"""Parked: what a turn loop leaves behind to go on from, as versioned JSON."""

from collections.abc import Sequence
from reprlib import repr as shown
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from andon.core.checkpoint import Checkpoint
from andon.errors import CheckpointError, UserError

T = TypeVar("T")
VERSION = 1


class Codec(Protocol[T]):
    """Writes items as JSON, and reads them back."""

    def encode(self, item: T, /) -> bytes:
        """Write one down."""
        ...

    def decode(self, data: bytes, /) -> T:
        """Read one back."""
        ...


class Json(Generic[T]):
    """The codec of a type that msgspec knows: JSON values, dataclasses, Structs and unions of them."""

    __slots__ = ("_decoder",)

    def __init__(self, kind: type[T]) -> None:
        try:
            msgspec.json.schema(kind, schema_hook=_anything)
            self._decoder = msgspec.json.Decoder(kind)
        except TypeError as error:
            msg = (
                f"codec is {kind!r}, which is no JSON ({str(error).splitlines()[-1]}): "
                "give a type that is, or an object with encode and decode"
            )
            raise TypeError(msg) from error

    def encode(self, item: T, /) -> bytes:
        """Write one down."""
        return msgspec.json.encode(item)

    def decode(self, data: bytes, /) -> T:
        """Read one back."""
        return self._decoder.decode(data)


def _anything(kind: type) -> dict[str, Any]:
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError


def codec_of(given: "Codec[T] | type[T] | None") -> Codec[T]:
    """Take a codec, or make that of a type; without either, any JSON will do."""
    methods = [callable(getattr(given, name, None)) for name in ("encode", "decode")]
    if isinstance(given, type) or not all(methods):
        return Json(cast("type[T]", Any if given is None else given))
    codec: Any = given
    return codec


class Parked(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The turn in flight, if one was, with its items, and the items that wait, each as its own JSON."""

    version: int
    revision: str = ""
    turn: Checkpoint | None = None
    interrupted: tuple[Raw, ...] = ()
    unhandled: tuple[Raw, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to go on from."""
        return self.turn is None and not self.interrupted and not self.unhandled

    def to_json(self) -> bytes:
        """Write it down."""
        return msgspec.json.encode(self)


class _Version(Struct):
    version: int


def unpark(data: bytes) -> Parked:
    """Read it back; what another version wrote is refused, and nothing is guessed."""
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != VERSION:
            msg = (
                f"the checkpoint of the loop has format version {version}, and this Andon reads version "
                f"{VERSION}: go on with the version that wrote it; it has been left as it was"
            )
            raise CheckpointError(msg)
        parked = msgspec.json.decode(data, type=Parked)
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, not this, or nested without end
        msg = f"the checkpoint of the loop cannot be read ({error}); it has been left as it was"
        raise CheckpointError(msg) from error
    if parked.interrupted and parked.turn is None:
        msg = "the checkpoint of the loop has items of a turn in flight, but nothing of its agent"
        raise CheckpointError(msg)
    return parked


def read(codec: Codec[T], items: Sequence[Raw]) -> list[T]:
    """Read items back; what the codec cannot read is refused."""
    try:
        return [codec.decode(bytes(item)) for item in items]
    except Exception as error:
        msg = f"the checkpoint of the loop holds an item that its codec cannot read: {error}"
        raise CheckpointError(msg) from error


def check_item(codec: Codec[T], item: T) -> None:
    """Refuse an item that could not be kept, or not be read back."""
    try:
        written = codec.encode(item)
        msgspec.json.decode(written, type=Raw)
        codec.decode(written)
    except Exception as error:
        msg = f"the item {shown(item)} cannot be kept as JSON ({error}): push another, or give a codec"
        raise UserError(msg) from error


def write(codec: Codec[T], items: Sequence[T]) -> tuple[Raw, ...]:
    """Write items down."""
    return tuple(Raw(codec.encode(item)) for item in items)
