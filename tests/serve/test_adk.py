"""ADK's clients: what they send is understood, and what they get is what ADK's own models read."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from andon.testing.provider import FakeProvider, Reasoning, Stall, Text, ToolCall
from tests.serve.adk_scene import S1, AdkScene, Json, adk_scene, as_adk_reads, asking, words

pytestmark = pytest.mark.timeout(300)  # ADK is installed once

CLIENT = """
import asyncio, json, sys
from google.adk.cli.conformance.adk_web_server_client import AdkWebServerClient
from google.adk.cli.api_server import RunAgentRequest
from google.genai import types

async def main(url):
    said = types.Content(role="user", parts=[types.Part(text="Look into the box.")])
    request = RunAgentRequest(
        app_name="trips", user_id="ann", session_id="s1", new_message=said, streaming=True
    )
    async with AdkWebServerClient(url) as client:
        return [event.model_dump(mode="json", exclude_none=True) async for event in client.run_agent(request)]

print(json.dumps(asyncio.run(main(sys.argv[1]))))
"""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """Give a strict provider, to which the environment points."""
    with FakeProvider() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def two_steps(provider: FakeProvider) -> None:
    """Let the model think, speak and call a tool, then answer."""
    provider.reply(
        Reasoning("Hm."),
        Text("Let me "),
        Text("see."),
        ToolCall("look", {"place": "box"}, id="call_1", chunks=3),
        usage=(7, 3),
    )
    provider.reply(Text("It is "), Text("empty."), usage=(20, 4))


def complete(events: list[Json]) -> list[Json]:
    """Leave out what is partial."""
    return [event for event in events if not event.get("partial")]


async def test_run_sse_tells_of_a_run_as_adk_does(provider: FakeProvider, adk_python: Path) -> None:
    """The front end's own JSON gets partial events, then whole ones: thoughts, calls, results, usage."""
    two_steps(provider)
    async with adk_scene(provider) as s:
        await s.begin()
        events = await s.events(asking("Look into the box.", functionCallEventId=None, invocationId=None))
        assert not s.cuts
    read = await as_adk_reads(adk_python, "event", events)
    assert words(read, partial=True) == "Let me see.It is empty."
    called, responded, answered = complete(read)
    thought, said, call = called["content"]["parts"]
    assert (thought["text"], thought["thought"], said["text"]) == ("Hm.", True, "Let me see.")
    assert call["functionCall"] == {"id": "call_1", "name": "look", "args": {"place": "box"}}
    response = {"id": "call_1", "name": "look", "response": {"result": "box is empty"}}
    assert [part["functionResponse"] for part in responded["content"]["parts"]] == [response]
    assert answered["content"] == {"role": "model", "parts": [{"text": "It is empty."}]}
    counts = [called["usageMetadata"][f"{name}TokenCount"] for name in ("prompt", "candidates", "total")]
    assert counts == [7, 3, 10]
    assert {event["author"] for event in read} == {"trips"}
    assert len({event["invocationId"] for event in read}) == 1
    assert len({event["id"] for event in read}) == len(read)


async def test_adks_own_client_runs_an_agent_unchanged(provider: FakeProvider, adk_python: Path) -> None:
    """Its `run_agent` sends what it sends to ADK's server, and reads every event."""
    two_steps(provider)
    async with adk_scene(provider) as s:
        await s.begin()
        ran = await anyio.run_process([str(adk_python), "-W", "ignore", "-c", CLIENT, s.server.address])
    assert words(complete(json.loads(ran.stdout))) == "Let me see.It is empty."


@pytest.mark.parametrize("path", ["/run", "/run_sse"])
async def test_without_streaming_only_whole_events_come(provider: FakeProvider, path: str) -> None:
    """As a list from /run, one by one from /run_sse: the same."""
    two_steps(provider)
    async with adk_scene(provider) as s:
        await s.begin()
        body = asking("Look into the box.", streaming=False)
        if path == "/run":
            answer = await s.client.post(path, json=body)
            events = answer.json()
            run_id = answer.headers["andon-run-id"]
            assert {event["invocationId"] for event in events} == {run_id}
        else:
            events = await s.events(body)
    assert [list(event["content"]["parts"][-1]) for event in events] == [
        ["functionCall"],
        ["functionResponse"],
        ["text"],
    ]


