"""Calls: names and ids of tool calls that every provider takes, whatever a model or a history has said.

Providers refuse a whole conversation for one odd name, or for one id that comes twice in it, and
every later request that holds it. So what is odd is mended before it joins a history; a model's own
word for the tool is kept in `Call.said`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from andon.core.messages import Call, Message, Part, Result

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
UNNAMED = "unnamed"
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64


def mend(parts: Iterable[Part], taken: AbstractSet[str], prefix: str) -> list[Part]:
    """Give each call of an answer a name that providers take, and an id that no other call has."""
    seen: set[str] = set()
    whole = list(parts)
    for place, part in enumerate(whole):
        if not isinstance(part, Call):
            continue
        name, call_id, said = part.name, part.id, part.said
        if not NAME.fullmatch(name):
            name, said = fitting(name), name
        if not call_id or call_id in seen or call_id in taken:
            call_id = f"{prefix}_{len(seen)}"
            while call_id in seen or call_id in taken:
                call_id += "_"
        if name is not part.name or call_id is not part.id:
            whole[place] = Call(name, part.arguments, call_id, said)
        seen.add(call_id)
    return whole


def mend_history(messages: Iterable[Message]) -> list[Message]:
    """Do the same for a whole history, results included; a message that needs nothing is left as it is."""
    taken: set[str] = set()
    whole: list[Message] = []
    mended: dict[str, list[Call]] = {}  # the calls of the round before, by the ids that they came with
    for place, message in enumerate(messages):
        if message.role == "tool":
            whole.append(_answering(mended, message))
            mended = {}
            continue
        calls = message.calls if message.role == "assistant" else ()
        mended = {}
        if calls:
            parts = tuple(mend(message.parts, taken, f"call_{place}"))
            if parts != message.parts:
                message = replace(message, parts=parts)  # noqa: PLW2901
                mended = _by_id(calls, message.calls)
            taken.update([call.id for call in message.calls])
        whole.append(message)
    return whole


def _by_id(were: Iterable[Call], calls: Iterable[Call]) -> dict[str, list[Call]]:
    found: defaultdict[str, list[Call]] = defaultdict(list)
    for was, call in zip(were, calls, strict=True):
        found[was.id].append(call)
    return found


def _answering(mended: dict[str, list[Call]], message: Message) -> Message:
    """Let the results of a round answer its calls, in their order where several had one id."""
    if not mended:
        return message
    parts: list[Part] = []
    for part in message.parts:
        calls = mended.get(part.call_id) if isinstance(part, Result) else None
        if calls and isinstance(part, Result):
            call = calls.pop(0) if len(calls) > 1 else calls[0]
            part = replace(part, call_id=call.id, name=call.name)  # noqa: PLW2901
        parts.append(part)
    return replace(message, parts=tuple(parts))


def fitting(name: str) -> str:
    """Make a name that providers take of one that people or models gave."""
    plain = _ODD.sub("_", name)[:_LONGEST]
    if not plain:
        return UNNAMED
    return plain if NAME.fullmatch(plain) else f"_{plain}"[:_LONGEST]
