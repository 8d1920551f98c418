"""OpenTelemetry: an observer that turns the items of runs into spans and metrics.

invoke_agent trips                 a run: how it ended, what it spent, who stopped it and why
├── step 1                         with the results that were made up for calls that a stop cut
│   ├── chat gpt-5                 a model call, each attempt its own
│   ├── execute_tool search        a tool call
│   └── execute_tool book
└── step 2
    └── chat gpt-5

Names follow the GenAI semantic conventions, and `andon.…` where those have none. Prompts, answers,
arguments and results are left out unless `content=True`.
"""

import msgspec
from typing_extensions import override

from andon.core.items import (
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    RunEnded,
    RunStarted,
    Steered,
    StopRequested,
    ToolEnded,
    ToolStarted,
)
from andon.core.limits import Usage
from andon.core.messages import Call, Image, Message, Part, Reasoning, Result, ResultState, Text
from andon.core.outcome import Outcome
from andon.core.stop import Cause, Stop, StopResult
from andon.errors import MissingExtraError
from andon.ports import Observer

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
except ImportError as error:
    raise MissingExtraError("andon.adapters.otel", "otel") from error

SCOPE = "andon"
Attributes = dict[str, str | int | float | bool]

# What the conventions call the providers of our "provider:name".
PROVIDERS = {
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
}


class OpenTelemetry(Observer):
    """Give it to an agent: `Agent(…, observers=[OpenTelemetry()])`; it may observe any number of runs.

    Args:
        tracer: Where spans are made; the global provider's by default.
        meter: Where metrics are made; the global provider's by default.
        content: Whether prompts, answers, arguments and results are put in the spans.
    """

    def __init__(
        self, *, tracer: Tracer | None = None, meter: Meter | None = None, content: bool = False
    ) -> None:
        self._tracer = tracer or trace.get_tracer(SCOPE)
        self._metrics = _Metrics(meter or metrics.get_meter(SCOPE))
        self._content = content
        self._runs: dict[str, _Trace] = {}

    @override
    def observe(self, run_id: str, item: Item, /) -> None:
        """Take one item; a child run is told under its own id, so what comes by its parent is passed over."""
        if item.path:
            return
        if isinstance(item, RunStarted):
            parent = self._runs.get(item.parent)
            context = None if parent is None else trace.set_span_in_context(parent.at(item.call_id))
            self._runs[run_id] = _Trace(
                self._tracer, self._metrics, item, content=self._content, context=context
            )
            return
        run = self._runs.get(run_id)
        if run is None:
            return
        if isinstance(item, RunEnded):
            del self._runs[run_id]
            parent_id, call_id = run.parent
            if parent_id in self._runs and item.outcome.cancelled is not None:
                self._runs[parent_id].cancelled[call_id] = run.stopped(item.outcome)
        run.take(item)

    def __repr__(self) -> str:
        return f"<OpenTelemetry, {len(self._runs)} runs>"


class _Metrics:
    """The instruments."""

    def __init__(self, meter: Meter) -> None:
        self.runs = meter.create_counter("andon.runs", "{run}", "Runs that ended, by stop reason")
        self.stops = meter.create_counter(
            "andon.stops", "{stop}", "Runs that somebody asked to stop, by source and result"
        )
        self.latency = meter.create_histogram(
            "andon.stop.latency", "s", "From the first request to the end of the run"
        )
        self.tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of a model call")
        self.duration = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "How long a model call took"
        )


