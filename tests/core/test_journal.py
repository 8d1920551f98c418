"""A journal is records of items: what is written comes back, and what is newer is kept or left alone."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andon.core.checkpoint import Checkpoint
from andon.core.items import MessageAdded, RunEnded, RunStarted, ToolStarted
from andon.core.journal import (
    VERSION,
    Entry,
    HandedOver,
    SessionCreated,
    Unknown,
    entry_from_json,
    entry_to_json,
    record_from_json,
    record_to_json,
    slim,
)
from andon.core.messages import Message
from andon.core.outcome import Outcome
from andon.core.tree import with_shared
from andon.errors import SessionError
from tests.core.values import CHECKPOINTS, ENTRIES, HISTORIES, OBJECTS


def _newer(more: dict[str, object], indent: int | None) -> bytes:
    return json.dumps({**more, "type": "dreamt", "n": 7, "at": 3.5}, indent=indent).encode()


NEWER = st.builds(_newer, OBJECTS, st.sampled_from([None, 1]))
KNOWN = ENTRIES.map(entry_to_json)


@given(ENTRIES)
def test_an_item_comes_back_from_its_json_as_it_was(entry: Entry) -> None:
    """Whoever folds the journal sees what its writer saw."""
    assert entry_from_json(entry_to_json(entry)) == entry


@given(st.lists(ENTRIES, max_size=4))
def test_a_record_is_the_items_that_became_true_together(entries: list[Entry]) -> None:
    """In order, none more and none less."""
    assert record_from_json(record_to_json(entries)) == entries


@given(st.lists(KNOWN | NEWER, max_size=4))
def test_an_item_of_a_kind_that_only_a_newer_version_knows_is_kept_byte_for_byte(raw: list[bytes]) -> None:
    """What is read and written again is the same, and what is around it is read as ever."""
    record = b'{"v":%d,"items":[%s]}' % (VERSION, b",".join(raw))
    entries = record_from_json(record)
    assert record_to_json(entries) == record
    for entry, data in zip(entries, raw, strict=True):
        if b'"dreamt"' in data:
            assert entry == Unknown(n=7, at=3.5, raw=data)
        else:
            assert not isinstance(entry, Unknown)


@given(st.integers(VERSION + 1, 99), OBJECTS)
def test_a_record_of_a_newer_format_is_left_to_newer_workers(version: int, more: dict[str, object]) -> None:
    """Whatever it holds, nothing of it is guessed."""
    with pytest.raises(SessionError, match=f"format version {version}") as caught:
        record_from_json(msgspec.json.encode({**more, "v": version}))
    assert caught.value.kind == "newer"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "received", "n": 4, "seq": 9, "command": {"type": "dance", "id": "c", "at": 1}},
        {"type": "tool_ended", "n": 4, "call_id": "c", "name": "look", "state": "dreamt"},
    ],
)
def test_an_item_of_a_known_kind_with_something_new_in_it_is_left_to_newer_workers(
    item: dict[str, object],
) -> None:
    """To pass over a command, or the end of a call, would be to do it again."""
    with pytest.raises(SessionError, match=f"item 4 .* is a {item['type']} ") as caught:
        record_from_json(msgspec.json.encode({"v": VERSION, "items": [item]}))
    assert caught.value.kind == "newer"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"items":[]}',
        b'{"v":1}',
        b'{"v":1,"items":[1]}',
        b'{"v":1,"items":[{"n":1}]}',
        b'{"v":1,"items":[{"type":"dreamt","n":"one"}]}',
        b'{"v":1,"items":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    ],
)
def test_what_is_no_record_is_called_broken(data: bytes) -> None:
    """And it says what to do."""
    with pytest.raises(SessionError, match="restore it from a back-up") as caught:
        record_from_json(data)
    assert caught.value.kind == "broken"


def test_half_a_character_does_not_keep_an_item_from_being_written_down() -> None:
    """It is replaced, as nobody could read it."""
    written = entry_to_json(SessionCreated(state={"name": "\ud83d"}))
    assert entry_from_json(written) == SessionCreated(state={"name": "\ufffd"})


# Slim


def _begins_with(history: list[Message], kept: Checkpoint, shared: int) -> Checkpoint:
    return msgspec.structs.replace(kept, messages=(*history[:shared], *kept.messages))


@given(HISTORIES, CHECKPOINTS, st.integers(0, 6))
def test_what_a_checkpoint_repeats_of_the_history_is_left_out_and_put_back(
    history: list[Message], kept: Checkpoint, shared: int
) -> None:
    """Of a run that goes on, one that has ended, and one that is handed over."""
    given = _begins_with(history, kept, shared)
    ended = Outcome(run_id="r", stop_reason="cancelled", messages=tuple(history), checkpoint=given)
    begun = slim(RunStarted(run_id="r", agent="a", history=tuple(history), checkpoint=given), history)
    over = slim(RunEnded(outcome=ended), history)
    left = slim(HandedOver(run_id="r", checkpoint=given), history)
    assert isinstance(begun, RunStarted)
    assert isinstance(over, RunEnded)
    assert isinstance(left, HandedOver)
    assert (begun.history, over.outcome.messages) == ((), ())
    for lean in (begun.checkpoint, over.outcome.checkpoint, left.checkpoint):
        assert lean is not None
        assert len(lean.messages) <= len(given.messages) - min(shared, len(history))
        assert with_shared(lean, history) == given


def test_what_has_no_checkpoint_is_slim_without_one() -> None:
    """Most runs begin and end so."""
    history = [Message.user("go")]
    outcome = Outcome(run_id="r", stop_reason="end_turn", messages=tuple(history))
    begun = RunStarted(run_id="r", agent="a", history=tuple(history))
    assert slim(begun, history) == RunStarted(run_id="r", agent="a")
    assert slim(RunEnded(outcome=outcome), history) == RunEnded(
        outcome=Outcome(run_id="r", stop_reason="end_turn")
    )


def test_all_else_is_left_as_it_is() -> None:
    """Also a run inside, whose history is its own."""
    history = (Message.user("go"),)
    inside = RunStarted(run_id="r", agent="a", history=history, path=("child",))
    for entry in (inside, MessageAdded(message=history[0]), ToolStarted(call_id="c", name="look")):
        assert slim(entry, history) is entry
