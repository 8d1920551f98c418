"""The verbs over HTTP: each says what it did only when it is so."""

from functools import partial

import anyio
import pytest

from tests.serve.scene import ANN, S1, scene, until


async def test_cancel_waits_for_the_end_and_gives_the_report() -> None:
    """The model call was cut, the report says who and why, and the next run in the session works."""
    async with scene() as s:
        await s.begin()
        run_id = await s.push_and_wait()
        answer = await s.post(f"{S1}:cancel", reason="changed my mind")
        report = answer.json()
        assert (answer.status_code, report["result"], report["stopped_at"]) == (200, "STOPPED", "model")
        cause = report["causes"][0]
        assert (cause["source"], cause["by"], cause["reason"]) == ("user", "local", "changed my mind")
        assert (report["run_id"], s.cuts) == (run_id, 1)
        assert (await s.client.get(f"/runs/{run_id}")).json()["state"] == "cancelled"
        assert (await s.post(f"{S1}/runs", input="hello", wait=30)).json()["state"] == "finished"


async def test_cancel_needs_no_body_and_is_idempotent() -> None:
    """Idle is no error: NOTHING_RUNNING, as often as it is asked."""
    async with scene() as s:
        await s.begin()
        for _ in range(2):
            answer = await s.client.post(f"{S1}:cancel")
            assert (answer.status_code, answer.json()["result"]) == (200, "NOTHING_RUNNING")


async def test_cancel_of_what_does_not_end_in_time_stands() -> None:
    """202; the run goes on to the place where it is to stop, and stops there."""
    async with scene() as s:
        await s.begin()
        run_id = await s.push_and_wait("please wait and ask")
        answer = await s.post(f"{S1}:cancel", at=["model", "tools"], wait=0)
        assert (answer.status_code, answer.json()["result"]) == (202, "ACCEPTED")
        async with s.events(f"/runs/{run_id}/events") as events:
            await until(events, "stop_requested")
            s.gate.open()
            await until(events, "end")
        row = (await s.client.get(f"/runs/{run_id}")).json()
        assert (row["state"], row["cancelled"]["stopped_at"]) == ("cancelled", "point:model")


async def test_a_late_stop_never_hits_the_next_run() -> None:
    """A named run that has ended: 409 while a newer one is live, FINISHED_FIRST when none is."""
    async with scene() as s:
        await s.begin()
        first = (await s.post(f"{S1}/runs", input="hello", wait=30)).json()["run_id"]
        for path, body in ((f"{S1}:cancel", {"runId": first}), (f"/runs/{first}:cancel", {})):
            answer = await s.client.post(path, json=body)
            assert (answer.status_code, answer.json()["result"]) == (200, "FINISHED_FIRST")
        live = await s.push_and_wait()
        for path, body in ((f"{S1}:cancel", {"run_id": first}), (f"/runs/{first}:cancel", {})):
            assert (await s.client.post(path, json=body)).status_code == 409
        assert (await s.client.get(f"/runs/{live}")).json()["state"] == "running"
        assert (await s.client.post(f"{S1}:cancel", json={"run_id": "no-such-run"})).status_code == 404


async def test_queued_pushes_stay_unless_they_are_meant_too() -> None:
    """The live run is cancelled, the next one starts; with `queued` none does."""
    async with scene() as s:
        await s.begin()
        await s.push_and_wait()
        second = await s.push("wait a second time")
        assert (await s.post(f"{S1}:cancel", reason="one")).json()["result"] == "STOPPED"
        await s.gate.reached(2)
        third = await s.push("hello")
        await s.post(f"{S1}:cancel", queued=True)
        async with s.events(f"/runs/{third}/events") as events:
            await until(events, "end")
        states = [(await s.client.get(f"/runs/{one}")).json()["state"] for one in (second, third)]
        assert states == ["cancelled", "cancelled"]


async def test_a_queued_run_is_cancelled_before_it_starts() -> None:
    """By its own id, while another one is live."""
    async with scene() as s:
        await s.begin()
        live = await s.push_and_wait()
        queued = await s.push("hello")
        asked = await s.post(f"/runs/{queued}:cancel", wait=0)
        assert asked.status_code == 202
        s.gate.open()
        async with s.events(f"/runs/{queued}/events") as events:
            await until(events, "end")
        row = (await s.client.get(f"/runs/{queued}")).json()
        assert (row["state"], row["cancelled"]["stopped_at"]) == ("cancelled", "before_start")
        assert (await s.client.get(f"/runs/{live}")).json()["state"] == "finished"


@pytest.mark.parametrize("path", [f"{ANN}/nope:cancel", "/runs/nope:cancel"])
async def test_cancel_of_what_is_not_there_is_missing(path: str) -> None:
    """404, and it says what to do."""
    async with scene() as s:
        assert (await s.client.post(path)).status_code == 404


async def test_steer_is_heard_by_the_live_run() -> None:
    """And is a conflict when none is live."""
    async with scene() as s:
        await s.begin()
        run_id = await s.push_and_wait()
        for path in (f"{S1}:steer", f"/runs/{run_id}:steer"):
            answer = await s.post(path, input="in euros")
            assert (answer.status_code, answer.json()["run_id"]) == (200, run_id)
        s.gate.open()
        async with s.events(f"/runs/{run_id}/events") as events:
            read = await until(events, "end")
        assert [event.kind for event in read].count("steered") == 2
        late = await s.post(f"{S1}:steer", input="too late")
        assert (late.status_code, late.json()["title"]) == (409, "Conflict")


