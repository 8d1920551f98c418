"""A request as a scripted agent sees it: the same questions for every wire format."""

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, TypeGuard

from msgspec import Struct

Api: TypeAlias = Literal["openai-chat", "openai-responses", "anthropic"]
Object: TypeAlias = dict[str, object]


class Request(Struct, frozen=True, kw_only=True):
    """One accepted request: its parsed body, and what scripts usually ask about it."""

    n: int
    api: Api
    headers: Mapping[str, str]
    body: Object

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        """Whether the answer is to come as events."""
        return self.body.get("stream") is True

    @property
    def prompt(self) -> str:
        """The user's last words."""
        if isinstance(said := self.body.get("input"), str):
            return said
        words = (_text(item.get("content")) for item in reversed(self._items()) if item.get("role") == "user")
        return next(filter(None, words), "")

    @property
    def results(self) -> dict[str, str]:
        """What tools gave back since the model spoke last, by call id."""
        found: dict[str, str] = {}
        for item in reversed(self._items()):
            if item.get("role") == "assistant" or item.get("type") in {"function_call", "reasoning"}:
                break
            found = {**dict(_results(item)), **found}
        return found

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools on offer."""
        offers = list(_objects(self.body.get("tools")))
        named = [function if is_object(function := offer.get("function")) else offer for offer in offers]
        return tuple(str(offer["name"]) for offer in named if "name" in offer)

    def _items(self) -> list[Object]:
        return list(_objects(self.body.get("messages", self.body.get("input"))))


def is_object(value: object) -> TypeGuard[Object]:
    """Whether a value of parsed JSON is an object."""
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _objects(value: object) -> Iterator[Object]:
    return filter(is_object, value if _is_array(value) else [])


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(text for block in _objects(content) if isinstance(text := block.get("text"), str))


def _results(item: Object) -> Iterator[tuple[str, str]]:
    """Find the tool results of a message or item, whichever API it belongs to."""
    if item.get("role") == "tool":
        yield str(item.get("tool_call_id")), _text(item.get("content"))
    if item.get("type") == "function_call_output":
        yield str(item.get("call_id")), _text(item.get("output"))
    for block in _objects(item.get("content")):
        if block.get("type") == "tool_result":
            yield str(block.get("tool_use_id")), _text(block.get("content"))
