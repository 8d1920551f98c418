"""Draft: a model's answer while it comes in, chunk by chunk."""

from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

from andon.core.calls import mend
from andon.core.items import CallDelta, Delta, ReasoningDelta, TextDelta
from andon.core.limits import Usage
from andon.core.messages import Call, Message, Part, Payload, Reasoning, Text
from andon.core.repair import NO_ANSWER
from andon.core.text import clean, clean_all

C = TypeVar("C", Call, CallDelta, Usage, Payload)
Chunk = str | Text | Reasoning | Call | CallDelta | Usage | Payload


class _Reader(Generic[C]):
    """Reads chunks of one kind as their JSON gives them back: what a model yields may be anything."""

    def __init__(self, kind: type[C]) -> None:
        self._name: str = kind.__name__
        self._decode = msgspec.json.Decoder(kind).decode

    def read(self, chunk: C) -> C:
        try:
            return self._decode(_written(chunk))
        except (TypeError, ValueError, RecursionError) as error:
            msg = f"the model yielded {chunk!r:.80}, which is no {self._name}: {error}"
            raise TypeError(msg) from error


def _is_sound(call: Call) -> bool:
    """Say whether a call is, at a glance, what its JSON would give back, as nearly all are."""
    name, call_id, arguments = call.name, call.id, call.arguments
    if not (type(name) is str and name.isascii() and type(call_id) is str and call_id.isascii()):
        return False
    try:
        return type(call) is Call and _decode(_encode(arguments)) == arguments and call.said is None
    except (TypeError, ValueError, RecursionError):
        return False


def _written(chunk: object) -> bytes:
    try:
        return _encode(chunk)
    except UnicodeEncodeError:
        return _encode(clean_all(msgspec.to_builtins(chunk)))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, object]).decode
_CALL = _Reader(Call)
_CALL_DELTA = _Reader(CallDelta)
_USAGE = _Reader(Usage)
_PAYLOAD = _Reader(Payload)


class Draft:
    """Gather chunks; the order of words, reasoning and calls is kept."""

    __slots__ = ("_calls", "_parts", "_reasoning", "_words", "payload", "usage")

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._words: list[str] = []
        self._reasoning: list[str] = []
        self._calls = 0
        self.usage: Usage | None = None
        self.payload: Payload | None = None

    def words(self, text: str) -> TextDelta:
        """Take some words: the one chunk that comes by the thousand."""
        if not text.isascii():  # asked here, as the call of `clean` costs more
            text = clean(text)
        if self._reasoning:
            self._flush()
        self._words.append(text)
        return TextDelta(text)

    def take(self, chunk: object) -> Delta | None:
        """Take any other chunk; give what readers should see of it. Rubbish raises TypeError."""
        match chunk:
            case Call():
                self._flush()
                self._parts.append(chunk if _is_sound(chunk) else _CALL.read(chunk))
                self._calls += 1
                return None
            case Text(str(text)) | str(text):
                return self.words(str.__str__(text)) if text else None
            case Reasoning(str(text)):
                return self._thought(clean(str.__str__(text)))
            case CallDelta():
                return _CALL_DELTA.read(chunk)
            case Usage():
                self.usage = _USAGE.read(chunk)
                return None
            case Payload(data=Raw()):
                self.payload = _PAYLOAD.read(chunk)
                return None
            case _:
                msg = (
                    f"the model yielded a {type(chunk).__name__}: {chunk!r:.80}; "
                    "yield str, Reasoning, Call or Usage"
                )
                raise TypeError(msg)

    def complete(self, prefix: str, taken: AbstractSet[str] = frozenset()) -> Message:
        """Give the whole answer, its calls with names and ids that every provider takes.

        `taken` are the ids of the calls before.
        """
        self._flush()
        if self._calls:
            self._parts = mend(self._parts, taken, prefix)
        elif not any(isinstance(part, Text) and part.text.strip() for part in self._parts):
            self._parts.append(Text(NO_ANSWER))
        return Message("assistant", tuple(self._parts), payload=self.payload)

    @property
    def received(self) -> Message:
        """What has come so far, as it is."""
        self._flush()
        return Message("assistant", tuple(self._parts))

    def cut(self, note: str) -> Message:
        """Give the partial answer: calls are dropped, and where no words had come there is the note."""
        self._flush()
        parts = tuple(part for part in self._parts if not isinstance(part, Call))
        wordless = not any(isinstance(part, Text) and part.text.strip() for part in parts)
        if wordless:
            parts = (*(part for part in parts if not isinstance(part, Text)), Text(note))
        return Message("assistant", parts, cut=True, synthetic=wordless)

    def _thought(self, text: str) -> ReasoningDelta:
        if self._words:
            self._flush()
        self._reasoning.append(text)
        return ReasoningDelta(text)

    def _flush(self) -> None:
        if self._words:
            self._parts.append(Text("".join(self._words)))
            self._words.clear()
        if self._reasoning:
            self._parts.append(Reasoning("".join(self._reasoning)))
            self._reasoning.clear()
