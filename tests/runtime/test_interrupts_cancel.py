"""Cancel while a human is asked: what waits is given up for good, or it goes on; never both."""

import asyncio
import threading
from functools import partial
from pathlib import Path

import anyio
import pytest

from andon import Agent, Call, Outcome, Point, Run, Stop, StopReport, StopResult, ToolContext, tool
from andon.core.checkpoint import Checkpoint
from andon.core.stop import Where
from andon.errors import CheckpointError
from andon.ports import Store
from andon.runtime.ending import GONE
from andon.testing import Gate, ScriptedModel, virtual
from tests.answers import answered, ids
from tests.runtime.tree_of_three import FileStore, Order, Tree, in_new_process
from tests.stores import MemoryStore
from tests.whole import whole

GIVEN_UP = "was cancelled while it waited for an answer, which discarded its checkpoint: go on from"


class SlowStore(MemoryStore):
    """Takes a second to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    async def delete(self, checkpoint_id: str, /) -> None:
        """Forget it, slowly."""
        self.deleted.append(checkpoint_id)
        await anyio.sleep(1)
        await super().delete(checkpoint_id)


class Waiting:
    """An agent that asks; `paused` gives a run that waits for the answer."""

    def __init__(self, store: Store | None = None) -> None:
        @tool
        async def ask(context: ToolContext) -> str:
            """Ask."""
            return f"{await context.interrupt('well?')}"

        self.model = ScriptedModel(Call("ask", id="c1"), "Done.", "Again.")
        self.agent = Agent(self.model, tools=[ask], store=store)

    async def paused(self, checkpoint_id: str | None = "chat") -> tuple[Run, Checkpoint, dict[str, object]]:
        """Run until the human is asked."""
        async with self.agent.start("go", checkpoint_id=checkpoint_id) as run:
            outcome = await whole(run)
        assert outcome.stop_reason == "interrupt"
        assert outcome.checkpoint is not None
        return run, outcome.checkpoint, {ids(outcome)[0]: "yes"}

    async def refused(self, saved: Checkpoint) -> None:
        """Hold the agent to refusing the checkpoint, in each of its forms, with answers or without."""
        for form in (saved, saved.to_json(), saved.to_json().decode()):
            with pytest.raises(CheckpointError, match=GIVEN_UP):
                self.agent.start_from(form)
        assert len(self.model.requests) == 1


# Before the resume


@virtual
@pytest.mark.parametrize(
    "stop", [Stop.now(), Stop.graceful(), Stop.at(Point.STREAM), Stop.now(recursive=True)], ids=repr
)
async def test_a_paused_run_that_is_cancelled_is_stopped_paused_and_cannot_be_resumed(stop: Stop) -> None:
    """Whatever was asked; its stored checkpoint is deleted before anybody is told."""
    store = MemoryStore()
    scene = Waiting(store)
    run, saved, _ = await scene.paused()
    assert list(store.data) == ["chat"]
    ticket = run.cancel(stop, reason="nobody is there", by="ops")
    report = await ticket
    assert store.data == {}
    assert (report.result, report.stopped_at, ticket.accepted) == (StopResult.STOPPED, Where.PAUSED, True)
    assert (report.run_id, report.checkpoint, report.durable) == (run.id, None, True)
    assert [(cause.reason, cause.by) for cause in report.causes] == [("nobody is there", "ops")]
    await scene.refused(saved)
    with pytest.raises(CheckpointError, match="checkpoint is a NoneType"):
        await scene.agent.resume(await store.get("chat"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@virtual
async def test_its_messages_are_still_good_to_go_on_with() -> None:
    """Given up is the question, not the conversation."""
    scene = Waiting()
    run, _, _ = await scene.paused()
    await run.cancel()
    scene.model.script("Something else.")
    outcome = await scene.agent.run("Never mind.", messages=(await run.outcome()).messages)
    assert outcome.text == "Something else."


@virtual
async def test_cancelled_twice_every_ticket_tells_the_same() -> None:
    """Also the one that comes while the store is still deleting, and one that comes much later."""
    store = SlowStore()
    scene = Waiting(store)
    run, saved, _ = await scene.paused()
    first, second = run.cancel(reason="first"), run.cancel(reason="second")
    assert (first.report, second.report) == (None, None)
    await scene.refused(saved)  # from the moment of the request on
    reports = [await first, await second, await run.cancel(Stop.graceful())]
    assert reports == [reports[0]] * 3
    assert (reports[0].result, reports[0].stopped_at) == (StopResult.STOPPED, Where.PAUSED)
    assert (first.accepted, second.accepted, store.deleted) == (True, False, ["chat"])


async def test_cancelled_from_a_thread_it_is_given_up_all_the_same() -> None:
    """The thread gets the report, and the store has been asked on the run's own loop."""
    store = MemoryStore()
    scene = Waiting(store)
    run, saved, _ = await scene.paused()
    report = await anyio.to_thread.run_sync(lambda: run.cancel().wait(timeout=10))
    assert (report.result, report.stopped_at, store.data) == (StopResult.STOPPED, Where.PAUSED, {})
    await scene.refused(saved)


