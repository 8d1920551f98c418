"""Reading: a provider's events, turned into chunks as they come."""

from collections.abc import Mapping

from msgspec import DecodeError, json
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import StreamedResponse

from andon.adapters.models.history import arguments, pack, speaks
from andon.adapters.models.pump import Put
from andon.core.items import CallDelta
from andon.core.limits import NOTHING, Usage, estimate
from andon.core.messages import Call, Reasoning
from andon.errors import ModelError


class Reading:
    """Reads one answer: words at once, a call only when it is whole, usage as soon as it is told."""

    __slots__ = ("_calls", "_characters", "_given", "_model", "_provider", "_put", "_told", "stream")

    def __init__(self, put: Put, model: str, provider: str) -> None:
        self._put = put
        self._model = model
        self._provider = provider
        self._calls: dict[int, tuple[str, str]] = {}
        self._given: set[int] = set()
        self._told = NOTHING
        self._characters = 0
        self.stream: StreamedResponse | None = None

    async def read(self, stream: StreamedResponse) -> None:
        """Read an answer to its end."""
        self.stream = stream
        async for event in stream:
            if self._told is NOTHING:
                self.tell_usage()
            self._take(event)
        self._finish(stream.get())

    def tell_usage(self) -> None:
        """Tell what the provider has said so far of what this costs."""
        if self.stream is None:
            return
        said = self.stream.usage
        usage = Usage(
            input_tokens=said.input_tokens,
            output_tokens=said.output_tokens,
            cache_read_tokens=said.cache_read_tokens,
            cache_write_tokens=said.cache_write_tokens,
        )
        if usage != self._told:
            self._told = usage
            self._put(usage)

    def estimate_usage(self, sent_characters: int) -> None:
        """Count by length what an answer cost whose provider has not said, so that limits hold there too."""
        if self._told == NOTHING:
            self._put(estimate(sent_characters, self._characters))

    def _take(self, event: ModelResponseStreamEvent) -> None:
        match event:
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                self._say(text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                self._think(text)
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta() as delta):
                self._more_of_call(index, delta)
            case PartStartEvent(index=index, part=part):
                self._start(index, part)
            case _:
                pass  # the end of a part says nothing new

    def _start(self, index: int, part: ModelResponsePart) -> None:
        match part:
            case TextPart(content=text):
                self._give_calls(index)
                self._say(text)
            case ThinkingPart(content=text):
                self._give_calls(index)
                self._think(text)
            case ToolCallPart(tool_name=name, args=arguments, tool_call_id=call_id):
                self._calls[index] = (name, call_id)
                self._put(CallDelta(name, _text(arguments), call_id))
            case _:
                pass  # what the provider's own tools do is in the payload

    def _say(self, text: str) -> None:
        if text:
            self._characters += len(text)
            self._put(text)

    def _think(self, text: str) -> None:
        if text:
            self._characters += len(text)
            self._put(Reasoning(text))

    def _more_of_call(self, index: int, delta: ToolCallPartDelta) -> None:
        if index in self._calls:
            name, call_id = self._calls[index]
            self._put(CallDelta(name, _text(delta.args_delta), call_id))

    def _give_calls(self, before: int | None = None) -> None:
        """Give the calls that are whole: all, or those before a part that has begun after them.

        One alone is not known to be whole when the next one begins, as parallel calls may come mixed.
        """
        if self.stream is None or len(self._given) == len(self._calls):
            return
        for index, part in enumerate(self.stream.get().parts[:before]):
            if isinstance(part, ToolCallPart) and index not in self._given:
                self._given.add(index)
                self._put(Call(part.tool_name, self._arguments(part), part.tool_call_id))

    def _arguments(self, part: ToolCallPart) -> dict[str, object]:
        try:
            return arguments(part)
        except (DecodeError, UnicodeError) as error:
            what = f"{self._model}: the arguments of its call of tool {part.tool_name!r} are no JSON object"
            raise ModelError(what, transient=not self._was_cut_short()) from error

    def _was_cut_short(self) -> bool:
        return self.stream is not None and self.stream.finish_reason == "length"

    def _finish(self, response: ModelResponse) -> None:
        if response.state == "incomplete" or (not response.finish_reason and self._provider == "anthropic"):
            raise ModelError(f"{self._model}: the answer broke off before its end", transient=True)
        self._give_calls()
        self.tell_usage()
        if speaks(response):
            self._put(pack(response, self._provider))


def _text(arguments: str | Mapping[str, object] | None) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.encode(arguments).decode() if arguments else ""
