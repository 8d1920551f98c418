"""Repair: make a history one that every provider takes again."""

from collections.abc import Iterable, Mapping, Sequence

from andon.core.messages import Call, Message, Part, Result, ResultState, Text

NOT_STARTED = "Cancelled: was not started"
UNKNOWN = "Cancelled: was stopped; whether it took effect is not known"
NO_ANSWER = "(no answer)"


def not_started(call: Call, why: str = NOT_STARTED) -> Result:
    """Answer a call that never ran."""
    return Result(call.id, call.name, why, ResultState.NOT_STARTED)


def unknown(call: Call, why: str = UNKNOWN) -> Result:
    """Answer a call that ran, without a word of how it ended."""
    return Result(call.id, call.name, why, ResultState.UNKNOWN)


def answer(calls: Sequence[Call], results: Mapping[str, Result]) -> Message:
    """Make the tool message of a round: one result a call, in the order of the calls."""
    return Message("tool", tuple([results.get(call.id) or not_started(call) for call in calls]))


def repair(messages: Iterable[Message]) -> list[Message]:
    """Answer every open call, drop every orphan result and all that is empty.

    Idempotent, and a result that is there is never touched.
    """
    whole: list[Message] = []
    open_calls: tuple[Call, ...] = ()
    for message in messages:
        if message.role == "tool":
            if open_calls:
                whole.append(_fitting(open_calls, message))
            open_calls = ()
            continue
        if open_calls:
            whole.append(answer(open_calls, {}))
        kept = without_blanks(message)
        if kept.parts:
            whole.append(kept)
        open_calls = kept.calls if kept.role == "assistant" else ()
    if open_calls:
        whole.append(answer(open_calls, {}))
    return whole


def seal(last: Message, note: str) -> Message | None:
    """Give the note that ends a history whose last word is not the assistant's; None if it is."""
    if last.role == "assistant" and not last.calls:
        return None
    return Message("assistant", (Text(note),), synthetic=True)


def without_blanks(message: Message) -> Message:
    """Drop words that say nothing, which providers refuse."""
    if all(_says_something(part) for part in message.parts):
        return message
    parts = tuple(part for part in message.parts if _says_something(part))
    return Message(message.role, parts, message.cut, message.synthetic, message.payload)


def _says_something(part: Part) -> bool:
    return not isinstance(part, Text) or bool(part.text.strip())


def _fitting(calls: tuple[Call, ...], message: Message) -> Message:
    results = {result.call_id: result for result in reversed(message.results)}
    whole = answer(calls, results)
    return message if whole.parts == message.parts else whole
