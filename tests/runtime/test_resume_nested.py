"""Resume inside children: what each child had done is kept, whatever comes between two resumes."""

from collections import Counter

import anyio
import pytest

from andon import Agent, Call, Outcome, Point, Stop, StopResult, tool
from andon.core.checkpoint import Checkpoint
from andon.core.items import RunStarted, StopRequested, ToolEnded
from andon.core.messages import Message
from andon.core.repair import UNKNOWN
from andon.core.stop import Where
from andon.errors import CheckpointError
from andon.runtime.tools import Tool
from andon.testing import Gate, ScriptedModel, VirtualLoop, run_virtual, virtual
from tests.answers import answered
from tests.whole import whole


class Leaf:
    """An agent that pays, then asks its model, where it can be held."""

    def __init__(self, name: str, paid: Counter[str]) -> None:
        self.gate = Gate(name)

        @tool
        async def pay() -> str:
            """Pay, which must never be done twice."""
            paid[name] += 1
            return f"{name} paid"

        self.model = ScriptedModel(Call("pay", id=f"{name}1"), [self.gate, "never"], name=name)
        self.agent = Agent(self.model, tools=[pay], name=name, instructions="Pay.")

    def then(self) -> None:
        """Let it answer from here on."""
        self.model.script(f"{self.name} is done.")

    @property
    def name(self) -> str:
        """What it is called."""
        return self.agent.name


class Pair:
    """A root with two children at once, both of which have paid and are stopped in their models."""

    def __init__(self, *, sequential: bool = False) -> None:
        self.paid: Counter[str] = Counter()
        self.leaves = [Leaf("a", self.paid), Leaf("b", self.paid)]
        self.model = ScriptedModel([Call("a", {"request": "go"}), Call("b", {"request": "go"})], "Done.")
        self.tools: list[Tool[..., object]] = [leaf.agent.as_tool() for leaf in self.leaves]
        self.agent = Agent(self.model, tools=self.tools, tool_concurrency=1 if sequential else None)

    async def both_stopped(self) -> Checkpoint:
        """Stop both children inside, so that both are kept."""
        agent = Agent(self.model, tools=self.tools)
        async with agent.start("go") as run:
            for leaf in self.leaves:
                await leaf.gate.reached()
            run.cancel(Stop.now(recursive=True))
            outcome = await whole(run)
        assert outcome.checkpoint is not None
        assert [len(inside) for inside in outcome.checkpoint.children.values()] == [1, 1]
        return outcome.checkpoint

    async def finished(self, saved: Checkpoint | None) -> Outcome:
        """Go on to the end."""
        assert saved is not None
        for leaf in self.leaves:
            leaf.then()
        outcome = await self.agent.resume(saved.to_json())
        assert outcome.text == "Done."
        assert [result.content for result in outcome.messages[2].results] == ["a is done.", "b is done."]
        return outcome


@pytest.mark.parametrize("sequential", [False, True])
def test_cut_again_before_a_child_was_reached_it_is_still_kept(*, sequential: bool) -> None:
    """At every step of the resumed run, NOW+recursive: what was not reached is as it was."""
    reached = 0
    for step in range(60):
        scene, loop = Pair(sequential=sequential), VirtualLoop()

        async def story(scene: Pair = scene, loop: VirtualLoop = loop, step: int = step) -> bool:
            saved = await scene.both_stopped()
            for leaf in scene.leaves:
                leaf.gate = Gate(leaf.name)
                leaf.model.script([leaf.gate, "never"])
            run = scene.agent.start_from(saved)
            first = loop.steps
            tickets: list[object] = []

            def cancel(now: int) -> None:
                if now == first + step:
                    tickets.append(run.cancel(Stop.now(recursive=True)))

            loop.before_step = cancel
            async with run:
                async with anyio.create_task_group() as group:
                    group.start_soon(scene.leaves[0].gate.reached)
                    group.start_soon(run.outcome)
                    with anyio.move_on_after(1):
                        await run.outcome()
                    group.cancel_scope.cancel()
                run.cancel(Stop.now(recursive=True))
                outcome = await whole(run)
            states = [result.state for result in outcome.messages[2].results]
            assert states == ["unknown", "unknown"], step
            await scene.finished(outcome.checkpoint)
            assert scene.paid == {"a": 1, "b": 1}, step
            return bool(tickets)

        reached += run_virtual(story, loop=loop)
    assert reached > 10


