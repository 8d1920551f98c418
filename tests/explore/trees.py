"""The scenarios with runs inside runs: agents behind tools, in tools, in hooks, and as steps of workflows."""

from collections.abc import Callable
from typing import Any

import anyio

from andon import Call, Limits, ToolError, loop, parallel, sequence, tool
from andon.core.messages import Message
from andon.runtime.hooks import Moment
from andon.testing import Delay, Gate, Scenario, Scene, Yield
from tests.explore.cast import SPENT, Cast, ask, said, worker


def _child() -> Scene:
    cast = Cast()
    inner = worker(cast, "inner")
    outer = cast.agent(
        "outer", ["Let me ", Yield(), ask("inner"), SPENT], ["So ", "be it."], tools=[inner.as_tool()]
    )
    return cast.scene(outer)


def _three_deep() -> Scene:
    cast = Cast()
    leaf = worker(cast, "leaf")
    middle = cast.agent(
        "middle",
        ["Down.", ask("leaf")],
        [Call("note")],
        ["Leaf is ", "done."],
        tools=[leaf.as_tool(), cast.work("note", 0.1)],
    )
    outer = cast.agent("outer", [Yield(), ask("middle")], [Delay(0.1), "All done."], tools=[middle.as_tool()])
    return cast.scene(outer)


def _parallel_children() -> Scene:
    cast = Cast()
    left, right = worker(cast, "left", 0.2), worker(cast, "right", 0.6)
    outer = cast.agent(
        "outer",
        [ask("left"), ask("right"), Call("own")],
        ["All ", "three."],
        tools=[left.as_tool(), right.as_tool(), cast.work("own", 0.4)],
    )
    return cast.scene(outer)


def _with_history() -> Scene:
    cast = Cast()
    inner = worker(cast, "inner")
    before = (Message.user("Hello."), Message.assistant("Hello yourself."))
    outer = cast.agent(
        "outer",
        [Call("look")],
        ["Now.", ask("inner")],
        "It was seen to.",
        tools=[inner.as_tool(history=True), cast.work("look", 0.1)],
    )
    return cast.scene(outer, messages=before)


def _in_a_plain_tool() -> Scene:
    cast = Cast()
    first, second = worker(cast, "first", 0.2), worker(cast, "second", 0.2)

    @tool
    async def both() -> str:
        """Ask one agent, then another."""
        one = said(await first.run("Begin."))
        return f"{one} {said(await second.run(f'Go on from: {one}'))}"

    outer = cast.agent("outer", [Yield(), Call("both")], "Both have.", tools=[both])
    return cast.scene(outer)


def _in_a_hook() -> Scene:
    cast = Cast()
    guard = cast.agent("guard", [Yield(), "It ", "may pass."])
    outer = cast.agent(
        "outer", ["Hm.", Call("look"), Call("dig")], "Done.", tools=[cast.work("look"), cast.work("dig")]
    )

    @outer.on("before_tool")
    async def _(moment: Moment) -> str | None:
        said = await guard.run(f"May {moment.call and moment.call.name} pass?")
        return None if said.stop_reason in {"end_turn", "cancelled"} else "the guard is away"

    return cast.scene(outer)


def _sequence() -> Scene:
    cast = Cast()
    return cast.scene(sequence(worker(cast, "first", 0.2), worker(cast, "second", 0.2), name="both"))


def _parallel() -> Scene:
    cast = Cast()
    return cast.scene(parallel(worker(cast, "left", 0.2), worker(cast, "right", 0.5), name="both"))


def _loop() -> Scene:
    cast = Cast()
    return cast.scene(
        loop(worker(cast, "first", 0.2), cast.agent("second", ["Once ", "more."]), max=2, name="round")
    )


def _hand_over() -> Scene:
    cast = Cast()
    expert = worker(cast, "expert")
    outer = cast.agent(
        "outer",
        [Call("look")],
        ["I leave you to it.", ask("hand_over_to_expert")],
        "expert has worked.",  # as the expert would have put it, where that was cancelled alone
        tools=[cast.work("look", 0.1)],
        hand_over=[expert],
    )
    return cast.scene(outer)


def _workflow_behind_a_tool() -> Scene:
    cast = Cast()
    steps = sequence(worker(cast, "first", 0.2), cast.agent("second", [Yield(), "Said."]), name="steps")
    outer = cast.agent(
        "outer", ["Step by step.", ask("steps")], "Stepped.", tools=[steps.as_tool(description="Steps.")]
    )
    return cast.scene(outer)


def _question_in_a_child() -> Scene:
    cast = Cast()
    inner = cast.agent("inner", [Yield(), Call("dig")], ["I ", "dug."], tools=[cast.inquiry("dig")])
    outer = cast.agent(
        "outer", ["Ask.", ask("inner"), Call("look")], "Dug.", tools=[inner.as_tool(), cast.work("look", 0.2)]
    )
    return cast.scene(outer)


def _questions_side_by_side() -> Scene:
    cast = Cast()
    left = cast.agent("left", [Call("dig")], "Left dug.", tools=[cast.inquiry("dig")])
    right = worker(cast, "right", 0.3)
    outer = cast.agent(
        "outer",
        [ask("left"), ask("right"), Call("pay")],
        "All three.",
        tools=[left.as_tool(), right.as_tool(), cast.inquiry("pay")],
    )
    return cast.scene(outer)


