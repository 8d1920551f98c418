"""Spans of a tree: a child's run is under its parent's tool span, all are closed, and no stop is an error."""

from collections.abc import Iterator

import anyio
import pytest
from opentelemetry.trace import StatusCode

from andon import Agent, Call, Point, Run, Stop, sequence
from andon.adapters.otel import OpenTelemetry
from andon.core.items import TextDelta
from andon.runtime.hooks import Moment
from andon.testing import Gate, ScriptedModel, virtual
from tests.adapters.test_otel import Watch, attributes
from tests.family import Family, ask, call
from tests.whole import whole


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watch runs; nothing is kept of them afterwards, and no stop is an error."""
    watching = Watch()
    yield watching
    assert repr(watching.observer) == "<OpenTelemetry, 0 runs>"
    assert all(span.end_time is not None for span in watching.spans)
    watching.meters.shutdown()


def errors(watch: Watch) -> list[str]:
    """The spans that say ERROR."""
    return [span.name for span in watch.spans if span.status.status_code is StatusCode.ERROR]


class Scene:
    """A root that is observed, a middle and a leaf that are not, and a gate in the leaf's model."""

    def __init__(self, observer: OpenTelemetry) -> None:
        self.gate = Gate("leaf")
        self.family = Family()
        leaf = self.family.agent("leaf", ["Half ", self.gate, call("nothing")], "Leaf.")
        middle = self.family.agent("middle", ask("leaf"), "Middle.", below=[leaf])
        self.root = self.family.agent("root", ask("middle"), "Root.", below=[middle], observers=[observer])

    async def held(self, run: Run) -> tuple[Run, Run]:
        """Wait until the leaf is held, and give the runs of middle and leaf."""
        await self.gate.reached()
        (middle,) = run.children
        (leaf,) = middle.children
        return middle, leaf


WHOLE_TREE = [
    ("", "invoke_agent root"),
    ("execute_tool leaf", "invoke_agent leaf"),
    ("execute_tool middle", "invoke_agent middle"),
    ("invoke_agent leaf", "step 1"),
    ("invoke_agent middle", "step 1"),
    ("invoke_agent root", "step 1"),
    ("step 1", "chat leaf"),
    ("step 1", "chat middle"),
    ("step 1", "chat root"),
    ("step 1", "execute_tool leaf"),
    ("step 1", "execute_tool middle"),
]


@virtual
async def test_the_spans_of_a_child_are_under_its_parents_tool_span(watch: Watch) -> None:
    """Root, middle and leaf are one trace, each with a span of its own run; each is counted once."""
    scene = Scene(watch.observer)
    scene.family.models["leaf"].script("Leaf.")
    async with scene.root.start("go") as run:
        await whole(run)
    second = [
        ("invoke_agent middle", "step 2"),
        ("invoke_agent root", "step 2"),
        ("step 2", "chat middle"),
        ("step 2", "chat root"),
    ]
    assert watch.tree() == sorted([*WHOLE_TREE, *second])
    assert len({span.context.trace_id for span in watch.spans if span.context}) == 1
    assert attributes(watch.span("invoke_agent root"))["andon.run.id"] == run.id
    assert sum(value for _, value in watch.points("andon.runs")) == 3
    assert errors(watch) == []


@virtual
@pytest.mark.parametrize(
    ("stop", "where"),
    [
        (Stop.now(), ["tools", "tools", "model"]),
        (Stop.now(recursive=True), ["tools", "tools", "model"]),
        (Stop.at(Point.MODEL, recursive=True), ["point:model"] * 3),
        (Stop.at(Point.TOOLS, grace=1), ["tools", "tools", "model"]),
    ],
)
async def test_a_stop_of_the_tree_closes_all_spans_and_none_is_an_error(
    watch: Watch, stop: Stop, where: list[str]
) -> None:
    """Each run says how it was stopped: the root by the user, the others by their parents."""
    scene = Scene(watch.observer)
    async with scene.root.start("go") as run:
        await scene.held(run)
        ticket = run.cancel(stop, reason="enough")
        if stop.points == Point.MODEL:
            scene.gate.open()
        await whole(run)
        report = await ticket
    assert watch.tree() == WHOLE_TREE
    assert errors(watch) == []
    told = [attributes(watch.span(f"invoke_agent {name}")) for name in ("root", "middle", "leaf")]
    assert [one["andon.stop.stopped_at"] for one in told] == where
    assert [one["andon.stop.source"] for one in told] == ["user", "parent", "parent"]
    assert {one["andon.stop.reason"] for one in told} == {"enough"}
    assert told[0]["andon.stop.result"] == report.result
    assert attributes(watch.span("execute_tool leaf"))["andon.tool.state"] == "unknown"


