"""Resume: what has been done is not done again, and what is not known is not repeated in silence."""

import asyncio

import pytest

from andon import Agent, Call, Limits, Outcome, Point, Stop, StopResult, tool
from andon.core.checkpoint import VERSION, Checkpoint
from andon.core.repair import UNKNOWN
from andon.core.stop import Where
from andon.errors import CheckpointError
from andon.ports import Store
from andon.runtime.ending import Ending
from andon.runtime.tools import Tool
from andon.testing import Gate, ScriptedModel, virtual
from tests.stores import BrokenStore, HangingStore, MemoryStore, RefusingStore
from tests.whole import complaints, whole


class Scene:
    """Three tools that count: one ends at once, two wait at a gate; one of them may be repeated."""

    def __init__(self) -> None:
        self.gate = Gate("tool")
        self.log: list[str] = []
        self.model = ScriptedModel()
        self.tools: list[Tool[..., object]] = []

        @tool
        async def fast() -> str:
            """End at once."""
            self.log.append("fast")
            return "fast result"

        @tool
        async def slow() -> str:
            """Wait."""
            self.log.append("slow")
            await self.gate
            return "slow result"

        @tool(idempotent=True)
        async def look() -> str:
            """Wait; may run again."""
            self.log.append("look")
            await self.gate
            return "look result"

        self.agent = Agent(self.model, tools=[fast, slow, look], tool_concurrency=2)

    def script(self, *replies: object) -> None:
        """Script the model, and forget what was asked and done."""
        self.model.script(*replies)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self.model.requests.clear()
        self.log.clear()

    async def resumed(self, saved: Checkpoint | bytes | str | None, *replies: object) -> Outcome:
        """Resume from a checkpoint, with these replies to come."""
        assert saved is not None
        self.script(*replies)
        self.gate.open()
        run = self.agent.start_from(saved)
        async with run:
            return await whole(run)


async def stopped(scene: Scene, stop: Stop, *, before: Gate | None = None) -> Checkpoint:
    """Run until a gate, cancel, and give the checkpoint."""
    gate = before or scene.gate
    async with scene.agent.start("go") as run:
        await gate.reached()
        run.cancel(stop)
        if stop != Stop.now():
            gate.open()
        outcome = await whole(run)
    assert outcome.checkpoint is not None
    return outcome.checkpoint


@virtual
@pytest.mark.parametrize("form", ["value", "bytes", "text"])
async def test_from_point_model_the_stored_calls_run_before_any_model_call(form: str) -> None:
    """The model is not asked again for what it has said."""
    scene, answer = Scene(), Gate("model")
    scene.script(["Let me.", answer, Call("fast", id="c1")])
    saved = await stopped(scene, Stop.at(Point.MODEL), before=answer)
    assert scene.log == []
    forms = {"value": saved, "bytes": saved.to_json(), "text": saved.to_json().decode()}
    outcome = await scene.resumed(forms[form], "Done.")
    assert scene.log == ["fast"]
    assert len(scene.model.requests) == 1
    asked = scene.model.requests[0].messages
    assert [message.role for message in asked] == ["user", "assistant", "tool"]
    assert asked[2].results[0].content == "fast result"
    assert [message.text for message in outcome.messages] == ["go", "Let me.", "", "Done."]
    assert outcome.usage.model_calls == 2


@virtual
async def test_from_point_tools_it_goes_on_with_the_model() -> None:
    """No tool runs again."""
    scene = Scene()
    scene.script([Call("slow", id="c1")], "never")
    saved = await stopped(scene, Stop.at(Point.TOOLS))
    outcome = await scene.resumed(saved, "Done.")
    assert scene.log == []
    assert scene.model.requests[0].messages[2].results[0].content == "slow result"
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Done.")


@virtual
async def test_cut_in_the_model_that_call_is_made_again() -> None:
    """The partial answer is dropped from what is sent."""
    scene, answer = Scene(), Gate("model")
    scene.script(["Half", answer])
    saved = await stopped(scene, Stop.now(), before=answer)
    outcome = await scene.resumed(saved, "Whole.")
    assert [message.text for message in scene.model.requests[0].messages] == ["go"]
    assert [message.text for message in outcome.messages] == ["go", "Whole."]


@virtual
async def test_before_the_start_it_simply_begins() -> None:
    """The prompt is in the checkpoint."""
    scene = Scene()
    run = scene.agent.start("go")
    run.cancel()
    async with run:
        saved = (await whole(run)).checkpoint
    outcome = await scene.resumed(saved, "Done.")
    assert [message.text for message in outcome.messages] == ["go", "Done."]


