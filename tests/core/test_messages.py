"""Messages are values that go to JSON and back without loss."""

import msgspec
import pytest
from hypothesis import given

from andon.core.messages import (
    Call,
    Image,
    Message,
    Part,
    Payload,
    Reasoning,
    Result,
    ResultState,
    Text,
    size,
)
from tests.core.values import MESSAGES

SPOKEN = Message.assistant("One ", Reasoning("why"), Text("two"), Call("look", {"at": "cord"}, "c1"))


def test_a_message_is_made_of_words_and_parts() -> None:
    """Plain words become text parts."""
    picture = Image(b"\x89PNG")
    assert Message.user("Look:", picture) == Message("user", (Text("Look:"), picture))
    assert Message.assistant("Yes") == Message("assistant", (Text("Yes"),))


def test_a_message_gives_its_words_its_reasoning_and_its_calls() -> None:
    """Each without the others."""
    assert (SPOKEN.text, SPOKEN.reasoning) == ("One two", "why")
    assert SPOKEN.calls == (Call("look", {"at": "cord"}, "c1"),)
    assert SPOKEN.results == ()


def test_a_tool_message_gives_its_results() -> None:
    """One a call."""
    result = Result("c1", "look", "red")
    assert Message("tool", (result,)).results == (result,)


@pytest.mark.parametrize("state", ResultState)
def test_only_a_completed_result_is_no_error(state: ResultState) -> None:
    """On the wire all else has error status."""
    assert Result("c1", "look", "…", state).is_error == (state is not ResultState.COMPLETED)


@pytest.mark.parametrize("given_", [{}, {"data": b"1", "url": "https://example.org/1.png"}])
def test_an_image_has_exactly_one_source(given_: dict[str, object]) -> None:
    """Neither and both are refused."""
    with pytest.raises(ValueError, match="either data or a url: give exactly one of them"):
        Image(**given_)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("part", "characters"),
    [
        (Text("four"), 4),
        (Reasoning("five!"), 5),
        (Result("c1", "look", "red"), 3),
        (Call("look", {}), 6),
        (Image(b"1"), 4_000),
    ],
)
def test_the_size_counts_what_a_model_reads(part: Part, characters: int) -> None:
    """Good enough for an estimate of tokens."""
    assert size(Message("user", (part, part))) == 2 * characters


@given(MESSAGES)
def test_a_message_goes_to_json_and_back(message: Message) -> None:
    """Bytes of images, raw payloads and arguments included."""
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_the_bytes_of_an_image_survive() -> None:
    """They are no UTF-8."""
    message = Message.user(Image(bytes(range(256))))
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_a_payload_goes_back_byte_for_byte() -> None:
    """Spaces, order of keys and large numbers included: the provider signed it."""
    raw = b'{"b": 1.0, "a" :12345678901234567890123}'
    message = Message("assistant", (Text("x"),), payload=Payload("acme", msgspec.Raw(raw)))
    back = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    assert back.payload is not None
    assert bytes(back.payload.data) == raw


def test_what_is_default_is_not_written() -> None:
    """A journal is read by people, too."""
    assert msgspec.json.encode(Message.user("hi")) == (
        b'{"role":"user","parts":[{"type":"text","text":"hi"}]}'
    )
