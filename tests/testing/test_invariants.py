"""Each invariant is awake: a lie that is put into what a trial has seen is named."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from msgspec import Struct
from msgspec.structs import replace

from andon import Agent, Call, Message, Point, Reasoning, Stop, StopResult, Usage, tool
from andon.core.items import (
    Event,
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    RunEnded,
    StopRequested,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from andon.core.messages import ResultState
from andon.core.stop import Abandoned, Cause, StopReport, Where
from andon.testing import Delay, Mode, Scenario, Scene, ScriptedModel, Tally
from andon.testing.invariants import broken
from andon.testing.trial import NEXT_ANSWER, Seen, Trial

S = TypeVar("S", bound=Struct)


def story() -> Scene:
    """Set up a run that thinks, uses a tool, and answers."""
    tally = Tally("look")

    @tool
    async def look() -> str:
        """Look around."""
        with tally.of("look"):
            return "nothing"

    first = [Reasoning("Hm."), "Let me see.", Call("look")]
    model = ScriptedModel(first, ["Nothing ", Delay(1), "there."])
    return Scene(agent=Agent(model, tools=[look]), models=[model], tally=tally)


def seen(mode: Mode, boundary: int | None) -> Seen:
    """See one trial of the story."""
    return Trial(Scenario(name="story", make=story), mode, at_boundary=boundary).go()


def untouched() -> Seen:
    """See the story to its end."""
    return seen(Mode(name="not at all"), None)


def stopped(stop: Stop, where: Where) -> Seen:
    """See the story stopped at the first boundary that leads to that place."""
    mode = Mode(name="somehow", stops=(stop,))
    for number in range(len(untouched().boundaries)):
        trial = seen(mode, number)
        if trial.outcome and trial.outcome.cancelled and trial.outcome.cancelled.stopped_at is where:
            return trial
    msg = f"no boundary of the story leads to {where}"
    raise AssertionError(msg)


def cut_in_the_model() -> Seen:
    """See it cut while the model answers."""
    return stopped(Stop.now(), Where.MODEL)


def first(events: list[Event], kind: type[S]) -> tuple[int, S]:
    """Find the first event of a kind."""
    return next((place, event) for place, event in enumerate(events) if isinstance(event, kind))


def change(trial: Seen, kind: type[Event], *, last: bool = False, **what: object) -> None:
    """Change one event in the log: the first of its kind, or the last."""
    events = list(trial.events)
    places = [place for place, event in enumerate(events) if isinstance(event, kind)]
    place = places[-1 if last else 0]
    before, events[place] = events[place], replace(events[place], **what)
    trial.events = events
    trial.family = {
        run_id: [replace(item, **what) if item is before else item for item in items]
        for run_id, items in trial.family.items()
    }


def drop(trial: Seen, kind: type[Event]) -> None:
    """Take the first event of a kind out of the log, and number the rest anew."""
    events = list(trial.events)
    place, _ = first(events, kind)
    del events[place]
    trial.events = events


def insert(trial: Seen, event: Event, place: int) -> None:
    """Put an event into the log."""
    events = list(trial.events)
    events.insert(place, event)
    trial.events = events


def report(trial: Seen, **what: object) -> None:
    """Change the stop report wherever it is told."""
    assert trial.outcome is not None
    assert trial.outcome.cancelled is not None
    told: StopReport = replace(trial.outcome.cancelled, **what)
    outcome(trial, cancelled=told)
    trial.reports = [told for _ in trial.reports]


def outcome(trial: Seen, **what: object) -> None:
    """Change the outcome wherever it is told."""
    assert trial.outcome is not None
    trial.outcome = replace(trial.outcome, **what)
    trial.outcomes = [trial.outcome]
    change(trial, RunEnded, outcome=trial.outcome)


def put(name: str, value: object) -> Callable[[Seen], None]:
    """Make a lie of one field."""
    return lambda trial: setattr(trial, name, value)


def after_the_stop(event: Callable[[], Item]) -> Callable[[Seen], None]:
    """Make a lie of something that begins after the request to stop."""

    def lie(trial: Seen) -> None:
        place, _ = first(list(trial.events), StopRequested)
        insert(trial, event(), place + 1)

    return lie


def ran(name: str, number: int) -> Callable[[Seen], None]:
    """Make a lie of the tally."""

    def lie(trial: Seen) -> None:
        getattr(trial.scene.tally, name)["look"] = number

    return lie


NEXT = "the next run works"
LIES: list[tuple[Callable[[], Seen], Callable[[Seen], None], str]] = [
    (untouched, put("hung", "it waits"), "the run never ended: it waits"),
    (untouched, put("outcome", None), "the run has no outcome"),
    (untouched, lambda trial: drop(trial, RunEnded), "one terminal event: there are 0"),
    (untouched, lambda trial: insert(trial, ToolProgress("c", 1), 99), "the terminal event is last"),
    (untouched, lambda trial: change(trial, RunEnded, outcome=None), "one outcome: two of them differ"),
    (untouched, lambda trial: drop(trial, ModelStarted), "without a gap"),
    (
        untouched,
        lambda trial: drop(trial, MessageAdded),
        "the fold over the items gives the outcome's messages",
    ),
    (
        untouched,
        lambda trial: outcome(trial, usage=Usage(cost=1.0)),
        "the fold over the items gives the usage",
    ),
    (untouched, lambda trial: insert(trial, ToolProgress("c", (1,)), 3), "JSON gives an event back"),
    (untouched, lambda trial: outcome(trial, messages=(Message.user("?"),)), "the messages of the events"),
    (untouched, lambda trial: change(trial, TextDelta, text="Lost."), "what the model said is kept"),
    (untouched, lambda trial: insert(trial, ModelStarted(step=1), 5), "reasoning is kept"),
    (cut_in_the_model, put("cancel_text", "Stopped."), "the history says 'Stopped.'"),
    (untouched, lambda trial: drop(trial, ToolEnded), "each call ends exactly once"),
    (
        untouched,
        lambda trial: insert(trial, first(list(trial.events), ToolStarted)[1], 9),
        "starts at most once",
    ),
    (untouched, lambda trial: drop(trial, ToolStarted), "was started: look"),
    (untouched, lambda trial: change(trial, ToolEnded, content="?"), "a result is never replaced"),
    (untouched, ran("begun", 2), "what has begun is told: look began 2 times, and 1 are reported"),
    (untouched, ran("ended", 0), "finished work is kept: look ended 0 times, 1 are reported"),
    (untouched, put("abandoned", [Abandoned("look", "c9")]), "what was abandoned is unknown"),
    (untouched, put("open_tickets", ["late"]), "every ticket resolves: late did not"),
    (
        cut_in_the_model,
        lambda trial: put("reports", [*trial.reports, replace(trial.reports[0], durable=False)])(trial),
        "every ticket resolves with the same report",
    ),
    (
        cut_in_the_model,
        lambda trial: put("reports", [replace(trial.reports[0], durable=False)])(trial),
        "the ticket's report is the outcome's",
    ),
    (cut_in_the_model, lambda trial: report(trial, causes=(Cause(),)), "accepted is told truly"),
    (untouched, put("task_told", value=True), "it was swallowed"),
    (cut_in_the_model, lambda trial: outcome(trial, cancelled=None), "a cancelled run, and no other"),
    (untouched, put("reports", [StopReport(result=StopResult.STOPPED)]), "ended by itself FINISHED_FIRST"),
    (untouched, lambda trial: outcome(trial, stop_reason="limit"), "ends as end_turn: it ended as limit"),
    (cut_in_the_model, lambda trial: outcome(trial, stop_reason="end_turn"), "a final answer is whole"),
    (cut_in_the_model, lambda trial: outcome(trial, stop_reason="error"), "a stop is no error"),
    (
        cut_in_the_model,
        lambda trial: report(trial, result=StopResult.FINISHED_FIRST),
        "a cancelled run was stopped",
    ),
    (
        lambda: stopped(Stop.at(Point.TOOLS), Where.POINT_TOOLS),
        lambda trial: report(trial, stopped_at=Where.POINT_MODEL),
        "takes effect where it was asked for",
    ),
    (cut_in_the_model, lambda trial: report(trial, causes=()), "the report names every cause"),
    (cut_in_the_model, put("abandoned", [Abandoned("model")]), "the report names what was abandoned"),
    (cut_in_the_model, lambda trial: report(trial, latency=9.0), "the latency is the time from the first"),
    (cut_in_the_model, lambda trial: report(trial, result=StopResult.ESCALATED), "means by the deadline"),
    (
        cut_in_the_model,
        lambda trial: report(trial, result=StopResult.ESCALATED, escalated_by="timeout"),
        "only if a deadline has passed",
    ),
    (
        lambda: stopped(Stop.gently(), Where.POINT_MODEL),
        lambda trial: report(trial, escalated_by="request"),
        "escalated by a request only if",
    ),
    (
        cut_in_the_model,
        lambda trial: report(trial, causes=(Cause(asked=Stop.at(Point.MODEL)),)),
        "only points were asked for is ESCALATED",
    ),
    *(
        (cut_in_the_model, lambda trial, where=where: report(trial, stopped_at=where), f"it says {where}")
        for where in (Where.BEFORE_START, Where.POINT_MODEL, Where.TOOLS, Where.POINT_TOOLS, Where.PAUSED)
    ),
    (
        lambda: stopped(Stop.gently(), Where.POINT_MODEL),
        lambda trial: report(trial, stopped_at=Where.MODEL),
        "it says model",
    ),
    (cut_in_the_model, after_the_stop(lambda: ModelStarted(step=9)), "no model is asked after a stop"),
    (
        cut_in_the_model,
        after_the_stop(lambda: ToolStarted(call_id="c", name="look")),
        "no tool is started after a stop that forbids it: look",
    ),
    (cut_in_the_model, put("made", 99), "at most one chunk is made after a stop"),
    (
        cut_in_the_model,
        lambda trial: change(trial, RunEnded, at=first(list(trial.events), RunEnded)[1].at + 9),
        "a stop now ends the run within 0.05 s: it took 9.0",
    ),
    (untouched, put("left", ["task x"]), "nothing is left running: task x"),
    (untouched, put("loop_errors", ["oh"]), "nothing fails unseen: oh"),
    (untouched, put("open_at_end", 1), "the model is closed before the run has ended"),
    (untouched, put("nothing_running", value=False), "a run that has ended is no longer live"),
    (untouched, put("next_outcome", "it never ended"), f"{NEXT}: it never ended"),
    (
        untouched,
        lambda trial: put("next_outcome", trial.outcome)(trial),
        f"{NEXT}: it ended as end_turn ('Nothing there.')",
    ),
    (
        untouched,
        lambda trial: put("next_outcome", replace(_next(trial), messages=(Message.assistant(NEXT_ANSWER),)))(
            trial
        ),
        "the next run goes on from the same history",
    ),
    (
        untouched,
        lambda trial: put("next_outcome", replace(_next(trial), messages=(Message.assistant(NEXT_ANSWER),)))(
            trial
        ),
        "after the next run: the history begins with the user",
    ),
]


def _next(trial: Seen) -> Struct:
    assert isinstance(trial.next_outcome, Struct)
    return trial.next_outcome


@pytest.mark.parametrize(
    "honest",
    [
        untouched,
        cut_in_the_model,
        lambda: stopped(Stop.at(Point.TOOLS), Where.POINT_TOOLS),
        lambda: stopped(Stop.gently(), Where.POINT_MODEL),
        lambda: stopped(Stop.at(Point.ANY, grace=0.5), Where.MODEL),
    ],
)
def test_the_truth_breaks_nothing(honest: Callable[[], Seen]) -> None:
    """What really happened is in order."""
    assert list(broken(honest())) == []


@pytest.mark.parametrize(("honest", "lie", "words"), LIES, ids=[words for *_, words in LIES])
def test_a_lie_is_named(honest: Callable[[], Seen], lie: Callable[[Seen], None], words: str) -> None:
    """Whatever else it breaks, this is said of it."""
    trial = honest()
    lie(trial)
    assert any(words in one for one in broken(trial)), list(broken(trial))


def test_a_completed_tool_that_never_started_is_named_by_its_state() -> None:
    """The state is part of the message."""
    trial = untouched()
    drop(trial, ToolStarted)
    words = f"a tool that is reported as {ResultState.COMPLETED} was started: look"
    assert words in list(broken(trial))
    assert not any(isinstance(one, ModelEnded) and one.end != "complete" for one in trial.events)
