"""Resume with other code: what has changed is met in words, recorded, and never guessed."""

from typing import Any

import pytest

from andon import Agent, Call, Outcome, Point, Stop, ToolContext, tool
from andon.core.checkpoint import VERSION, Checkpoint
from andon.core.items import RunStarted, ToolEnded, ToolStarted
from andon.errors import CheckpointError
from andon.runtime.tools import Tool
from andon.testing import Gate, ScriptedModel, virtual
from tests.answers import ids
from tests.stores import MemoryStore
from tests.whole import whole


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    return f"{place} is empty"


async def kept(*calls: Call) -> Checkpoint:
    """A checkpoint at point:model, with these calls to come."""
    held = Gate("model")
    agent = Agent(ScriptedModel([held, *calls], name="first"), tools=[look], name="trips")
    async with agent.start("go") as run:
        await held.reached()
        run.cancel(Stop.at(Point.MODEL))
        held.open()
        outcome = await whole(run)
    assert outcome.checkpoint is not None
    return outcome.checkpoint


async def resumed(agent: Agent, saved: Checkpoint) -> tuple[Outcome, tuple[str, ...], list[str]]:
    """Go on with another agent: its outcome, what it says has changed, and the results of the calls."""
    async with agent.start_from(saved.to_json()) as run:
        outcome = await whole(run)
        events = [event async for event in run]
    first = events[0]
    assert isinstance(first, RunStarted)
    assert outcome.stop_reason == "end_turn"
    return outcome, first.changed, [result.content for result in outcome.messages[2].results]


def model() -> ScriptedModel:
    """The model of the resumed run, of the same name as the first."""
    return ScriptedModel("Done.", name="first")


@virtual
async def test_the_same_code_has_not_changed() -> None:
    """Other objects of the same names are the same agent."""
    saved = await kept(Call("look", {"place": "box"}, "c1"))
    _, changed, results = await resumed(Agent(model(), tools=[look], name="trips"), saved)
    assert (changed, results) == ((), ["box is empty"])


@virtual
async def test_a_tool_that_is_gone_fails_its_call_and_the_others_run() -> None:
    """The model reads which there are; nothing is called that was not asked for."""

    @tool
    async def peek(place: str) -> str:
        """What it is called now."""
        return place

    saved = await kept(Call("look", {"place": "box"}, "c1"), Call("peek", {"place": "bag"}, "c2"))
    agent = Agent(model(), tools=[peek], name="trips")
    _, changed, results = await resumed(agent, saved)
    assert results == ["There is no tool 'look'. The tools are: peek.", "bag"]
    assert changed == ("tools gone: look", "tools new: peek")


@virtual
async def test_a_tool_that_takes_other_arguments_fails_its_call() -> None:
    """It is not called with what it does not take; what it still takes is no change."""
    called: list[object] = []

    @tool(name="look")
    async def other(place: str, colour: str) -> str:
        """Look for a colour."""
        called.append((place, colour))
        return "never"

    @tool(name="look")
    async def more(place: str, colour: str = "red") -> str:
        """Look for a colour, or red."""
        return f"{place} {colour}"

    saved = await kept(Call("look", {"place": "box"}, "c1"))
    _, changed, results = await resumed(Agent(model(), tools=[other], name="trips"), saved)
    assert results[0].startswith("Invalid arguments for look: colour: Field required")
    assert (called, changed) == ([], ())
    _, _, results = await resumed(Agent(model(), tools=[more], name="trips"), saved)
    assert results == ["box red"]


@virtual
async def test_another_agent_with_another_model_is_recorded_and_goes_on() -> None:
    """Its own instructions and model; what is stored is the conversation, not the agent."""
    saved = await kept(Call("look", {"place": "box"}, "c1"))
    second = ScriptedModel("Done.", name="second")
    agent = Agent(second, tools=[look], name="travel", instructions="Be brief.")
    outcome, changed, _ = await resumed(agent, saved)
    assert changed == ("agent: trips → travel", "model: first → second")
    assert outcome.text == "Done."
    assert second.requests[0].instructions == "Be brief."


