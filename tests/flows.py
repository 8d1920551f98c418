"""Flows: actors, who are agents with scripted models, and what every stop of a workflow of them keeps."""

from collections.abc import Iterator
from typing import Any

from andon import Agent, Outcome, Run, StopReport, StopResult
from andon.core.checkpoint import Checkpoint
from andon.core.items import MessageAdded, RunEnded, RunStarted
from andon.core.messages import Message
from andon.runtime.ticket import Ticket
from andon.testing import Reply, ScriptedModel
from tests.whole import complaints, whole


class Actor(Agent):
    """An agent whose model is scripted."""

    def __init__(self, name: str, *replies: Reply, **options: Any) -> None:  # noqa: ANN401 — Agent's own
        self.script = ScriptedModel(*replies, name=name)
        super().__init__(self.script, name=name, **options)

    @property
    def asked(self) -> int:
        """How often its model was asked."""
        return len(self.script.requests)

    @property
    def heard(self) -> list[str]:
        """What it was asked last, message by message."""
        return [message.text for message in self.script.requests[-1].messages]


async def ended(run: Run) -> Outcome:
    """Hold a run and all runs inside it to one terminal event and histories that can be sent again."""
    outcome = await whole(run)
    events = [event async for event in run]
    assert [type(event) for event in events].count(RunEnded) == 1
    inside: dict[tuple[str, ...], list[Message]] = {}
    for event in events:
        match event:
            case RunStarted(checkpoint=None) if event.path:
                inside[event.path] = list(event.history)
            case RunStarted(checkpoint=Checkpoint() as saved) if event.path:
                inside[event.path] = list(saved.messages)
            case MessageAdded(message=message) if event.path:
                inside[event.path].append(message)
            case _:
                pass
    assert all(complaints(history) == [] for history in inside.values())
    return outcome


async def stopped(run: Run, ticket: Ticket) -> tuple[Outcome, StopReport]:
    """Hold a run to a clean stop that was accepted: STOPPED, one terminal event that says cancelled."""
    outcome = await ended(run)
    report = await ticket
    assert (report.result, ticket.accepted) == (StopResult.STOPPED, True)
    assert report == outcome.cancelled
    assert outcome.stop_reason == "cancelled"
    return outcome, report


def inside(saved: Checkpoint | None) -> Iterator[str]:
    """Name the agents inside a checkpoint that go on when it is resumed, each by the way to it."""
    assert saved is not None
    for children in saved.children.values():
        for child in children:
            yield f"{saved.agent}/{child.agent}"
            yield from (f"{saved.agent}/{deeper}" for deeper in inside(child))