@virtual
async def test_a_child_that_is_cancelled_alone_is_no_error_anywhere(watch: Watch) -> None:
    """The tool call of its parent failed, for the model; its span says who stopped what was behind it."""
    scene = Scene(watch.observer)
    async with scene.root.start("go") as run:
        middle, leaf = await scene.held(run)
        await middle.child(leaf.id).cancel(reason="too slow")
        outcome = await whole(run)
    assert outcome.text == "Root."
    assert errors(watch) == []
    tool_span = attributes(watch.span("execute_tool leaf"))
    assert (tool_span["andon.tool.state"], tool_span["andon.stop.source"]) == ("failed", "user")
    assert tool_span["andon.stop.reason"] == "too slow"
    assert attributes(watch.span("invoke_agent leaf"))["andon.stop_reason"] == "cancelled"
    assert attributes(watch.span("invoke_agent middle"))["andon.stop_reason"] == "end_turn"


@virtual
async def test_a_child_that_fails_is_an_error_of_its_own_and_of_the_call(watch: Watch) -> None:
    """Its parent, which reads that and goes on, is none."""
    family = Family()
    child = family.agent("child", ValueError("broken"))
    root = family.agent("root", ask("child"), "Root.", below=[child], observers=[watch.observer])
    async with root.start("go") as run:
        await whole(run)
    assert sorted(errors(watch)) == ["chat child", "execute_tool child", "invoke_agent child"]


@virtual
async def test_agents_in_hooks_and_steps_of_workflows_have_their_place(watch: Watch) -> None:
    """An agent in a hook is under the run, a step is under the call of the step."""
    family = Family()
    helper = family.agent("helper", "Helper.", "Helper.")
    steps = [family.agent(name, f"{name}.") for name in ("one", "two")]
    workflow = sequence(*steps, name="flow", observers=[watch.observer])

    @steps[0].on("before_model")
    async def think(_: Moment) -> None:
        await helper.run("go")

    async with workflow.start("go") as run:
        await whole(run)
    tree = watch.tree()
    assert ("execute_tool one", "invoke_agent one") in tree
    assert ("execute_tool two", "invoke_agent two") in tree
    assert ("invoke_agent one", "invoke_agent helper") in tree
    assert [parent for parent, _ in tree if not parent] == [""]
    assert errors(watch) == []


async def test_an_agent_in_a_thread_is_under_the_span_of_its_tool(watch: Watch) -> None:
    """Also when it is cut there; what a thread that was abandoned does later closes its own spans."""
    gate = Gate("child")
    child = Agent(ScriptedModel(["Half", gate], name="child"), name="child")

    def work() -> str:
        """Ask in this thread."""
        return child.run_sync("go").text

    root = Agent(ScriptedModel(Call("work")), tools=[work], observers=[watch.observer], name="root")
    async with root.start("go") as run:
        await gate.reached()
        with anyio.fail_after(20):
            await run.cancel()
        await whole(run)
        shown = [event.text async for event in run if isinstance(event, TextDelta)]
    assert ("execute_tool work", "invoke_agent child") in watch.tree()
    assert shown == ["Half"]
    assert errors(watch) == []


@virtual
async def test_a_resumed_tree_is_a_trace_of_the_same_shape(watch: Watch) -> None:
    """The children that go on are under the calls that go on."""
    scene = Scene(watch.observer)
    async with scene.root.start("go") as run:
        await scene.held(run)
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)
    watch.exporter.clear()
    assert outcome.checkpoint is not None
    scene.family.models["leaf"].script("Leaf.")
    again = await scene.root.resume(outcome.checkpoint)
    assert again.text == "Root."
    tree = watch.tree()
    assert ("execute_tool middle", "invoke_agent middle") in tree
    assert ("execute_tool leaf", "invoke_agent leaf") in tree
    assert errors(watch) == []
