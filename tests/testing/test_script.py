"""A scripted model plays its replies as they are written, and counts what it did."""

import anyio
import pytest

from andon import Agent, Call, ModelError, Reasoning, Stop, Usage
from andon.core.draft import Chunk
from andon.core.items import CallDelta
from andon.core.messages import Message, Result
from andon.ports import ModelRequest
from andon.testing import Burst, Delay, Gate, Hang, ScriptedModel, ScriptError, Yield, virtual

ASKED = ModelRequest((Message.user("Go."),))


async def played(model: ScriptedModel) -> list[Chunk]:
    """Read one whole reply."""
    return [chunk async for chunk in model(ASKED)]


@virtual
async def test_each_request_takes_the_next_reply() -> None:
    """A reply is a sequence of steps, or a single one."""
    call = Call("search", {"q": "cord"})
    model = ScriptedModel(["Let me ", Reasoning("hm"), call, Usage(input_tokens=3)], "Done.")
    assert await played(model) == ["Let me ", Reasoning("hm"), call, Usage(input_tokens=3)]
    assert await played(model) == ["Done."]
    assert (model.left, model.made, model.opened, model.closed) == (0, 5, 2, 2)
    assert model.requests == [ASKED, ASKED]


@virtual
async def test_a_single_step_of_any_kind_is_a_reply() -> None:
    """No list is needed around one chunk."""
    delta = CallDelta("search", '{"q"')
    assert await played(ScriptedModel(Call("a"))) == [Call("a")]
    assert await played(ScriptedModel(delta)) == [delta]
    assert await played(ScriptedModel(Yield())) == []


@virtual
async def test_a_gate_holds_the_answer() -> None:
    """What comes before the gate is out, what comes after is not."""
    gate = Gate("middle")
    agent = Agent(ScriptedModel(["a", gate, "b"]))
    async with agent.start("Go.") as run:
        await gate.reached()
        assert not run.ended
        gate.open()
        assert (await run.outcome()).text == "ab"


@virtual
async def test_a_hang_lasts_until_the_run_is_cancelled() -> None:
    """The answer is closed before the run says that it has stopped."""
    model = ScriptedModel(["a", Hang(), "b"])
    async with Agent(model).start("Go.") as run:
        with anyio.move_on_after(3_600):
            await run.outcome()
        assert model.live == 1
        run.cancel()
        outcome = await run.outcome()
    assert outcome.text == "a"
    assert (model.made, model.live) == (1, 0)


@virtual
async def test_a_burst_never_waits_and_a_stop_leaves_it_after_one_chunk() -> None:
    """That is what the flag beside the scope is for."""
    model = ScriptedModel(Burst(1_000, "x"))
    async with Agent(model).start("Go.") as run:
        made_at_stop = 0

        def stop(_: str) -> None:
            nonlocal made_at_stop
            if model.made == 500:
                run.cancel(Stop.now())
                made_at_stop = model.made

        model.on_step = stop
        outcome = await run.outcome()
    assert outcome.stop_reason == "cancelled"
    assert model.made - made_at_stop <= 1
    assert model.live == 0


@virtual
async def test_an_exception_is_raised_where_it_stands() -> None:
    """A transient one is tried again, with the next reply."""
    model = ScriptedModel(["a", ModelError("busy", transient=True)], ["b"])
    outcome = await Agent(model).run("Go.")
    assert (outcome.text, outcome.stop_reason, len(model.requests)) == ("b", "end_turn", 2)


@virtual
async def test_a_delay_takes_virtual_time() -> None:
    """A slow answer costs the test nothing."""
    before = anyio.current_time()
    assert await played(ScriptedModel([Delay(3_600), "a", Yield(), "b"])) == ["a", "b"]
    assert anyio.current_time() - before == pytest.approx(3_600)


@virtual
async def test_a_script_that_runs_out_says_so() -> None:
    """The message tells how often the model was asked, and after what."""
    model = ScriptedModel("one", name="planner")
    await played(model)
    with pytest.raises(
        ScriptError, match=r"script of 'planner' is used up: it was asked 2 times, now after user 'Go\.'"
    ):
        await played(model)
    model.script("two", "three")
    assert (await played(model), model.left) == (["two"], 1)
    assert repr(model) == "<ScriptedModel planner, 3 asked, 1 left, 0 open>"


@virtual
async def test_by_round_the_reply_depends_on_the_request_alone() -> None:
    """As many rounds of results as it shows since the user last spoke; asked twice, it says the same."""
    results = Message("tool", (Result("c1", "look", "empty"),))
    asked = ModelRequest((*ASKED.messages, Message.assistant(Call("look", id="c1")), results))
    once_more = ModelRequest((*asked.messages, Message.assistant("So."), Message.user("Again.")))
    model = ScriptedModel("Let me look.", "It is empty.", by_round=True)
    said = [[chunk async for chunk in model(request)] for request in (asked, ASKED, asked, once_more)]
    assert said == [["It is empty."], ["Let me look."], ["It is empty."], ["Let me look."]]
    assert model.left == 2
    with pytest.raises(ScriptError, match="asked 5 times"):
        await anext(model(ModelRequest((*asked.messages, *asked.messages[1:]))))
