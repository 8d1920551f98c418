"""Views: hooks, models and tools see a run, and have its verbs; its stop state is out of their reach."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from andon import Agent, Call, Run, ToolContext, tool
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from andon.runtime.hooks import NAMES, Moment
from andon.runtime.nested import Place
from andon.runtime.record import Record
from andon.runtime.scope import Scope
from andon.runtime.tools import Signal
from andon.testing import ScriptedModel, virtual
from tests.whole import whole

INNER = (Scope, Signal, Record, Place)


def reached(view: object) -> list[str]:
    """Name what of the inner works the public attributes of a view give."""
    names = [name for name in dir(view) if not name.startswith("_")]
    return [name for name in names if isinstance(getattr(view, name), INNER)]


async def views() -> dict[str, Any]:
    """Gather what hooks, a model and tools are given in a run."""
    seen: dict[str, Any] = {}

    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        seen["context"] = context
        return "done"

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        seen["request"] = request
        yield "Done." if len(request.messages) > 1 else Call("look")

    agent = Agent(model, tools=[look], settings={"temperature": 0})

    def keep(moment: Moment) -> None:
        seen[moment.name] = moment

    for name in NAMES:
        agent.on(name, keep)
    async with agent.start("go") as run:
        await whole(run)
        seen["run"] = run
    return seen


@virtual
async def test_nothing_that_is_given_leads_to_the_scope_or_the_signal() -> None:
    """There are verbs, and no flag that could be set behind the back of a run."""
    seen = await views()
    assert set(seen) == {"context", "request", "run", *NAMES}
    assert {name: reached(view) for name, view in seen.items()} == {name: [] for name in seen}


@virtual
async def test_what_is_given_cannot_be_changed() -> None:
    """A moment, a request, its messages and its settings are as they are."""
    seen = await views()
    for name in ("request", "before_model", "before_tool", "after_tool", "message_added", "run_ended"):
        view = seen[name]
        for field in view.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(view, field, None)
    request: Any = seen["request"]
    with pytest.raises(TypeError):
        request.settings["temperature"] = 1
    with pytest.raises(TypeError):
        request.messages[0] = None
    with pytest.raises(AttributeError):
        request.messages[0].role = "assistant"
    with pytest.raises(AttributeError):
        seen["run"].usage.cost = 0


@virtual
async def test_the_history_that_a_run_shows_is_no_door_into_it() -> None:
    """It is as it was when it was asked for, and the run's own is another."""
    model = ScriptedModel("Done.", "More.")
    lengths: list[int] = []
    agent = Agent(model)

    def look(moment: Moment) -> None:
        lengths.append(len(moment.run.messages))

    agent.on("message_added", look)
    run: Run = agent.start("go")
    before = run.messages
    run.steer("more", when="idle")
    async with run:
        await whole(run)
    assert (before, lengths, len(run.messages)) == ((), [1, 2, 3, 4], 4)
    assert isinstance(run.messages, tuple)
