"""Sessions and runs over HTTP: what is said, what becomes of it, and how it is told."""

from andon.core.command import Key
from tests.serve.scene import ANN, S1, scene


async def test_a_session_begins_is_told_of_and_forgotten() -> None:
    """In the shape that ADK's clients know, with what else there is to say."""
    async with scene() as s:
        made = await s.post(ANN, sessionId="s1", state={"city": "Lisbon"})
        assert made.status_code == 200
        body = made.json()
        assert (body["id"], body["appName"], body["userId"]) == ("s1", "trips", "ann")
        assert (body["state"], body["liveRunId"], body["held"]) == ({"city": "Lisbon"}, None, False)
        assert (await s.client.get(S1)).json() == body
        assert [one["id"] for one in (await s.client.get(ANN)).json()] == ["s1"]
        assert (await s.client.delete(S1)).json() is None
        gone = await s.client.get(S1)
        assert gone.status_code == 404
        assert gone.headers["content-type"] == "application/problem+json"
        assert gone.json()["detail"] == "there is no session trips/ann/s1: create it first"


async def test_a_session_without_an_id_is_given_one_that_nobody_guesses() -> None:
    """Two of them differ, and are long."""
    async with scene() as s:
        ids = {(await s.post(ANN)).json()["id"] for _ in range(2)}
        assert {len(one) for one in ids} == {32}
        assert len(ids) == 2


async def test_a_session_by_its_name_takes_its_state_as_the_body() -> None:
    """As ADK's route does; a second one of the name is a conflict."""
    async with scene() as s:
        made = await s.post(S1, mood="good")
        assert made.json()["state"] == {"mood": "good"}
        again = await s.post(S1)
        assert again.status_code == 409
        assert "choose another id" in again.json()["detail"]


async def test_deleting_a_session_cancels_what_is_live_in_it() -> None:
    """The model call is cut first."""
    async with scene() as s:
        await s.begin()
        await s.push_and_wait()
        assert (await s.client.delete(S1)).status_code == 200
        assert s.cuts == 1


async def test_a_push_is_a_run_that_can_be_looked_up_at_once() -> None:
    """Also before any worker has heard of it."""
    async with scene() as s:
        await s.begin()
        answer = await s.post(f"{S1}/runs", input="hello")
        run_id = answer.json()["run_id"]
        assert (answer.status_code, answer.headers["andon-run-id"]) == (202, run_id)
        assert (await s.client.get(f"/runs/{run_id}")).json()["run_id"] == run_id


async def test_a_push_that_waits_is_answered_with_the_outcome() -> None:
    """The row of the run, and the last words of the agent."""
    async with scene() as s:
        await s.begin()
        for words in ("hello", "again"):
            answer = await s.post(f"{S1}:push", input=words, wait=30)
            assert answer.status_code == 200
            body = answer.json()
            assert (body["state"], body["prompt"], body["text"]) == ("finished", words, "Here you are. ")


async def test_the_same_idempotency_key_is_one_run() -> None:
    """Sent again it is told of, and nothing is said twice."""
    async with scene() as s:
        await s.begin()
        answers = [await s.post(f"{S1}/runs", input="hello", idempotency_key="k", wait=30) for _ in range(2)]
        assert answers[0].json() == answers[1].json()
        state = await s.server.office.state(Key("trips", "ann", "s1"))
        assert [message.text for message in state.messages if message.role == "user"] == ["hello"]


async def test_busy_policies_reach_the_session() -> None:
    """Reject is a conflict; steer joins the live run."""
    async with scene() as s:
        await s.begin()
        live = await s.push_and_wait()
        refused = await s.post(f"{S1}/runs", input="more", on_busy="reject")
        assert refused.status_code == 409
        joined = await s.post(f"{S1}/runs", input="by the way", on_busy="steer")
        assert joined.json()["run_id"] == live
        s.gate.open()


async def test_limits_reach_the_run() -> None:
    """A run without a model call left ends at once."""
    async with scene() as s:
        await s.begin()
        answer = await s.post(f"{S1}/runs", input="hello", limits={"model_calls": 0}, wait=30)
        assert (answer.json()["state"], answer.json()["limit"]) == ("limit", "model_calls 0")


async def test_an_input_of_parts_is_words_and_pictures() -> None:
    """Both reach the history."""
    async with scene() as s:
        await s.begin()
        parts = [{"type": "text", "text": "look"}, {"type": "image", "url": "https://example.org/a.png"}]
        answer = await s.post(f"{S1}/runs", input=parts, wait=30)
        assert answer.status_code == 200
        state = await s.server.office.state(Key("trips", "ann", "s1"))
        assert [type(part).__name__ for part in state.messages[0].parts] == ["Text", "Image"]


async def test_an_app_that_is_not_served_here_is_missing() -> None:
    """Nobody would ever work on its runs."""
    async with scene() as s:
        answer = await s.client.post("/apps/nope/users/ann/sessions")
        assert answer.status_code == 404
        assert answer.json()["detail"] == "there is no app 'nope' here: this server has trips"


async def test_runs_are_listed_page_by_page_the_newest_first() -> None:
    """Filters choose; the last page has no next."""
    async with scene() as s:
        await s.begin()
        ids = [(await s.post(f"{S1}/runs", input="hello", wait=30)).json()["run_id"] for _ in range(5)]
        live = await s.push_and_wait()
        seen: list[str] = []
        page = (await s.client.get("/runs", params={"limit": 2})).json()
        while page["next"] is not None:
            seen += [row["run_id"] for row in page["runs"]]
            page = (await s.client.get("/runs", params={"limit": 2, "cursor": page["next"]})).json()
        seen += [row["run_id"] for row in page["runs"]]
        assert seen == [live, *reversed(ids)]
        running = (await s.client.get("/runs", params={"state": "running", "user": "ann"})).json()
        assert [row["run_id"] for row in running["runs"]] == [live]
        assert (await s.client.get("/runs", params={"app": "other"})).json() == {"runs": [], "next": None}
