"""What is in the store under the id of a run: what that run goes on from, and nothing after its answer."""

import pytest
from typing_extensions import override

from andon import Agent, Call, Outcome, Stop, StopResult, ToolContext, tool
from andon.core.checkpoint import Checkpoint
from andon.errors import CheckpointError, UserError
from andon.ports import Store
from andon.testing import Gate, ScriptedModel, virtual
from tests.family import ask, inside
from tests.stores import MemoryStore
from tests.whole import whole


class Recording(MemoryStore):
    """Keeps checkpoints, and notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    @override
    async def get(self, checkpoint_id: str, /) -> bytes | None:
        """Note it."""
        self.asked.append("get")
        return await super().get(checkpoint_id)

    @override
    async def set(self, checkpoint_id: str, data: bytes, /) -> None:
        """Note it."""
        self.asked.append("set")
        await super().set(checkpoint_id, data)

    @override
    async def delete(self, checkpoint_id: str, /) -> None:
        """Note it."""
        self.asked.append("delete")
        await super().delete(checkpoint_id)


class Undeletable(MemoryStore):
    """Keeps for ever."""

    @override
    async def delete(self, checkpoint_id: str, /) -> None:
        """Refuse."""
        msg = "read-only"
        raise OSError(msg)


class Undecided(MemoryStore):
    """Never says whether it has deleted."""

    @override
    async def delete(self, checkpoint_id: str, /) -> None:
        """Wait for ever."""
        await Gate("delete")


class Unreadable(MemoryStore):
    """Cannot be read."""

    @override
    async def get(self, checkpoint_id: str, /) -> bytes | None:
        """Fail."""
        msg = "the disk is gone"
        raise OSError(msg)


async def cut(agent: Agent, gate: Gate, checkpoint_id: str | None = "chat") -> Outcome:
    """Cut a run in its model."""
    async with agent.start("go", checkpoint_id=checkpoint_id) as run:
        await gate.reached()
        run.cancel(Stop.now(recursive=True))
        return await whole(run)


@tool
async def confirm(context: ToolContext) -> str:
    """Ask."""
    return f"answered {await context.interrupt('sure?')}"


@virtual
async def test_a_run_is_resumed_by_its_id_and_leaves_nothing_there_after_its_answer() -> None:
    """Stopped once more, its newer state is there instead; another agent object finds it as well."""
    store, gate = Recording(), Gate()
    first = Agent(ScriptedModel([gate, "never"]), store=store)
    await cut(first, gate)
    again = Agent(ScriptedModel(Call("confirm"), "Done."), tools=[confirm], store=store)
    paused = await again.resume(checkpoint_id="chat")
    assert paused.checkpoint == Checkpoint.from_json(store.data["chat"])
    [question] = paused.interrupts
    ended = await again.resume(checkpoint_id="chat", answers={question.id: "yes"})
    assert (ended.text, ended.messages[2].results[0].content) == ("Done.", "answered yes")
    assert (ended.checkpoint_error, store.data) == (None, {})
    assert store.asked == ["set", "get", "set", "get", "delete"]
    with pytest.raises(CheckpointError, match="nothing is stored as 'chat'"):
        await again.resume(checkpoint_id="chat")


@virtual
async def test_a_checkpoint_that_is_given_goes_before_what_is_stored() -> None:
    """The store is not read, and what was under the id is used up by the answer all the same."""
    store, gate = Recording(), Gate()
    outcome = await cut(Agent(ScriptedModel([gate, "never"]), store=store), gate)
    ended = await Agent(ScriptedModel("Done."), store=store).resume(outcome.checkpoint, checkpoint_id="chat")
    assert (ended.text, store.data, store.asked) == ("Done.", {}, ["set", "delete"])


@virtual
async def test_a_conversation_that_goes_on_otherwise_leaves_no_old_state_behind() -> None:
    """An ordinary prompt under the same id: to resume what it had left would do its work once more."""
    store, gate = Recording(), Gate()
    agent = Agent(ScriptedModel([gate, "never"], "Done."), store=store)
    outcome = await cut(agent, gate)
    assert list(store.data) == ["chat"]
    ended = await agent.run("Never mind.", messages=outcome.messages, checkpoint_id="chat")
    assert (ended.text, store.data) == ("Done.", {})


@virtual
async def test_without_an_id_an_answer_has_nothing_to_delete() -> None:
    """What is stored is under the id of another run, which is the caller's to name."""
    store, gate = Recording(), Gate()
    agent = Agent(ScriptedModel([gate, "never"], "Done.", "Done."), store=store)
    outcome = await cut(agent, gate, checkpoint_id=None)
    assert (await agent.run("Hello.")).text == "Done."
    assert (await agent.resume(outcome.checkpoint)).text == "Done."
    assert (list(store.data), store.asked) == ([outcome.run_id], ["set"])