class Plain:
    """A tool of plain code that asks an agent, and then does something that must not be done twice."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        self.leaf = Leaf("leaf", self.paid)
        self.before, self.after = Gate("before", opened=True), Gate("after", opened=True)

        @tool
        async def plan() -> str:
            """Prepare, ask, and charge."""
            self.paid["prepared"] += 1
            await self.before
            outcome = await self.leaf.agent.run("go")
            self.paid["charged"] += 1
            await self.after
            return outcome.text

        self.model = ScriptedModel(Call("plan", id="c1"), "Done.")
        self.agent = Agent(self.model, tools=[plan])

    async def cut(self, at: Gate, saved: Checkpoint | None = None) -> Outcome:
        """Stop the tree, kept, at a gate."""
        run = self.agent.start("go") if saved is None else self.agent.start_from(saved)
        async with run:
            await at.reached()
            run.cancel(Stop.now(recursive=True))
            return await whole(run)


@virtual
async def test_plain_code_that_waits_for_a_child_goes_on_inside_it() -> None:
    """It runs again from its top, as with a question; the child is asked for what is missing."""
    scene = Plain()
    outcome = await scene.cut(scene.leaf.gate)
    scene.leaf.then()
    ended = await scene.agent.resume(outcome.checkpoint or "")
    assert ended.messages[2].results[0].content == "leaf is done."
    assert scene.paid == {"prepared": 2, "leaf": 1, "charged": 1}


@virtual
async def test_plain_code_that_was_cut_after_its_child_had_ended_is_unknown() -> None:
    """What it did since would be done twice: it does not run again, recursive or not."""
    scene = Plain()
    scene.leaf.then()
    scene.after = Gate("after")
    outcome = await scene.cut(scene.after)
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.children == {}
    ended = await scene.agent.resume(outcome.checkpoint)
    assert ended.messages[2].results[0].content == UNKNOWN
    assert scene.paid == {"prepared": 1, "charged": 1}


@virtual
async def test_plain_code_that_was_cut_before_it_came_back_to_its_child_keeps_it() -> None:
    """Cut in its preparation for the second time, the child has still paid only once."""
    scene = Plain()
    outcome = await scene.cut(scene.leaf.gate)
    scene.before = Gate("before")
    outcome = await scene.cut(scene.before, outcome.checkpoint)
    scene.before.open()
    scene.leaf.then()
    ended = await scene.agent.resume(outcome.checkpoint or "")
    assert ended.messages[2].results[0].content == "leaf is done."
    assert scene.paid == {"prepared": 3, "leaf": 1, "charged": 1}


@virtual
async def test_children_of_one_call_go_on_in_the_order_in_which_they_were_started() -> None:
    """The one that had ended gives its answer again, without a model call; the other goes on."""
    paid: Counter[str] = Counter()
    first, second = Leaf("first", paid), Leaf("second", paid)
    first.model.script(Call("pay"), "first is done.")

    @tool
    async def both() -> str:
        """Ask one after the other."""
        return f"{(await first.agent.run('go')).text} {(await second.agent.run('go')).text}"

    agent = Agent(ScriptedModel(Call("both"), "Done."), tools=[both])
    async with agent.start("go") as run:
        await second.gate.reached()
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)
    second.then()
    ended = await agent.resume((outcome.checkpoint or Checkpoint(version=0, run_id="", agent="")).to_json())
    assert ended.messages[2].results[0].content == "first is done. second is done."
    assert (paid, len(first.model.requests)) == ({"first": 1, "second": 1}, 2)


@virtual
async def test_without_recursive_a_child_that_had_paid_is_unknown_and_others_are_asked_again() -> None:
    """An agent's call counts as idempotent exactly if none of its non-idempotent tools had started."""
    for paying in (True, False):
        paid: Counter[str] = Counter()
        leaf = Leaf("leaf", paid)
        if not paying:
            leaf.model.script([leaf.gate, "never"])
        agent = Agent(ScriptedModel(Call("leaf", {"request": "go"}), "Done."), tools=[leaf.agent.as_tool()])
        async with agent.start("go") as run:
            await leaf.gate.reached()
            report = await run.cancel()
            outcome = await whole(run)
        assert report.result is StopResult.STOPPED
        assert outcome.messages[2].results[0].content == UNKNOWN
        leaf.then()
        ended = await agent.resume(outcome.checkpoint or "")
        assert ended.messages[2].results[0].content == (UNKNOWN if paying else "leaf is done.")
        assert paid["leaf"] == paying


