"""A draft gathers an answer while it comes, and gives the whole or the partial of it."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest
from msgspec import Raw

from andon.core.draft import Draft
from andon.core.items import CallDelta, ReasoningDelta, TextDelta
from andon.core.limits import Usage
from andon.core.messages import Call, Image, Message, Part, Payload, Reasoning, Text
from andon.core.repair import NO_ANSWER

PAYLOAD = Payload("acme", Raw(b"{}"))


def drafted(*chunks: object) -> Draft:
    """Take chunks."""
    draft = Draft()
    for chunk in chunks:
        draft.take(chunk)
    return draft


@pytest.mark.parametrize(
    ("chunk", "seen"),
    [
        ("word", TextDelta("word")),
        (Text("word"), TextDelta("word")),
        ("", None),
        (Reasoning("hm"), ReasoningDelta("hm")),
        (Call("look"), None),
        (CallDelta("look", "{"), CallDelta("look", "{")),
        (Usage(input_tokens=1), None),
        (PAYLOAD, None),
    ],
)
def test_readers_see_what_passes_by(chunk: object, seen: object) -> None:
    """Words and reasoning as deltas; calls, usage and payload only when the step ends."""
    assert Draft().take(chunk) == seen


def test_words_and_reasoning_are_joined_and_their_order_kept() -> None:
    """Chunks of one kind become one part."""
    draft = drafted("a", "b", Reasoning("c"), Reasoning("d"), "e", Call("look", {}, "c1"), "f")
    assert draft.complete("p").parts == (
        Text("ab"),
        Reasoning("cd"),
        Text("e"),
        Call("look", {}, "c1"),
        Text("f"),
    )


def test_usage_and_payload_are_kept_beside_the_parts() -> None:
    """The last one counts."""
    draft = drafted("a", Usage(input_tokens=1), Usage(input_tokens=2), PAYLOAD)
    assert draft.usage == Usage(input_tokens=2)
    assert draft.complete("p") == Message("assistant", (Text("a"),), payload=PAYLOAD)


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    """And so does the second of two with one id; ids that are there stay."""
    draft = drafted(Call("a"), Call("b", id="x"), Call("c", id="x"), Call("d"))
    message = draft.complete("p")
    ids = [call.id for call in message.calls]
    assert ids[1] == "x"
    assert len(set(ids)) == 4
    assert all(ids)


@pytest.mark.parametrize("chunks", [(), (" ",), (Reasoning("hm"),)])
def test_an_answer_without_a_word_says_so(chunks: tuple[object, ...]) -> None:
    """Providers refuse empty messages."""
    assert drafted(*chunks).complete("p").parts[-1] == Text(NO_ANSWER)


def test_an_answer_of_calls_alone_needs_no_words() -> None:
    """The calls are the answer."""
    assert drafted(Call("look", id="c")).complete("p").parts == (Call("look", id="c"),)


@pytest.mark.parametrize(
    ("chunks", "parts"),
    [
        (("Half an ans",), (Text("Half an ans"),)),
        (("Words", Call("look", id="c")), (Text("Words"),)),
        ((Reasoning("hm"),), (Reasoning("hm"), Text("note"))),
        ((" ",), (Text("note"),)),
        ((), (Text("note"),)),
        ((Call("look", id="c"),), (Text("note"),)),
        ((Reasoning("hm"), "Yes"), (Reasoning("hm"), Text("Yes"))),
    ],
)
def test_a_cut_keeps_the_words_and_drops_the_calls(
    chunks: tuple[object, ...], parts: tuple[Part, ...]
) -> None:
    """Where no words had come, there is the note."""
    wordless = parts[-1] == Text("note")
    assert drafted(*chunks).cut("note") == Message("assistant", parts, cut=True, synthetic=wordless)


def test_what_was_received_is_given_as_it_is() -> None:
    """Calls included, nothing added: it is what the usage is counted by."""
    assert drafted("a", Call("look", id="c")).received == Message.assistant("a", Call("look", id="c"))
    assert Draft().received == Message("assistant", ())


@pytest.mark.parametrize("rubbish", [7, None, b"bytes", {"text": "hi"}, Image(b"1"), object()])
def test_rubbish_is_refused_by_name(rubbish: object) -> None:
    """What came, and what to yield instead."""
    kind = type(rubbish).__name__
    with pytest.raises(
        TypeError, match=rf"the model yielded a {kind}: .*; yield str, Reasoning, Call or Usage"
    ):
        Draft().take(rubbish)


def test_long_rubbish_is_shortened() -> None:
    """An error message is not the place for a megabyte."""
    with pytest.raises(TypeError) as caught:
        Draft().take(b"x" * 1_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("chunk", "seen"),
    [
        ("a\ud800", TextDelta("a\ufffd")),
        (Text("a\ud800"), TextDelta("a\ufffd")),
        (Reasoning("a\ud800"), ReasoningDelta("a\ufffd")),
        (CallDelta("look", "\ud800"), CallDelta("look", "\ufffd")),
    ],
)
def test_half_a_character_is_replaced_where_it_comes_in(chunk: object, seen: object) -> None:
    """Readers see what the message will say."""
    assert Draft().take(chunk) == seen


def test_words_of_the_hot_path_are_cleaned_too() -> None:
    """They are the chunks that come by the thousand."""
    draft = Draft()
    assert draft.words("a\ud800") == TextDelta("a\ufffd")
    assert draft.complete("p").text == "a\ufffd"


class Word(StrEnum):
    """A text that is not only a text."""

    YES = "yes"


def test_words_of_a_kind_of_their_own_become_plain_text() -> None:
    """JSON gives nothing else back."""
    seen = Draft().take(Word.YES)
    assert isinstance(seen, TextDelta)
    assert type(seen.text) is str


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ({"a": "\ud800"}, {"a": "\ufffd"}),
        ({"\ud800": [1, {"b": "\ud800"}]}, {"\ufffd": [1, {"b": "\ufffd"}]}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({1: 2}, {"1": 2}),
    ],
)
def test_arguments_are_kept_as_their_json_gives_them_back(
    given_: dict[Any, object], kept: dict[str, object]
) -> None:
    """So that a history is the same before and after it was stored."""
    (call,) = drafted(Call("look", given_, "c")).complete("p").calls
    assert call.arguments == kept


def odd(value: object) -> Any:  # noqa: ANN401 — what no type checker would let pass
    """Give what somebody may write all the same."""
    return value


@pytest.mark.parametrize(
    ("rubbish", "words"),
    [
        (lambda: Call("look", odd("text")), "which is no Call: Expected `object`, got `str`"),
        (lambda: Call(odd(5)), "which is no Call: Expected `str`, got `int` - at `$.name`"),
        (lambda: Call("look", {}, odd(7)), "which is no Call: Expected `str`, got `int` - at `$.id`"),
        (lambda: Call("look", {"a": object()}), "which is no Call: Encoding objects of type object"),
        (lambda: CallDelta("look", odd(5)), "which is no CallDelta: Expected `str`, got `int`"),
        (lambda: Usage(input_tokens=odd("x")), "which is no Usage: Expected `int`, got `str`"),
        (lambda: Usage(cost=odd("x")), "which is no Usage: Expected `float | null`, got `str`"),
        (lambda: Payload("acme", Raw(b"no JSON")), "which is no Payload: JSON is malformed"),
        (lambda: Payload("acme", odd(b"{}")), "the model yielded a Payload: "),
        (lambda: Reasoning(odd(None)), "the model yielded a Reasoning: Reasoning(text=None)"),
        (lambda: Text(odd(5)), "the model yielded a Text: Text(text=5)"),
    ],
)
def test_a_chunk_whose_fields_are_of_the_wrong_kind_is_refused(
    rubbish: Callable[[], object], words: str
) -> None:
    """When it comes, and not when somebody reads the journal."""
    with pytest.raises(TypeError) as caught:
        Draft().take(rubbish())
    assert words in str(caught.value)
