"""Odd words of models, tools and errors: every event of the run can be written down and read back."""

from typing import Any

import pytest

from andon import Agent, Call, Reasoning, ToolContext, ToolError, Usage, tool
from andon.core.items import ToolProgress, from_json, to_json
from andon.core.messages import Text
from andon.runtime.hooks import Moment
from andon.testing import Reply, ScriptedModel, virtual
from tests.whole import whole


def odd(value: object) -> Any:  # noqa: ANN401 — what no type checker would let pass
    """Give what somebody may write all the same."""
    return value


@tool
async def fail(how: str = "\ud800") -> str:
    """Fail, with odd words."""
    if how == "told":
        msg = "no \ud800"
        raise ToolError(msg)
    raise ValueError(how)


@tool
async def tell(context: ToolContext) -> str:
    """Tell, in odd words."""
    context.progress("half \ud800")
    return "half \ud800"


@virtual
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("half \ud800", "end_turn"),
        ([Text("half \ud800"), Reasoning("\ud800")], "end_turn"),
        ([Call("fail"), Call("fail", {"how": "told"}), Call("tell")], "end_turn"),
        ([Call("fail", {"how": "\ud800"}), Call("f\ud800"), Call("fail", {}, "\ud800")], "end_turn"),
        (ValueError("odd \ud800"), "error"),
        ([Call("fail", odd("text"))], "error"),
        ([Call(odd(5))], "error"),
        ([Call("fail", {}, odd(7))], "error"),
        (["Hm.", Usage(input_tokens=odd("x"))], "error"),
        (["Hm.", Reasoning(odd(None))], "error"),
    ],
)
async def test_whatever_a_model_yields_the_run_can_be_written_down(reply: Reply, reason: str) -> None:
    """Its events go to JSON, and back to what they were."""
    async with Agent(ScriptedModel(reply, "Done."), tools=[fail, tell]).start("go") as run:
        outcome = await whole(run)
        events = [event async for event in run]

    assert outcome.stop_reason == reason
    for event in events:
        back = from_json(to_json(event))
        assert isinstance(event, ToolProgress) or back == event


@virtual
async def test_a_refusal_in_odd_words_can_be_written_down() -> None:
    """What a hook returns is a result as well."""
    agent = Agent(ScriptedModel(Call("tell"), "Done."), tools=[tell])
    told: list[str] = []

    @agent.on("before_tool")
    def refuse(_: Moment) -> str:
        return "not \ud800"

    @agent.on("after_tool")
    def hear(moment: Moment) -> None:
        assert moment.result is not None
        told.append(moment.result.content)

    outcome = await agent.run("go")

    assert told == [result.content for result in outcome.messages[2].results] == ["not \ufffd"]
