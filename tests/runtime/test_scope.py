"""The one door for threads, where two of them meet in it."""

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import SupportsIndex

import pytest

from andon import Agent, Stop, StopReport, StopResult
from andon.core.stop import Cause
from andon.runtime.bell import Bell
from andon.runtime.scope import Scope
from andon.runtime.ticket import Ticket
from andon.testing import Gate, ScriptedModel, virtual
from tests.whole import whole

REPORT = StopReport(result=StopResult.FINISHED_FIRST)


def ignore(_: Stop) -> None:
    """Take note of nothing."""


async def test_a_request_that_meets_the_end_of_its_loop_is_answered() -> None:
    """The run settles, and its loop is closed, between the request and the call into the loop."""
    scope = Scope("r", ignore)
    scope.begin()

    class Closing(asyncio.SelectorEventLoop):
        """Ends the run, and is closed, when it is called."""

        def call_soon_threadsafe(self, *_: object, **__: object) -> asyncio.Handle:
            """Be too late."""
            scope.settle(REPORT)
            msg = "Event loop is closed"
            raise RuntimeError(msg)

    closing = Closing()
    scope._loop = closing  # pyright: ignore[reportPrivateUsage]
    ticket = scope.request(Stop.now(), Cause("user"))
    closing.close()
    assert ticket.report == REPORT


async def test_a_request_before_the_end_and_one_after_it_are_both_settled() -> None:
    """None is left in the queue."""
    scope = Scope("r", ignore)
    early = scope.request(Stop.now(), Cause("user"))
    scope.begin()
    scope.settle(REPORT)
    late = scope.request(Stop.now(), Cause("user"))
    assert early.report == late.report == REPORT
    assert (early.accepted, late.accepted) == (False, False)
    assert repr(scope) == "<Scope open>"


@virtual
@pytest.mark.parametrize(("early", "over"), [(5, False), (0.002, False), (0.0005, True), (0, True)])
async def test_a_grace_is_over_where_a_child_finds_it_to_be_by_an_instant(early: float, over: bool) -> None:  # noqa: FBT001
    """The timers of a tree differ by so much; a child with a shorter grace of its own ends nobody else's."""
    loop, moment = asyncio.get_running_loop(), Gate("moment")
    scope = Scope("r", ignore)
    scope.begin()
    scope.request(Stop.graceful(grace=10), Cause("user"))
    scope.drain()
    loop.call_later(10 - early, moment.open)
    await moment
    scope.grace_is_over()
    assert (scope.cuts, scope.escalated_by) == (over, "timeout" if over else None)
    scope.settle(REPORT)


def test_two_threads_may_call_back_at_once() -> None:
    """One takes the last callback, the other finds none and goes its way."""

    class Taken(list[Callable[[], None]]):
        """Is emptied by another thread between the look and the grasp."""

        def pop(self, _place: SupportsIndex = -1) -> Callable[[], None]:
            """Find nothing."""
            self.clear()
            raise IndexError

    ticket = Ticket()
    ticket._callbacks = Taken([lambda: None])  # pyright: ignore[reportPrivateUsage]
    ticket.settle(REPORT)
    assert ticket.report == REPORT


async def test_a_reader_whose_loop_has_gone_disturbs_nobody() -> None:
    """It waited in another thread, and that thread's loop was closed under it."""
    answer = Gate("model")
    loops: list[asyncio.AbstractEventLoop] = []

    def elsewhere() -> None:
        loop = asyncio.new_event_loop()
        loops.append(loop)
        bell = run._record.bell  # pyright: ignore[reportPrivateUsage]
        bell.waiters.append(loop.create_future())
        loop.close()

    async with Agent(ScriptedModel(["One", answer, "Two"])).start("go") as run:
        await answer.reached()
        thread = Thread(target=elsewhere)
        thread.start()
        thread.join()
        answer.open()
        outcome = await whole(run)
    assert outcome.text == "OneTwo"
    assert loops[0].is_closed()


async def test_a_bell_wakes_who_waits_and_nobody_twice() -> None:
    """A waiter that has given up is passed over."""
    bell = Bell()
    waiter = asyncio.get_running_loop().create_future()
    waiter.cancel()
    bell.waiters.append(waiter)
    bell.ring()
    assert not bell.waiters


async def test_a_request_that_comes_as_the_run_hears_something_is_not_lost_with_the_flag() -> None:
    """The flag is lowered for what was heard; whoever has raised it since is found in the queue."""
    scope = Scope("r", ignore)
    scope.begin()
    scope.hear()
    scope.heard()
    assert (scope.cuts_model, scope.stop) == (False, None)
    scope.request(Stop.now(), Cause("user"))
    scope.heard()
    assert scope.cuts_model
    assert scope.stop is not None
    scope.hear()
    scope.heard()
    assert scope.cuts_model
