"""Text that cannot be written down is mended or refused, and all other text is left as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andon.core.text import check_text, clean, clean_all, in_words

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)


@given(ANY_TEXT)
def test_clean_text_can_be_written_down(text: str) -> None:
    """And what could be before is the same."""
    clean(text).encode()
    assert clean(clean(text)) == clean(text)
    if text.isascii():
        assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("größe 🙂", "größe 🙂"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("end \ud83d", "end \ufffd"),
        ("\ud83d\ude42", "🙂"),
    ],
)
def test_half_a_character_is_replaced_and_two_halves_are_joined(text: str, cleaned: str) -> None:
    """Nothing around them is touched."""
    assert clean(text) == cleaned


def test_every_text_in_a_value_is_cleaned() -> None:
    """Keys as well; what is no text stays."""
    value = {"a\ud800": ["\ud800", 1, None, {"b": "\ud800"}]}
    assert clean_all(value) == {"a\ufffd": ["\ufffd", 1, None, {"b": "\ufffd"}]}


def test_an_error_is_told_in_words_that_can_be_written_down() -> None:
    """Its kind, and what it says."""
    assert in_words(ValueError("no \ud800")) == "ValueError: no \ufffd"


def test_what_is_no_text_is_refused_by_name() -> None:
    """What, and what now; nothing at all is fine."""
    check_text("by", None)
    check_text("by", "née")
    with pytest.raises(TypeError, match="by is 5: give text"):
        check_text("by", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"by is no valid text .*: decode it from UTF-8 first"):
        check_text("by", "\ud800")
