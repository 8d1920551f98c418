"""Commands go from process to process as JSON, and nothing that could not stand in a path names a session."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError

from andon.core.command import Command, Halt, Key, Push, check_id, command_from_json, command_to_json
from andon.core.messages import Message
from tests.core.values import commands

IDS = st.from_regex(r"[A-Za-z0-9_.@+=~-]{1,128}", fullmatch=True)


@given(commands())
def test_a_command_comes_back_from_its_json_as_it_was(command: Command) -> None:
    """Whoever reads the mailbox sees what was asked."""
    assert command_from_json(command_to_json(command)) == command


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"dance","id":"c","at":1}',
        b'{"type":"push","id":"c","at":1,"run_id":"r","message":{"role":"user","parts":[]},"on_busy":"wait"}',
        b'{"type":"halt","at":1}',
        b'{"type":"halt","id":"' + b"x" * 201 + b'","at":1}',
    ],
)
def test_a_command_that_is_not_known_here_is_refused(data: bytes) -> None:
    """It is never taken for another one, nor for less than it says."""
    with pytest.raises(ValidationError):
        command_from_json(data)


def test_a_command_names_itself_and_who_asks_in_a_bounded_text() -> None:
    """What goes into a journal does not grow without bound."""
    with pytest.raises(ValueError, match="id has 201 characters"):
        Halt(id="x" * 201, at=1.0)
    with pytest.raises(ValueError, match="by has 201 characters"):
        Push(id="c", at=1.0, by="x" * 201, run_id="r", message=Message.user("go"))


@given(IDS, IDS, IDS)
def test_a_key_is_three_ids(app: str, user: str, session: str) -> None:
    """Each of letters, digits and a few signs."""
    assert str(Key(app, user, session)) == f"{app}/{user}/{session}"


@pytest.mark.parametrize("given_id", ["", "s:cancel", "a/b", "a b", "é", "x" * 129, "a\n", None, 7])
def test_an_id_that_could_not_stand_in_a_path_is_refused(given_id: str) -> None:
    """A colon there is a verb, a slash another place."""
    with pytest.raises(ValueError, match=r"session is .*: give 1 to 128 letters"):
        Key("app", "user", given_id)
    with pytest.raises(ValueError, match="run is "):
        check_id("run", given_id)
