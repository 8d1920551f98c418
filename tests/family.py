"""Family: agents behind agents, and one list of whose models were asked, in order."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from typing_extensions import override

from andon import Agent, Call, Message, Outcome, Run, StopReport
from andon.core.checkpoint import Checkpoint
from andon.core.draft import Chunk
from andon.core.items import RunEnded
from andon.ports import ModelRequest
from andon.runtime.ticket import Ticket
from andon.testing import Reply, ScriptedModel
from tests.whole import whole


class Asked(ScriptedModel):
    """A scripted model that notes in a list when it is asked."""

    def __init__(self, *replies: Reply, name: str, log: list[str]) -> None:
        super().__init__(*replies, name=name)
        self._log = log

    @override
    def __call__(self, request: ModelRequest, /) -> AsyncGenerator[Chunk]:
        """Note it, and give the next reply."""
        self._log.append(self.name)
        return super().__call__(request)


class Family:
    """Makes agents, each of which has the agents below it as tools of their names."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.models: dict[str, ScriptedModel] = {}

    def agent(
        self,
        name: str,
        *replies: Reply,
        below: Sequence[Agent] = (),
        tools: Sequence[Callable[..., Any]] = (),
        **options: Any,  # noqa: ANN401 — Agent's own
    ) -> Agent:
        """Make an agent of this family."""
        model = self.models[name] = Asked(*replies, name=name, log=self.asked)
        asks = [agent.as_tool(description=f"Asks {agent.name}.") for agent in below]
        return Agent(model, tools=[*asks, *tools], name=name, **options)

    @property
    def live(self) -> list[str]:
        """Whose models are answering."""
        return [name for name, model in self.models.items() if model.live]


def ask(name: str, call_id: str = "") -> Call:
    """Call the tool of an agent."""
    return Call(name, {"request": f"for {name}"}, call_id)


def call(name: str, call_id: str = "") -> Call:
    """Call a tool that takes nothing."""
    return Call(name, {}, call_id)


async def stopped(run: Run, *tickets: Ticket) -> tuple[Outcome, StopReport]:
    """Hold a run to one clean stop: each ticket accepted, one report, one terminal event."""
    outcome = await whole(run)
    reports = [await ticket for ticket in tickets]
    assert all(ticket.accepted for ticket in tickets)
    assert all(report == outcome.cancelled for report in reports)
    assert outcome.stop_reason == "cancelled"
    assert sum(isinstance(event, RunEnded) for event in [event async for event in run]) == 1
    return outcome, reports[0]


async def report_of(run: Run) -> StopReport:
    """Give the stop report of a run that was cancelled."""
    report = (await run.outcome()).cancelled
    assert report is not None
    return report


def inside(checkpoint: Checkpoint | None) -> list[str]:
    """Name the agents whose state a checkpoint holds, from the root to the leaves."""
    if checkpoint is None:
        return []
    below = (child for children in checkpoint.children.values() for child in children)
    return [checkpoint.agent, *(name for child in below for name in inside(child))]


def said(messages: Sequence[Message]) -> list[str]:
    """Write a history down, a word or two a message."""
    return [
        message.text
        or ", ".join([call.name for call in message.calls] or [r.content for r in message.results])
        for message in messages
    ]
