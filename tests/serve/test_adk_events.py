"""What becomes of each thing that a session tells in ADK's events, also at the edges."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from andon.core.checkpoint import Checkpoint
from andon.core.items import (
    Answered,
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    Steered,
    TextDelta,
    ToolEnded,
)
from andon.core.journal import HandedOver, Partial, SessionCreated
from andon.core.limits import Usage
from andon.core.messages import Call, Image, Message, Reasoning, Result, ResultState, Text
from andon.core.outcome import Interrupt, Outcome
from andon.core.stop import Cause, StopReport, StopResult
from andon.runtime.feed import Told
from andon.serve.adk_event import Teller, adk_json, history
from tests.serve.adk_scene import Json, as_adk_reads

pytestmark = pytest.mark.timeout(300)  # ADK is installed once

BEGUN = RunStarted(run_id="r1", agent="trips", n=1, at=1.5)
PICTURE = bytes(range(256))


def events(*items: Item, teller: Teller | None = None) -> list[Json]:
    """Tell items, and give the events as a client reads them."""
    one = teller or Teller({"r1"}, streaming=True)
    numbered = [msgspec.structs.replace(item, n=n, at=1.5) for n, item in enumerate((BEGUN, *items), 1)]
    made = [event for item in numbered for event in one.take(item)]
    return [msgspec.json.decode(adk_json(event), type=Json) for event in made]


def ended(stop_reason: str, **more: object) -> RunEnded:
    """End the run."""
    outcome = {"run_id": "r1", "stop_reason": stop_reason, **more}
    return RunEnded(outcome=msgspec.convert(outcome, Outcome))


def added(message: Message, *path: str) -> MessageAdded:
    """Add a message."""
    return MessageAdded(message=message, path=path)


async def test_all_parts_of_a_message_are_what_adk_reads(adk_python: Path) -> None:
    """Words, thoughts, calls, results and pictures, by their bytes or their address."""
    made = events(
        added(Message.user("hi", Image(data=PICTURE), Image(url="https://e.example/a.jpg"))),
        added(Message.assistant(Reasoning("Hm."), Text("Yes."), Call("look", {"a": [1, None]}, "c1"))),
        added(Message("tool", (Result("c1", "look", "x"), Result("c2", "dig", "no", ResultState.FAILED)))),
        teller=Teller(history=True),
    )
    read = await as_adk_reads(adk_python, "event", made)
    assert [event["author"] for event in read] == ["user", "trips", "trips"]
    assert [event["content"]["role"] for event in read] == ["user", "model", "user"]
    responses = [part["functionResponse"]["response"] for part in read[2]["content"]["parts"]]
    assert responses == [{"result": "x"}, {"error": "no", "state": "failed"}]


def test_a_message_that_was_cut_says_so() -> None:
    """`interrupted`, with what was said so far."""
    (cut,) = events(added(Message("assistant", (Text("Let m"),), cut=True)))
    assert (cut["interrupted"], cut["content"]["parts"]) == (True, [{"text": "Let m"}])


def test_notes_that_nobody_said_are_not_told() -> None:
    """What makes a history whole for providers is no event; its end says the same."""
    note = Message("assistant", (Text("(stopped)"),), synthetic=True)
    assert events(added(note), ended("end_turn")) == []


def test_the_users_words_come_back_only_as_history() -> None:
    """Those that steered a run, too."""
    items = (added(Message.user("hi")), Steered(message=Message.user("faster")))
    assert events(*items) == []
    said = [event["content"]["parts"][0]["text"] for event in events(*items, teller=Teller(history=True))]
    assert said == ["hi", "faster"]


def test_what_agents_behind_tools_say_is_theirs() -> None:
    """Neither their messages nor their ends nor their words in passing are told."""
    teller = Teller({"r1"}, streaming=True)
    inside = ("call", "child")
    made = events(
        RunStarted(run_id="r2", agent="child", path=inside),
        ModelStarted(step=1, path=inside),
        added(Message.assistant("secret"), *inside),
        RunEnded(outcome=Outcome(run_id="r2", stop_reason="error", error="x"), path=inside),
        teller=teller,
    )
    assert made == []
    assert teller.ended is None
    assert told(teller, TextDelta("secret", inside), Partial("secret", path=inside)) == []
    assert told(teller, TextDelta("mine")) == ["mine"]


def told(teller: Teller, *passing: TextDelta | ReasoningDelta | Partial) -> list[str]:
    """Tell words that pass by; gives what comes of them, thoughts in brackets."""
    made = [
        event
        for number, one in enumerate(passing)
        for event in teller.told(
            Told(f"3.1.1.{number}", type(one).__struct_config__.tag or "", msgspec.json.encode(one))  # pyright: ignore[reportArgumentType]
        )
    ]
    assert all(event.partial and event.content for event in made)
    parts = [part for event in made if event.content for part in event.content.parts]
    return [f"[{part.text}]" if part.thought else part.text or "" for part in parts]


def test_words_that_were_missed_are_made_up_for() -> None:
    """What replaces all that was said in a step so far is told without what was told already."""
    teller = Teller({"r1"}, streaming=True)
    events(ModelStarted(step=1), teller=teller)
    assert told(teller, ReasoningDelta("Hm."), TextDelta("Let ")) == ["[Hm.]", "Let "]
    assert told(teller, Partial("Let me see", "Hm. Hm.")) == ["[ Hm.]", "me see"]
    assert told(teller, Partial("Let me see", "Hm. Hm.")) == []
    assert told(teller, TextDelta(".")) == ["."]
    teller.take(ModelStarted(step=2, n=9))
    assert told(teller, Partial("Done")) == ["Done"]


def test_usage_is_told_with_the_answer_that_took_it() -> None:
    """Once; a message without a model call has none."""
    usage = Usage(input_tokens=7, output_tokens=3)
    first, second = events(
        ModelEnded(step=1, usage=usage), added(Message.assistant("a")), added(Message.assistant("b"))
    )
    wanted = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
    assert (first["usageMetadata"], "usageMetadata" in second) == (wanted, False)


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (ended("error", error="it broke"), "ERROR", "it broke"),
        (ended("limit", limit="model_calls"), "LIMIT", "model_calls"),
        (
            ended(
                "cancelled",
                cancelled=StopReport(result=StopResult.STOPPED, causes=(Cause("user", "ann", "enough"),)),
            ),
            "CANCELLED",
            "ann: enough",
        ),
        (ended("cancelled", cancelled=StopReport(result=StopResult.STOPPED)), "CANCELLED", "somebody"),
    ],
)
async def test_an_end_that_is_no_answer_says_why(
    end: RunEnded, code: str, says: str, adk_python: Path
) -> None:
    """In ADK's own fields, and with the whole report in its metadata."""
    made = events(end)
    (event,) = await as_adk_reads(adk_python, "event", made)
    assert (event["errorCode"], event["turnComplete"]) == (code, True)
    assert says in event["errorMessage"]
    assert event.get("interrupted", False) is (code == "CANCELLED")
    assert event["customMetadata"]["andon"]["stopReason"] == end.outcome.stop_reason
    assert ("report" in event["customMetadata"]["andon"]) is (code == "CANCELLED")


