"""Tenure: how a session is left, whole or torn, and taken up by the next worker; what nobody can work on."""

import logging
from collections.abc import AsyncIterator, Sequence

import anyio
import pytest
from typing_extensions import override

from andon import Agent, Limits, Point, Stop
from andon.core.command import Key, Push, command_to_json
from andon.core.draft import Chunk
from andon.core.items import ModelStarted, RunEnded, RunStarted, StopRequested, ToolStarted
from andon.core.journal import HandedOver, Quarantined, Received
from andon.core.live import Live
from andon.core.messages import Message, ResultState
from andon.core.stop import StopResult, Where
from andon.errors import SessionError
from andon.ports import Claim, ModelRequest
from andon.runtime.isolate import turn
from andon.runtime.memory import Holder, MemorySubstrate
from andon.runtime.worker import Worker
from andon.testing import Gate, virtual
from tests.deeds import Deeds, lines
from tests.hall import KEY, Hall, hall, settle, sound
from tests.mortal import Mortal


async def ended(here: Hall, run_id: str, key: Key = KEY) -> str:
    """Wait for the end of a run, and say how it was."""
    row = await here.office.ended(key, run_id, 100_000)
    assert row is not None
    return row.state


async def gone(worker: Worker) -> None:
    """Wait until a worker has left its sessions."""
    while worker.busy:  # noqa: ASYNC110 — a virtual clock jumps there
        await anyio.sleep(0.5)


def kinds(entries: Sequence[object]) -> list[type]:
    """Give the kinds of items."""
    return [type(entry) for entry in entries]


# Drain


