"""Items and deltas are one closed union with its JSON."""

import typing

import msgspec
import pytest
from hypothesis import given

from andon.core.items import (
    Delta,
    Event,
    Interrupted,
    Item,
    MessageAdded,
    RunEnded,
    TextDelta,
    ToolProgress,
    from_json,
    to_json,
)
from andon.core.messages import Message
from tests.core.values import DELTA_KINDS, EVENTS, ITEM_KINDS

LOOP: list[object] = []
LOOP.append(LOOP)


@given(EVENTS)
def test_every_event_goes_to_json_and_back(event: Event) -> None:
    """Whatever it carries."""
    assert from_json(to_json(event)) == event


@given(EVENTS)
def test_text_reads_like_bytes(event: Event) -> None:
    """A journal may give either."""
    assert from_json(to_json(event).decode()) == event


def test_the_strategy_knows_every_kind() -> None:
    """A kind that is added must be added there."""
    assert {*DELTA_KINDS} == set(typing.get_args(Delta))
    assert {*ITEM_KINDS} == set(typing.get_args(Item))


def test_an_event_is_told_by_its_type() -> None:
    """Tags are past participles in snake case; defaults are left out."""
    assert to_json(TextDelta("hi")) == b'{"type":"text_delta","text":"hi"}'
    assert to_json(MessageAdded(n=1, message=Message.user("hi"))) == (
        b'{"type":"message_added","message":{"role":"user","parts":[{"type":"text","text":"hi"}]},"n":1}'
    )


@pytest.mark.parametrize("garbage", [b"", b"{}", b'{"type":"unheard_of"}', b'{"type":"run_ended"}', b"[]"])
def test_what_is_no_event_is_refused(garbage: bytes) -> None:
    """Nothing is guessed."""
    with pytest.raises(msgspec.DecodeError):
        from_json(garbage)


def test_deltas_and_items_are_apart() -> None:
    """Items are journaled, deltas pass by; together they are all events."""
    deltas, items = set(typing.get_args(Delta)), set(typing.get_args(Item))
    assert not deltas & items
    assert deltas | items == set(typing.get_args(Event))
    assert RunEnded in items


def test_progress_that_is_no_json_is_written_as_its_repr() -> None:
    """A tool may tell anything; a journal or a terminal still gets a line."""
    assert to_json(ToolProgress("call_1", {"at": {3}})) == (
        b'{"type":"tool_progress","call_id":"call_1","value":{"at":[3]}}'
    )
    assert to_json(ToolProgress("call_1", slice(1, 2))).endswith(b'"value":"slice(1, 2, None)"}')


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("half \ud800", "half \ufffd"),
        ({"a": ["\ud800"]}, {"a": ["\ufffd"]}),
        ({(1, 2): object}, {"(1, 2)": repr(object)}),
        (LOOP, "[[...]]"),
    ],
)
def test_progress_of_any_kind_can_be_written_down(value: object, told: object) -> None:
    """What is no JSON is its repr, and what is no text is mended."""
    assert from_json(to_json(ToolProgress("c", value))) == ToolProgress("c", told)


def test_an_event_with_half_a_character_can_be_written_down() -> None:
    """Whoever reads the journal of a run is not stopped by one word of it."""
    event = Interrupted(id="i", payload={"ask": "\ud800"})
    assert from_json(to_json(event)) == Interrupted(id="i", payload={"ask": "\ufffd"})


def test_an_item_that_cannot_be_written_down_is_an_error() -> None:
    """Only what tools tell may be anything."""
    with pytest.raises(RecursionError):
        to_json(Interrupted(id="i", payload=LOOP))
