"""Worker: every command of a session, end to end through the office, exactly once and in order."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from andon import Agent, Limits, Point, Stop, sequence
from andon.core.command import Cancel, Key, OnBusy, Push, command_to_json
from andon.core.draft import Chunk
from andon.core.items import ModelStarted, RunStarted, Steered
from andon.core.journal import Received, record_from_json
from andon.core.messages import Message
from andon.core.steer import When
from andon.core.stop import Cause, StopReport, StopResult, Where
from andon.errors import SessionError, UserError
from andon.ports import ModelRequest
from andon.runtime.memory import MemorySubstrate
from andon.runtime.reply import report_of
from andon.runtime.worker import Worker
from andon.testing import Gate, ScriptedModel, virtual
from tests.deeds import Deeds, lines
from tests.hall import KEY, Hall, hall, settle, sound

OTHER = Key("app", "ann", "s2")


async def history(here: Hall, key: Key = KEY) -> list[str]:
    """Give the history of a session in words."""
    return lines((await here.office.state(key)).messages)


async def ended(here: Hall, run_id: str, key: Key = KEY) -> str:
    """Wait for the end of a run, and say how it was."""
    row = await here.office.ended(key, run_id, 10_000)
    assert row is not None
    return row.state


@virtual
async def test_the_turns_of_a_session_are_serial_and_sessions_are_not() -> None:
    """One at a time in each; beside each other as many as the worker has places."""
    live, most = dict.fromkeys(range(4), 0), [0, 0]

    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        text = request.messages[0].text
        live[int(text)] += 1
        most[0] = max(most[0], *live.values())
        most[1] = max(most[1], sum(live.values()))
        await anyio.sleep(1)
        live[int(text)] -= 1
        yield "Done."

    async with hall(Agent(model), concurrency=3) as here:
        keys = [Key("app", "ann", f"k{number}") for number in range(4)]
        for number, key in enumerate(keys):
            await here.office.create(key)
            for _ in range(3):
                await here.office.push(key, str(number))
        for key in keys:
            await here.until(key, lambda state: len(state.ended) == 3)
            await sound(here, key)
    assert most == [1, 3]


@virtual
async def test_what_is_pushed_is_answered_in_order() -> None:
    """Each as a run of its own, with the history of those before."""
    async with hall(Deeds().agent) as here:
        run_ids = [await here.office.push(KEY, text) for text in ("a", "b", "c")]
        assert [await ended(here, run_id) for run_id in run_ids] == ["finished"] * 3
        assert [line for line in await history(here) if line.startswith("user")] == [
            "user: a",
            "user: b",
            "user: c",
        ]
        rows = await here.office.runs()
        assert {row.run_id for row in rows} == set(run_ids)
        await sound(here)


@virtual
async def test_a_command_that_is_sent_twice_takes_effect_once() -> None:
    """Idempotent by its id: before it was consumed, and after."""
    async with hall(Deeds().agent) as here:
        for _ in range(3):
            await here.office.push(KEY, "hello", run_id="r1")
        assert await ended(here, "r1") == "finished"
        await here.office.push(KEY, "hello", run_id="r1")
        await settle()
        received = [entry for entry in await sound(here) if isinstance(entry, Received)]
        assert len(received) == 1
        assert await history(here) == ["user: hello", "assistant: This is the answer."]


@pytest.mark.parametrize(
    ("on_busy", "first", "words"),
    [
        ("enqueue", "finished", ["user: again", "tool", "answer", "user: hello", "answer"]),
        ("preempt", "cancelled", ["user: again", "tool", "user: hello", "answer"]),
        ("steer", "finished", ["user: again", "tool", "user: hello", "answer"]),
        ("rollback", "cancelled", ["user: hello", "answer"]),
    ],
)
@virtual
async def test_a_push_to_a_busy_session(on_busy: OnBusy, first: str, words: list[str]) -> None:
    """It waits, makes way at a safe point, is heard by the run, or takes its place."""
    async with hall(Deeds().agent) as here:
        run_id = await here.office.push(KEY, "again")
        await here.live(run_id, "again")
        other = await here.office.push(KEY, "hello", on_busy=on_busy)
        assert (other == run_id) is (on_busy == "steer")
        assert await ended(here, run_id) == first
        assert await ended(here, other) == "finished"
        told = [line for line in await history(here) if "Well." not in line and "Cancelled" not in line]
        assert [
            line.replace("assistant: This is the ", "").strip(".").partition(":  |")[0] for line in told
        ] == words
        await sound(here)


@virtual
async def test_a_push_that_is_rejected_is_a_conflict() -> None:
    """It leaves no trace but that it was asked."""
    async with hall(Deeds().agent) as here:
        run_id = await here.office.push(KEY, "hang")
        await here.live(run_id)
        with pytest.raises(SessionError, match="is busy"):
            await here.office.push(KEY, "hello", on_busy="reject")
        await here.office.cancel(KEY)
        assert (await here.run("hello", on_busy="reject")).state == "finished"
        await sound(here)


@virtual
async def test_what_comes_too_late_to_be_heard_is_answered_by_a_run_of_its_own() -> None:
    """A push that was to steer a run which had its answer already is not lost."""
    async with hall(Deeds().agent) as here:
        assert (await here.run("hello", on_busy="steer")).state == "finished"
        assert await history(here) == ["user: hello", "assistant: This is the answer."]


@pytest.mark.parametrize("when", ["next", "idle", "now"])
@virtual
async def test_a_run_is_steered(when: When) -> None:
    """It is heard with the next model call, at the end, or at once; each time once."""
    async with hall(Deeds().agent) as here:
        run_id = await here.office.push(KEY, "hang" if when == "now" else "again")
        await here.live(run_id, "model" if when == "now" else "again")
        assert await here.office.steer(KEY, "Be brief.", when=when, run_id=run_id, steer_id="s1") == run_id
        assert await ended(here, run_id) == "finished"
        said = [line for line in await history(here) if not line.startswith("tool")]
        begin = {"now": ["user: hang", "assistant: Hm. "]}.get(
            when, ["user: again", "assistant: Well.  | again"]
        )
        middle = ["assistant: This is the answer."] if when == "idle" else []
        assert said == [*begin, *middle, "user: Be brief.", "assistant: This is the answer."]
        entries = await sound(here)
        assert [entry.id for entry in entries if isinstance(entry, Steered)] == ["s1"]


@virtual
async def test_a_steer_that_nobody_can_hear_is_a_conflict() -> None:
    """None is live, or another one."""
    async with hall(Deeds().agent) as here:
        with pytest.raises(SessionError, match="no such run is live"):
            await here.office.steer(KEY, "Hello?")
        run_id = await here.office.push(KEY, "hang")
        await here.live(run_id)
        with pytest.raises(SessionError, match="no such run is live"):
            await here.office.steer(KEY, "Hello?", run_id="other")
        await here.office.cancel(KEY)


@virtual
async def test_a_workflow_that_is_steered_goes_on() -> None:
    """It cannot hear, and that harms nobody."""
    deeds = Deeds()
    async with hall(sequence(deeds.agent)) as here:
        run_id = await here.office.push(KEY, "again")
        await here.live(run_id)
        await here.office.steer(KEY, "Be brief.")
        assert await ended(here, run_id) == "finished"
        assert deeds.tally.begun["again"] == 1
        await sound(here)


async def cancelled(here: Hall, stop: Stop | None = None, **asked: Any) -> StopReport:  # noqa: ANN401 — as cancel has them
    """Cancel, and give the report."""
    report = await here.office.cancel(KEY, stop, wait=10_000, **asked)
    assert report is not None
    return report


@virtual
async def test_a_cancel_now_says_who_and_why() -> None:
    """The report is that of the run, and durable."""
    async with hall(Deeds().agent) as here:
        run_id = await here.office.push(KEY, "hang")
        await here.live(run_id, "model")
        report = await cancelled(here, reason="enough", by="ann")
        assert (report.result, report.stopped_at, report.run_id) == (StopResult.STOPPED, Where.MODEL, run_id)
        assert [(cause.source, cause.by, cause.reason) for cause in report.causes] == [
            ("user", "ann", "enough")
        ]
        assert (await here.office.run(run_id)).cancelled == report
        assert await cancelled(here, run_id=run_id) == report
        assert (await cancelled(here)).result is StopResult.NOTHING_RUNNING
        await sound(here)


@virtual
async def test_a_cancel_at_points_lets_what_is_in_flight_end() -> None:
    """The tool has its result; after its grace the stop is now, and says so."""
    async with hall(Deeds().agent) as here:
        for grace, result, where in (
            (None, StopResult.STOPPED, Where.POINT_TOOLS),
            (5.0, StopResult.ESCALATED, Where.TOOLS),
        ):
            run_id = await here.office.push(KEY, "slow")
            await here.live(run_id, "slow")
            report = await cancelled(here, stop=Stop.at(Point.TOOLS, grace=grace))
            assert (report.result, report.stopped_at) == (result, where)
        await sound(here)


@virtual
async def test_a_recursive_cancel_reaches_the_agent_inside() -> None:
    """It stops at a safe point of its own, and goes on there when the session is resumed."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        run_id = await here.office.push(KEY, "inner")
        await here.live(run_id, "inner")
        report = await cancelled(here, stop=Stop.graceful())
        assert report.result is StopResult.STOPPED
        again = await here.office.resume(KEY)
        assert again is not None
        assert await ended(here, again) == "finished"
        assert deeds.tally.begun["child"] == 1
        await sound(here)