@virtual
@pytest.mark.parametrize("point", [Point.MODEL, Point.TOOLS])
async def test_at_a_point_of_the_deepest_child_the_resume_begins_there(point: Point) -> None:
    """The leaf's stored call runs, or its model is asked; nobody above is asked for what was said."""
    paid: Counter[str] = Counter()
    leaf = Leaf("leaf", paid)
    held = Gate("held")
    leaf.model.script([held, Call("pay", id="p")], "leaf is done.")
    middle_model = ScriptedModel(Call("leaf", {"request": "go"}), "middle is done.")
    middle = Agent(middle_model, tools=[leaf.agent.as_tool()], name="middle", instructions="Ask.")
    root_model = ScriptedModel(Call("middle", {"request": "go"}), "Done.")
    root = Agent(root_model, tools=[middle.as_tool()], name="root")
    async with root.start("go") as run:
        await held.reached()
        ticket = run.cancel(Stop.at(point, recursive=True))
        async for event in run:
            if isinstance(event, StopRequested) and len(event.path) == 2:  # the leaf has heard of it
                held.open()
        outcome = await whole(run)
    expected = Where.POINT_MODEL if point is Point.MODEL else Where.POINT_TOOLS
    assert (await ticket).result is StopResult.STOPPED
    assert outcome.checkpoint is not None
    [[inside]] = outcome.checkpoint.children.values()
    [[deepest]] = inside.children.values()
    assert (inside.agent, deepest.agent) == ("middle", "leaf")
    assert deepest.messages[-1].role == ("assistant" if expected is Where.POINT_MODEL else "tool")
    assert paid["leaf"] == (point is Point.TOOLS)
    ended = await root.resume(outcome.checkpoint.to_json())
    assert (ended.text, paid["leaf"]) == ("Done.", 1)
    assert [len(model.requests) for model in (root_model, middle_model, leaf.model)] == [2, 2, 2]


@virtual
async def test_kept_partials_are_shown_to_the_models_that_were_cut_also_in_children() -> None:
    """`keep_partial=True`: each is told to go on from what it had said; else it has said nothing."""
    for keep in (True, False):
        leaf = Leaf("leaf", Counter())
        leaf.model.script(["Half an ans", leaf.gate])
        agent = Agent(ScriptedModel(Call("leaf", {"request": "go"}), "Done."), tools=[leaf.agent.as_tool()])
        async with agent.start("root's") as run:
            await leaf.gate.reached()
            run.cancel(Stop.now(recursive=True))
            outcome = await whole(run)
        leaf.model.script("wer.")
        ended = await agent.resume(outcome.checkpoint or "", keep_partial=keep)
        shown = [message.text for message in leaf.model.requests[-1].messages]
        assert shown == (["go", "Half an ans", "Go on."] if keep else ["go"])
        assert ended.messages[2].results[0].content == "wer."


# Size


def long_history() -> list[Message]:
    """A conversation of two hundred messages of some length."""
    words = "words that take some room. " * 20
    return [
        made
        for number in range(100)
        for made in (Message.user(f"{number} {words}"), Message.assistant(f"{number} {words}"))
    ]


@virtual
async def test_a_checkpoint_is_small_and_holds_the_history_once() -> None:
    """Also with two levels of children that are shown it: a few kilobytes more than the history."""
    history = long_history()
    paid: Counter[str] = Counter()
    leaf = Leaf("leaf", paid)
    middle = Agent(
        ScriptedModel(Call("leaf", {"request": "go"}), "middle is done."),
        tools=[leaf.agent.as_tool(history=True)],
        name="middle",
        instructions="Ask.",
    )
    root = Agent(
        ScriptedModel(Call("middle", {"request": "go"}), "Done."), tools=[middle.as_tool(history=True)]
    )
    async with root.start("go", messages=history) as run:
        await leaf.gate.reached()
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)
    assert outcome.checkpoint is not None
    plain = Checkpoint(version=1, run_id="", agent="", messages=tuple(history))
    size, least = len(outcome.checkpoint.to_json()), len(plain.to_json())
    assert least > 100_000
    assert size < least + 3_000
    leaf.then()
    ended = await root.resume(outcome.checkpoint.to_json())
    assert ended.text == "Done."
    assert leaf.model.requests[-1].messages[:200] == tuple(history)
    assert len(leaf.model.requests[-1].messages) == 205