@virtual
async def test_a_result_that_is_unknown_runs_again_as_soon_as_its_tool_may_be_repeated() -> None:
    """And is kept as unknown where its tool is gone: nobody knows more."""
    held, ran = Gate("tool"), list[str]()

    def made(*, idempotent: bool) -> Tool[..., Any]:
        @tool(idempotent=idempotent)
        async def work() -> str:
            """Work."""
            ran.append("work")
            await held
            return "worked"

        return work

    agent = Agent(ScriptedModel(Call("work", id="c1"), name="first"), tools=[made(idempotent=False)])
    async with agent.start("go") as run:
        await held.reached()
        run.cancel()
        saved = (await whole(run)).checkpoint
    assert saved is not None
    held.open()
    _, _, results = await resumed(Agent(model()), saved)
    assert results == ["Cancelled: was stopped; whether it took effect is not known"]
    _, _, results = await resumed(Agent(model(), tools=[made(idempotent=True)]), saved)
    assert (results, ran) == (["worked"], ["work", "work"])


@virtual
async def test_a_tool_that_asked_and_is_gone_fails_its_call_and_asks_no_more() -> None:
    """The answer is taken, and nobody is there to hear it; the run goes on."""

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask."""
        return f"{await context.interrupt('well?')}"

    outcome = await Agent(ScriptedModel(Call("ask", id="c1")), tools=[ask]).run("go")
    assert outcome.checkpoint is not None
    agent = Agent(ScriptedModel("Done."), tools=[look])
    ended = await agent.resume(outcome.checkpoint, answers={ids(outcome)[0]: "yes"})
    assert (ended.stop_reason, ended.interrupts, ended.text) == ("end_turn", (), "Done.")
    assert ended.messages[2].results[0].content == "There is no tool 'ask'. The tools are: look."


@virtual
async def test_a_tool_that_asks_less_than_before_simply_ends() -> None:
    """Answers that nobody takes any more are let go with their call."""

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask twice."""
        return f"{await context.interrupt('one?')} {await context.interrupt('two?')}"

    @tool(name="ask")
    async def once() -> str:
        """Ask no more."""
        return "I know."

    first = await Agent(ScriptedModel(Call("ask", id="c1")), tools=[ask]).run("go")
    second = await Agent(ScriptedModel(), tools=[ask]).resume(
        first.checkpoint or "", answers={ids(first)[0]: "yes"}
    )
    ended = await Agent(ScriptedModel("Done."), tools=[once]).resume(
        second.checkpoint or "", answers={ids(second)[0]: "yes"}
    )
    assert (ended.messages[2].results[0].content, ended.interrupts) == ("I know.", ())


# Children


class Family:
    """A root with a child behind a tool, which is stopped inside, after its child has looked."""

    def __init__(self) -> None:
        self.looks: list[str] = []

        @tool
        async def note(what: str) -> str:
            """Note, which must not be done twice."""
            self.looks.append(what)
            return "noted"

        self.note = note

    async def stopped(self) -> Checkpoint:
        """Stop it in the child's second model call."""
        held = Gate("child")
        child = self.child(ScriptedModel(Call("note", {"what": "a"}, "n1"), [held], name="one"))
        async with self.root(child).start("go") as run:
            await held.reached()
            run.cancel(Stop.now(recursive=True))
            saved = (await whole(run)).checkpoint
        assert saved is not None
        return saved

    def child(self, model: ScriptedModel, name: str = "child", *, tools: bool = True) -> Agent:
        """The child, of this code or of another."""
        return Agent(model, tools=[self.note] if tools else [], name=name, instructions="Help.")

    def root(self, child: Agent, *replies: str) -> Agent:
        """The root, whose model goes on with these replies."""
        said = [*replies] or [Call("help", {"request": "go"}, "c1")]
        return Agent(ScriptedModel(*said, name="root"), tools=[child.as_tool(name="help")], name="root")

    async def changed(self, saved: Checkpoint, child: Agent) -> tuple[Outcome, tuple[str, ...]]:
        """Go on, and tell in what the child says it has changed."""
        async with self.root(child, "Done.").start_from(saved) as run:
            outcome = await whole(run)
            begun = [event async for event in run if isinstance(event, RunStarted)]
        assert (outcome.text, begun[0].changed) == ("Done.", ())
        return outcome, begun[1].changed if len(begun) > 1 else ()