def _question_in_a_hook() -> Scene:
    cast = Cast()
    inner = worker(cast, "inner", 0.2)

    @inner.on("before_tool")
    async def _(moment: Moment) -> str | None:
        allowed = await moment.interrupt({"may": moment.call and moment.call.name})
        return None if allowed.startswith("yes") else "not allowed"

    outer = cast.agent("outer", [Yield(), ask("inner")], "It was allowed.", tools=[inner.as_tool()])
    return cast.scene(outer)


def _repeatable() -> Scene:
    cast = Cast(again=("read", "work_careful"))
    careful = worker(cast, "careful", 0.3, idempotent=True)
    bold = worker(cast, "bold", 0.3)
    outer = cast.agent(
        "outer",
        [ask("careful"), ask("bold"), Call("read")],
        "Read, with care and boldly.",
        tools=[careful.as_tool(), bold.as_tool(), cast.work("read", 0.2, idempotent=True)],
    )
    return cast.scene(outer)


def _child_that_pays() -> Scene:
    cast = Cast()
    payer = worker(cast, "payer", 1.5, finish=True)
    outer = cast.agent(
        "outer", [ask("payer"), Call("look")], "Paid.", tools=[payer.as_tool(), cast.work("look", 0.3)]
    )
    return cast.scene(outer, within=1.6)


def _child_that_fails() -> Scene:
    cast = Cast()

    @tool
    async def locked() -> str:
        """Be locked."""
        await anyio.sleep(0.1)
        msg = "it is locked"
        raise ToolError(msg)

    broken = cast.agent("broken", [Yield(), Call("locked")], [RuntimeError("out of order")], tools=[locked])
    outer = cast.agent("outer", [ask("broken")], ["It ", "does not work."], tools=[broken.as_tool()])
    return cast.scene(outer)


def _limits() -> Scene:
    cast = Cast()
    inner = worker(cast, "inner", 0.2)
    outer = cast.agent(
        "outer",
        ["Go.", ask("inner")],
        ["And ", ask("inner")],
        "Never.",
        tools=[inner.as_tool()],
        limits=Limits(model_calls=4),
    )
    return cast.scene(outer)


def _limited_child() -> Scene:
    cast = Cast()
    inner = cast.agent(
        "inner",
        [Call("look")],
        [Yield(), Call("look")],
        "Never.",
        tools=[cast.work("look", 0.2)],
        limits=Limits(tool_calls=1),
    )
    outer = cast.agent("outer", ["Go.", ask("inner")], ["Not ", "all of it."], tools=[inner.as_tool()])
    return cast.scene(outer)


def _clinging_child() -> Scene:
    cast = Cast()
    gate = Gate("never mind")

    @tool(timeout=3)
    async def cling() -> str:
        """Ignore every cancellation."""
        while not gate.opened:
            try:
                await gate
            except BaseException:  # noqa: BLE001, S112 — that is the point
                continue
        return "late"

    inner = cast.agent("inner", [Yield(), Call("cling")], "It clung.", tools=[cling], tool_grace=0.5)
    outer = cast.agent("outer", [ask("inner")], "So it did.", tools=[inner.as_tool()], tool_grace=0.5)
    return cast.scene(outer, within=1.1, let_go=gate.open)


def _in_a_thread() -> Scene:
    cast = Cast()
    inner = worker(cast, "inner", 0.01)

    @tool
    def dig() -> str:
        """Ask an agent, in a thread."""
        return said(inner.run_sync("Dig."))

    outer = cast.agent("outer", ["Down.", Call("dig")], "Dug.", tools=[dig])
    return cast.scene(outer, within=10.0)


def _beside_a_thread() -> Scene:
    cast = Cast()
    deep, near = worker(cast, "deep", 0.01), worker(cast, "near", 0.02)

    @tool
    def dig() -> str:
        """Ask an agent that asks another, in a thread."""
        return said(middle.run_sync("Dig."))

    middle = cast.agent("middle", [ask("deep")], "Deeper.", tools=[deep.as_tool()])
    outer = cast.agent("outer", [Call("dig"), ask("near")], "Both.", tools=[dig, near.as_tool()])
    return cast.scene(outer, within=10.0)


def _tree(name: str, make: Callable[[], Scene], **options: Any) -> Scenario:  # noqa: ANN401 — Scenario's own
    return Scenario(name=name, make=make, resumes=True, **options)


TREES = (
    _tree("a child", _child),
    _tree("three deep", _three_deep),
    _tree("parallel children", _parallel_children),
    _tree("a child with the history", _with_history),
    _tree("agents in a plain tool", _in_a_plain_tool),
    _tree("an agent in a hook", _in_a_hook),
    _tree("a sequence", _sequence, needs_all=True),
    _tree("a parallel", _parallel, needs_all=True),
    _tree("a loop", _loop, needs_all=True),
    _tree("a hand-over", _hand_over),
    _tree("a workflow behind a tool", _workflow_behind_a_tool),
    _tree("a question in a child", _question_in_a_child, ends="interrupt"),
    _tree("questions side by side", _questions_side_by_side, ends="interrupt"),
    _tree("a question in a child's hook", _question_in_a_hook, ends="interrupt"),
    _tree("what may be repeated", _repeatable),
    _tree("a child that pays", _child_that_pays),
    _tree("a child that fails", _child_that_fails),
    _tree("limits of a tree", _limits, ends="limit"),
    _tree("limits of a child", _limited_child),
    _tree("a child that clings", _clinging_child),
)
FOREIGN_TREES = (
    _tree("a child in a thread", _in_a_thread, foreign=True),
    _tree("children in and beside a thread", _beside_a_thread, foreign=True),
)