@virtual
async def test_the_short_form_of_the_agent_cancels_live_runs_and_a_paused_one_has_ended() -> None:
    """Nothing runs: it says so, the next run is not stopped, and the paused one still resumes."""
    scene = Waiting()
    _, saved, answers = await scene.paused()
    report = await scene.agent.cancel()
    assert report.result is StopResult.NOTHING_RUNNING
    assert (await scene.agent.resume(saved, answers=answers)).text == "Done."
    assert (await scene.agent.run("And now?")).text == "Again."


class Stubborn(MemoryStore):
    """Fails to forget."""

    async def delete(self, _id: str, /) -> None:
        """Fail."""
        msg = "read-only"
        raise OSError(msg)


class Silent(MemoryStore):
    """Never answers a deletion."""

    async def delete(self, _id: str, /) -> None:
        """Wait for ever."""
        await anyio.sleep_forever()


@virtual
@pytest.mark.parametrize(
    ("store", "error"),
    [(Stubborn(), "OSError: read-only"), (Silent(), "TimeoutError: the store did not answer in time")],
    ids=["fails", "hangs"],
)
async def test_a_checkpoint_that_could_not_be_deleted_is_told(store: Store, error: str) -> None:
    """`durable=False`, with the reason; here it is refused nevertheless."""
    scene = Waiting(store)
    run, saved, _ = await scene.paused()
    report = await run.cancel()
    assert (report.result, report.durable, report.checkpoint_error) == (StopResult.STOPPED, False, error)
    await scene.refused(saved)


def test_where_the_loop_of_the_run_is_closed_the_report_says_that_the_store_was_not_asked() -> None:
    """Never a ticket that hangs."""
    store = MemoryStore()
    scene = Waiting(store)
    run, saved, _ = asyncio.run(scene.paused())
    report = run.cancel().wait(timeout=10)
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.PAUSED)
    assert (report.durable, report.checkpoint_error, list(store.data)) == (False, GONE, ["chat"])
    asyncio.run(scene.refused(saved))


@virtual
async def test_given_up_here_there_is_nothing_to_resume_in_a_new_process(tmp_path: Path) -> None:
    """Before, another process finds it in the store and goes on with it; after, it finds nothing."""
    async with Tree(store=FileStore(tmp_path)).root.start("go", checkpoint_id="chat") as run:
        outcome = await whole(run)
    order = Order(folder=str(tmp_path), checkpoint_id="chat", answers={ids(outcome)[0]: "A"})
    [told] = await in_new_process(order)
    assert told.outcome is not None
    assert [one.payload for one in told.outcome.interrupts] == [{"after": "A"}]
    assert (await run.cancel()).durable
    [told] = await in_new_process(order)
    assert told.error == (
        "CheckpointError: checkpoint is a NoneType: give outcome.checkpoint, or its JSON; "
        "a run that gave its answer has none"
    )


@virtual
async def test_what_a_later_run_has_left_under_the_same_id_stays_there() -> None:
    """The user went on without an answer, and was stopped: giving up the old question costs nothing of it."""
    store, gate = MemoryStore(), Gate("model")
    scene = Waiting(store)
    run, _, _ = await scene.paused()
    scene.model.script([gate, "never"])
    async with scene.agent.start("Never mind.", messages=run.messages, checkpoint_id="chat") as later:
        await gate.reached()
        later.cancel()
        outcome = await whole(later)
    report = await run.cancel()
    assert (report.stopped_at, report.checkpoint_error) == (Where.PAUSED, None)
    assert outcome.checkpoint == Checkpoint.from_json(store.data["chat"])


# After the resume


@virtual
async def test_once_a_resumed_run_has_begun_the_paused_one_cannot_be_cancelled_any_more() -> None:
    """FINISHED_FIRST; the run that goes on is stopped by a handle of its own."""
    store = MemoryStore()
    scene = Waiting(store)
    run, saved, answers = await scene.paused()
    gate = Gate("model")
    scene.model.script([gate, "Done."])
    async with scene.agent.start_from(saved, answers=answers) as resumed:
        await gate.reached()
        late = run.cancel()
        report = await late
        assert (report.result, late.accepted) == (StopResult.FINISHED_FIRST, False)
        gate.open()
        outcome = await whole(resumed)
    assert (outcome.text, list(store.data)) == ("Done.", ["chat"])


