"""Spans and metrics of runs, through the OpenTelemetry SDK."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence

import anyio
import pytest
from msgspec.structs import replace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from andon import (
    Agent,
    Call,
    Image,
    Limits,
    Message,
    ModelError,
    Point,
    Reasoning,
    Stop,
    ToolError,
    Usage,
    tool,
)
from andon.adapters.otel import OpenTelemetry
from andon.core.checkpoint import VERSION, Checkpoint
from andon.core.draft import Chunk
from andon.core.items import ModelStarted, RunStarted, ToolStarted
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.testing import Gate

SECRET = "a secret of the user's"  # noqa: S105


class Watch:
    """Telemetry with its exporters in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider(metric_readers=[self.reader])
        self.observer = self.make()

    def make(self, *, content: bool = False) -> OpenTelemetry:
        """Make an observer."""
        return OpenTelemetry(
            tracer=self.traces.get_tracer("test"), meter=self.meters.get_meter("test"), content=content
        )

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that are closed."""
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        """Give the one span of a name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> list[tuple[str, str]]:
        """Give each span with its parent."""
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        return sorted((names[span.parent.span_id] if span.parent else "", span.name) for span in self.spans)

    def points(self, name: str) -> list[tuple[dict[str, object], float]]:
        """Give the attributes and the value, or sum, of each point of a metric."""
        data = self.reader.get_metrics_data()
        assert data
        found: list[tuple[dict[str, object], float]] = []
        for point in (
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ):
            assert isinstance(point, NumberDataPoint | HistogramDataPoint)
            value = point.value if isinstance(point, NumberDataPoint) else point.sum
            found.append((dict(point.attributes or {}), value))
        return found


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watch runs; nothing is kept of them afterwards."""
    watching = Watch()
    yield watching
    assert repr(watching.observer) == "<OpenTelemetry, 0 runs>"
    watching.meters.shutdown()


def attributes(span: ReadableSpan) -> dict[str, object]:
    """Give the attributes of a span."""
    return dict(span.attributes or {})


@tool
async def search(query: str) -> str:
    """Search."""
    return f"{SECRET}: {query}"


@tool
async def broken() -> str:
    """Fail."""
    raise ToolError(SECRET)


@tool
async def hangs() -> None:
    """Wait until it is cut."""
    await anyio.sleep_forever()


@tool(sequential=True)
async def book() -> str:
    """Wait for its turn."""
    return "booked"


async def steps(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Call two tools, then answer."""
    if request.messages[-1].role == "tool":
        yield "Two trains."
        yield Usage(input_tokens=30, output_tokens=3)
        return
    yield Reasoning("hm")
    yield Call("search", {"query": SECRET}, "c1")
    yield Call("broken", {}, "c2")
    yield Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4)


async def test_a_run_is_a_tree_of_spans(watch: Watch) -> None:
    """A run, its steps, and in them the model and its tools."""
    outcome = await Agent(steps, tools=[search, broken], name="trips", observers=[watch.observer]).run(SECRET)

    assert watch.tree() == [
        ("", "invoke_agent trips"),
        ("invoke_agent trips", "step 1"),
        ("invoke_agent trips", "step 2"),
        ("step 1", "chat steps"),
        ("step 1", "execute_tool broken"),
        ("step 1", "execute_tool search"),
        ("step 2", "chat steps"),
    ]
    assert attributes(watch.span("invoke_agent trips")) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "trips",
        "gen_ai.request.model": "steps",
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 8,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "andon.run.id": outcome.run_id,
        "andon.stop_reason": "end_turn",
    }


async def test_a_model_call_is_a_chat_span(watch: Watch) -> None:
    """With what it spent, and why it ended."""
    await Agent(steps, tools=[search, broken], observers=[watch.observer]).run("hi")
    first, second = [span for span in watch.spans if span.name == "chat steps"]

    assert attributes(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "steps",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "andon.model.attempt": 1,
        "andon.model.end": "complete",
    }
    assert attributes(second)["gen_ai.response.finish_reasons"] == ("stop",)


async def test_a_tool_call_is_a_span_with_its_id_and_state(watch: Watch) -> None:
    """One that failed is an error."""
    await Agent(steps, tools=[search, broken], observers=[watch.observer]).run("hi")
    found, failed = watch.span("execute_tool search"), watch.span("execute_tool broken")

    assert attributes(found) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "c1",
        "andon.tool.state": "completed",
    }
    assert found.status.status_code is StatusCode.UNSET
    assert attributes(failed)["andon.tool.state"] == "failed"
    assert failed.status.status_code is StatusCode.ERROR