@virtual
async def test_cut_in_tools_what_ended_stays_and_what_had_not_begun_runs() -> None:
    """And what is not known is given to the model as unknown, unless it may be repeated."""
    scene = Scene()
    calls = [Call("fast", id="c1"), Call("slow", id="c2"), Call("slow", id="c3"), Call("fast", id="c4")]
    scene.script(calls)
    async with scene.agent.start("go") as run:
        await scene.gate.reached(2)
        run.cancel()
        cut = await whole(run)
    assert [r.state.value for r in cut.messages[2].results] == [
        "completed",
        "unknown",
        "unknown",
        "not_started",
    ]
    outcome = await scene.resumed(cut.checkpoint, "Done.")
    assert scene.log == ["fast"]
    assert [(r.call_id, r.content) for r in outcome.messages[2].results] == [
        ("c1", "fast result"),
        ("c2", UNKNOWN),
        ("c3", UNKNOWN),
        ("c4", "fast result"),
    ]
    assert outcome.text == "Done."


@virtual
async def test_cut_in_tools_what_may_be_repeated_runs_again() -> None:
    """An `idempotent=True` tool whose outcome is not known simply runs again."""
    scene = Scene()
    scene.script([Call("look", id="c1"), Call("slow", id="c2")])
    async with scene.agent.start("go") as run:
        await scene.gate.reached(2)
        run.cancel()
        cut = await whole(run)
    outcome = await scene.resumed(cut.checkpoint, "Done.")
    assert scene.log == ["look"]
    assert [r.content for r in outcome.messages[2].results] == ["look result", UNKNOWN]


@virtual
async def test_a_resumed_run_may_be_cancelled_and_resumed_again() -> None:
    """Any number of times, and nothing is done twice."""
    scene = Scene()
    scene.script([Call("fast", id=f"c{n}") for n in range(3)])
    answer = Gate("model")
    scene.script([answer, *[Call("fast", id=f"c{n}") for n in range(3)]])
    saved = await stopped(scene, Stop.at(Point.MODEL), before=answer)
    for _ in range(3):
        run = scene.agent.start_from(saved)
        ticket = run.cancel()
        async with run:
            again = (await whole(run)).checkpoint
        assert again is not None
        assert (await ticket).stopped_at is Where.BEFORE_START
        assert again.messages == saved.messages
        saved = again
    outcome = await scene.resumed(saved, "Done.")
    assert scene.log == ["fast"] * 3
    assert outcome.text == "Done."


@virtual
async def test_the_stop_of_the_past_is_not_the_stop_of_the_resumed_run() -> None:
    """Its own cancel works as on any run."""
    scene, answer = Scene(), Gate("model")
    scene.script(["Half", answer])
    saved = await stopped(scene, Stop.now(), before=answer)
    second = Gate("second")
    scene.script(["Other", second])
    async with scene.agent.start_from(saved) as run:
        await second.reached()
        report = await run.cancel(reason="again")
    assert report.result is StopResult.STOPPED
    assert [cause.reason for cause in report.causes] == ["again"]


@virtual
async def test_a_tool_that_no_longer_exists_gives_its_call_an_error() -> None:
    """The model reads it, and the run goes on; likewise a tool whose arguments have changed."""
    scene, answer = Scene(), Gate("model")
    scene.script([answer, Call("fast", id="c1"), Call("gone", {"n": 1}, id="c2")])
    saved = await stopped(scene, Stop.at(Point.MODEL), before=answer)

    @tool
    async def fast(colour: str) -> str:
        """Now it wants a colour."""
        return colour

    model = ScriptedModel("Done.")
    outcome = await Agent(model, tools=[fast]).resume(saved)
    contents = [result.content for result in outcome.messages[2].results]
    assert contents[0].startswith("Invalid arguments for fast: colour: Field required")
    assert contents[1] == "There is no tool 'gone'. The tools are: fast."
    assert outcome.text == "Done."


@virtual
async def test_a_failed_run_may_be_resumed_as_well() -> None:
    """Its checkpoint leaves out what the failure left."""
    scene = Scene()
    scene.script(["Half", OSError("down")])
    failed = await scene.agent.run("go")
    assert failed.stop_reason == "error"
    outcome = await scene.resumed(failed.checkpoint, "Done.")
    assert [message.text for message in outcome.messages] == ["go", "Done."]


@pytest.mark.parametrize("version", [VERSION + 1, 0])
async def test_a_checkpoint_of_another_version_is_refused_and_left(version: int) -> None:
    """The message says which, and what now."""
    agent = Agent(ScriptedModel("never"))
    data = b'{"version":%d,"run_id":"r","agent":"a","messages":[]}' % version
    with pytest.raises(CheckpointError, match=f"has format version {version}"):
        await agent.resume(data)
    value = Checkpoint(version=version, run_id="r", agent="a", messages=())
    with pytest.raises(CheckpointError, match="it has been left as it was"):
        agent.start_from(value)


