"""Views are read-only: what hooks and models are given, they cannot change for anybody else."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from andon import Agent, Call, Point, Stop, tool
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.testing import ScriptedModel, virtual
from tests.runtime.test_tools_cut import contents

CALL = Call("look", {"place": "box", "more": {"deep": [1]}})
READ_ONLY = "this is a read-only view"


@tool
async def look(place: str, more: dict[str, list[int]]) -> str:
    """Look somewhere."""
    return f"{place} {more}"


def change(call: Call | None) -> None:
    """Try to change the arguments of a call, at the top and further in."""
    assert call is not None
    arguments: Any = call.arguments
    for act in (
        lambda: arguments.update(place="elsewhere"),
        lambda: arguments["more"].pop("deep"),
        lambda: arguments["more"]["deep"].append(2),
    ):
        with pytest.raises(TypeError, match=READ_ONLY):
            act()


@virtual
async def test_a_hook_cannot_change_what_is_called_or_what_is_told() -> None:
    """Neither before a tool nor after it; also where the run goes on from a checkpoint's JSON."""
    told: list[str] = []
    run = Agent(ScriptedModel(CALL), tools=[look]).start("go")
    run.cancel(Stop.at(Point.MODEL))
    saved = (await run.outcome()).checkpoint
    assert saved is not None
    agent = Agent(ScriptedModel("Done.", CALL, "Done."), tools=[look])

    @agent.on("before_tool")
    @agent.on("after_tool")
    def meddle(moment: Moment) -> None:
        change(moment.call)
        told.append(moment.name)

    for outcome in (await agent.resume(saved.to_json()), await agent.run("go")):
        assert outcome.messages[1].calls[0].arguments == CALL.arguments
        assert contents(outcome) == ["box {'deep': [1]}"]
    assert told == ["before_tool", "after_tool"] * 2


@virtual
async def test_a_model_cannot_change_what_the_next_one_is_given() -> None:
    """Its settings, its tools, and the calls of the history."""
    seen: list[tuple[object, object]] = []

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        settings: Any = request.settings
        parameters: Any = request.tools[0].parameters
        for act in (
            lambda: settings.update(temperature=1),
            lambda: settings["stop"].append("."),
            lambda: settings["extra"].pop("a"),
            lambda: parameters["properties"].pop("place"),
            lambda: parameters["required"].append("x"),
        ):
            with pytest.raises(TypeError, match=READ_ONLY):
                act()
        for message in request.messages:
            for call in message.calls:
                change(call)
        seen.append((dict(settings), dict(parameters)))
        yield "Done." if len(request.messages) > 1 else CALL

    given = {"temperature": 0, "stop": ["!"], "extra": {"a": 1}}
    agent = Agent(model, tools=[look], settings=given)
    given["temperature"] = 2  # what was given is copied, so that the caller may go on with it
    outcome = await agent.run("go")

    assert outcome.error is None
    assert seen[0] == seen[1]
    assert seen[0][0] == {"temperature": 0, "stop": ["!"], "extra": {"a": 1}}
