"""Odd calls of a model: the history that they leave is one that every provider takes."""

import pytest

from andon import Agent, Call, Message, Point, Stop, tool
from andon.core.messages import Result, ResultState
from andon.testing import ScriptedModel, virtual
from andon.testing.invariants import history


@tool
async def look_up() -> str:
    """Look something up."""
    return "seen"


@virtual
@pytest.mark.parametrize("name", ["look.up", "look up", "", "9lives"])
async def test_a_call_of_an_odd_name_fails_and_runs_nothing(name: str) -> None:
    """Not even a tool that has the very name by which it was mended."""
    outcome = await Agent(ScriptedModel(Call(name), "Oh."), tools=[look_up]).run("go")

    (result,) = outcome.messages[2].results
    assert result.state is ResultState.FAILED
    assert result.content == f"There is no tool {name!r}. The tools are: look_up."
    assert list(history(outcome.messages)) == []


@virtual
async def test_a_call_of_an_odd_name_is_not_made_after_a_resume() -> None:
    """What the model had said is in the checkpoint, too."""
    run = Agent(ScriptedModel(Call("look.up")), tools=[look_up]).start("go")
    run.cancel(Stop.at(Point.MODEL))
    saved = (await run.outcome()).checkpoint
    assert saved is not None
    outcome = await Agent(ScriptedModel("Oh."), tools=[look_up]).resume(saved.to_json())

    assert [result.state for result in outcome.messages[2].results] == [ResultState.FAILED]


@virtual
async def test_an_id_that_comes_again_in_a_later_round_is_replaced() -> None:
    """Each round of this model counts its calls from 0."""
    model = ScriptedModel(*[[Call("look_up", {}, "call_0"), Call("look_up", {}, "call_1")]] * 3, "Done.")
    outcome = await Agent(model, tools=[look_up]).run("go")

    ids = [call.id for message in outcome.messages for call in message.calls]
    assert ids[:2] == ["call_0", "call_1"]
    assert len(set(ids)) == 6
    assert list(history(outcome.messages)) == []


@virtual
async def test_an_id_of_the_history_is_not_given_again() -> None:
    """Whether a run goes on from messages, or from a checkpoint."""
    call = Call("look_up", {}, "call_0")
    first = await Agent(ScriptedModel(call, "Done."), tools=[look_up]).run("go")
    run = Agent(ScriptedModel(call), tools=[look_up]).start("more", messages=first.messages)
    run.cancel(Stop.at(Point.TOOLS))
    second = await run.outcome()
    assert second.checkpoint is not None
    third = await Agent(ScriptedModel(call, "Done."), tools=[look_up]).resume(second.checkpoint)

    ids = [call.id for message in third.messages for call in message.calls]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 3
    assert list(history(third.messages)) == []


@virtual
async def test_a_given_history_is_mended_before_the_run() -> None:
    """Old conversations may hold what was not looked at then."""
    odd = [Message.assistant(Call("a.b", {}, "x")), Message("tool", (Result("x", "a.b", "no"),))]
    outcome = await Agent(ScriptedModel("Done.")).run("so?", messages=[Message.user("go"), *odd, *odd])

    assert list(history(outcome.messages)) == []
    assert [result.content for message in outcome.messages for result in message.results] == ["no", "no"]
