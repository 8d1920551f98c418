"""A job is one piece of unknown code: cut once, abandoned at worst, and closed if it never began."""

import asyncio
from collections.abc import Awaitable

import anyio
import pytest

from andon.errors import RunStateError
from andon.runtime.isolate import Job, current_task, in_thread, on_loop
from andon.testing import Gate, virtual


def never() -> None:
    """Nobody cancels who waits here."""
    pytest.fail("the waiter was cancelled")


async def through(gate: Gate, log: list[str]) -> str:
    """Wait at a gate."""
    try:
        await gate
    except asyncio.CancelledError:
        log.append("cut")
        raise
    return "done"


@virtual
async def test_a_job_gives_what_its_work_gave() -> None:
    """A value or an error; whoever asks again gets it at once."""
    gate, log = Gate("work", opened=True), list[str]()
    job = Job().start(through(gate, log))
    await job.wait(never)
    await job.wait(never)
    assert (job.value, job.error, job.began, job.cut) == ("done", None, True, False)


@virtual
async def test_a_job_is_cut_once() -> None:
    """However often it is asked."""
    gate, log = Gate("work"), list[str]()
    job = Job().start(through(gate, log))
    await gate.reached()
    job.end_within(1, cancel=True)
    job.end_within(1, cancel=True)
    await job.wait(never)
    job.end_within(1, cancel=True)
    job.abandon()
    assert log == ["cut"]
    assert job.cut
    assert not job.abandoned


@virtual
async def test_a_job_that_has_not_begun_is_closed_unstarted() -> None:
    """Nothing of it ran."""
    gate, log = Gate("work"), list[str]()
    job = Job().start(through(gate, log))
    job.end_within(1, cancel=True)
    await job.wait(never)
    assert (job.began, job.cut, gate.arrived) == (False, True, 0)


@virtual
async def test_a_job_whose_task_is_cancelled_before_its_first_step_ends() -> None:
    """Whoever waits is not left waiting, and whoever cuts it later finds it over."""
    gate, log = Gate("work"), list[str]()
    for late in (False, True):
        job = Job().start(through(gate, log))
        [task] = asyncio.all_tasks() - {current_task()}
        task.cancel()
        await anyio.lowlevel.checkpoint()
        if late:
            job.end_within(1, cancel=True)
        await job.wait(never)
        assert not job.began
    assert gate.arrived == 0


@virtual
async def test_a_job_that_was_never_started_cannot_be_cut() -> None:
    """There is nothing to end."""
    job = Job()
    job.end_within(1, cancel=True)
    job.if_never_begun(never)
    assert not job.cut


@virtual
async def test_what_an_abandoned_job_gives_later_may_be_nobodys_affair() -> None:
    """It ends alone, and nothing happens."""
    gate, log = Gate("work"), list[str]()
    job = Job().start(through(gate, log))
    await gate.reached()
    job.after(3, job.abandon)
    await job.wait(never)
    assert job.abandoned
    job.after(1, never)
    gate.open()
    await anyio.sleep(5)
    assert job.value == "done"


@virtual
async def test_a_waiter_that_is_cancelled_says_so_and_waits_on() -> None:
    """The work is not left behind."""
    gate, log = Gate("work"), list[str]()
    job = Job().start(through(gate, log))
    told: list[str] = []

    async def wait() -> None:
        await job.wait(lambda: told.append("cancelled"))
        told.append("over")

    task = asyncio.get_running_loop().create_task(wait())
    await gate.reached()
    task.cancel()
    await anyio.sleep(1)
    assert told == ["cancelled"]
    gate.open()
    await task
    assert told == ["cancelled", "over"]


def test_a_ctrl_c_leaves_the_loop() -> None:
    """It is not the job's to keep; what waits is told all the same."""
    jobs: list[Job] = []

    async def leave() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        jobs.append(Job().start(leave()))
        await jobs[0].wait(never)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert isinstance(jobs[0].error, KeyboardInterrupt)


async def test_a_thread_whose_waiter_has_gone_talks_to_nobody() -> None:
    """Its result is dropped, and nothing fails."""
    gate, began = Gate("thread"), Gate("began", opened=True)

    def work() -> str:
        began.wait()
        gate.wait()
        ended.append("ended")
        return "late"

    ended: list[str] = []
    with anyio.move_on_after(5) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_thread, work)
            await began.reached()
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught
    gate.open()
    with anyio.fail_after(10):
        while not ended:
            await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()


def test_a_call_to_a_loop_that_has_gone_is_dropped() -> None:
    """There is nobody who could be told."""
    told: list[int] = []

    async def make() -> Awaitable[None] | None:
        told.append(0)
        calls.append(on_loop(told.append))
        return None

    calls: list[object] = []
    asyncio.run(make())
    call = calls[0]
    assert callable(call)
    call(1)
    assert told == [0]


def test_a_task_is_asked_for_inside_of_one() -> None:
    """Plain callbacks have none."""
    errors: list[str] = []

    def look() -> None:
        try:
            current_task()
        except RunStateError as error:
            errors.append(str(error))

    async def main() -> None:
        asyncio.get_running_loop().call_soon(look)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()

    asyncio.run(main())
    assert errors == ["this must run in a task"]


@virtual
async def test_a_job_that_is_cancelled_before_it_begins_is_cancelled_where_it_first_waits() -> None:
    """It begins all the same, so that it can say what became of it."""
    gate, log = Gate("work"), list[str]()
    job = Job().start(through(gate, log))
    job.cancel()
    await job.wait(never)
    assert (job.began, log, gate.arrived) == (True, ["cut"], 1)
    assert isinstance(job.error, asyncio.CancelledError)
    job.cancel()
    Job().cancel()


@virtual
async def test_whoever_waits_is_given_the_cancellation_that_came_first() -> None:
    """That very one is to be passed on, once the work is over."""
    gate, log, told = Gate("work"), list[str](), list[int]()
    job = Job().start(through(gate, log))

    async def wait() -> asyncio.CancelledError | None:
        return await job.wait(lambda: told.append(1))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait())
        await gate.reached()
        task.cancel("first")
        await anyio.sleep(1)
        task.cancel("second")
        await anyio.sleep(1)
        gate.open()
        cut = await task
    assert cut is not None
    assert (cut.args, len(told), job.value) == (("first",), 2, "done")
    assert await Job().start(through(gate, log)).wait(never) is None


@virtual
async def test_a_scope_that_is_cancelled_does_not_make_whoever_waits_spin() -> None:
    """It tells of its cancellation once, and the work has all the time it needs."""
    gate, told = Gate("work"), list[int]()
    job = Job().start(through(gate, []))
    with anyio.move_on_after(1) as scope:
        job.after(50, gate.open)
        await job.wait(lambda: told.append(1))
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert (len(told), job.value) == (1, "done")
