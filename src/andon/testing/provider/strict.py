"""What the real providers reject in a conversation: pure functions from a parsed body to its problems.

Where the providers' own words are known, they are used. A rule that is stricter than its provider says so.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import DecodeError, Struct, ValidationError, convert, json

_Shape = TypeVar("_Shape", bound=Struct)

_OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CHAT_ROLES = {"developer", "system", "user", "assistant", "tool", "function"}


class Block(Struct):
    """A content block of any provider, as far as the rules look at it."""

    type: str = "text"
    text: str | None = None


class Named(Struct):
    """A tool on offer, where its name stands at the top."""

    name: str | None = None


class ChatOffer(Struct):
    """A tool on offer, in Chat Completions."""

    function: Named | None = None


class Function(Struct):
    """What is called, in Chat Completions."""

    name: str
    arguments: str


class ChatCall(Struct):
    """A tool call, in Chat Completions."""

    id: str
    function: Function


class ChatMessage(Struct):
    """A message, in Chat Completions."""

    role: str
    content: str | list[Block] | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None


class ChatBody(Struct):
    """A request, in Chat Completions."""

    model: str
    messages: list[ChatMessage]
    tools: list[ChatOffer] = []


class Item(Struct):
    """An input item, in Responses."""

    type: str = "message"
    id: str | None = None
    role: str | None = None
    content: str | list[Block] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: object = None


class ResponsesBody(Struct):
    """A request, in Responses."""

    model: str
    input: str | list[Item]
    previous_response_id: str | None = None
    conversation: object = None
    tools: list[Named] = []


def chat_problems(body: object, _headers: Mapping[str, str] | None = None) -> list[str]:
    """List what Chat Completions would reject."""
    parsed = _parse(body, ChatBody)
    if isinstance(parsed, str):
        return [parsed]
    if not parsed.messages:
        return ["Invalid 'messages': empty array. Expected an array with minimum length 1, but got length 0."]
    names = (offer.function.name for offer in parsed.tools if offer.function)
    shapes = [
        problem
        for place, message in enumerate(parsed.messages)
        for problem in _chat_shape(f"messages.[{place}]", message)
    ]
    return [*_bad_names(names), *shapes, *_chat_pairs(parsed.messages)]


def _chat_shape(where: str, message: ChatMessage) -> Iterator[str]:
    if message.role not in _CHAT_ROLES:
        yield f"Invalid value: '{message.role}'. Supported values are: {sorted(_CHAT_ROLES)}. ({where}.role)"
    if message.role != "assistant" and message.content is None:
        yield f"Invalid value for 'content': expected a string, got null. ({where}.content)"
    if message.role == "assistant" and message.content is None and message.tool_calls is None:
        yield f"{where}: an assistant message needs 'content' or 'tool_calls'."
    if message.tool_calls == []:
        yield f"Invalid '{where}.tool_calls': empty array. Expected an array with minimum length 1."
    if message.role != "assistant" and message.tool_calls:
        yield f"{where}: only an assistant message may have 'tool_calls'."
    calls = message.tool_calls or []
    yield from _twice(f"{where}: duplicate tool_call id", (call.id for call in calls))
    yield from _bad_names(call.function.name for call in calls)
    for call in calls:
        yield from _bad_arguments(call.id, call.function.arguments)


def _chat_pairs(messages: list[ChatMessage]) -> Iterator[str]:
    """Each call is answered once, by the tool messages right after it, and nothing else is."""
    due: set[str] = set()
    answered: set[str] = set()
    for place, message in enumerate(messages):
        if message.role == "tool":
            yield from _chat_answer(f"messages.[{place}]", message.tool_call_id, due, answered)
            due.discard(message.tool_call_id or "")
            answered.add(message.tool_call_id or "")
            continue
        yield from _chat_unanswered(due)
        due, answered = {call.id for call in message.tool_calls or ()}, set()
    yield from _chat_unanswered(due)


def _chat_answer(where: str, call_id: str | None, due: set[str], answered: set[str]) -> Iterator[str]:
    if call_id is None:
        yield f"Missing required parameter: '{where}.tool_call_id'."
    elif call_id in answered:
        # OpenAI is not known to say this; servers of its dialect do.
        yield f"Duplicate tool message for tool_call_id '{call_id}'. ({where})"
    elif call_id not in due:
        yield (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            f"'tool_calls'. ({where}.role, '{call_id}')"
        )


def _chat_unanswered(due: set[str]) -> Iterator[str]:
    if due:
        yield (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{', '.join(sorted(due))}"
        )


def responses_problems(body: object, _headers: Mapping[str, str] | None = None) -> list[str]:
    """List what Responses would reject."""
    parsed = _parse(body, ResponsesBody)
    if isinstance(parsed, str):
        return [parsed]
    if isinstance(parsed.input, str):
        return []
    if not parsed.input:
        return ["Missing required parameter: 'input'."]
    # With a stored conversation, a call or a result may be in what is stored.
    stored = parsed.previous_response_id is not None or parsed.conversation is not None
    shapes = [
        problem for place, item in enumerate(parsed.input) for problem in _item_shape(f"input[{place}]", item)
    ]
    return [
        *_bad_names(offer.name for offer in parsed.tools if offer.name is not None),
        *_twice("Duplicate item found with id", (item.id for item in parsed.input if item.id)),
        *shapes,
        *_item_pairs(parsed.input, stored=stored),
        *_lonely_reasoning(parsed.input),
    ]


def _item_shape(where: str, item: Item) -> Iterator[str]:
    match item.type:
        case "message":
            yield from _item_message(where, item)
        case "function_call" if item.call_id is None or item.name is None or item.arguments is None:
            yield f"Missing required parameter: '{where}.call_id', 'name' or 'arguments'."
        case "function_call":
            yield from _bad_names([item.name or ""])
            yield from _bad_arguments(item.call_id or "", item.arguments or "")
        case "function_call_output" if item.call_id is None or item.output is None:
            yield f"Missing required parameter: '{where}.call_id' or 'output'."
        case "reasoning" if item.id is None:
            yield f"Missing required parameter: '{where}.id'."
        case _:
            pass


def _item_message(where: str, item: Item) -> Iterator[str]:
    if item.role not in {"developer", "system", "user", "assistant"}:
        yield f"Invalid value: '{item.role}'. ({where}.role)"
    if item.content is None:
        yield f"Missing required parameter: '{where}.content'."
    output = {"output_text", "refusal"}
    blocks = item.content if isinstance(item.content, list) else []
    wrong = [block.type for block in blocks if (block.type in output) != (item.role == "assistant")]
    yield from (f"Invalid value: '{kind}'. ({where}.content, role '{item.role}')" for kind in wrong)


def _item_pairs(items: list[Item], *, stored: bool) -> Iterator[str]:
    """Each call has one output after it, each output one call before it."""
    calls = [item.call_id for item in items if item.type == "function_call"]
    outputs = [item.call_id for item in items if item.type == "function_call_output"]
    yield from _twice("Duplicate function call", calls)
    yield from _twice("Duplicate output for function call", outputs)
    due: set[str | None] = set()
    for item in items:
        if item.type == "function_call":
            due.add(item.call_id)
        if item.type != "function_call_output":
            continue
        if item.call_id not in due and outputs.count(item.call_id) == 1 and not stored:
            yield f"No tool call found for function call output with call_id {item.call_id}."
        due.discard(item.call_id)
    yield from (f"No tool output found for function call {call_id}." for call_id in sorted(map(str, due)))


def _lonely_reasoning(items: list[Item]) -> Iterator[str]:
    """A reasoning item goes before the message or call it led to."""
    for item, after in zip(items, [*items[1:], None], strict=True):
        if item.type != "reasoning":
            continue
        ours = after is not None and (after.type != "message" or after.role == "assistant")
        if after is None or not ours or after.type == "function_call_output":
            yield f"Item '{item.id}' of type 'reasoning' was provided without its required following item."


def _parse(body: object, shape: type[_Shape]) -> _Shape | str:
    try:
        return convert(body, shape)
    except ValidationError as error:
        return str(error)


def _twice(say: str, ids: Iterable[str | None]) -> Iterator[str]:
    yield from (f"{say}: {one}" for one, count in Counter(ids).items() if count > 1)


def _bad_names(names: Iterable[str | None]) -> Iterator[str]:
    for name in names:
        if not _OPENAI_NAME.fullmatch(name or ""):
            yield f"Invalid tool name '{name}': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'."


def _bad_arguments(call_id: str, arguments: str) -> Iterator[str]:
    # OpenAI itself takes any string; other servers of its dialect parse it, and a cut call must not pass.
    try:
        json.decode(arguments, type=dict[str, object])
    except DecodeError:
        yield f"The arguments of tool call '{call_id}' are no JSON object: {arguments!r}"