@virtual
async def test_a_worker_that_shuts_down_hands_its_run_over_at_a_safe_point() -> None:
    """Nobody is cancelled, the claim is given back at once, and the next worker goes on after the tool."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        run_id = await here.office.push(KEY, "once")
        await here.live(run_id, "once")
        here.workers[0].drain()
        here.hire()
        assert await ended(here, run_id) == "finished"
        assert anyio.current_time() < 1_005  # no lease had to run out
        assert (deeds.tally.begun["once"], deeds.asked) == (1, 2)
        entries = await sound(here)
        assert kinds(entries).count(HandedOver) == 1
        assert StopRequested not in kinds(entries)
        assert lines((await here.office.state(KEY)).messages) == [
            "user: once",
            "assistant: Well.  | once",
            "tool:  | once=did once",
            "assistant: This is the answer.",
        ]
        assert (await here.office.run(run_id)).cancelled is None
        async with here.office.follow(KEY) as news:
            assert "superseded" not in [one.kind for one in await anext(news)]


@virtual
async def test_a_model_that_does_not_end_within_the_grace_is_asked_again() -> None:
    """What it had said is no part of what goes on."""
    deeds = Deeds()
    async with hall(deeds.agent, drain_grace=5) as here:
        run_id = await here.office.push(KEY, "hang")
        await here.live(run_id, "model")
        here.workers[0].drain()
        await gone(here.workers[0])
        assert 1_005 <= anyio.current_time() < 1_008
        here.hire()
        await here.live(run_id, "model")
        assert deeds.asked == 2
        report = await here.office.cancel(KEY)
        assert report is not None
        assert [cause.source for cause in report.causes] == ["user"]
        assert lines((await here.office.state(KEY)).messages) == ["user: hang", "assistant: Hm. "]
        await sound(here)


@pytest.mark.parametrize("text", ["never", "slow"])
@virtual
async def test_a_tool_that_does_not_end_within_the_grace_stays_unknown(text: str) -> None:
    """Whether it stops or not: the worker leaves, and the next one tells the model the truth."""
    deeds = Deeds()
    async with hall(deeds.agent, drain_grace=5) as here:
        run_id = await here.office.push(KEY, text)
        await here.live(run_id, text)
        here.workers[0].drain()
        await gone(here.workers[0])
        assert anyio.current_time() < 1_010
        here.hire()
        assert await ended(here, run_id) == "finished"
        messages = (await here.office.state(KEY)).messages
        assert [one.state for message in messages for one in message.results] == [ResultState.UNKNOWN]
        assert deeds.tally.begun[text] == 1
        await sound(here)
        await anyio.sleep(1_000)  # what was abandoned comes to its end


@virtual
async def test_a_cancel_that_is_pending_while_the_worker_shuts_down_is_a_cancel() -> None:
    """It was asked for by somebody, so it ends the run, and says who asked."""
    async with hall(Deeds().agent) as here:
        run_id = await here.office.push(KEY, "again")
        await here.live(run_id, "again")
        assert await here.office.cancel(KEY, Stop.at(Point.TOOLS), by="ann", wait=0.1) is None
        here.workers[0].drain()
        report = await here.office.cancel(KEY, run_id=run_id)
        assert report is not None
        assert (report.result, report.causes[0].by) == (StopResult.STOPPED, "ann")
        assert HandedOver not in kinds(await sound(here))


@virtual
async def test_a_cancel_that_comes_while_the_worker_shuts_down_is_not_lost() -> None:
    """It joins, or the next worker finds it."""
    for seconds in (0.0, 0.5, 1.0, 1.5):
        async with hall(Deeds().agent) as here:
            run_id = await here.office.push(KEY, "again")
            await here.live(run_id, "again")
            here.workers[0].drain()
            here.hire()
            await anyio.sleep(seconds)
            report = await here.office.cancel(KEY, run_id=run_id)
            assert report is not None
            assert report.result in {StopResult.STOPPED, StopResult.FINISHED_FIRST}
            await sound(here)


@virtual
async def test_an_idle_worker_leaves_at_once() -> None:
    """Also one that has not begun, and one that was told twice."""
    async with hall(Deeds().agent) as here:
        await settle()
        here.workers[0].drain()
        here.workers[0].drain()
        assert here.workers[0].draining
        late = here.worker()
        late.drain()
        await late.run()
        assert anyio.current_time() == 1_000


@virtual
async def test_whenever_a_worker_is_told_to_leave_it_does() -> None:
    """Also while it claims, or has only just claimed: what it has is handed over."""
    for steps in range(30):
        deeds = Deeds()
        async with hall(deeds.agent, workers=0) as here:
            began = anyio.current_time()
            worker, run_id = here.worker(drain_grace=1), "r1"
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                await settle()
                await here.office.push(KEY, "hang", run_id=run_id)
                for _ in range(steps):
                    await turn()
                worker.drain()
            assert anyio.current_time() - began < 5, steps
            here.hire()
            await here.live(run_id, "model")
            await here.office.cancel(KEY)
            await sound(here)


@virtual
async def test_a_model_that_fails_while_the_worker_shuts_down_has_failed() -> None:
    """There is nothing to hand over: the run ends as it would have."""
    gate = Gate()

    async def fails(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Well, "
        await gate
        raise ValueError("broken")

    async with hall(Agent(fails)) as here:
        run_id = await here.office.push(KEY, "hello")
        await here.live(run_id, "model")
        here.workers[0].drain()
        await settle()
        gate.open()
        assert await ended(here, run_id) == "failed"
        await sound(here)


@virtual
async def test_what_waits_for_a_human_or_for_its_turn_is_left_as_it_is() -> None:
    """The next worker takes the answer, and what is queued behind a run that was handed over."""
    async with hall(Deeds().agent) as here:
        row = await here.run("ask")
        here.workers[0].drain()
        here.hire()
        answered = await here.office.answer(KEY, {row.interrupts[0].id: "yes"})
        assert await ended(here, answered) == "finished"
        run_ids = [await here.office.push(KEY, text) for text in ("again", "hello")]
        await here.live(run_ids[0], "again")
        here.workers[1].drain()
        here.hire()
        assert [await ended(here, run_id) for run_id in run_ids] == ["finished", "finished"]
        await sound(here)


@virtual
async def test_a_question_asked_while_the_worker_shuts_down_is_asked_by_the_next() -> None:
    """It is neither lost nor taken for an end."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        run_id = await here.office.push(KEY, "ask")
        await here.until(KEY, lambda state: state.live is not None)
        here.workers[0].drain()
        here.hire()
        assert await ended(here, run_id) == "interrupted"
        await sound(here)