@virtual
async def test_ten_resumes_do_not_make_the_checkpoint_grow() -> None:
    """What was stopped ten times is no larger than what was stopped once."""
    scene = Pair()
    saved = await scene.both_stopped()
    first = len(saved.to_json())
    for _ in range(10):
        run = scene.agent.start_from(saved)
        run.cancel(Stop.now(recursive=True))
        async with run:
            saved = (await whole(run)).checkpoint or saved
    assert abs(len(saved.to_json()) - first) < 20
    await scene.finished(saved)
    assert scene.paid == {"a": 1, "b": 1}


# Odd uses


@virtual
async def test_one_checkpoint_resumed_twice_at_once_gives_two_runs_that_do_not_meet() -> None:
    """A checkpoint is a value: each run goes on from it by itself, and its tools run in each of them."""
    ran: list[str] = []
    agents: list[Agent] = []

    @tool
    async def work() -> str:
        """Work."""
        ran.append("work")
        await anyio.sleep(1)
        return "worked"

    held = Gate("model")
    first = Agent(ScriptedModel([held, Call("work", id="c1")]), tools=[work])
    async with first.start("go") as run:
        await held.reached()
        run.cancel(Stop.at(Point.MODEL))
        held.open()
        saved = (await whole(run)).checkpoint
    assert saved is not None
    agents = [Agent(ScriptedModel(f"Done {n}."), tools=[work]) for n in range(2)]
    async with agents[0].start_from(saved) as one, agents[1].start_from(saved) as two:
        outcomes = [await whole(one), await whole(two)]
    assert [outcome.text for outcome in outcomes] == ["Done 0.", "Done 1."]
    assert outcomes[0].run_id != outcomes[1].run_id
    assert ran == ["work", "work"]


@virtual
async def test_a_run_that_answered_has_nothing_to_resume_and_says_so() -> None:
    """Its checkpoint is None, which is refused in words."""
    agent = Agent(ScriptedModel("Done."))
    outcome = await agent.run("go")
    assert outcome.checkpoint is None
    with pytest.raises(CheckpointError, match="a run that gave its answer has none"):
        await agent.resume(outcome.checkpoint)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@virtual
async def test_the_checkpoint_of_a_child_is_resumed_by_itself_only_if_it_is_whole() -> None:
    """One that leans on its parent's messages is refused; one that shares none goes on."""
    for shares in (True, False):
        leaf = Leaf("leaf", Counter())
        agent = Agent(
            ScriptedModel(Call("leaf", {"request": "go"})), tools=[leaf.agent.as_tool(history=shares)]
        )
        async with agent.start("root's") as run:
            await leaf.gate.reached()
            run.cancel(Stop.now(recursive=True))
            saved = (await whole(run)).checkpoint
        assert saved is not None
        [[inside]] = saved.children.values()
        leaf.then()
        if shares:
            with pytest.raises(CheckpointError, match="is a part of another, with which it shares messages"):
                leaf.agent.start_from(inside)
        else:
            assert (await leaf.agent.resume(inside)).text == "leaf is done."


@virtual
async def test_who_reads_a_resumed_run_sees_its_children_begin_from_their_checkpoints() -> None:
    """Each names its parent and its call, and the call ends once."""
    scene = Pair()
    saved = await scene.both_stopped()
    for leaf in scene.leaves:
        leaf.then()
    async with scene.agent.start_from(saved) as run:
        await whole(run)
        events = [event async for event in run]
    begun = [event for event in events if isinstance(event, RunStarted) and event.path]
    assert [(one.agent, one.parent) for one in begun] == [("a", run.id), ("b", run.id)]
    assert all(one.checkpoint is not None and one.checkpoint.messages for one in begun)
    assert [event.state for event in events if isinstance(event, ToolEnded)] == ["completed", "completed"]


@virtual
async def test_a_child_that_went_on_and_was_cut_without_recursive_is_unknown_for_good() -> None:
    """It had paid before it was stopped the first time: it does not begin anew."""
    paid: Counter[str] = Counter()
    leaf = Leaf("leaf", paid)

    @tool
    async def hold() -> str:
        """Hold, in the resumed run."""
        await anyio.sleep_forever()
        return "never"

    agent = Agent(ScriptedModel(Call("leaf", {"request": "go"}), "Done."), tools=[leaf.agent.as_tool(), hold])
    async with agent.start("go") as run:
        await leaf.gate.reached()
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)
    again = Gate("again")
    leaf.model.script([again, "never"])
    assert outcome.checkpoint is not None
    async with agent.start_from(outcome.checkpoint) as run:
        await again.reached()
        run.cancel(Stop.now())
        outcome = await whole(run)
    ended = await answered(agent, outcome)
    assert ended.messages[2].results[0].content == UNKNOWN
    assert paid == {"leaf": 1}