class _Trace:
    """The spans of one run that are open."""

    def __init__(
        self, tracer: Tracer, metrics: _Metrics, item: RunStarted, *, content: bool, context: Context | None
    ) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._content = content
        self._agent = item.agent
        self.parent = item.parent, item.call_id
        self.cancelled: dict[str, Attributes] = {}  # by the call, what is told of an agent behind it
        self._history: list[Message] = list(item.history) if content else []
        self._calls: dict[str, Call] = {}
        self._tools: dict[str, Span] = {}
        self._step: tuple[int, Span] | None = None
        self._steps = 0 if item.checkpoint is None else item.checkpoint.steps
        self._chat: tuple[Span, Attributes, float] | None = None
        self._chat_over: tuple[Span, ModelEnded] | None = None  # its message comes with the next item
        self._stop: Stop | None = None
        self._run = tracer.start_span(
            f"invoke_agent {item.agent}",
            context,
            kind=SpanKind.INTERNAL,
            start_time=_ns(item.at),
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": item.agent,
                "andon.run.id": item.run_id,
                **_model(item.model),
            },
        )

    def at(self, call_id: str) -> Span:
        """Give the span of a tool call that is open, or that of the run."""
        return self._tools.get(call_id, self._run)

    def take(self, item: Item) -> None:
        """Take one item."""
        if self._chat_over is not None:
            self._end_chat(item.message if isinstance(item, MessageAdded) else None)
        match item:
            case MessageAdded(message=message) | Steered(message=message):
                self._message(message)
            case ModelStarted():
                self._model_started(item)
            case ModelEnded():
                self._model_ended(item)
            case ToolStarted():
                self._tool_started(item)
            case ToolEnded():
                self._tool_ended(item)
            case StopRequested(stop=stop):
                self._stop = stop
            case RunEnded():
                self._run_ended(item)
            case _:
                pass

    def _message(self, message: Message) -> None:
        if self._content:
            self._history.append(message)
            self._calls = {call.id: call for call in message.calls} or self._calls

    def _in_step(self, step: int, at: float) -> Span:
        if self._step is not None and self._step[0] == step:
            return self._step[1]
        self._end_step(at)
        span = self._start(self._run, f"step {step}", at, {"andon.step": step})
        self._step = step, span
        self._steps = step
        return span

    def _end_step(self, at: float) -> None:
        if self._step is not None:
            self._step[1].end(_ns(at))
            self._step = None

    def _model_started(self, item: ModelStarted) -> None:
        step = self._in_step(item.step, item.at)
        about = {"gen_ai.operation.name": "chat", **_model(item.model)}
        name = f"chat {about.get('gen_ai.request.model', '')}".rstrip()
        span = self._start(step, name, item.at, about, kind=SpanKind.CLIENT)
        span.set_attribute("andon.model.attempt", item.attempt)
        if self._content:
            span.set_attribute("gen_ai.input.messages", _json(self._history))
        self._chat = span, about, item.at

    def _model_ended(self, item: ModelEnded) -> None:
        if self._chat is None:
            return
        span, about, began = self._chat
        self._chat = None
        self._chat_over = span, item
        span.set_attributes({"andon.model.end": item.end, **_usage(item.usage)})
        if item.end == "failed":
            about = {**about, **_fail(span, item.error)}
        elif item.end == "cut":
            span.set_attributes(self._asked())
        for kind, tokens in (("input", item.usage.input_tokens), ("output", item.usage.output_tokens)):
            if tokens:
                self._metrics.tokens.record(tokens, {**about, "gen_ai.token.type": kind})
        self._metrics.duration.record(max(0.0, item.at - began), about)

    def _end_chat(self, message: Message | None) -> None:
        if self._chat_over is None:
            return
        span, item = self._chat_over
        self._chat_over = None
        if message is not None and item.end == "complete":
            span.set_attribute("gen_ai.response.finish_reasons", ["tool_calls" if message.calls else "stop"])
        if message is not None and self._content:
            span.set_attribute("gen_ai.output.messages", _json([message]))
        span.end(_ns(item.at))

    def _tool_started(self, item: ToolStarted) -> None:
        span = self._start(
            self._in_step(self._step[0] if self._step is not None else self._steps, item.at),
            f"execute_tool {item.name}",
            item.at,
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function", **_call(item)},
        )
        call = self._calls.get(item.call_id)
        if call is not None:
            span.set_attribute("gen_ai.tool.call.arguments", _write(call.arguments))
        self._tools[item.call_id] = span

    def _tool_ended(self, item: ToolEnded) -> None:
        made_up = item.state in {ResultState.NOT_STARTED, ResultState.UNKNOWN}
        if made_up:
            step = self._in_step(self._step[0] if self._step is not None else self._steps, item.at)
            attributes = {**_call(item), "andon.tool.state": item.state.value}
            step.add_event("andon.tool.result", attributes, _ns(item.at))
        span = self._tools.pop(item.call_id, None)
        if span is None:
            return
        span.set_attribute("andon.tool.state", item.state.value)
        if item.repeats:
            span.set_attribute("andon.tool.repeats", item.repeats)
        if self._content:
            span.set_attribute("gen_ai.tool.call.result", item.content)
        if made_up and self._stop is not None:
            span.set_attributes(self._asked())
        elif item.again:  # it waits for an answer, which is no failure
            pass
        elif item.state is ResultState.FAILED and item.call_id in self.cancelled:
            # Nor is it one that somebody cancelled the agent behind it.
            span.set_attributes(self.cancelled.pop(item.call_id))
        elif made_up or item.state is ResultState.FAILED:
            span.set_attribute("error.type", "timeout" if made_up else "tool_error")
            span.set_status(Status(StatusCode.ERROR, item.content if self._content else None))
        span.end(_ns(item.at))

    def _run_ended(self, item: RunEnded) -> None:
        outcome = item.outcome
        told = {"andon.stop_reason": outcome.stop_reason, **self.stopped(outcome)}
        self._run.set_attributes({**told, **_usage(outcome.usage)})
        if outcome.stop_reason == "error":
            _fail(self._run, outcome.error)
        if outcome.limit is not None:
            self._run.set_attribute("andon.limit", outcome.limit)
        if self._step is not None:
            self._step[1].set_attributes(self.stopped(outcome))
        for span in self._tools.values():
            span.end(_ns(item.at))
        if self._chat is not None:
            self._chat[0].end(_ns(item.at))
        self._end_step(item.at)
        self._run.end(_ns(item.at))
        self._count(outcome)

    def _count(self, outcome: Outcome) -> None:
        agent = {"gen_ai.agent.name": self._agent}
        self._metrics.runs.add(1, {**agent, "andon.stop_reason": outcome.stop_reason})
        source = _first(self._stop).source if self._stop is not None else None
        if source is None:
            return
        report = outcome.cancelled
        # A limit that was reached has stopped the run; a person who asked later was late.
        limited = outcome.stop_reason == "limit" and source == "limit"
        result = StopResult.STOPPED if limited else StopResult.FINISHED_FIRST
        about = {
            **agent,
            "andon.stop.source": source,
            "andon.stop.result": (report.result if report is not None else result).value,
        }
        self._metrics.stops.add(1, about)
        if report is not None:
            self._metrics.latency.record(report.latency, about)

    def _asked(self) -> Attributes:
        """Say who asked for the stop, and why."""
        if self._stop is None:
            return {}
        cause = _first(self._stop)
        reason: Attributes = {"andon.stop.reason": cause.reason} if cause.reason is not None else {}
        return {"andon.stop.source": cause.source, **reason}

    def stopped(self, outcome: Outcome) -> Attributes:
        """Say how a run was stopped, if it was."""
        report = outcome.cancelled
        if report is None:
            return {}
        where: Attributes = {"andon.stop.stopped_at": report.stopped_at.value} if report.stopped_at else {}
        named = [work.name for work in report.abandoned]
        left: Attributes = {"andon.stop.abandoned": ", ".join(named)} if named else {}
        return {
            **self._asked(),
            **where,
            **left,
            "andon.stop.result": report.result.value,
            "andon.stop.latency": report.latency,
        }

    def _start(
        self, parent: Span, name: str, at: float, about: Attributes, *, kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        context = trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context, kind, about, start_time=_ns(at))


