"""ADK event: what a session tells, in the JSON of Google ADK's events, so that its clients read it unchanged.

Only the run itself is told: what agents behind its tools say is theirs. A run that did not simply answer
ends with one event more, which says why in `errorCode` and `customMetadata`.
"""

from base64 import urlsafe_b64encode
from collections.abc import Container, Iterable, Iterator
from typing import cast

import msgspec
from msgspec import Struct

from andon.core.items import (
    Answered,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    Steered,
    TextDelta,
    ToolEnded,
)
from andon.core.journal import Entry, Partial, entry_from_json
from andon.core.limits import NOTHING, Usage
from andon.core.messages import Call, Image, Message, Reasoning, Result, Text
from andon.core.outcome import Interrupt, Outcome
from andon.runtime.feed import Told

ASKS = "ask_human"  # what a question is called, as a call has a name
ERRORS = {"cancelled": "CANCELLED", "limit": "LIMIT", "error": "ERROR"}


class FunctionCall(Struct, rename="camel", omit_defaults=True):
    """A tool call."""

    id: str
    name: str
    args: dict[str, object]


class FunctionResponse(Struct, rename="camel", omit_defaults=True):
    """What a tool call gave."""

    id: str
    name: str
    response: dict[str, object]


class Blob(Struct, rename="camel"):
    """The bytes of a picture, in base 64 of the alphabet that ADK writes."""

    mime_type: str
    data: str


class FileData(Struct, rename="camel"):
    """The address of a picture."""

    mime_type: str
    file_uri: str


class Part(Struct, rename="camel", omit_defaults=True):
    """One part of a content."""

    text: str | None = None
    thought: bool | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None


class Content(Struct, rename="camel"):
    """What somebody said."""

    role: str
    parts: list[Part]


class Actions(Struct, rename="camel"):
    """What an event does besides; here nothing."""

    state_delta: dict[str, object] = {}
    artifact_delta: dict[str, int] = {}


class UsageMetadata(Struct, rename="camel"):
    """The tokens that an answer took."""

    prompt_token_count: int
    candidates_token_count: int
    total_token_count: int


