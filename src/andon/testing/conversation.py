"""Conversation: a history in the wire JSON of three providers, and what each would reject in it.

Reasoning is left out, as it is wherever no provider's own payload goes with it.
"""

from collections.abc import Iterator, Sequence

import msgspec

from andon.core.messages import Call, Image, Message, Result, Text
from andon.testing.provider.strict import chat_problems, responses_problems
from andon.testing.provider.strict_anthropic import anthropic_problems

Object = dict[str, object]


def problems(history: Sequence[Message]) -> list[str]:
    """List what the providers would reject, were this history sent with one more question."""
    asked = [*history, Message.user("And now?")]
    return [
        *(f"OpenAI Chat: {one}" for one in chat_problems(chat(asked))),
        *(f"OpenAI Responses: {one}" for one in responses_problems(responses(asked))),
        *(f"Anthropic: {one}" for one in anthropic_problems(anthropic(asked))),
    ]


def chat(history: Sequence[Message]) -> Object:
    """Write a history as a request to Chat Completions."""
    return {"model": "m", "messages": [one for message in history for one in _chat(message)]}


def responses(history: Sequence[Message]) -> Object:
    """Write a history as a request to Responses."""
    return {"model": "m", "input": [one for message in history for one in _items(message)]}


def anthropic(history: Sequence[Message]) -> Object:
    """Write a history as a request to Messages."""
    return {"model": "m", "max_tokens": 1, "messages": [_anthropic(message) for message in history]}


def _chat(message: Message) -> Iterator[Object]:
    if message.role == "tool":
        for result in message.results:
            yield {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
        return
    content = [one for part in message.parts for one in _chat_content(part)]
    calls = [
        {"id": call.id, "function": {"name": call.name, "arguments": _arguments(call)}}
        for call in message.calls
    ]
    yield {
        "role": message.role,
        **({"content": content} if content else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def _chat_content(part: object) -> Iterator[Object]:
    match part:
        case Text(text):
            yield {"type": "text", "text": text}
        case Image():
            yield {"type": "image_url", "image_url": {"url": part.url or "data:"}}
        case _:
            pass


def _items(message: Message) -> Iterator[Object]:
    kind = "output_text" if message.role == "assistant" else "input_text"
    for part in message.parts:
        match part:
            case Text(text):
                yield {"role": message.role, "content": [{"type": kind, "text": text}]}
            case Image():
                yield {
                    "role": message.role,
                    "content": [{"type": "input_image", "image_url": part.url or "data:"}],
                }
            case Call(name, _, call_id):
                arguments = _arguments(part)
                yield {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
            case Result(call_id, _, content):
                yield {"type": "function_call_output", "call_id": call_id, "output": content}
            case _:
                pass


def _anthropic(message: Message) -> Object:
    role = "assistant" if message.role == "assistant" else "user"
    return {"role": role, "content": [block for part in message.parts for block in _blocks(part)]}


def _blocks(part: object) -> Iterator[Object]:
    match part:
        case Text(text):
            yield {"type": "text", "text": text}
        case Image():
            yield {"type": "image"}
        case Call(name, arguments, call_id):
            yield {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        case Result(call_id, _, content):
            yield {"type": "tool_result", "tool_use_id": call_id, "content": content}
        case _:
            pass


def _arguments(call: Call) -> str:
    return msgspec.json.encode(call.arguments).decode()