def _ns(at: float) -> int:
    return round(at * 1e9)


def _first(stop: Stop) -> Cause:
    return stop.causes[0] if stop.causes else Cause()


def _model(model: str) -> Attributes:
    provider, colon, name = model.partition(":")
    if not colon:
        return {"gen_ai.request.model": model} if model else {}
    return {"gen_ai.provider.name": PROVIDERS.get(provider, provider), "gen_ai.request.model": name}


def _call(item: ToolStarted | ToolEnded) -> Attributes:
    return {"gen_ai.tool.name": item.name, "gen_ai.tool.call.id": item.call_id}


def _usage(usage: Usage) -> Attributes:
    counts: Attributes = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "andon.usage.estimated": usage.estimated,
    }
    return {name: count for name, count in counts.items() if count}


def _fail(span: Span, error: str | None) -> Attributes:
    kind: Attributes = {"error.type": (error or "_OTHER").partition(":")[0]}
    span.set_attributes(kind)
    span.set_status(Status(StatusCode.ERROR, error))
    return kind


def _json(messages: list[Message]) -> str:
    return _write([{"role": each.role, "parts": [_part(part) for part in each.parts]} for each in messages])


def _part(part: Part) -> dict[str, object]:
    match part:
        case Text(text):
            return {"type": "text", "content": text}
        case Reasoning(text):
            return {"type": "reasoning", "content": text}
        case Call(name, arguments, call_id):
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case Result(call_id, _, content):
            return {"type": "tool_call_response", "id": call_id, "response": content}
        case Image(url=str(url)):
            return {"type": "uri", "modality": "image", "uri": url}
        case Image(media_type=media_type):  # the picture itself would be too much
            return {"type": "blob", "modality": "image", "mime_type": media_type}


def _write(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()