async def test_what_a_session_tells_is_what_was_said_in_it(provider: FakeProvider, adk_python: Path) -> None:
    """GET gives ADK's session, with the user's words; the fields that are ours come beside ADK's."""
    two_steps(provider)
    async with adk_scene(provider) as s:
        made = await s.client.post("/apps/trips/users/ann/sessions", json={"state": {"mood": "good"}})
        assert made.json()["state"] == {"mood": "good"}
        assert (await s.client.post("/apps/trips/users/ann/sessions", json={"state": None})).json()["id"]
        await s.begin()
        told = complete(await s.events(asking("Look into the box.")))
        session = (await s.client.get(S1)).json()
        listed = (await s.client.get("/apps/trips/users/ann/sessions")).json()
        assert (await s.client.delete(S1)).json() is None
        gone = await s.client.get(S1)
    assert (gone.status_code, "no session" in gone.json()["detail"]) == (404, True)
    assert len(listed) == 3
    first, *others = session["events"]
    assert (first["author"], first["content"]["parts"]) == ("user", [{"text": "Look into the box."}])
    assert others == told
    ours = {"liveRunId", "queuedRunIds", "waitingRunId", "interrupts", "held", "closed", "quarantined", "n"}
    theirs = {name: value for name, value in session.items() if name not in ours}
    assert {*session} - {*theirs} == ours
    read = await as_adk_reads(adk_python, "session", [theirs])
    assert read[0]["id"] == "s1"


async def test_list_apps_names_them(provider: FakeProvider) -> None:
    """Also as the front end asks for them."""
    async with adk_scene(provider) as s:
        answer = await s.client.get("/list-apps?relative_path=./")
        assert answer.json() == ["trips"]


# Cancelled


async def cancelled(s: AdkScene, path: str, body: Json) -> tuple[httpx.Response, float]:
    """Ask for a run, cancel it when it hangs, and give the answer, and when it was cancelled."""
    answers: list[httpx.Response] = []
    began = 0.0

    async def ask() -> None:
        answers.append(await s.client.post(path, json=body))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await s.provider.stalled(1)
        began = time.monotonic()
        await s.cancel(reason="enough")
    return answers[0], began


async def ended_by_cancel(s: AdkScene, adk_python: Path, events: list[Json], began: float) -> None:
    """The provider lost its reader, the agent knows, the client was told, and the next run works."""
    closed = await s.provider.closed(1)
    assert closed.closed_by_client
    assert closed.closed_at is not None
    print(f"\nthe provider saw the connection close {(closed.closed_at - began) * 1e3:.1f} ms after :cancel")  # noqa: T201
    assert s.cuts == ["model"]
    last = (await as_adk_reads(adk_python, "event", events))[-1]
    assert (last["errorCode"], last["interrupted"], last["turnComplete"]) == ("CANCELLED", True, True)
    report = last["customMetadata"]["andon"]["report"]
    assert (report["result"], report["causes"][0]["reason"]) == ("STOPPED", "enough")
    assert "enough" in last["errorMessage"]
    cut = complete(events)[0]
    assert (words([cut]), cut["interrupted"]) == ("Let me ", True)
    s.provider.reply(Text("Fine."))
    assert words(complete(await s.events(asking("And now?")))) == "Fine."


async def test_cancel_reaches_what_run_sse_runs(provider: FakeProvider, adk_python: Path) -> None:
    """The stream ends, after the event that says who and why."""
    provider.reply(Text("Let me "), Stall())
    async with adk_scene(provider) as s:
        await s.begin()
        async with s.streaming(asking("Look into the box.")) as stream:
            events = [await anext(stream)]
            assert words(events, partial=True) == "Let me "
            began = time.monotonic()
            assert (await s.cancel(reason="enough"))["result"] == "STOPPED"
            events += [event async for event in stream]
        await ended_by_cancel(s, adk_python, events, began)


async def test_cancel_reaches_what_run_runs(provider: FakeProvider, adk_python: Path) -> None:
    """It is answered 200, with what was said so far and the event that says who and why."""
    provider.reply(Text("Let me "), Stall())
    async with adk_scene(provider) as s:
        await s.begin()
        answer, began = await cancelled(s, "/run", asking("Look into the box."))
        assert answer.status_code == 200
        await ended_by_cancel(s, adk_python, answer.json(), began)


async def test_cancel_reaches_what_run_live_runs(provider: FakeProvider, adk_python: Path) -> None:
    """The same, and the connection is closed with 1000."""
    provider.reply(Text("Let me "), Stall())
    async with adk_scene(provider) as s:
        await s.begin()
        async with s.live() as socket:
            await socket.send(json.dumps({"content": {"parts": [{"text": "Look into the box."}]}}))
            events = [json.loads(await socket.recv())]
            began = time.monotonic()
            await s.cancel(reason="enough")
            events += [json.loads(message) async for message in socket]
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 1000
        await ended_by_cancel(s, adk_python, events, began)


async def test_cancel_reaches_a_plain_run_that_is_waited_for(provider: FakeProvider) -> None:
    """Whoever waits gets the run as it ended; the same by SSE."""
    provider.reply(Text("Let me "), Stall())
    async with adk_scene(provider) as s:
        await s.begin()
        answer, _ = await cancelled(s, f"{S1}/runs", {"input": "Look.", "wait": 30})
        row = answer.json()
        assert (answer.status_code, row["state"], row["text"]) == (200, "cancelled", "Let me ")
        read = (await s.client.get(f"/runs/{row['run_id']}/events")).text
        assert read.rindex("event: end") > read.rindex("event: run_ended")
        assert (await provider.closed(1)).closed_by_client
        assert s.cuts == ["model"]