@virtual
async def test_a_child_whose_model_and_tools_have_changed_records_it_and_goes_on() -> None:
    """In its own first item; the root has not changed."""
    scene = Family()
    saved = await scene.stopped()
    child = scene.child(ScriptedModel("Helped.", name="two"), tools=False)
    outcome, changed = await scene.changed(saved, child)
    assert changed == ("model: one → two", "tools gone: note")
    assert outcome.messages[2].results[0].content == "Helped."
    assert scene.looks == ["a"]


@virtual
async def test_another_agent_in_the_childs_place_is_not_guessed_to_be_the_child() -> None:
    """The call fails in words, no model of it is asked, and nothing that was done is done again."""
    scene = Family()
    saved = await scene.stopped()
    model = ScriptedModel("never")
    outcome, _ = await scene.changed(saved, scene.child(model, "stranger"))
    assert outcome.messages[2].results[0].content == (
        "CheckpointError: this call goes on with the agent 'child', and 'stranger' was started: "
        "the code has changed since the checkpoint, or begins another agent first; start the run anew"
    )
    assert (model.requests, scene.looks) == ([], ["a"])


@virtual
async def test_a_call_whose_child_is_not_behind_it_any_more_fails() -> None:
    """The tool that led to the child is gone, and the child with it."""
    scene = Family()
    saved = await scene.stopped()
    async with Agent(ScriptedModel("Done."), name="root", tools=[look]).start_from(saved) as run:
        outcome = await whole(run)
        started = [event async for event in run if isinstance(event, ToolStarted)]
        [first] = [event async for event in run if isinstance(event, RunStarted)]
    assert outcome.messages[2].results[0].content == "There is no tool 'help'. The tools are: look."
    assert (started, scene.looks) == ([], ["a"])
    assert first.changed == ("model: root → scripted", "tools gone: help", "tools new: look")


@virtual
async def test_plain_code_that_starts_fewer_agents_than_before_ends_with_what_it_has() -> None:
    """The child that nobody asks for any more is let go with its call."""
    scene = Family()
    saved = await scene.stopped()

    @tool(name="help")
    async def alone(request: str) -> str:
        """Help alone."""
        return f"{request} alone"

    async with Agent(ScriptedModel("Done."), tools=[alone], name="root").start_from(saved) as run:
        outcome = await whole(run)
        [ended] = [event async for event in run if isinstance(event, ToolEnded)]
    assert outcome.messages[2].results[0].content == "go alone"
    assert (ended.again, ended.children, scene.looks) == (False, (), ["a"])


# What is no checkpoint


VERSIONS = b'"version":%d' % VERSION, b'"version":%d' % (VERSION + 1)


@virtual
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (*VERSIONS, f"format version {VERSION + 1}, and this Andon reads version {VERSION}"),
        (b'"messages"', b'"massages"', "this checkpoint has no messages"),
        (b'"user"', b'"nobody"', "this checkpoint cannot be read"),
        (b'"go"', b'"\xff"', "this checkpoint cannot be read"),
        (b'"steps":1', b'"steps":"one"', "this checkpoint cannot be read"),
        (b"}", b"", "this is no checkpoint of a run"),
    ],
)
async def test_what_cannot_be_read_is_refused_and_stays_in_the_store(
    old: bytes, new: bytes, says: str
) -> None:
    """Nothing is asked of a model, nothing is consumed or deleted, and the good one still resumes."""
    saved = (await kept(Call("look", {"place": "box"}, "c1"))).to_json()
    assert old in saved
    await refused(saved, saved.replace(old, new, 1), says)


@virtual
async def test_what_was_written_in_part_is_refused_and_stays_in_the_store() -> None:
    """Wherever it was torn."""
    saved = (await kept(Call("look", {"place": "box"}, "c1"))).to_json()
    for length in range(0, len(saved), 50):
        await refused(saved, saved[:length], "this is no checkpoint of a run")


async def refused(saved: bytes, spoilt: bytes, says: str) -> None:
    """Hold an agent to leaving a spoilt checkpoint alone."""
    store, asked = MemoryStore(), ScriptedModel("Done.")
    store.data["chat"] = spoilt
    agent = Agent(asked, tools=[look], store=store)
    with pytest.raises(CheckpointError, match=says):
        await agent.resume(spoilt, checkpoint_id="chat")
    assert (store.data, asked.requests) == ({"chat": spoilt}, [])
    assert (await agent.resume(saved, checkpoint_id="chat")).text == "Done."