@virtual
async def test_being_handed_over_again_and_again_is_no_death() -> None:
    """A rolling deploy quarantines nobody."""
    deeds = Deeds()
    async with hall(deeds.agent, deaths=2, drain_grace=1) as here:
        run_id = await here.office.push(KEY, "hang")
        for number in range(6):
            await here.live(run_id, "model")
            here.workers[number].drain()
            await gone(here.workers[number])
            here.hire(deaths=2, drain_grace=1)
        await here.live(run_id, "model")
        assert deeds.asked == 7
        await here.office.cancel(KEY)
        await sound(here)


# Cancelled, fenced, silent


@pytest.mark.parametrize("text", ["once", "hang", "never"])
@virtual
async def test_a_worker_that_is_cancelled_leaves_no_task_and_no_claim(text: str) -> None:
    """Its run is cut and unwritten; the next one goes on at once, as after a death."""
    deeds = Deeds()
    async with hall(deeds.agent, workers=0) as here:
        first, run_id = here.worker(), await here.office.push(KEY, text)
        async with anyio.create_task_group() as group:
            group.start_soon(first.run)
            await here.live(run_id, "model" if text == "hang" else text)
            group.cancel_scope.cancel()
        before = len(await here.entries())
        assert first.busy == 0
        assert (anyio.current_time() >= 1_002) is (text == "never")  # it was waited for
        assert kinds(await here.entries())[-1] in {ModelStarted, ToolStarted}
        assert anyio.current_time() < 1_003
        here.hire()
        await here.until(KEY, lambda state: state.n > before)
        assert anyio.current_time() < 1_003
        if text == "hang":
            await here.office.cancel(KEY)
        assert await ended(here, run_id) == ("cancelled" if text == "hang" else "finished")
        assert deeds.tally.begun.get(text, 1) == 1
        await sound(here)
        await anyio.sleep(1_000)


@virtual
async def test_a_worker_that_slept_too_long_is_fenced_before_it_does_anything_more() -> None:
    """Its tool comes back after its session was given away: no further model is asked there."""
    deeds = Deeds()
    async with hall(deeds.agent, workers=0, substrate=MemorySubstrate(lease=5)) as here:
        zombie = here.hire(beat=1_000.0)  # as if it slept: it gives no sign of life
        run_id = await here.office.push(KEY, "stay")
        await here.live(run_id, "stay")
        here.hire(beat=1.0)
        assert await ended(here, run_id) == "finished"
        assert deeds.asked == 2
        deeds.gate.open()  # the zombie's tool ends only now
        await gone(zombie)
        await settle()
        assert (deeds.asked, deeds.tally.begun["stay"]) == (2, 1)
        await sound(here)


@virtual
async def test_a_worker_that_is_told_that_it_lost_its_session_cuts_its_run() -> None:
    """The sign of life that is refused is enough: no token is burnt until the next append."""
    deeds = Deeds()
    async with hall(deeds.agent, workers=0, substrate=MemorySubstrate(lease=5)) as here:
        zombie = here.hire(beat=6.0)
        run_id = await here.office.push(KEY, "slow")
        await here.live(run_id, "slow")
        here.hire(beat=1.0)
        await anyio.sleep(7)
        assert zombie.busy == 0
        assert deeds.tally.ended["slow"] == 0
        assert await ended(here, run_id) == "finished"
        await sound(here)


