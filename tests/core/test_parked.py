"""What a loop leaves behind is versioned JSON: it comes back as it was, or is refused with words."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from andon import Message
from andon.core.checkpoint import VERSION as OF_A_RUN
from andon.core.checkpoint import Checkpoint
from andon.core.parked import VERSION, Codec, Json, Parked, check_item, codec_of, read, unpark, write
from andon.errors import CheckpointError, UserError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TURN = Checkpoint(version=OF_A_RUN, run_id="r", agent="a", messages=(Message.user("go"),))


@dataclass
class Order:
    """An item that is more than JSON."""

    number: int
    what: str = ""


class Push(Struct, tag=True):
    """One kind of item of a union."""

    text: str


class Pull(Struct, tag=True):
    """Another."""

    n: int


class Shouted:
    """A codec of a user's own."""

    def encode(self, item: str) -> bytes:
        """Write in capitals."""
        return msgspec.json.encode(item.upper())

    def decode(self, data: bytes) -> str:
        """Read as it was."""
        return msgspec.json.decode(data, type=str).lower()


class Pickled:
    """A codec that writes no JSON."""

    def encode(self, item: object) -> bytes:
        """Write what only pickle reads."""
        return pickle.dumps(item)

    def decode(self, data: bytes) -> object:
        """Read it."""
        return pickle.loads(data)  # noqa: S301 — its own


def parked(**more: Any) -> Parked:  # noqa: ANN401 — what a Parked has
    """Something to go on from."""
    return Parked(version=VERSION, **more)


# There and back


@given(st.lists(JSON, max_size=4), st.lists(JSON, max_size=4), st.booleans())
def test_what_is_left_behind_comes_back_as_it_was(
    interrupted: list[object],
    unhandled: list[object],
    in_flight: bool,  # noqa: FBT001 — hypothesis gives it
) -> None:
    """The turn in flight with its items, and those that wait, in order."""
    codec: Codec[object] = codec_of(None)
    left = parked(
        revision="abc",
        turn=TURN if in_flight else None,
        interrupted=write(codec, interrupted if in_flight else []),
        unhandled=write(codec, unhandled),
    )
    back = unpark(left.to_json())
    assert (back.version, back.revision, back.turn) == (VERSION, "abc", left.turn)
    assert read(codec, back.interrupted) == (interrupted if in_flight else [])
    assert read(codec, back.unhandled) == unhandled
    assert back.to_json() == left.to_json()


def test_what_a_loop_left_is_plain_json() -> None:
    """A person can read it, and so can another program."""
    left = parked(
        turn=TURN, interrupted=write(codec_of(None), ["a"]), unhandled=write(codec_of(Order), [Order(1)])
    )
    told = msgspec.json.decode(left.to_json())
    assert (told["version"], told["interrupted"]) == (1, ["a"])
    assert told["unhandled"] == [{"number": 1, "what": ""}]
    assert told["turn"]["run_id"] == "r"


@pytest.mark.parametrize(
    ("left", "empty"),
    [
        (parked(), True),
        (parked(revision="abc"), True),
        (parked(turn=TURN), False),
        (parked(interrupted=(Raw(b"1"),)), False),
        (parked(unhandled=(Raw(b"1"),)), False),
    ],
)
def test_it_knows_whether_there_is_anything_to_go_on_from(left: Parked, *, empty: bool) -> None:
    """A revision alone is nothing."""
    assert left.is_empty == empty


# Codecs


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (None, {"any": ["json", 1, None]}),
        (str, "text"),
        (Order, Order(1, "tea")),
        (Push | Pull, Pull(3)),
        (list[Push], [Push("a")]),
        (Message, Message.user("hi")),
        (object, ["any", {"json": 1}]),
        (Shouted(), "text"),
    ],
)
def test_items_are_read_back_as_what_they_were(kind: Any, item: object) -> None:  # noqa: ANN401 — whatever a codec is
    """JSON, types that msgspec knows, unions of them, and what a user's own codec writes."""
    codec = codec_of(kind)
    check_item(codec, item)
    assert read(codec, write(codec, [item])) == [item]


