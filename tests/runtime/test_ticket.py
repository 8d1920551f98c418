"""A ticket gives one report, the same for all, wherever it is waited for."""

import asyncio
from threading import Thread

import anyio
import pytest

from andon import Agent, Stop, StopReport, StopResult
from andon.core.stop import Where
from andon.errors import RunStateError
from andon.runtime.ticket import Ticket
from andon.testing import Gate, ScriptedModel, virtual
from tests.whole import whole


@virtual
async def test_all_tickets_of_a_run_get_the_same_report() -> None:
    """Early, late, before and after; only `accepted` is each one's own."""
    answer = Gate("model")
    run = Agent(ScriptedModel(["Half", answer])).start("go")
    early = run.cancel(Stop.graceful())
    async with run:
        await answer.reached()
        now = run.cancel()
        outcome = await whole(run)
        late = run.cancel()
    reports = [await ticket for ticket in (early, now, late)]
    assert reports[0] == reports[1] == reports[2] == outcome.cancelled
    assert [ticket.accepted for ticket in (early, now, late)] == [True, True, False]


@virtual
async def test_the_fields_of_a_report() -> None:
    """Everything that §2 promises is there."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer)).start("go") as run:
        await answer.reached()
        report = await run.cancel(reason="enough", by="ann")
    assert report == StopReport(
        result=StopResult.STOPPED,
        accepted=True,
        stopped_at=Where.MODEL,
        escalated_by=None,
        causes=report.causes,
        latency=report.latency,
        abandoned=(),
        checkpoint=None,
        durable=True,
        checkpoint_error=None,
        run_id=run.id,
    )
    assert report.latency >= 0
    assert report.cause is not None
    assert (report.cause.by, report.cause.reason) == ("ann", "enough")


async def test_a_thread_waits_for_its_ticket() -> None:
    """Blocking there, while the run ends here."""
    answer = Gate("model")
    reports: list[StopReport] = []
    async with Agent(ScriptedModel(answer)).start("go") as run:
        await answer.reached()
        thread = Thread(target=lambda: reports.append(run.cancel().wait(timeout=20)))
        thread.start()
        outcome = await whole(run)
    thread.join()
    assert reports == [outcome.cancelled]


def test_waiting_may_time_out_and_the_request_stands() -> None:
    """The message says so; the ticket can be waited for again."""
    run = Agent(ScriptedModel("never")).start("go")
    ticket = run.cancel()
    with pytest.raises(TimeoutError, match="nothing was given within"):
        ticket.wait(timeout=0.001)
    asyncio.run(run.outcome())
    assert ticket.wait(timeout=0).result is StopResult.STOPPED


@virtual
async def test_waiting_in_the_loop_is_refused() -> None:
    """It would block what it waits for; the message names the right way."""
    answer = Gate("model")
    async with Agent(ScriptedModel(answer)).start("go") as run:
        ticket = run.cancel()
        with pytest.raises(RunStateError, match=r"would block this event loop.*use `await`"):
            ticket.wait()
        report = await ticket
        assert ticket.wait() == report


@virtual
async def test_a_waiter_that_gives_up_leaves_the_ticket_to_the_others() -> None:
    """Cancelling one `await ticket` cancels neither the ticket nor the run's end."""
    answer = Gate("model")

    async def patient(ticket: Ticket) -> None:
        reports.append(await ticket)

    reports: list[StopReport] = []
    run = Agent(ScriptedModel(answer, "never")).start("go")
    ticket = run.cancel(Stop.graceful())
    async with anyio.create_task_group() as tasks, run:
        tasks.start_soon(patient, ticket)
        await answer.reached()
        with anyio.move_on_after(0.1) as scope:
            await ticket
        assert scope.cancelled_caught
        assert ticket.report is None
        run.cancel()
        await whole(run)
    assert reports == [await ticket]


@virtual
async def test_a_ticket_of_a_run_that_never_starts_settles_when_it_is_closed() -> None:
    """Nothing was asked of any model."""
    model = ScriptedModel("never")
    run = Agent(model).start("go")
    ticket = run.cancel()
    await run.close()
    report = await ticket
    assert (report.result, report.stopped_at) == (StopResult.STOPPED, Where.BEFORE_START)
    assert model.requests == []
    assert run.ended


@virtual
async def test_a_closed_run_may_be_closed_again() -> None:
    """And its outcome stays."""
    run = Agent(ScriptedModel("Done.")).start("go")
    outcome = await run.outcome()
    await run.close()
    assert await run.outcome() is outcome


@virtual
async def test_a_ticket_shows_itself() -> None:
    """Open, then its result."""
    run = Agent(ScriptedModel("never")).start("go")
    ticket = run.cancel()
    assert repr(ticket) == "<Ticket open>"
    await run.outcome()
    assert repr(ticket) == "<Ticket STOPPED>"


def test_a_run_whose_loop_is_gone_says_so() -> None:
    """Nothing can be stopped there any more, and nobody should wait for it."""
    loop = asyncio.new_event_loop()
    run = Agent(ScriptedModel(Gate("model"))).start("go")

    async def begin() -> None:
        run.events()

    loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    record = run._record  # pyright: ignore[reportPrivateUsage]
    assert not record.state.ended
    loop.close()
    report = run.cancel().wait(timeout=5)
    assert (report.result, report.durable) == (StopResult.FINISHED_FIRST, False)
    assert report.checkpoint_error is not None
    assert "was closed before the run ended" in report.checkpoint_error
    assert run.lost