async def test_spans_take_their_times_from_the_items(watch: Watch) -> None:
    """What is shown later is not later."""
    agent = Agent(steps, tools=[search, broken], observers=[watch.observer])
    async with agent.start("hi") as run:
        events = [event async for event in run]
    (started,) = [event for event in events if isinstance(event, RunStarted)]
    (first, *_) = [event for event in events if isinstance(event, ToolStarted)]

    assert watch.span("invoke_agent agent").start_time == round(started.at * 1e9)
    assert watch.span(f"execute_tool {first.name}").start_time == round(first.at * 1e9)


async def test_no_content_is_told_by_default(watch: Watch) -> None:
    """Neither prompt nor argument nor result nor a tool's error."""
    await Agent(steps, tools=[search, broken], observers=[watch.observer]).run(SECRET)

    assert SECRET not in " ".join(span.to_json() for span in watch.spans)


async def test_content_is_told_on_request(watch: Watch) -> None:
    """As the conventions write it."""
    observer = watch.make(content=True)
    prompt = Message.user("look", Image(url="https://example.org/a.png"), Image(data=b"x"))
    await Agent(steps, tools=[search, broken], observers=[observer]).run(prompt)
    first, second = [attributes(span) for span in watch.spans if span.name == "chat steps"]
    found = attributes(watch.span("execute_tool search"))

    assert json.loads(str(first["gen_ai.input.messages"])) == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "look"},
                {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"},
                {"type": "blob", "modality": "image", "mime_type": "image/png"},
            ],
        }
    ]
    (answer,) = json.loads(str(first["gen_ai.output.messages"]))
    assert [part["type"] for part in answer["parts"]] == ["reasoning", "tool_call", "tool_call"]
    (_, _, results) = json.loads(str(second["gen_ai.input.messages"]))
    assert results["parts"][0] == {
        "type": "tool_call_response",
        "id": "c1",
        "response": f"{SECRET}: {SECRET}",
    }
    assert json.loads(str(found["gen_ai.tool.call.arguments"])) == {"query": SECRET}
    assert found["gen_ai.tool.call.result"] == f"{SECRET}: {SECRET}"
    assert repr(observer) == "<OpenTelemetry, 0 runs>"