class AdkEvent(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """One event, as ADK has it."""

    id: str
    invocation_id: str
    author: str
    timestamp: float
    actions: Actions = msgspec.field(default_factory=Actions)
    content: Content | None = None
    partial: bool | None = None
    turn_complete: bool | None = None
    interrupted: bool | None = None
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    usage_metadata: UsageMetadata | None = None
    long_running_tool_ids: list[str] | None = None
    custom_metadata: dict[str, object] | None = None


_words: dict[
    str,
    msgspec.json.Decoder[TextDelta] | msgspec.json.Decoder[ReasoningDelta] | msgspec.json.Decoder[Partial],
] = {
    "text_delta": msgspec.json.Decoder(TextDelta),
    "reasoning_delta": msgspec.json.Decoder(ReasoningDelta),
    "partial": msgspec.json.Decoder(Partial),
}


class _Said:
    """How much of a model call in flight was told."""

    def __init__(self) -> None:
        self._text = 0
        self._reasoning = 0

    def more(self, words: TextDelta | ReasoningDelta | Partial) -> list[Part]:
        """Give what was not told yet."""
        text = reasoning = ""
        match words:
            case TextDelta():
                text = words.text
            case ReasoningDelta():
                reasoning = words.text
            case Partial():
                text, reasoning = words.text[self._text :], words.reasoning[self._reasoning :]
        self._text += len(text)
        self._reasoning += len(reasoning)
        told = [Part(text=reasoning, thought=True)] if reasoning else []
        return [*told, Part(text=text)] if text else told


class Teller:
    """Tells of some of a session's runs, event by event; where none is wanted by its id, of all of them."""

    def __init__(
        self, wanted: Container[str] | None = None, *, streaming: bool = False, history: bool = False
    ) -> None:
        self._wanted = wanted
        self._streaming = streaming
        self._history = history
        self._run_id = ""
        self._agent = "agent"
        self._usage = NOTHING
        self._at = 0.0
        self._said = _Said()
        self._pending: set[str] = set()  # calls that a run which goes on from here makes again
        self.ended: Outcome | None = None

    def told(self, one: Told) -> list[AdkEvent]:
        """Take one thing that a session tells."""
        if one.n:
            return self.take(entry_from_json(one.data))
        return self._delta(one) if self._streaming and self._is_on else []

    def take(self, entry: Entry) -> list[AdkEvent]:
        """Take one item."""
        self._at = entry.at
        match entry:
            case RunStarted(path=()):
                self._run_id, self._agent = entry.run_id, entry.agent
                self._pending.clear()
            case ModelStarted(path=()):
                self._said = _Said()
            case ModelEnded(path=(), usage=usage):
                self._usage = usage
            case ToolEnded(path=(), call_id=call_id, again=True):
                self._pending.add(call_id)
            case MessageAdded(path=(), message=message) | Steered(path=(), message=message) if self._is_on:
                return self._message(entry, message)
            case Answered() if self._history:
                return [self._answered(entry)]
            case RunEnded(path=(), outcome=outcome) if self._is_on:
                self.ended = outcome
                return self._end(entry, outcome)
            case _:
                pass
        return []

    @property
    def _is_on(self) -> bool:
        return bool(self._run_id) and (self._wanted is None or self._run_id in self._wanted)

    def _event(self, event_id: str, at: float, author: str | None = None) -> AdkEvent:
        return AdkEvent(id=event_id, invocation_id=self._run_id, author=author or self._agent, timestamp=at)

    def _delta(self, one: Told) -> list[AdkEvent]:
        """Tell of words that pass by; where some were missed, of all that are new."""
        said = _words.get(one.kind)
        words = None if said is None else said.decode(one.data)
        if words is None or words.path:
            return []
        parts = self._said.more(words)
        if not parts:
            return []
        event = self._event(one.id, self._at)
        event.content, event.partial = Content("model", parts), True
        return [event]

    def _message(self, item: MessageAdded | Steered, message: Message) -> list[AdkEvent]:
        if message.synthetic and message.role == "assistant":
            return []  # a note that makes the history whole; the end says it
        if message.role == "user" and not self._history:
            return []
        event = self._event(str(item.n), item.at, "user" if message.role == "user" else None)
        event.content = Content(
            "model" if message.role == "assistant" else "user", list(_parts(message, self._pending))
        )
        if message.role == "assistant":
            event.usage_metadata, self._usage = _usage(self._usage), NOTHING
            if message.cut:
                event.interrupted = True
        return [event] if event.content.parts else []

    def _answered(self, item: Answered) -> AdkEvent:
        event = self._event(str(item.n), item.at, "user")
        response = FunctionResponse(item.id, ASKS, {"result": item.answer})
        event.content = Content("user", [Part(function_response=response)])
        return event

    def _end(self, item: RunEnded, outcome: Outcome) -> list[AdkEvent]:
        if outcome.stop_reason == "end_turn":
            return []
        event = self._event(str(item.n), item.at)
        event.turn_complete = True
        told = {"stopReason": outcome.stop_reason, "runId": outcome.run_id}
        event.custom_metadata = {"andon": told}
        if outcome.stop_reason == "interrupt":
            event.content = Content(
                "model", [Part(function_call=_question(one)) for one in outcome.interrupts]
            )
            event.long_running_tool_ids = [one.id for one in outcome.interrupts]
            return [event]
        event.error_code = ERRORS[outcome.stop_reason]
        event.error_message = _why(outcome)
        if outcome.cancelled is not None:
            event.interrupted = True
            event.custom_metadata = {"andon": {**told, "report": msgspec.to_builtins(outcome.cancelled)}}
        return [event]


def _question(asked: Interrupt) -> FunctionCall:
    """Tell of a question as of a call that takes long: its response is the answer."""
    payload = asked.payload
    args: dict[str, object] = {"question": payload}
    if isinstance(payload, dict):
        args = cast("dict[str, object]", payload)
    return FunctionCall(asked.id, ASKS, args)


def history(entries: Iterable[Entry]) -> list[AdkEvent]:
    """Tell all that was said in a session."""
    teller = Teller(history=True)
    return [event for entry in entries for event in teller.take(entry)]


def adk_json(event: AdkEvent) -> bytes:
    """Write an event down."""
    return msgspec.json.encode(event)


def _parts(message: Message, pending: Container[str]) -> Iterator[Part]:
    for part in message.parts:
        match part:
            case Text(text):
                yield Part(text=text)
            case Reasoning(text):
                yield Part(text=text, thought=True)
            case Call():
                yield Part(function_call=FunctionCall(part.id, part.name, part.arguments))
            case Result():
                response = _response(part, is_pending=part.call_id in pending)
                yield Part(function_response=FunctionResponse(part.call_id, part.name, response))
            case Image(data=data, media_type=kind, url=url):
                yield (
                    Part(inline_data=Blob(kind, urlsafe_b64encode(data).decode()))
                    if data is not None
                    else Part(file_data=FileData(kind, url or ""))
                )


def _response(result: Result, *, is_pending: bool) -> dict[str, object]:
    """Tell what a call gave; ADK's clients wait for another response while the status is pending."""
    if is_pending:
        return {"status": "pending", "result": result.content}
    if result.is_error:
        return {"error": result.content, "state": result.state.value}
    return {"result": result.content}


def _usage(usage: Usage) -> UsageMetadata | None:
    if usage is NOTHING:
        return None
    return UsageMetadata(usage.input_tokens, usage.output_tokens, usage.total_tokens)


def _why(outcome: Outcome) -> str:
    report = outcome.cancelled
    if report is None:
        return outcome.error or f"the run reached its limit {outcome.limit}"
    cause = report.cause
    by = "somebody" if cause is None else cause.by or cause.source
    why = f": {cause.reason}" if cause is not None and cause.reason else ""
    return f"the run was cancelled by {by}{why}"