class Moody(MemorySubstrate):
    """A substrate whose operations fail as they are told."""

    def __init__(self, lease: float = 15) -> None:
        super().__init__(lease=lease)
        self.claims: list[Exception] = []
        self.beats: list[Exception] = []
        self.mails: list[Exception] = []
        self.returns: list[Exception] = []
        self.at_release: list[bytes] = []
        self.tells_fail = False

    @override
    def tell(self, key: Key, delta: bytes) -> None:
        if self.tells_fail:
            raise OSError("nobody listens")
        super().tell(key, delta)

    @override
    async def claim(self, worker: str) -> Claim:
        if self.claims:
            raise self.claims.pop(0)
        claim = await super().claim(worker)
        assert isinstance(claim, Holder)
        return MoodyClaim(self, claim)

    @override
    async def commands(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        if self.mails:
            raise self.mails.pop(0)
        return await super().commands(key, after=after)


class MoodyClaim:
    """A claim that fails as it is told."""

    def __init__(self, moody: Moody, claim: Holder) -> None:
        self._moody = moody
        self._claim = claim
        self.key = claim.key
        self.deliveries = claim.deliveries
        self.rung = claim.rung

    async def release(self, cursor: int) -> bool:
        """Leave it, in the very moment in which something comes."""
        for command in self._moody.at_release:
            await self._moody.send(self.key, "late", command)
        self._moody.at_release = []
        return await self._claim.release(cursor)

    async def beat(self) -> bool:
        """Fail, or keep it."""
        if self._moody.beats:
            raise self._moody.beats.pop(0)
        return await self._claim.beat()

    async def give_back(self, delay: float = 0.0) -> None:
        """Fail, or leave it."""
        if self._moody.returns:
            raise self._moody.returns.pop(0)
        await self._claim.give_back(delay)


@virtual
async def test_claims_that_fail_are_tried_again() -> None:
    """Whatever the substrate raises: a worker goes on."""
    moody = Moody()
    moody.claims = [SessionError("try later", "full"), OSError("no route"), SessionError("again", "busy")]
    async with hall(Deeds().agent, substrate=moody) as here:
        assert (await here.run("hello")).state == "finished"
        assert anyio.current_time() == 1_003


@virtual
async def test_a_sign_of_life_that_fails_once_is_given_again() -> None:
    """The session is kept as long as its lease has not run out."""
    moody = Moody()
    moody.beats = [SessionError("try later", "full")]
    async with hall(Deeds().agent, substrate=moody, beat=5) as here:
        assert (await here.run("slow")).state == "finished"
        assert kinds(await sound(here)).count(RunStarted) == 1


@virtual
async def test_a_sign_of_life_that_breaks_ends_the_tenure_and_not_the_worker() -> None:
    """The session is taken up again."""
    moody = Moody()
    moody.beats = [OSError("broken")]
    async with hall(Deeds().agent, substrate=moody, beat=5) as here:
        assert (await here.run("slow")).state == "finished"
        assert kinds(await sound(here)).count(RunStarted) == 2
        assert anyio.current_time() < 1_010  # no lease had to run out


@pytest.mark.parametrize("error", [OSError("broken"), SessionError("not now", "full")])
@virtual
async def test_a_tenure_that_fails_does_not_end_the_worker(error: Exception) -> None:
    """Its session is left alone for a while, and worked on again; also where it cannot be given back."""
    moody = Moody()
    async with hall(Deeds().agent, substrate=moody) as here:
        moody.mails = [error]
        assert (await here.run("hello")).state == "finished"
        moody.mails, moody.returns = [error], [error]
        assert (await here.run("hello")).state == "finished"
        await settle()
        assert here.workers[0].busy == 0
        await sound(here)


@virtual
async def test_what_comes_in_the_moment_of_leaving_is_done_at_once() -> None:
    """The session is not left with something in its mailbox."""
    moody = Moody()
    async with hall(Deeds().agent, substrate=moody) as here:
        late = Push(id="late", at=here.office.now(), run_id="r2", message=Message.user("hello"))
        moody.at_release = [command_to_json(late)]
        await here.run("hello")
        assert await ended(here, "r2") == "finished"
        assert anyio.current_time() == 1_000


@virtual
async def test_a_run_that_cannot_be_watched_goes_on_and_is_not_begun_twice() -> None:
    """What only passes by is lost, as it may be."""
    moody = Moody()
    moody.tells_fail = True
    deeds = Deeds()
    async with hall(deeds.agent, substrate=moody) as here:
        assert (await here.run("once")).state == "finished"
        assert kinds(await sound(here)).count(RunStarted) == 1
        assert deeds.tally.begun["once"] == 1


@virtual
async def test_a_worker_ends_where_its_substrate_is_closed() -> None:
    """It can do nothing more; no task of it is left."""
    async with MemorySubstrate() as substrate, anyio.create_task_group() as group:
        worker = Worker({"app": Deeds().agent}, substrate=substrate)
        group.start_soon(worker.run)
        await settle()
        assert not worker.draining
        await substrate.__aexit__(None, None, None)
        await settle()
        assert worker.draining


# What nobody can work on


@virtual
async def test_a_session_on_which_workers_die_again_and_again_is_quarantined() -> None:
    """At the same step, so many times; it can be seen, and an operator lets it go on."""
    deeds = Deeds()
    async with hall(deeds.agent, workers=0, substrate=MemorySubstrate(lease=5)) as here:
        run_id = await here.office.push(KEY, "hang")
        async with anyio.create_task_group() as deadly:
            for death in range(3):
                mortal = Mortal(here.substrate)
                deadly.start_soon(here.worker(mortal, deaths=3).run)
                await here.until(KEY, lambda state, n=death: _asked(state.live, n))
                await settle()
                mortal.die()
            last = here.hire(deaths=3)
            await here.until(KEY, lambda state: bool(state.quarantined))
            assert (await here.office.run(run_id)).state == "quarantined"
            assert deeds.asked == 3
            await here.office.push(KEY, "hello")
            await anyio.sleep(100)
            assert (deeds.asked, last.busy) == (3, 0)
            await here.office.release(KEY, by="op")
            await here.live(run_id, "model")
            assert deeds.asked == 4
            with pytest.raises(SessionError, match="not in quarantine"):
                await here.office.release(KEY)
            report = await here.office.cancel(KEY)
            assert report is not None
            assert report.stopped_at is Where.MODEL
            deadly.cancel_scope.cancel()
        await here.until(KEY, lambda state: len(state.ended) == 2)
        assert kinds(await sound(here)).count(Quarantined) == 1


def _asked(live: Live | None, deaths: int) -> bool:
    """Say whether a run has asked its model after so many deaths."""
    return live is not None and live.deaths == deaths and live.state.steps > deaths


@virtual
async def test_a_step_that_was_done_begins_the_count_anew() -> None:
    """Deaths at different steps are no reason to stop."""
    deeds = Deeds()
    async with hall(deeds.agent, workers=0, substrate=MemorySubstrate(lease=5)) as here:
        run_id = await here.office.push(KEY, "once")
        async with anyio.create_task_group() as deadly:
            for step in ("once", "model"):
                mortal = Mortal(here.substrate)
                deadly.start_soon(here.worker(mortal, deaths=2).run)
                await here.live(run_id, step)
                mortal.die()
            here.hire(deaths=2)
            await ended(here, run_id)
            deadly.cancel_scope.cancel()
        await sound(here)


@virtual
async def test_what_a_run_was_allowed_holds_for_the_next_worker_too() -> None:
    """Its limits are counted on, and nothing is said to have changed."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        run_id = await here.office.push(KEY, "again", limits=Limits(model_calls=1))
        await here.live(run_id, "again")
        here.workers[0].drain()
        here.hire()
        assert await ended(here, run_id) == "limit"
        started = [entry for entry in await sound(here) if isinstance(entry, RunStarted)]
        assert [entry.changed for entry in started] == [(), ()]


@virtual
async def test_a_worker_that_takes_over_from_a_dead_one_says_that_nothing_has_changed() -> None:
    """It is the same agent, asked for the same, within the same limits."""
    deeds = Deeds()
    async with hall(deeds.agent, workers=0, substrate=MemorySubstrate(lease=5)) as here:
        mortal = Mortal(here.substrate)
        async with anyio.create_task_group() as deadly:
            deadly.start_soon(here.worker(mortal).run)
            run_id = await here.office.push(KEY, "again", limits=Limits(model_calls=1))
            await here.live(run_id, "again")
            mortal.die()
            here.hire()
            assert await ended(here, run_id) == "limit"
            deadly.cancel_scope.cancel()
        started = [entry for entry in await sound(here) if isinstance(entry, RunStarted)]
        assert [entry.changed for entry in started] == [(), ()]


@virtual
async def test_a_journal_of_a_newer_version_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is written to it, and it is looked at again now and then."""
    with caplog.at_level(logging.WARNING, "andon"):
        async with hall(Deeds().agent, workers=0) as here:
            head = await here.substrate.head(KEY)
            await here.office.push(KEY, "hello")
            await here.substrate.append(KEY, b'{"v":99,"items":[]}', head=head)
            here.hire()
            await anyio.sleep(100)
            assert len(await here.substrate.read(KEY)) == 2
    assert sum("left to newer workers" in record.message for record in caplog.records) == 2


@virtual
async def test_a_command_of_a_newer_version_is_left_to_newer_workers() -> None:
    """What came before it is done, a live run is handed over at a safe point, and nothing is skipped."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        run_id = await here.office.push(KEY, "once")
        await here.live(run_id, "once")
        await here.substrate.send(KEY, "new", b'{"type":"dance","id":"new","at":1}')
        await here.substrate.ring(KEY)
        await here.office.push(KEY, "hello")
        await gone(here.workers[0])
        await anyio.sleep(100)
        entries = await sound(here)
        assert (kinds(entries).count(HandedOver), kinds(entries).count(Received)) == (1, 1)
        assert len(await here.substrate.commands(KEY)) == 2
        assert (deeds.asked, deeds.tally.begun["once"]) == (1, 1)


@virtual
async def test_an_app_that_is_not_known_here_is_left_to_other_workers() -> None:
    """It is given back, and whoever knows it works on it."""
    key = Key("other", "ann", "s1")
    async with hall(Deeds().agent) as here:
        await here.office.create(key)
        run_id = await here.office.push(key, "hello")
        await anyio.sleep(3)
        here.workers[0].drain()
        here.agents = {"other": Deeds().agent}
        here.hire()
        assert await ended(here, run_id, key) == "finished"


@virtual
async def test_what_is_asked_of_a_deleted_session_is_forgotten() -> None:
    """It is not brought to life again; one of the same name begins anew."""
    async with hall(Deeds().agent, workers=0) as here:
        await here.office.delete(KEY)
        ghost = Push(id="g", at=0.0, run_id="g", message=Message.user("Boo."))
        await here.substrate.send(KEY, "g", command_to_json(ghost))
        worker = here.hire()
        await settle()
        assert (await here.substrate.head(KEY), worker.busy) == (0, 0)
        with pytest.raises(SessionError, match="no session"):
            await here.office.state(KEY)
        await here.office.create(KEY)
        assert (await here.run("hello")).state == "finished"
        assert lines((await here.office.state(KEY)).messages)[0] == "user: hello"


@virtual
async def test_a_session_that_is_deleted_is_cancelled_first() -> None:
    """Its worker leaves it, and what it had is gone."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        run_id = await here.office.push(KEY, "hang")
        await here.live(run_id, "model")
        await here.office.push(KEY, "hello")
        await here.office.delete(KEY, by="ann")
        await gone(here.workers[0])
        assert deeds.asked == 1
        with pytest.raises(SessionError, match="no run"):
            await here.office.run(run_id)
        await here.office.create(KEY)
        assert (await here.run("hello")).state == "finished"


@virtual
async def test_a_worker_keeps_to_its_places() -> None:
    """None is lost, whatever its tenures come to."""
    deeds = Deeds()
    async with hall(deeds.agent, concurrency=1) as here:
        for text in ("hello", "ask", "once"):
            await here.run(text)
        run_id = await here.office.push(KEY, "hang")
        await here.live(run_id)
        await here.office.delete(KEY)
        await here.office.create(KEY)
        assert (await here.run("hello")).state == "finished"
        assert RunEnded in kinds(await sound(here))


@virtual
async def test_a_bug_in_a_tool_is_not_one_of_the_worker() -> None:
    """The run tells of it, and the session goes on."""
    async with hall(Agent(_breaks)) as here:
        assert [(await here.run("hello")).state for _ in range(2)] == ["failed", "failed"]
        await sound(here)


async def _breaks(_: ModelRequest) -> AsyncIterator[Chunk]:
    yield "Well, "
    raise ValueError("broken")