async def test_pause_holds_the_session_until_it_is_resumed() -> None:
    """Pushes queue up meanwhile, and the run goes on as another."""
    async with scene() as s:
        await s.begin()
        run_id = await s.push_and_wait()
        assert (await s.post(f"{S1}:pause", grace=0.01)).json()["result"] == "ESCALATED"
        assert (await s.client.get(S1)).json()["held"] is True
        queued = await s.push("hello")
        assert (await s.client.get(f"/runs/{queued}")).json()["state"] == "queued"
        s.gate.open()
        went_on = (await s.client.post(f"{S1}:resume")).json()["run_id"]
        async with s.events(f"/runs/{queued}/events") as events:
            await until(events, "end")
        rows = [(await s.client.get(f"/runs/{one}")).json() for one in (run_id, went_on, queued)]
        assert [row["state"] for row in rows] == ["cancelled", "finished", "finished"]
        assert (rows[0]["went_on_as"], rows[0]["cancelled"]["causes"][0]["source"]) == (went_on, "pause")


async def test_a_stopped_session_refuses_what_comes() -> None:
    """Until it is resumed; the live run goes on unless that is stopped, too."""
    async with scene() as s:
        await s.begin()
        await s.push_and_wait()
        assert (await s.post(f"{S1}:stop", now=True)).json()["result"] == "STOPPED"
        for policy in ("enqueue", "reject"):
            refused = await s.post(f"{S1}/runs", input="hello", on_busy=policy)
            assert (refused.status_code, "resume it first" in refused.json()["detail"]) == (409, True)
        await s.client.post(f"{S1}:resume")
        nothing = await s.client.post(f"{S1}:resume")
        assert nothing.status_code == 409


async def test_an_answer_lets_the_run_go_on() -> None:
    """The session tells what is asked; wrong names are a conflict."""
    async with scene() as s:
        await s.begin()
        asked = (await s.post(f"{S1}/runs", input="ask me", wait=30)).json()
        assert asked["state"] == "interrupted"
        question = (await s.client.get(S1)).json()["interrupts"][0]
        assert question["payload"] == {"question": "Sure?"}
        assert (await s.post(f"{S1}:answer", answers={"nope": 1})).status_code == 409
        went_on = (await s.post(f"{S1}:answer", answers={question["id"]: "yes"})).json()["run_id"]
        async with s.events(f"/runs/{went_on}/events") as events:
            await until(events, "end")
        assert (await s.client.get(f"/runs/{went_on}")).json()["state"] == "finished"


async def test_release_is_for_sessions_in_quarantine() -> None:
    """Else it is a conflict that says so."""
    async with scene() as s:
        await s.begin()
        answer = await s.client.post(f"{S1}:release")
        assert (answer.status_code, "not in quarantine" in answer.json()["detail"]) == (409, True)


async def test_many_runs_are_cancelled_at_once() -> None:
    """By a filter, by their app, or all; one report tells of all of them."""
    async with scene() as s:
        sessions = ["s1", "s2", "s3"]

        async def begin(session: str) -> None:
            await s.begin(session)
            await s.push("wait", path=f"{ANN}/{session}")

        async with anyio.create_task_group() as group:
            for session in sessions:
                group.start_soon(begin, session)
        await s.gate.reached(3)
        assert (await s.client.post("/apps/other:cancel")).json()["result"] == "NOTHING_RUNNING"
        one = await s.post("/runs:cancel", session="s2", reason="that one")
        assert (one.json()["result"], len(one.json()["reports"])) == ("STOPPED", 1)
        rest = await s.client.post("/apps/trips:cancel")
        assert (rest.json()["result"], len(rest.json()["reports"]), s.cuts) == ("STOPPED", 2, 3)
        assert (await s.client.post("/runs:cancel")).json()["result"] == "NOTHING_RUNNING"


async def test_a_run_that_no_worker_has_taken_can_be_told_of_and_cancelled() -> None:
    """It is in the mailbox, and so is what is asked of it; with its session it is gone."""
    async with scene() as s:
        await s.begin()
        s.server.worker.drain()
        run_id = await s.push("hello")
        assert (await s.client.get(f"/runs/{run_id}")).json()["state"] == "queued"
        for path, body in ((f"/runs/{run_id}:cancel", {"wait": 0}), (f"{S1}:cancel", {"run_id": run_id})):
            assert (await s.client.post(path, json={**body, "wait": 0})).status_code == 202
        await s.client.delete(S1)
        assert (await s.client.get(f"/runs/{run_id}")).status_code == 404


async def test_who_leaves_while_a_run_is_waited_for_leaves_nothing_behind() -> None:
    """Nobody waits any more, and the run goes on."""
    async with scene() as s:
        await s.begin()
        async with anyio.create_task_group() as group:
            group.start_soon(partial(s.post, f"{S1}/runs", input="please wait", wait=600))
            await s.gate.reached()
            group.cancel_scope.cancel()
        waits = s.server.office._waits  # pyright: ignore[reportPrivateUsage]
        while waits:
            await anyio.lowlevel.checkpoint()
        rows = (await s.client.get("/runs")).json()["runs"]
        assert [row["state"] for row in rows] == ["running"]
        assert s.cuts == 0
