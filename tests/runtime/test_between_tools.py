"""A stop that comes between two tools of a round is told as what it is: the round was cut."""

from andon import Agent, Call, Stop, tool
from andon.core.messages import ResultState
from andon.core.stop import Where
from andon.runtime.hooks import Moment
from andon.testing import ScriptedModel, virtual


@tool(sequential=True)
async def step(name: str) -> str:
    """Take a step."""
    return name


@virtual
async def test_a_stop_between_two_sequential_tools_stops_in_the_tools() -> None:
    """No call was in flight, but the round did not end: it is no safe point."""
    calls = [Call("step", {"name": "one"}), Call("step", {"name": "two"})]
    agent = Agent(ScriptedModel(calls), tools=[step])

    @agent.on("after_tool")
    def _(moment: Moment) -> None:
        moment.run.cancel(Stop.now())

    outcome = await agent.run("Go.")
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is Where.TOOLS
    states = [result.state for message in outcome.messages for result in message.results]
    assert states == [ResultState.COMPLETED, ResultState.NOT_STARTED]