@virtual
@pytest.mark.parametrize(
    ("store", "error"),
    [
        (Undeletable(), "OSError: read-only"),
        (Undecided(), "what it has used up was not deleted within 5 s"),
    ],
    ids=["fails", "hangs"],
)
async def test_a_used_checkpoint_that_could_not_be_deleted_is_told_beside_the_answer(
    store: Store, error: str
) -> None:
    """The answer counts; who would resume by the id once more is warned."""
    answer = Gate("answer")
    agent = Agent(ScriptedModel([answer, "Done."]), store=store, durable_timeout=5)
    async with agent.start("go", checkpoint_id="chat") as run:
        await answer.reached()
        ticket = run.cancel(Stop.graceful())
        answer.open()
        outcome = await whole(run)
    report = await ticket
    assert (outcome.stop_reason, outcome.text, outcome.checkpoint_error) == ("end_turn", "Done.", error)
    assert (report.result, report.durable, report.checkpoint) == (StopResult.FINISHED_FIRST, False, None)
    assert report.checkpoint_error == error


@virtual
@pytest.mark.parametrize("kept", [b"{", b'{"version":2}'], ids=["torn", "version"])
async def test_what_cannot_be_gone_on_with_is_left_in_the_store(kept: bytes) -> None:
    """It is refused in words, and neither consumed nor deleted."""
    store, model = Recording(), ScriptedModel("never")
    store.data["chat"] = kept
    with pytest.raises(CheckpointError):
        await Agent(model, store=store).resume(checkpoint_id="chat")
    assert (store.data, store.asked, model.requests) == ({"chat": kept}, ["get"], [])


@virtual
async def test_a_store_that_cannot_be_read_says_so_itself() -> None:
    """Its own error is raised, and nothing is run."""
    model = ScriptedModel("never")
    with pytest.raises(OSError, match="the disk is gone"):
        await Agent(model, store=Unreadable()).resume(checkpoint_id="chat")
    assert model.requests == []


@virtual
async def test_without_a_store_or_an_id_there_is_nothing_to_look_for() -> None:
    """Both are refused in words; an answer has no checkpoint, also where one is resumed by mistake."""
    with pytest.raises(UserError, match=r"agent 'clerk' has no store to find 'chat' in.*Agent\(store=…\)"):
        await Agent(ScriptedModel(), name="clerk").resume(checkpoint_id="chat")
    agent = Agent(ScriptedModel("Done."), store=MemoryStore())
    with pytest.raises(CheckpointError, match="a run that gave its answer has none"):
        await agent.resume((await agent.run("go")).checkpoint)


# Children with a store of their own


@virtual
async def test_a_child_that_goes_on_with_its_parent_is_stored_with_it_only() -> None:
    """One checkpoint of it is enough: given up with the root, nothing of it is left anywhere."""
    above, below = MemoryStore(), MemoryStore()
    model = ScriptedModel([Call("confirm")], "Confirmed.")
    child = Agent(model, tools=[confirm], name="child", store=below)
    root = Agent(ScriptedModel(ask("child"), "Done."), tools=[child.as_tool(description="Ask.")], store=above)
    async with root.start("go") as run:
        outcome = await whole(run)
    assert (outcome.stop_reason, list(above.data), below.data) == ("interrupt", [run.id], {})
    assert (await run.cancel()).durable
    assert (above.data, below.data) == ({}, {})


@virtual
@pytest.mark.parametrize("recursive", [True, False])
async def test_a_child_that_is_cut_is_stored_with_its_parent_or_by_itself(*, recursive: bool) -> None:
    """By itself where its parent does not keep it, as when it is cancelled alone."""
    above, below, gate = MemoryStore(), MemoryStore(), Gate()
    child = Agent(ScriptedModel([gate, "never"]), name="child", store=below)
    root = Agent(ScriptedModel(ask("child"), "Done."), tools=[child.as_tool(description="Ask.")], store=above)
    async with root.start("go") as run:
        await gate.reached()
        run.cancel(Stop.now(recursive=recursive))
        outcome = await whole(run)
    assert inside(outcome.checkpoint) == (["agent", "child"] if recursive else ["agent"])
    assert (len(above.data), len(below.data)) == (1, 0 if recursive else 1)


@virtual
async def test_a_child_that_is_cancelled_alone_is_in_its_own_store() -> None:
    """Its parent goes on without it, and it may be resumed by itself."""
    above, below, gate = MemoryStore(), MemoryStore(), Gate()
    child = Agent(ScriptedModel([gate, "never"], "Done alone."), name="child", store=below)
    root = Agent(ScriptedModel(ask("child"), "Done."), tools=[child.as_tool(description="Ask.")], store=above)
    async with root.start("go") as run:
        await gate.reached()
        [alone] = run.children
        report = await alone.cancel()
        outcome = await whole(run)
    assert (outcome.text, above.data, list(below.data)) == ("Done.", {}, [report.checkpoint])
    assert (await child.resume(checkpoint_id=alone.id)).text == "Done alone."
    assert below.data == {}