async def test_a_stop_in_the_model_is_told_and_is_no_error(watch: Watch) -> None:
    """Who, why, where and how long; the usage is an estimate, and says so."""
    gate = Gate()

    async def talks(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Well, "
        await gate

    async with Agent(talks, observers=[watch.observer]).start("hi") as run:
        await gate.reached()
        report = await run.cancel(reason="changed my mind", by="ada")
    root = attributes(watch.span("invoke_agent agent"))
    stop = {key: value for key, value in root.items() if key.startswith("andon.stop")}

    assert stop == {
        "andon.stop_reason": "cancelled",
        "andon.stop.result": "STOPPED",
        "andon.stop.stopped_at": "model",
        "andon.stop.source": "user",
        "andon.stop.reason": "changed my mind",
        "andon.stop.latency": report.latency,
    }
    assert stop.items() - {("andon.stop_reason", "cancelled")} <= attributes(watch.span("step 1")).items()
    chat = attributes(watch.span("chat talks"))
    assert chat["andon.model.end"] == "cut"
    assert chat["andon.stop.reason"] == "changed my mind"
    assert chat["andon.usage.estimated"] is True
    assert "gen_ai.response.finish_reasons" not in chat
    assert {span.status.status_code for span in watch.spans} == {StatusCode.UNSET}


async def test_a_stop_in_tools_closes_every_span(watch: Watch) -> None:
    """The step carries the results that were made up, and none of it is an error."""
    gate = Gate()

    async def calls(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield Call("hangs", {}, "c1")
        yield Call("book", {}, "c2")

    @tool(name="hangs")
    async def waits() -> None:
        """Come to a gate that never opens."""
        await gate

    async with Agent(calls, tools=[waits, book], observers=[watch.observer]).start("hi") as run:
        await gate.reached()
        await run.cancel()
    step = watch.span("step 1")
    cut = attributes(watch.span("execute_tool hangs"))

    assert [dict(event.attributes or {}) for event in step.events] == [
        {"gen_ai.tool.name": "hangs", "gen_ai.tool.call.id": "c1", "andon.tool.state": "unknown"},
        {"gen_ai.tool.name": "book", "gen_ai.tool.call.id": "c2", "andon.tool.state": "not_started"},
    ]
    assert (cut["andon.tool.state"], cut["andon.stop.source"]) == ("unknown", "user")
    assert attributes(step)["andon.stop.stopped_at"] == "tools"
    assert {span.status.status_code for span in watch.spans} == {StatusCode.UNSET}
    assert "execute_tool book" not in {span.name for span in watch.spans}


async def test_a_stop_at_a_point_leaves_whole_spans(watch: Watch) -> None:
    """The tools have ended, and the model is not asked again."""
    agent = Agent(steps, tools=[search, broken], observers=[watch.observer])
    run = agent.start("hi")

    @agent.on("before_tool")
    def shut_down(_moment: Moment) -> None:  # pyright: ignore[reportUnusedFunction]
        run.cancel(Stop.at(Point.TOOLS), source="shutdown")

    async with run:
        await run.outcome()

    assert attributes(watch.span("step 1"))["andon.stop.stopped_at"] == "point:tools"
    assert attributes(watch.span("execute_tool search"))["andon.tool.state"] == "completed"
    assert "step 2" not in {span.name for span in watch.spans}


async def test_a_tool_that_is_abandoned_is_named(watch: Watch) -> None:
    """Its span is closed, though it still runs."""
    gate, left = Gate(), Gate()

    @tool(name="hangs")
    async def stubborn() -> None:
        """Go on whatever is asked."""
        try:
            await gate
        finally:
            await left

    async def calls(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield Call("hangs", {}, "c1")

    agent = Agent(calls, tools=[stubborn], tool_grace=0.01, observers=[watch.observer])
    async with agent.start("hi") as run:
        await gate.reached()
        await run.cancel(Stop.at(Point.TOOLS, grace=0.01))

        assert attributes(watch.span("invoke_agent agent"))["andon.stop.abandoned"] == "hangs"
        assert attributes(watch.span("invoke_agent agent"))["andon.stop.result"] == "ESCALATED"
        assert watch.span("execute_tool hangs").end_time
        left.open()
        await left


async def test_a_tool_that_takes_too_long_is_an_error(watch: Watch) -> None:
    """Nobody asked for that."""

    @tool(name="hangs", timeout=0.01)
    async def slow() -> None:
        """Take too long."""
        await anyio.sleep_forever()

    async def calls(request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "gave up" if request.messages[-1].role == "tool" else Call("hangs", {}, "c1")

    await Agent(calls, tools=[slow], observers=[watch.observer]).run("hi")
    span = watch.span("execute_tool hangs")

    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "timeout"


async def test_an_error_is_an_error_on_the_run_and_on_the_call(watch: Watch) -> None:
    """With its type, on which to group."""

    async def fails(_request: ModelRequest) -> AsyncIterator[Chunk]:
        raise ModelError("on holiday")
        yield

    await Agent(fails, observers=[watch.observer]).run("hi")

    for name in ("invoke_agent agent", "chat fails"):
        status = watch.span(name).status
        assert (status.status_code, status.description) == (StatusCode.ERROR, "ModelError: on holiday")
        assert attributes(watch.span(name))["error.type"] == "ModelError"


async def test_each_attempt_is_a_span_of_its_own(watch: Watch) -> None:
    """In one step; only what failed is an error."""
    attempts = iter([ModelError("busy", transient=True, retry_after=0.001), None])

    async def flaky(_request: ModelRequest) -> AsyncIterator[Chunk]:
        error = next(attempts)
        if error is not None:
            raise error
        yield "there"

    await Agent(flaky, observers=[watch.observer]).run("hi")
    first, second = [span for span in watch.spans if span.name == "chat flaky"]

    assert [attributes(span)["andon.model.attempt"] for span in (first, second)] == [1, 2]
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR, StatusCode.UNSET]
    assert watch.tree().count(("step 1", "chat flaky")) == 2
    assert watch.span("invoke_agent agent").status.status_code is StatusCode.UNSET


async def test_runs_beside_each_other_are_traces_of_their_own(watch: Watch) -> None:
    """No span ends up in the other's tree."""
    gates = {"one": Gate(), "two": Gate()}

    async def echo(request: ModelRequest) -> AsyncIterator[Chunk]:
        await gates[request.messages[-1].text]
        yield request.messages[-1].text

    agent = Agent(echo, observers=[watch.observer])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.run, "one")
        tasks.start_soon(agent.run, "two")
        await gates["one"].reached()
        await gates["two"].reached()
        assert repr(watch.observer) == "<OpenTelemetry, 2 runs>"
        gates["two"].open()
        gates["one"].open()

    traces = {span.context.trace_id for span in watch.spans if span.context}
    assert len(traces) == 2
    assert len(watch.spans) == 6


async def test_a_run_belongs_to_the_span_it_was_started_in(watch: Watch) -> None:
    """A web request's, for example."""

    async def echo(_request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "there"

    with watch.traces.get_tracer("web").start_as_current_span("POST /chat"):
        await Agent(echo, observers=[watch.observer]).run("hi")

    assert ("POST /chat", "invoke_agent agent") in watch.tree()


async def test_an_exporter_that_fails_disturbs_nobody(watch: Watch) -> None:
    """The answer comes all the same."""

    class Failing(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
            raise RuntimeError("no collector there")

    watch.traces.add_span_processor(SimpleSpanProcessor(Failing()))
    outcome = await Agent(steps, tools=[search, broken], observers=[watch.observer]).run("hi")

    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Two trains.")
    assert len(watch.spans) == 7


async def test_runs_and_stops_are_counted(watch: Watch) -> None:
    """Runs by how they ended, stops by who asked and what came of it."""
    gate = Gate()

    async def talks(request: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Well, "
        if request.messages[-1].text == "wait":
            await gate

    agent = Agent(talks, name="trips", observers=[watch.observer])
    await agent.run("go")
    late = agent.start("go")

    @agent.on("after_model")
    def ask_late(moment: Moment) -> None:  # pyright: ignore[reportUnusedFunction]
        if moment.run is late:
            late.cancel(Stop.graceful())

    async with late:
        await late.outcome()
    async with agent.start("wait") as run:
        await gate.reached()
        report = await run.cancel(source="disconnect")

    name = {"gen_ai.agent.name": "trips"}
    assert sorted(watch.points("andon.runs"), key=str) == [
        ({**name, "andon.stop_reason": "cancelled"}, 1),
        ({**name, "andon.stop_reason": "end_turn"}, 2),
    ]
    stopped = {**name, "andon.stop.source": "disconnect", "andon.stop.result": "STOPPED"}
    assert sorted(watch.points("andon.stops"), key=str) == [
        (stopped, 1),
        ({**name, "andon.stop.source": "user", "andon.stop.result": "FINISHED_FIRST"}, 1),
    ]
    assert watch.points("andon.stop.latency") == [(stopped, report.latency)]


async def test_a_limit_counts_as_a_stop_of_its_own(watch: Watch) -> None:
    """And the run says which."""
    agent = Agent(steps, tools=[search, broken], limits=Limits(model_calls=1), observers=[watch.observer])
    await agent.run("hi")
    (point,) = watch.points("andon.stops")

    assert attributes(watch.span("invoke_agent agent"))["andon.limit"] == "model_calls 1"
    assert (point[0]["andon.stop.source"], point[0]["andon.stop.result"]) == ("limit", "STOPPED")


async def test_tokens_and_durations_are_measured_by_model(watch: Watch) -> None:
    """As the conventions name them."""

    class Named:
        name = "openai-chat:gpt-4o"

        async def __call__(self, _request: ModelRequest) -> AsyncIterator[Chunk]:
            yield "there"
            yield Usage(input_tokens=7, output_tokens=2)

    await Agent(Named(), observers=[watch.observer]).run("hi")

    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
    }
    assert watch.points("gen_ai.client.token.usage") == [
        ({**about, "gen_ai.token.type": "input"}, 7),
        ({**about, "gen_ai.token.type": "output"}, 2),
    ]
    ((measured, seconds),) = watch.points("gen_ai.client.operation.duration")
    assert measured == about
    assert seconds >= 0
    assert watch.span("chat gpt-4o")


async def test_a_resumed_run_goes_on_with_the_number_of_its_step(watch: Watch) -> None:
    """Tools that run before any model call have a step, too."""
    history = (Message.user("hi"), Message.assistant(Call("search", {"query": "x"}, "c1")))
    saved = Checkpoint(version=VERSION, run_id="r", agent="agent", messages=history, steps=3)

    await Agent(steps, tools=[search], observers=[watch.observer]).resume(saved)

    assert ("step 3", "execute_tool search") in watch.tree()
    assert ("step 4", "chat steps") in watch.tree()


async def test_items_of_child_runs_are_left_to_their_own_observers(watch: Watch) -> None:
    """A child's items pass by in its parent's log."""
    started = RunStarted(n=1, at=1.0, run_id="r", agent="child", path=("c1",))

    watch.observer.observe("r", started)
    watch.observer.observe("r", replace(ModelStarted(step=1), path=("c1",)))

    assert repr(watch.observer) == "<OpenTelemetry, 0 runs>"


def test_without_the_extra_it_says_how_to_install_it() -> None:
    """At the import."""
    program = "import sys; sys.modules['opentelemetry'] = None; import andon.adapters.otel"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603

    assert "MissingExtraError: andon.adapters.otel needs an optional package" in done.stderr
    assert "pip install 'andon[otel]'" in done.stderr


def test_without_a_tracer_the_global_provider_is_used() -> None:
    """One line wires it."""
    assert repr(OpenTelemetry()) == "<OpenTelemetry, 0 runs>"