async def test_cancel_reaches_a_tool(provider: FakeProvider, adk_python: Path) -> None:
    """Its call gets a response that does not claim to know what it has done, so the history is whole."""
    provider.reply(ToolCall("dig", {"place": "garden"}, id="call_1"))
    async with adk_scene(provider) as s:
        await s.begin()
        async with s.streaming(asking("Dig.")) as stream:
            events = [await anext(stream)]
            await s.gate.reached()
            await s.cancel(reason="enough")
            events += [event async for event in stream]
    assert s.cuts == ["dig"]
    _, response, end = await as_adk_reads(adk_python, "event", events)
    told = response["content"]["parts"][0]["functionResponse"]
    assert (told["id"], told["response"]["state"]) == ("call_1", "unknown")
    assert end["errorCode"] == "CANCELLED"


# Questions


async def test_a_question_is_a_long_running_call_and_its_response_the_answer(
    provider: FakeProvider, adk_python: Path
) -> None:
    """As the front end shows and sends it; afterwards the session's events have the question answered."""
    provider.reply(ToolCall("confirm", {"question": "Sure?"}, id="call_1"))
    provider.reply(Text("Done."))
    async with adk_scene(provider) as s:
        await s.begin()
        events = await as_adk_reads(adk_python, "event", await s.events(asking("Sell it.")))
        asked = events[-1]
        question = asked["content"]["parts"][0]["functionCall"]
        assert asked["longRunningToolIds"] == [question["id"]]
        assert question["args"] == {"question": "Sure?"}
        response = {"id": question["id"], "name": question["name"], "response": {"result": "yes"}}
        message = {"role": "user", "parts": [{"functionResponse": response}]}
        more = await s.events(asking("", newMessage=message, functionCallEventId=asked["id"]))
        answered, done = complete(await as_adk_reads(adk_python, "event", more))
        result = answered["content"]["parts"][0]["functionResponse"]
        assert (result["id"], result["response"]) == ("call_1", {"result": "yes"})
        assert words([done]) == "Done."
        history = (await s.client.get(S1)).json()["events"]
    responses = [
        (part["functionResponse"]["id"], part["functionResponse"]["response"].get("status"))
        for event in await as_adk_reads(adk_python, "event", history)
        for part in event["content"]["parts"]
        if "functionResponse" in part
    ]
    assert responses == [("call_1", "pending"), (question["id"], None), ("call_1", None)]


# Pictures


@pytest.mark.parametrize("data", ["-_-_", "+/+/", "AA", "AA==", "AAA", "AAA="])
async def test_pictures_come_in_base_64_of_any_kind(provider: FakeProvider, data: str) -> None:
    """Of either alphabet, with or without padding; the session tells them as ADK writes them."""
    provider.reply(Text("Nice."))
    parts = [{"text": "Look."}, {"inlineData": {"mimeType": "image/jpeg", "data": data, "displayName": "a"}}]
    async with adk_scene(provider) as s:
        await s.begin()
        assert words(complete(await s.events(asking("", newMessage={"parts": parts})))) == "Nice."
        said = (await s.client.get(S1)).json()["events"][0]["content"]["parts"][1]["inlineData"]
    plain = data.translate(str.maketrans("+/", "-_")).rstrip("=")
    assert (said["mimeType"], said["data"].rstrip("=")) == ("image/jpeg", plain)


# Refused


@pytest.mark.parametrize("path", ["/run", "/run_sse"])
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"sessionId": "nowhere"}, 404),
        ({"appName": "nothing"}, 404),
        ({"sessionId": "a/b"}, 422),
        ({"newMessage": {"role": "user", "parts": []}}, 422),
        ({"newMessage": {"role": "user", "parts": [{"text": " "}]}}, 422),
        ({"newMessage": {"parts": [{"inlineData": {"data": "§§"}}]}}, 422),
        ({"newMessage": {"parts": [{"inlineData": {"data": "AAAAA"}}]}}, 422),
        ({"newMessage": {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": "AAAA"}}]}}, 422),
        ({"newMessage": {"parts": [{"text": "a"}, {"functionResponse": {"id": "x"}}]}}, 422),
        ({"newMessage": {"parts": [{"functionResponse": {"id": "x"}}]}}, 409),
        ({"newMessage": None}, 422),
        ({"stateDelta": {"mood": "bad"}}, 422),
        ({"disconnectGrace": -1}, 422),
    ],
)
async def test_what_cannot_run_is_refused_before_a_stream_begins(
    provider: FakeProvider, path: str, changed: Json, status: int
) -> None:
    """With a problem that has ADK's `detail`, too; no run is left behind."""
    async with adk_scene(provider) as s:
        await s.begin()
        answer = await s.client.post(path, json=asking("Hi.", **changed))
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert answer.json()["detail"]
        assert not (await s.client.get("/runs")).json()["runs"]
    assert not provider.exchanges
