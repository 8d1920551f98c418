"""CO: what becomes of a cancel, and whether it contributed."""

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import anyio

from andon import Agent, ModelError, Run, StopResult
from andon.core.items import Item, RunEnded, StopRequested
from andon.core.stop import Where
from andon.runtime.hooks import Moment
from andon.runtime.ticket import Ticket
from andon.testing import Gate, ScriptedModel, virtual
from tests.whole import whole


@virtual
async def test_co_01_a_cancel_after_the_end_is_finished_first() -> None:
    """The run completed and its events are read: the answer is there at once, and nothing contributed."""
    async with Agent(ScriptedModel("Done.")).start("go") as run:
        outcome = await whole(run)
        ticket = run.cancel()
        assert ticket.report is not None
        assert (ticket.report.result, ticket.accepted) == (StopResult.FINISHED_FIRST, False)
        assert await ticket == ticket.report
    assert outcome.stop_reason == "end_turn"


@virtual
async def test_co_03_an_error_of_the_model_is_no_cancel() -> None:
    """The run ends as an error; a later cancel comes too late."""
    async with Agent(ScriptedModel(ModelError("no such luck"))).start("go") as run:
        outcome = await whole(run)
        report = await run.cancel()
    assert (outcome.stop_reason, outcome.error) == ("error", "ModelError: no such luck")
    assert outcome.cancelled is None
    assert report.result is StopResult.FINISHED_FIRST


@virtual
async def test_co_04_now_during_the_model_call_is_stopped() -> None:
    """Asked in flight, stopped in flight."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer)).start("go") as run:
        await answer.reached()
        ticket = run.cancel()
        outcome = await whole(run)
    report = await ticket
    assert (report.result, report.stopped_at, ticket.accepted) == (StopResult.STOPPED, Where.MODEL, True)
    assert outcome.cancelled == report


@virtual
async def test_co_05_a_cancel_that_is_overtaken_by_the_end_did_not_contribute() -> None:
    """Asked when the outcome is decided and nobody has been told yet: FINISHED_FIRST, not accepted."""
    tickets: list[Ticket] = []

    class Late:
        """Cancels a run at the very moment it is told of its end."""

        run: Run

        def observe(self, _: str, item: Item, /) -> None:
            """Take one item."""
            if isinstance(item, RunEnded):
                tickets.append(self.run.cancel())

    late, ending = Late(), Gate("the hook at the end")
    agent = Agent(ScriptedModel("Done."), observers=[late])

    @agent.on("run_ended")
    async def hold(moment: Moment) -> None:
        tickets.append(moment.run.cancel())
        await ending

    late.run = agent.start("go")
    async with late.run as run:
        await ending.reached()
        tickets.append(run.cancel())  # the run is at its end, and not yet over
        await anyio.lowlevel.checkpoint()
        ending.open()
        outcome = await whole(run)
        asked = [event async for event in run if isinstance(event, StopRequested)]
    reports = [await ticket for ticket in tickets]
    assert [ticket.accepted for ticket in tickets] == [False] * 3
    assert [report.result for report in reports] == [StopResult.FINISHED_FIRST] * 3
    assert asked == []
    assert outcome.stop_reason == "end_turn"


async def test_co_06_cancel_and_completion_race_and_exactly_one_wins() -> None:
    """Whoever wins, the ticket, the report and the outcome say the same; nothing hangs."""
    seen: set[str] = set()
    for _ in range(100):
        answer = Gate("model")
        async with Agent(ScriptedModel([answer, "Done."])).start("go") as run:
            await answer.reached()
            barrier = Barrier(2)
            tickets: list[Ticket] = []
            threads = [
                Thread(target=_meet, args=(barrier, answer.open)),
                Thread(target=_meet, args=(barrier, run.cancel, tickets)),
            ]
            for thread in threads:
                thread.start()
            outcome = await whole(run)
            for thread in threads:
                thread.join()
            report = await tickets[0]
        stopped = report.result is StopResult.STOPPED
        assert stopped == (outcome.stop_reason == "cancelled")
        assert tickets[0].accepted or report.result is StopResult.FINISHED_FIRST
        assert stopped == (outcome.cancelled == report)
        seen.add(outcome.stop_reason)
    assert seen <= {"cancelled", "end_turn"}


def _meet(barrier: Barrier, act: Callable[[], object], given: list[Any] | None = None) -> None:
    barrier.wait()
    answer = act()
    if given is not None:
        given.append(answer)
