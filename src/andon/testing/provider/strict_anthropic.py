"""What Anthropic rejects in a conversation: one pure function from a parsed body to its problems.

Consecutive messages of one role are fine, as Anthropic combines them. Results, though, must come in the
*next* message, before anything else in it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from msgspec import Struct, ValidationError, convert

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_THOUGHTS = {"thinking", "redacted_thinking"}


class Block(Struct):
    """A content block, as far as the rules look at it."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, object] | None = None
    tool_use_id: str | None = None
    content: str | list["Block"] | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class Message(Struct):
    """A message."""

    role: str
    content: str | list[Block]

    @property
    def blocks(self) -> list[Block]:
        """The content; a plain string is one text block."""
        if isinstance(self.content, list):
            return self.content
        return [Block("text", text=self.content)] if self.content else []


class Offer(Struct):
    """A tool on offer; only a client's tool has to have a name that matches."""

    name: str | None = None


class Thinking(Struct):
    """The `thinking` setting."""

    type: str


class Body(Struct):
    """A request."""

    model: str
    max_tokens: int
    messages: list[Message]
    tools: list[Offer] = []
    thinking: Thinking | None = None


def anthropic_problems(body: object, headers: Mapping[str, str] | None = None) -> list[str]:
    """List what Messages would reject."""
    if headers is not None and "anthropic-version" not in headers:
        return ["anthropic-version: header is required"]
    try:
        parsed = convert(body, Body)
    except ValidationError as error:
        return [str(error)]
    if not parsed.messages:
        return ["messages: at least one message is required"]
    return [
        *_settings(parsed),
        *_roles(parsed.messages),
        *_contents(parsed.messages),
        *_pairs(parsed.messages),
        *_last(parsed),
    ]


def _settings(body: Body) -> Iterator[str]:
    if body.max_tokens < 1:
        yield "max_tokens: must be greater than or equal to 1"
    for place, offer in enumerate(body.tools):
        if not _NAME.fullmatch(offer.name or ""):
            yield f"tools.{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"


def _roles(messages: list[Message]) -> Iterator[str]:
    # Stricter than today's API, which lets a conversation begin with the assistant.
    if messages[0].role != "user":
        yield 'messages: first message must use the "user" role'
    for place, message in enumerate(messages):
        if message.role not in {"user", "assistant", "system"}:
            yield f"messages.{place}.role: Input should be 'user' or 'assistant'"


def _contents(messages: list[Message]) -> Iterator[str]:
    for place, message in enumerate(messages):
        final = place == len(messages) - 1 and message.role == "assistant"
        if not message.blocks and not final:
            yield (
                f"messages.{place}: all messages must have non-empty content except for the optional final "
                "assistant message"
            )
        for index, block in enumerate(message.blocks):
            yield from _block(f"messages.{place}.content.{index}", message.role, block)


def _block(where: str, role: str, block: Block) -> Iterator[str]:
    if block.type in {"tool_use", *_THOUGHTS} and role != "assistant":
        yield f"{where}: `{block.type}` blocks can only be in `assistant` messages"
    match block.type:
        case "text" if not block.text:
            yield "messages: text content blocks must be non-empty"
        case "text" if not (block.text or "").strip():
            yield "messages: text content blocks must contain non-whitespace text"
        case "thinking" if block.thinking is None:
            yield f"{where}.thinking.thinking: Field required"
        case "thinking" if not block.signature:
            yield f"{where}.thinking.signature: Field required"
        case "redacted_thinking" if not block.data:
            yield f"{where}.redacted_thinking.data: Field required"
        case "tool_use" if block.id is None or block.input is None:
            yield f"{where}.tool_use: `id` and `input` are required"
        case "tool_use" if not _NAME.fullmatch(block.name or ""):
            yield f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        case "tool_result":
            yield from _result(where, role, block)
        case _:
            pass


def _result(where: str, role: str, block: Block) -> Iterator[str]:
    if role != "user":
        yield f"{where}: `tool_result` blocks can only be in `user` messages"
    inside = block.content if isinstance(block.content, list) else []
    if any(part.type == "text" and not part.text for part in inside):
        yield "messages: text content blocks must be non-empty"


def _pairs(messages: list[Message]) -> Iterator[str]:
    """Each use is answered once, at the head of the next message, and nothing else is answered."""
    uses = [block.id for message in messages for block in message.blocks if block.type == "tool_use"]
    if len(set(uses)) < len(uses):
        yield "messages: `tool_use` ids must be unique"
    end = Message(role="user", content=[])
    for place, (before, message, after) in enumerate(
        zip([end, *messages], messages, [*messages[1:], end], strict=False)
    ):
        asked = {block.id for block in before.blocks if block.type == "tool_use"}
        yield from _answers(place, message, asked)
        wanted = [block.id for block in message.blocks if block.type == "tool_use"]
        missing = [str(use) for use in wanted if use not in _leading_results(after)]
        if missing:
            yield (
                f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately "
                f"after: {', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` "
                "block in the next message."
            )


def _answers(place: int, message: Message, asked: set[str | None]) -> Iterator[str]:
    results = Counter(block.tool_use_id for block in message.blocks if block.type == "tool_result")
    for use, count in results.items():
        if use not in asked:
            yield (
                f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {use}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if count > 1:
            yield (
                f"messages.{place}: each tool_use must have a single result. Found multiple `tool_result` "
                f"blocks with id: {use}"
            )
    if any(one.type != "tool_result" and two.type == "tool_result" for one, two in pairwise(message.blocks)):
        yield f"messages.{place}: `tool_result` blocks must come first in the content"


def _leading_results(message: Message) -> set[str | None]:
    kinds = [block.type for block in message.blocks]
    head = next((place for place, kind in enumerate(kinds) if kind != "tool_result"), len(kinds))
    return {block.tool_use_id for block in message.blocks[:head]}


def _last(body: Body) -> Iterator[str]:
    """Judge the prefill, and what thinking wants of the last turn of the assistant."""
    last = body.messages[-1]
    for place, message in enumerate(body.messages):
        if message.role == "assistant" and message.blocks and message.blocks[-1].type in _THOUGHTS:
            yield f"messages.{place}: The final block in an assistant message cannot be `thinking`."
    if last.role == "assistant" and last.blocks and _ends_blank(last.blocks[-1]):
        yield "messages: final assistant content cannot end with trailing whitespace"
    if body.thinking is None or body.thinking.type == "disabled":
        return
    if last.role == "assistant":
        yield "messages: an assistant message cannot be prefilled when `thinking` is enabled"
    if body.thinking.type == "enabled":
        yield from _thoughtless(body.messages)


def _thoughtless(messages: list[Message]) -> Iterator[str]:
    """With thinking on, the turn whose tools have just been answered begins with its thinking."""
    if len(messages) > 1 and any(block.type == "tool_result" for block in messages[-1].blocks):
        first = next(iter(messages[-2].blocks), None)
        if first is not None and first.type not in _THOUGHTS:
            yield (
                f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, "
                f"but found `{first.type}`. When `thinking` is enabled, a final `assistant` message must "
                "start with a thinking block"
            )


def _ends_blank(block: Block) -> bool:
    text = block.text or ""
    return block.type == "text" and text != text.rstrip()