@virtual
async def test_a_resumed_run_that_has_not_begun_leaves_the_paused_one_as_it_is() -> None:
    """Cancelled in between, the paused run is given up, and the other one refuses to begin."""
    scene = Waiting()
    run, saved, answers = await scene.paused()
    resumed = scene.agent.start_from(saved, answers=answers)
    assert (await run.cancel()).stopped_at is Where.PAUSED
    with pytest.raises(CheckpointError, match=GIVEN_UP):
        async with resumed:
            pytest.fail("it began")
    assert len(scene.model.requests) == 1


@virtual
async def test_a_resumed_run_that_is_closed_before_it_began_has_not_resumed_anything() -> None:
    """The paused run may still be resumed, or given up."""
    for give_up in (True, False):
        scene = Waiting()
        run, saved, answers = await scene.paused()
        await scene.agent.start_from(saved, answers=answers).close()
        if give_up:
            assert (await run.cancel()).stopped_at is Where.PAUSED
            await scene.refused(saved)
        else:
            assert (await scene.agent.resume(saved, answers=answers)).text == "Done."


@virtual
async def test_a_stop_of_the_resumed_run_is_not_a_stop_of_the_pause() -> None:
    """Cancelled before it began, the resumed run keeps the question with its answer."""
    scene = Waiting(MemoryStore())
    _, saved, answers = await scene.paused()
    resumed = scene.agent.start_from(saved, answers=answers)
    ticket = resumed.cancel()
    async with resumed:
        stopped = await whole(resumed)
    assert (await ticket).stopped_at is Where.BEFORE_START
    assert stopped.checkpoint is not None
    assert (await scene.agent.resume(stopped.checkpoint)).text == "Done."


@virtual
async def test_paused_again_it_is_the_last_pause_that_is_given_up() -> None:
    """The run before has gone on long ago, and its cancel finds nothing."""
    scene = Waiting()
    first, saved, _ = await scene.paused()
    async with scene.agent.start_from(saved) as second:
        again = await whole(second)
    assert (await first.cancel()).result is StopResult.FINISHED_FIRST
    assert (await second.cancel()).stopped_at is Where.PAUSED
    assert again.checkpoint is not None
    await scene.refused(again.checkpoint)


async def test_of_a_cancel_in_a_thread_and_a_resume_exactly_one_comes_first() -> None:
    """A hundred races: either given up and refused, or resumed and not cancelled."""
    ends: set[tuple[StopResult, bool]] = set()
    for _ in range(100):
        scene = Waiting(MemoryStore())
        run, saved, answers = await scene.paused()
        barrier = threading.Barrier(2)
        cancelling = asyncio.get_running_loop().run_in_executor(None, partial(_cancel, barrier, run))
        resumed = scene.agent.start_from(saved, answers=answers)
        await asyncio.get_running_loop().run_in_executor(None, barrier.wait, 10)
        try:
            outcome: Outcome | None = await resumed.outcome()
        except CheckpointError:
            outcome = None
        result = (await cancelling).result
        ends.add((result, outcome is not None))
    assert ends <= {(StopResult.STOPPED, False), (StopResult.FINISHED_FIRST, True)}


def _cancel(barrier: threading.Barrier, run: Run) -> StopReport:
    barrier.wait(10)
    return run.cancel().wait(timeout=10)


# Children


@virtual
async def test_a_child_waits_with_its_parent_and_cannot_be_given_up_alone() -> None:
    """Its own handle finds nothing to stop, and the answer still reaches it."""
    scene = Waiting()
    root_model = ScriptedModel(Call("agent", {"request": "ask"}), "Root done.")
    root = Agent(root_model, tools=[scene.agent.as_tool(description="Asks.")], name="root")
    children: list[Run] = []
    async with root.start("go") as run:
        async for _ in run:
            children = [*run.children] or children
        outcome = await whole(run)
    [child] = children
    late = child.cancel()
    assert ((await late).result, late.accepted) == (StopResult.FINISHED_FIRST, False)
    assert (await answered(root, outcome, "yes")).text == "Root done."


@virtual
async def test_given_up_at_the_root_the_whole_tree_is_given_up() -> None:
    """The checkpoint of the child is a part of the root's, and cannot be resumed by itself."""
    scene = Waiting()
    root_model = ScriptedModel(Call("agent", {"request": "go"}), "Root done.")
    root = Agent(root_model, tools=[scene.agent.as_tool(description="Asks.", history=True)], name="root")
    async with root.start("go") as run:
        outcome = await whole(run)
    assert (await run.cancel()).stopped_at is Where.PAUSED
    assert outcome.checkpoint is not None
    with pytest.raises(CheckpointError, match=GIVEN_UP):
        await root.resume(outcome.checkpoint)
    [[inside]] = outcome.checkpoint.children.values()
    with pytest.raises(CheckpointError, match="is a part of another, with which it shares messages"):
        await scene.agent.resume(inside)
