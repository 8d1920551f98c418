"""Resume of workflows: stopped at any place, they go on to the same end, and do nothing twice."""

from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from andon import Agent, Call, Outcome, Point, Run, Stop, loop, parallel, sequence, tool
from andon.core.checkpoint import Checkpoint
from andon.core.draft import Chunk
from andon.core.messages import Message, ResultState
from andon.ports import ModelRequest
from andon.testing import virtual
from tests.flows import ended


class Stage:
    """A tree of workflows whose models and tools count what they do, and which is stopped at one of these."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.stop_at: int | None = None
        self.stop = Stop.now()
        self.run: Run | None = None

    async def do(self, what: str) -> None:
        """Note it, ask for the stop if this is the place for it, and take a moment."""
        self.done.append(what)
        if self.run is not None and len(self.done) - 1 == self.stop_at:
            self.run.cancel(self.stop)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()

    def agent(self, name: str, *, works: bool = False, over_to: Agent | None = None) -> Agent:
        """Make an agent that answers with its name and what it was asked; after a tool, if it works."""

        @tool
        async def work() -> str:
            """Work."""
            await self.do(f"{name} works")
            return "worked"

        async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
            yield f"{name}"
            await self.do(f"{name} thinks")
            last = request.messages[-1]
            if works and last.role == "user":
                yield Call("work")
            elif over_to is not None:
                yield Call(f"hand_over_to_{over_to.name}", {"request": f"from {name}"})
            else:
                yield f"({last.text or last.results[0].content})"

        return Agent(model, name=name, tools=[work], hand_over=[] if over_to is None else [over_to])

    def flow(self) -> Agent:
        """Make the tree anew, as a new process would."""
        both = parallel(self.agent("left", works=True), self.agent("right", works=True), name="both")
        rounds = loop(both, self.agent("judge"), max=2, name="rounds")
        desk = self.agent("desk", over_to=self.agent("billing", works=True))
        return sequence(self.agent("first", works=True), rounds, desk, self.agent("last"), name="all")

    async def play(self, saved: Checkpoint | None = None) -> Outcome:
        """Run it from the start or from a checkpoint, to its end or to the stop."""
        flow = self.flow()
        self.run = flow.start("go") if saved is None else flow.start_from(saved.to_json())
        async with self.run as run:
            return await ended(run)


def gist(history: tuple[Message, ...]) -> list[object]:
    """What was said and answered, without the ids of the calls."""
    return [
        (message.role, message.text, [(call.name, call.arguments) for call in message.calls],
         [(result.name, result.content, result.state) for result in message.results])
        for message in history
    ]  # fmt: skip


async def undisturbed() -> tuple[Outcome, list[str]]:
    """Run it without a stop."""
    stage = Stage()
    outcome = await stage.play()
    assert outcome.stop_reason == "end_turn"
    return outcome, stage.done


PLACES = 22  # models asked and tools run: first 3, each round of the loop 7, desk 1, billing 3, last 1
POINTS = [Stop.at(Point.MODEL), Stop.at(Point.TOOLS), Stop.graceful()]


@virtual
async def test_the_tree_does_what_the_sweep_believes() -> None:
    """So many things are done, and each is a place where the run can be stopped."""
    outcome, done = await undisturbed()
    assert outcome.text == "last(billing(worked))"
    assert done[:7] == [
        "first thinks", "first works", "first thinks",
        "left thinks", "right thinks", "left works", "right works",
    ]  # fmt: skip
    assert len(done) == PLACES


@virtual
@pytest.mark.parametrize("place", range(PLACES))
@pytest.mark.parametrize("stop", POINTS, ids=repr)
async def test_stopped_at_a_point_it_ends_as_if_nothing_had_been(stop: Stop, place: int) -> None:
    """The same history, everything done once, no model asked again; the last answer only is no point."""
    whole, done = await undisturbed()
    stage = Stage()
    stage.stop, stage.stop_at = stop, place
    outcome = await stage.play()
    if place == PLACES - 1:
        assert outcome.stop_reason == "end_turn"
        return
    assert outcome.stop_reason == "cancelled"
    outcome = await stage.play(outcome.checkpoint)
    assert outcome.stop_reason == "end_turn"
    assert gist(outcome.messages) == gist(whole.messages)
    assert sorted(stage.done) == sorted(done)
    assert (outcome.usage.model_calls, outcome.usage.tool_calls) == (
        whole.usage.model_calls,
        whole.usage.tool_calls,
    )


@virtual
@pytest.mark.parametrize("stop", POINTS, ids=repr)
async def test_stopped_at_every_point_it_still_ends_the_same(stop: Stop) -> None:
    """Every resumed run is asked to stop at once, as often as it takes."""
    whole, done = await undisturbed()
    stage = Stage()
    stage.stop, stage.stop_at = stop, 0
    outcome = await stage.play()
    stops = 0
    while outcome.stop_reason == "cancelled":
        stops += 1
        stage.stop_at = len(stage.done)
        outcome = await stage.play(outcome.checkpoint)
    assert outcome.stop_reason == "end_turn"
    assert stops >= 6
    assert gist(outcome.messages) == gist(whole.messages)
    assert sorted(stage.done) == sorted(done)


@virtual
@pytest.mark.parametrize("place", range(PLACES))
async def test_cut_anywhere_no_tool_runs_twice_and_no_whole_answer_is_asked_for_again(place: int) -> None:
    """What was cut in a model is asked again; what was cut in a tool is told as unknown."""
    whole, done = await undisturbed()
    stage = Stage()
    stage.stop_at = place
    outcome = await stage.play()
    assert outcome.stop_reason == "cancelled"
    assert outcome.cancelled is not None
    cut = [stage.done[place]]
    if cut[0].split()[0] in {"left", "right"}:  # the other branch was cut as well
        cut = stage.done[-2:]
    outcome = await stage.play(outcome.checkpoint)
    assert outcome.stop_reason == "end_turn"
    worked = [what for what in stage.done if what.endswith("works")]
    assert sorted(worked) == sorted(what for what in done if what.endswith("works"))
    again = len(stage.done) - len(done)
    assert again <= len([what for what in cut if what.endswith("thinks")])
    states = [result.state for message in outcome.messages for result in message.results]
    assert set(states) == {ResultState.COMPLETED}
    assert len(outcome.messages) == len(whole.messages)


@virtual
@pytest.mark.parametrize("kind", [sequence, parallel, loop])
async def test_a_checkpoint_of_a_workflow_holds_no_message_twice(kind: Callable[..., Agent]) -> None:
    """What a step begins with as its workflow does is left out of it."""
    stage = Stage()
    stage.stop_at = 0
    async with kind(stage.agent("a"), stage.agent("b")).start("go" * 1_000) as run:
        stage.run = run
        outcome = await ended(run)
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.to_json().count(b"go" * 1_000) <= 1 + len(outcome.checkpoint.messages[-1].calls)
