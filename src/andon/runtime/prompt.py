"""Prompt: what a caller says to an agent, checked before it joins a history."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from andon.core.calls import mend_history
from andon.core.messages import Call, Image, Message, Part, Reasoning, Result, Text
from andon.core.repair import repair, without_blanks
from andon.errors import UserError

_SAID_BY: dict[str, tuple[type, ...]] = {
    "user": (Text, Image),
    "assistant": (Text, Reasoning, Call),
    "tool": (Result,),
}
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Part])

Prompt = str | Message | Sequence[str | Text | Image]


def as_message(prompt: Prompt) -> Message:
    """Make a user's message of a prompt."""
    if isinstance(prompt, Message):
        check_message("the prompt", prompt)
        return _as_users(prompt)
    if isinstance(prompt, str):
        message = Message.user(prompt)
        if not prompt.isascii():
            check_message("the prompt", message)
        return _as_users(message)
    if isinstance(prompt, bytes) or not isinstance(prompt, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"the prompt is a {type(prompt).__name__}: give text, a Message, or a list of texts and Images"
        raise UserError(msg)
    parts = tuple(prompt)
    for part in parts:
        if not isinstance(part, str | Text | Image):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"the prompt holds a {type(part).__name__}: give texts and Images"
            raise UserError(msg)
    message = Message.user(*parts)
    check_message("the prompt", message)
    return _as_users(message)


def as_history(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Take the messages that a run goes on from, with calls that every provider takes."""
    if messages == ():
        return ()
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"messages is a {type(messages).__name__}: give a list of Messages, such as outcome.messages"
        raise UserError(msg)
    for place, message in enumerate(messages):
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = (
                f"messages holds a {type(message).__name__}: give Messages, such as Message.user('hi') or "
                "those of outcome.messages"
            )
            raise UserError(msg)
        check_message(f"messages[{place}]", message)
    return tuple(mend_history(messages))


def check_message(name: str, message: Message) -> None:
    """Refuse a message that nobody could have said, or that cannot be written down."""
    said = _SAID_BY.get(message.role)
    if said is None:
        msg = (
            f"{name} has the role {message.role!r}: it is one of {', '.join(_SAID_BY)}; "
            "what the model is told first is Agent(instructions=…)"
        )
        raise UserError(msg)
    for part in message.parts:
        if not isinstance(part, said):
            kinds = " and ".join(kind.__name__ for kind in said)
            msg = f"{name}, of the {message.role}, holds a {type(part).__name__}: its parts are {kinds}"
            raise UserError(msg)
    try:
        _decoder.decode(_encoder.encode(list(map(_without_data, message.parts))))
    except UnicodeEncodeError as error:
        msg = f"{name} is no valid text ({error.reason} at {error.start}): decode it from UTF-8 first"
        raise UserError(msg) from error
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"{name} cannot be written down: {error}"
        raise UserError(msg) from error


def _without_data(part: Part) -> Part:
    """Leave the bytes of a picture out: they may be many, and need no look."""
    return replace(part, data=b"") if isinstance(part, Image) and isinstance(part.data, bytes) else part


def asks(history: Sequence[Message]) -> bool:
    """Say whether a history ends with something that a model could answer."""
    whole = repair(history)
    return bool(whole) and whole[-1].role != "assistant"


def _as_users(message: Message) -> Message:
    if message.role != "user":
        msg = f"the prompt is a message of the {message.role}: a prompt is the user's, see Message.user()"
        raise UserError(msg)
    kept = without_blanks(message)
    if not kept.parts:
        msg = "the prompt is empty, and providers refuse empty messages: say something"
        raise UserError(msg)
    return kept