async def test_questions_are_calls_that_wait_for_their_responses(adk_python: Path) -> None:
    """All of them in one event, whatever they ask; the tool that asked has a pending response."""
    asked = (Interrupt("q1", {"question": "Sure?"}), Interrupt("q2", "Really?"), Interrupt("q3"))
    made = events(
        ToolEnded(call_id="c1", name="confirm", state=ResultState.UNKNOWN, again=True),
        added(Message("tool", (Result("c1", "confirm", "Paused", ResultState.UNKNOWN),))),
        ended("interrupt", interrupts=asked),
    )
    response, question = await as_adk_reads(adk_python, "event", made)
    pending = response["content"]["parts"][0]["functionResponse"]["response"]
    assert pending == {"status": "pending", "result": "Paused"}
    assert question["longRunningToolIds"] == ["q1", "q2", "q3"]
    calls = [part["functionCall"] for part in question["content"]["parts"]]
    assert [call["id"] for call in calls] == ["q1", "q2", "q3"]
    assert [call["args"] for call in calls] == [
        {"question": "Sure?"},
        {"question": "Really?"},
        {"question": None},
    ]
    (answer,) = events(Answered(id="q1", answer="yes"), teller=Teller(history=True))
    assert answer["content"]["parts"][0]["functionResponse"]["id"] == calls[0]["id"]


def test_a_run_that_is_handed_over_goes_on_where_it_was() -> None:
    """The next worker begins it again by the same id; nothing is told twice, and it has one end."""
    teller = Teller({"r1"})
    made = events(added(Message.assistant("first")), teller=teller)
    kept = Checkpoint(version=1, run_id="r1", agent="trips", model="m")
    assert teller.take(HandedOver(run_id="r1", checkpoint=kept, n=3)) == []
    assert teller.take(RunStarted(run_id="r1", agent="trips", checkpoint=kept, n=4)) == []
    more = teller.take(MessageAdded(message=Message.assistant("second"), n=5))
    assert [event.id for event in more] == ["5"]
    assert len(made) == 1


def test_only_what_is_wanted_is_told() -> None:
    """Other runs of the session are not, and nothing before the first of them begins."""
    teller = Teller({"r2"}, streaming=True)
    assert events(added(Message.assistant("not mine")), ended("end_turn"), teller=teller) == []
    assert told(teller, TextDelta("not mine")) == []
    teller.take(RunStarted(run_id="r2", agent="trips", n=7))
    assert len(teller.take(MessageAdded(message=Message.assistant("mine"), n=8))) == 1
    assert history([SessionCreated(n=1)]) == []


def ids(made: Sequence[Json]) -> list[str]:
    """Give the ids of events."""
    return [event["id"] for event in made]


def test_ids_are_those_of_the_journal() -> None:
    """So that a client that reads on by Last-Event-ID names the place where it was."""
    assert ids(events(added(Message.assistant("a")), ended("error", error="x"))) == ["2", "3"]