@virtual
async def test_what_waits_is_cancelled_by_name_or_with_all_that_wait() -> None:
    """Before its start: no model is asked for it, and its words are in the history."""
    deeds = Deeds()
    async with hall(deeds.agent) as here:
        first = await here.office.push(KEY, "hang")
        await here.live(first, "model")
        second, third, fourth = [await here.office.push(KEY, text) for text in "bcd"]
        named = await here.office.cancel(KEY, run_id=third, wait=1)
        assert named is None  # it ends where its turn would be
        report = await cancelled(here, queued=True)
        assert report.run_id == first
        for run_id in (second, third, fourth):
            assert await ended(here, run_id) == "cancelled"
            row = await here.office.run(run_id)
            assert row.cancelled is not None
            assert row.cancelled.stopped_at is Where.BEFORE_START
        assert deeds.asked == 1
        await sound(here)


@virtual
async def test_a_late_cancel_never_hits_the_next_run() -> None:
    """Of a run that has ended it is told so, and a conflict if a newer one is live."""
    async with hall(Deeds().agent) as here:
        first = (await here.run("hello")).run_id
        await anyio.sleep(1)
        report = await cancelled(here, run_id=first)
        assert (report.result, report.accepted) == (StopResult.FINISHED_FIRST, False)
        second = await here.office.push(KEY, "hang")
        await here.live(second)
        with pytest.raises(SessionError, match="has ended, and a newer one is live"):
            await here.office.cancel(KEY, run_id=first)
        with pytest.raises(SessionError, match="has no run"):
            await here.office.cancel(KEY, run_id="never")
        assert (await here.office.run(second)).state == "running"
        await cancelled(here, run_id=second)