@pytest.mark.parametrize("garbage", [b"", "nothing", b"{}"])
async def test_garbage_is_refused(garbage: bytes | str) -> None:
    """It was never a checkpoint."""
    with pytest.raises(CheckpointError, match="no checkpoint of a run"):
        await Agent(ScriptedModel("never")).resume(garbage)


@virtual
async def test_a_run_that_answered_has_no_checkpoint() -> None:
    """There is nothing left to go on with, and nothing is stored."""
    store = MemoryStore()
    outcome = await Agent(ScriptedModel("Done."), store=store).run("go")
    assert (outcome.checkpoint, store.data) == (None, {})


# The store


@virtual
async def test_the_checkpoint_is_stored_before_anybody_is_told() -> None:
    """Under its own id or the run's, and the report names it."""
    for name in ("mine", None):
        store, answer = MemoryStore(), Gate("model")
        async with Agent(ScriptedModel(answer), store=store).start("go", checkpoint_id=name) as run:
            await answer.reached()
            report = await run.cancel()
            assert list(store.data) == [name or run.id] == [report.checkpoint]
            outcome = await whole(run)
        assert outcome.checkpoint == Checkpoint.from_json(store.data[name or run.id])
        assert (report.durable, report.checkpoint_error) == (True, None)


@virtual
@pytest.mark.parametrize(
    ("store", "took", "error"),
    [
        (HangingStore(), 30, "it was not stored within 30 s"),
        (BrokenStore(), 0, "OSError: the disk is full"),
        (RefusingStore(), 0, "PermissionError: not yours"),
    ],
)
async def test_a_store_that_hangs_or_fails_is_told_and_not_waited_for(
    store: Store, took: float, error: str
) -> None:
    """`durable=False`, with the reason; the outcome still has the checkpoint."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer), store=store).start("go") as run:
        await answer.reached()
        began = asyncio.get_running_loop().time()
        report = await run.cancel()
        outcome = await whole(run)
    assert asyncio.get_running_loop().time() - began == pytest.approx(took)
    assert (report.durable, report.checkpoint, report.checkpoint_error) == (False, None, error)
    assert report.result is StopResult.STOPPED
    assert outcome.checkpoint is not None
    assert complaints(outcome.messages) == []


@virtual
async def test_the_patience_with_the_store_is_a_setting() -> None:
    """And so a report may be had sooner."""
    answer = Gate("model")
    agent = Agent(ScriptedModel(answer), store=HangingStore(), durable_timeout=2)
    async with agent.start("go") as run:
        await answer.reached()
        began = asyncio.get_running_loop().time()
        report = await run.cancel()
    assert asyncio.get_running_loop().time() - began == pytest.approx(2)
    assert report.checkpoint_error == "it was not stored within 2 s"


@virtual
async def test_a_deadline_that_passes_while_the_checkpoint_is_stored_escalates_nothing() -> None:
    """The run had stopped at its point by then."""
    scene = Scene()
    agent = Agent(scene.model, tools=scene.tools, store=HangingStore())
    scene.script(Call("none"), "never")

    async with agent.start("go") as run:
        ticket = run.cancel(Stop.at(Point.TOOLS, grace=10))
        report = await ticket
    assert (report.result, report.escalated_by) == (StopResult.STOPPED, None)
    assert (report.stopped_at, report.durable) == (Where.POINT_TOOLS, False)


@virtual
async def test_a_bug_of_ours_at_the_end_is_logged_and_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends as an error, and every ticket is answered."""

    def fail(_: Ending) -> None:
        msg = "ours"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(Ending, "close", fail)
    run = Agent(ScriptedModel("Done.")).start("go")
    ticket = run.cancel(Stop.graceful())
    outcome = await run.outcome()
    assert (outcome.stop_reason, outcome.error) == ("error", "ZeroDivisionError: ours")
    assert (await ticket).result is StopResult.FINISHED_FIRST
    assert f"run {outcome.run_id} could not end: a bug of Andon, please report it" in caplog.text


@virtual
async def test_a_run_that_nobody_stopped_says_too_that_its_checkpoint_is_not_in_the_store() -> None:
    """A limit or an error has no stop report that could tell it."""
    model = ScriptedModel(Call("look"))
    agent = Agent(model, store=BrokenStore(), limits=Limits(model_calls=1))

    outcome = await agent.run("Go.")

    assert (outcome.stop_reason, outcome.cancelled) == ("limit", None)
    assert outcome.checkpoint is not None
    assert outcome.checkpoint_error == "OSError: the disk is full"
