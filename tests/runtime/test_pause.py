"""A pause ends once: it goes on or is given up, and whoever comes second is told what came first."""

from collections.abc import Callable

import pytest

from andon import Agent, Call, Stop, StopReport, StopResult, ToolContext, tool
from andon.core.stop import Where
from andon.errors import CheckpointError
from andon.runtime import live
from andon.runtime.live import Live
from andon.runtime.pause import Pause
from andon.runtime.ticket import Ticket
from andon.testing import ScriptedModel, virtual

FIRST = StopReport(result=StopResult.FINISHED_FIRST, run_id="r")
GIVEN_UP = StopReport(result=StopResult.STOPPED, stopped_at=Where.PAUSED, run_id="r")

Settle = Callable[[StopReport], None]


class Scene:
    """A pause whose discarding is held until the test lets it end."""

    def __init__(self) -> None:
        self.discarding: list[tuple[Stop, Settle]] = []
        self.pause = Pause(FIRST, lambda stop, settle: self.discarding.append((stop, settle)))

    def ask(self, stop: Stop) -> Ticket:
        """Cancel."""
        ticket = Ticket()
        self.pause.answer(stop, ticket)
        return ticket


def test_given_up_first_it_does_not_go_on_any_more() -> None:
    """Every ticket waits for the end of the discarding, and gets the one report."""
    scene = Scene()
    first, second = scene.ask(Stop.now()), scene.ask(Stop.graceful())
    assert not scene.pause.go_on()
    [(stop, settle)] = scene.discarding
    assert (stop, first.report, second.report) == (Stop.now(), None, None)
    settle(GIVEN_UP)
    third = scene.ask(Stop.now())
    assert [ticket.report for ticket in (first, second, third)] == [GIVEN_UP] * 3
    assert [ticket.accepted for ticket in (first, second, third)] == [True, False, False]


def test_going_on_first_it_cannot_be_given_up_any_more() -> None:
    """Nothing is discarded; who cancels is told how the run had ended."""
    scene = Scene()
    assert scene.pause.go_on()
    ticket = scene.ask(Stop.now())
    assert (ticket.report, ticket.accepted, scene.discarding) == (FIRST, False, [])


@virtual
async def test_a_resume_that_comes_while_a_cancel_has_just_begun_is_refused() -> None:
    """A cancel in another thread may have taken the pause, and not yet have said so."""

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask."""
        return f"{await context.interrupt('well?')}"

    agent = Agent(ScriptedModel(Call("ask")), tools=[ask])
    async with agent.start("go") as run:
        outcome = await run.outcome()
    assert run.resumed()
    assert not run.resumed()  # as it is where a cancel has come first
    assert outcome.checkpoint is not None
    with pytest.raises(CheckpointError, match=f"run {run.id} was cancelled while it waited for an answer"):
        await agent.resume(outcome.checkpoint)


def test_what_was_discarded_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: the oldest goes first."""
    monkeypatch.setattr(live, "REMEMBERED", 2)
    runs = Live()
    for name in ("one", "two", "three"):
        runs.discard(name)
    runs.check("one")
    for name in ("two", "three"):
        with pytest.raises(CheckpointError, match=f"run {name} was cancelled while it waited"):
            runs.check(name)
