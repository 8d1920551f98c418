"""A request that a child in another thread meets before its parent has joined it counts for both."""

import time
from threading import Event

from andon import Agent, Call, Point, Run, Stop, tool
from andon.core.items import StopRequested
from andon.core.stop import Where
from andon.testing import Gate, ScriptedModel

LONG = 30.0  # real seconds


class Scene:
    """An agent that is asked in a thread, and held in its model."""

    def __init__(self) -> None:
        self.gate = Gate("model")
        self.left = Event()
        self.model = ScriptedModel([self.gate, Call("look")], "It is empty.", by_round=True)
        inner = Agent(self.model, tools=[look], name="inner")

        @tool
        def dig() -> str:
            """Ask in a thread, and say when that is over."""
            try:
                return inner.run_sync("Dig.").text
            finally:
                self.left.set()

        self.agent = Agent(ScriptedModel(Call("dig"), "Dug.", by_round=True), tools=[dig], name="outer")

    def held_until_left(self) -> None:
        """Keep the loop of the parent busy until its child has ended, so that it hears of nothing."""
        late = time.monotonic() + LONG
        while not self.left.is_set() and time.monotonic() < late:
            pass


@tool
async def look() -> str:
    """Look."""
    return "empty"


async def joined(run: Run) -> None:
    """Wait until the run has joined a request."""
    async for event in run.events():
        if isinstance(event, StopRequested) and not event.path:
            return


async def test_recursive_that_comes_later_keeps_a_child_that_hears_of_it_first() -> None:
    """The child stops at its point while the loop of its parent is busy, and goes on from there."""
    scene = Scene()
    async with scene.agent.start("go") as run:
        await scene.gate.reached()
        run.cancel(Stop.at(Point.ANY))
        await joined(run)
        run.cancel(Stop.at(Point.ANY, recursive=True))
        scene.gate.open()
        scene.held_until_left()
        outcome = await run.outcome()
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is Where.POINT_MODEL
    assert outcome.checkpoint is not None
    ((child,),) = outcome.checkpoint.children.values()
    assert child.messages[-1].calls
    resumed = await scene.agent.resume(outcome.checkpoint)
    assert resumed.text == "Dug."
    assert len(scene.model.requests) == 2
