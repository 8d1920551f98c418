"""A checkpoint is versioned JSON; what cannot be read is refused, and left as it is."""

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from andon.core.checkpoint import VERSION, Checkpoint, check_version, check_whole
from andon.core.messages import Message
from andon.core.tree import with_shared, without_shared
from andon.errors import CheckpointError
from tests.core.values import HISTORIES, TREES


@given(TREES)
def test_a_checkpoint_goes_to_json_and_back(saved: Checkpoint) -> None:
    """As bytes and as text."""
    assert Checkpoint.from_json(saved.to_json()) == saved
    assert Checkpoint.from_json(saved.to_json().decode()) == saved


@given(HISTORIES, HISTORIES, HISTORIES)
def test_what_a_child_shares_with_its_parent_is_left_out_and_given_back(
    common: list[Message], mine: list[Message], theirs: list[Message]
) -> None:
    """All of it, some or nothing; the parent's own is not touched."""
    child = Checkpoint(version=VERSION, run_id="r", agent="leaf", messages=(*common, *mine))
    parent = [*common, *theirs]
    small = without_shared(child, parent)
    assert small.shared >= len(common)
    assert len(small.messages) + small.shared == len(child.messages)
    assert with_shared(Checkpoint.from_json(small.to_json()), parent) == child


def test_a_part_of_another_checkpoint_and_one_without_messages_are_refused() -> None:
    """Nothing could go on from them."""
    part = Checkpoint(version=VERSION, run_id="r", agent="leaf", messages=(Message.user("go"),), shared=2)
    with pytest.raises(CheckpointError, match="of 'leaf' is a part of another"):
        check_whole(part)
    with pytest.raises(CheckpointError, match="has no messages: there is nothing to go on from"):
        check_whole(Checkpoint(version=VERSION, run_id="r", agent="leaf"))
    check_whole(replace(part, shared=0))


@pytest.mark.parametrize("version", [0, VERSION + 1, -1])
def test_another_version_is_refused_by_name(version: int) -> None:
    """What, which and what now; even where all else has changed."""
    data = msgspec.json.encode({"version": version, "all": "else", "differs": True})
    with pytest.raises(
        CheckpointError,
        match=f"format version {version}, and this Andon reads version {VERSION}: resume it with",
    ):
        Checkpoint.from_json(data)


def test_this_version_is_taken() -> None:
    """The check says nothing."""
    check_version(VERSION)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"version":"one"}',
        b'{"version":1',
        "null",
        b"\xff\xfe",
        "\ud83d",
        b'{"version":1,"deep":' + b"[" * 100_000,
    ],
    ids=range(10),
)
def test_garbage_is_refused(garbage: bytes | str) -> None:
    """It was never a checkpoint."""
    with pytest.raises(CheckpointError, match="this is no checkpoint of a run: "):
        Checkpoint.from_json(garbage)


def test_a_torn_checkpoint_is_refused() -> None:
    """The version is right, and half of it is missing."""
    with pytest.raises(CheckpointError, match=r"this checkpoint cannot be read: .*run_id"):
        Checkpoint.from_json(b'{"version":1}')