@virtual
async def test_a_wait_that_is_too_short_gives_nothing_and_the_request_stands() -> None:
    """Whoever asks again finds the same stop."""
    async with hall(Deeds().agent) as here:
        run_id = await here.office.push(KEY, "stay")
        await here.live(run_id, "stay")
        assert await here.office.cancel(KEY, Stop.at(Point.TOOLS), wait=1) is None
        assert (await here.office.run(run_id)).state == "stopping"
        report = await cancelled(here)
        assert (report.result, report.escalated_by, len(report.causes)) == (StopResult.STOPPED, "request", 2)


@virtual
async def test_a_cancel_that_was_on_its_way_when_its_run_ended_is_a_conflict() -> None:
    """Its worker refuses it, if a newer one is live by then."""
    async with hall(Deeds().agent) as here:
        first = (await here.run("hello")).run_id
        second = await here.office.push(KEY, "hang")
        await here.live(second)
        stop = Stop.now().bind(here.office.now(), Cause("user", id="late"))
        late = Cancel(id="late", at=here.office.now(), stop=stop, run_id=first)
        with pytest.raises(SessionError, match="nothing was stopped"):
            await here.office._until(KEY, late, 10, report_of(late))  # pyright: ignore[reportPrivateUsage]
        assert (await here.office.run(second)).state == "running"
        await cancelled(here)


@virtual
async def test_limits_of_a_push_end_its_run() -> None:
    """And not the next one."""
    async with hall(Deeds().agent) as here:
        row = await here.run("again", limits=Limits(model_calls=1))
        assert (row.state, row.limit) == ("limit", "model_calls 1")
        assert (await here.run("hello")).state == "finished"
        await sound(here)


@virtual
async def test_a_run_that_cannot_begin_ends_as_an_error() -> None:
    """Nobody waits for it, and the session goes on."""
    async with hall(Deeds().agent) as here:
        command = Push(id="p", at=here.office.now(), run_id="r1", message=Message.assistant("Me?"))
        await here.substrate.send(KEY, "p", command_to_json(command))
        await here.until(KEY, lambda state: "r1" in state.ended)
        row = await here.office.run("r1")
        assert (row.state, (await here.run("hello")).state) == ("failed", "finished"), row.error


@virtual
async def test_a_worker_asks_for_sense() -> None:
    """Agents, and numbers that can be."""
    async with MemorySubstrate() as substrate:
        agent = Deeds().agent
        with pytest.raises(UserError, match="at least one agent"):
            Worker({}, substrate=substrate)
        for wrong in ({"concurrency": 0}, {"deaths": 0}, {"beat": 0}, {"drain_grace": -1}):
            with pytest.raises((UserError, ValueError)):
                Worker({"app": agent}, substrate=substrate, **wrong)  # type: ignore[arg-type]


@virtual
async def test_a_record_holds_what_happened_in_one_step() -> None:
    """A command and the run that it begins are durable together, so that neither is lost alone."""
    async with hall(Agent(ScriptedModel(["Done.", Gate(opened=True)]))) as here:
        await here.run("hello")
        records = [record_from_json(data) for _, data in await here.substrate.read(KEY)]
        kinds = [[type(entry) for entry in record] for record in records]
        assert kinds[1][:2] == [Received, RunStarted]
        assert sum(ModelStarted in kind for kind in kinds) == 1
