"""History: our messages in pydantic-ai's words, each translated once, a provider's own ones without loss."""

from collections.abc import Sequence
from weakref import ReferenceType, ref

from msgspec import DecodeError, Raw, json
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from andon.core.frozen import thawed
from andon.core.messages import Call, Image, Message, Part, Payload, Result, Text
from andon.core.repair import NO_ANSWER

Translated = ModelResponse | tuple[ModelRequestPart, ...]


class History:
    """The translations of one provider's messages; kept for as long as the messages are."""

    __slots__ = ("_known", "_provider")

    def __init__(self, provider: str) -> None:
        self._provider = provider
        # By identity: a message with arguments of calls in it has no hash.
        self._known: dict[int, tuple[ReferenceType[Message], Translated]] = {}

    def translate(self, messages: Sequence[Message], instructions: str) -> list[ModelMessage]:
        """Translate a conversation; what the user and tools say between two answers is one request."""
        whole: list[ModelMessage] = []
        asked: list[ModelRequestPart] = []
        for message in messages:
            said = self._translated(message)
            if isinstance(said, ModelResponse):
                if asked:
                    whole.append(ModelRequest(asked))
                    asked = []
                whole.append(said)
            else:
                asked.extend(said)
        whole.append(ModelRequest(asked, instructions=instructions or None))
        return whole

    def _translated(self, message: Message) -> Translated:
        key = id(message)
        known = self._known.get(key)
        if known is not None and known[0]() is message:
            return known[1]
        said = self._answer(message) if message.role == "assistant" else _request(message)
        entries = self._known
        entries[key] = (ref(message, lambda _: entries.pop(key, None)), said)
        return said

    def _answer(self, message: Message) -> ModelResponse:
        payload = message.payload
        if payload is not None and payload.provider == self._provider and not message.cut:
            response = unpack(payload)
            asked = [part for part in response.parts if isinstance(part, ToolCallPart)]
            # A history may have been edited: then what the message itself says is what counts.
            if _is_as_said(asked, message.calls):
                for part, call in zip(asked, message.calls, strict=True):  # they may have been mended
                    part.tool_call_id = call.id
                    part.tool_name = call.name  # pyright: ignore[reportAttributeAccessIssue] — the library's own calls
                return response
        return ModelResponse(parts=_said(message))


def pack(response: ModelResponse, provider: str) -> Payload:
    """Keep a provider's answer as it is."""
    return Payload(provider, Raw(ModelMessagesTypeAdapter.dump_json([response])))


def unpack(payload: Payload) -> ModelResponse:
    """Give back a provider's answer, without the blank words that providers send but refuse to read."""
    (response,) = ModelMessagesTypeAdapter.validate_json(bytes(payload.data))
    if not isinstance(response, ModelResponse):
        msg = f"the payload of a message is a {type(response).__name__}, not an answer"
        raise TypeError(msg)
    response.parts = [part for part in response.parts if not _is_blank(part)]
    return response


def speaks(response: ModelResponse) -> bool:
    """Say whether an answer says or calls anything, for else providers refuse to see it again."""
    return any(
        isinstance(part, ToolCallPart) or (isinstance(part, TextPart) and part.content.strip())
        for part in response.parts
    )


def _is_blank(part: ModelResponsePart) -> bool:
    return isinstance(part, TextPart) and not part.content.strip() and not part.provider_details


def arguments(part: ToolCallPart) -> dict[str, object]:
    """Read the arguments of a call; what is no JSON object raises DecodeError or UnicodeError."""
    if isinstance(part.args, str):
        return json.decode(part.args or "{}", type=dict[str, object])
    return dict(part.args or {})


def _is_as_said(asked: Sequence[ToolCallPart], calls: Sequence[Call]) -> bool:
    try:
        were = [(part.tool_name, arguments(part)) for part in asked]
    except (DecodeError, UnicodeError):
        return False
    return were == [(call.name if call.said is None else call.said, call.arguments) for call in calls]


def _said(message: Message) -> list[ModelResponsePart]:
    """Give words and calls; reasoning without its provider's signature is refused, so it is left out."""
    parts: list[ModelResponsePart] = []
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                parts.append(TextPart(text))
            case Call(name, arguments, call_id):
                parts.append(ToolCallPart(name, thawed(arguments), call_id))
            case _:
                pass
    return parts or [TextPart(NO_ANSWER)]


def _request(message: Message) -> tuple[ModelRequestPart, ...]:
    results = tuple(_result(part) for part in message.results)
    content = [_content(part) for part in message.parts if isinstance(part, Text | Image)]
    if not content:
        return results
    return (*results, UserPromptPart(content))


def _result(result: Result) -> ToolReturnPart:
    outcome = "failed" if result.is_error else "success"
    return ToolReturnPart(result.name, result.content, result.call_id, outcome=outcome)


def _content(part: Part) -> UserContent:
    match part:
        case Image(data=bytes() as data, media_type=media_type):
            return BinaryContent(data=data, media_type=media_type)
        case Image(url=str(url)):
            return ImageUrl(url=url)
        case Text(text):
            return text
        case _:
            msg = f"a user cannot say a {type(part).__name__}"
            raise TypeError(msg)