def test_an_object_with_both_methods_is_a_codec_and_a_class_is_a_type() -> None:
    """A class that happens to have them is not taken for one."""
    own = Shouted()
    assert codec_of(own) is own
    assert isinstance(codec_of(Order), Json)
    with pytest.raises(TypeError, match="Shouted'>, which is no JSON"):
        codec_of(Shouted)


@pytest.mark.parametrize("kind", [Callable, Pickled, list[Pickled], "str", 7])
def test_a_codec_that_carries_no_items_is_refused(kind: Any) -> None:  # noqa: ANN401 — whatever a caller may write
    """When it is made; the words name what would do."""
    with pytest.raises(
        TypeError, match=r"is no JSON .*: give a type that is, or an object with encode and decode"
    ):
        codec_of(kind)


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (None, object()),
        (None, {1, 2}.__class__),
        (None, "\ud800"),
        (int, "no number"),
        (Order, {"what": "no number"}),
        (Shouted(), 7),
        (Pickled(), "fine"),
    ],
)
def test_an_item_that_would_not_come_back_is_refused(kind: Any, item: object) -> None:  # noqa: ANN401 — as above
    """When it is pushed, and not when the loop ends or begins again."""
    with pytest.raises(
        UserError, match=r"the item .* cannot be kept as JSON \(.*\): push another, or give a codec"
    ):
        check_item(codec_of(kind), item)


def test_an_item_that_is_nested_without_end_is_refused() -> None:
    """It is not the end of the program."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UserError, match="cannot be kept"):
        check_item(codec_of(None), deep)


# What cannot be read


@pytest.mark.parametrize("version", [0, VERSION + 1, 99, -1])
def test_another_version_is_refused_whatever_else_there_is(version: int) -> None:
    """It says which it is and which can be read, and that nothing was touched."""
    for rest in (b"}", b',"turn":"of another shape"}', b',"new":[{}]}'):
        with pytest.raises(
            CheckpointError, match="go on with the version that wrote it; it has been left as it was"
        ) as it:
            unpark(b'{"version":%d%s' % (version, rest))
        assert f"has format version {version}, and this Andon reads version {VERSION}" in str(it.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\x80\x04garbage",
        b'{"version":"1"}',
        b'{"version":1,"turn":{}}',
        b'{"version":1,"turn":7}',
        b'{"version":1,"unhandled":{}}',
        b'{"version":1,"revision":"\xff"}',
        b'{"version":1,"unhandled":' + b"[" * 100_000,
        parked(turn=TURN, unhandled=(Raw(b'"a"'),)).to_json()[:-9],
    ],
    ids=range(12),
)
def test_garbage_is_refused(data: bytes) -> None:
    """With words that say so, and nothing is guessed."""
    with pytest.raises(CheckpointError, match=r"cannot be read \(.*\); it has been left as it was"):
        unpark(data)


@given(st.binary(max_size=40) | st.text().map(str.encode) | JSON.map(msgspec.json.encode))
def test_whatever_is_there_is_read_or_refused(data: bytes) -> None:
    """No other error comes out."""
    with pytest.raises(CheckpointError):
        unpark(data)


def test_items_in_flight_without_their_agent_are_refused() -> None:
    """They could neither be gone on with nor be done again."""
    with pytest.raises(CheckpointError, match="items of a turn in flight, but nothing of its agent"):
        unpark(parked(interrupted=(Raw(b"1"),)).to_json())


@pytest.mark.parametrize(
    ("kind", "item"), [(int, b'"text"'), (Order, b"{}"), (Push | Pull, b'{"type":"Poke"}'), (None, b'"\xff"')]
)
def test_an_item_that_its_codec_cannot_read_is_refused(kind: Any, item: bytes) -> None:  # noqa: ANN401 — as above
    """The type of the items has changed since they were written."""
    back = unpark(parked(unhandled=(Raw(item),)).to_json())
    with pytest.raises(CheckpointError, match=r"holds an item that its codec cannot read: ."):
        read(codec_of(kind), back.unhandled)
