"""A session: what becomes of each command, decided by the journal alone."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from andon.core.checkpoint import VERSION, Checkpoint
from andon.core.command import (
    Answer,
    Cancel,
    Command,
    Halt,
    OnBusy,
    Pause,
    Push,
    Release,
    Steer,
)
from andon.core.fate import REMEMBERED, Fate
from andon.core.fold import checkpoint
from andon.core.items import (
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    RunEnded,
    RunStarted,
    Steered,
    StopRequested,
    ToolEnded,
    ToolStarted,
)
from andon.core.journal import (
    Entry,
    HandedOver,
    Quarantined,
    SessionCreated,
    Unknown,
)
from andon.core.limits import Limits
from andon.core.messages import Call, Message, ResultState
from andon.core.outcome import Interrupt, Outcome, StopReason
from andon.core.session import PREEMPT_GRACE, fold_session
from andon.core.steer import When
from andon.core.stop import Cause, Point, Stop, StopReport, StopResult, Where
from tests.core.recorded import KEY, Book, resume

NOW = Stop.now().bind(1.0, Cause("user", "ada", id="stop"))
CUT = StopReport(result=StopResult.STOPPED, stopped_at=Where.MODEL, causes=NOW.causes)
HELD = Stop.graceful().bind(1.0, Cause("pause", id="hold"))


class Desk(Book):
    """A session whose runs do what they are told: no model, no tools, only their items."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        super().__init__(entries)
        self.count = 0

    def told(self, command: Command) -> Fate:
        """Take a command; gives what became of it."""
        self.tell(command)
        return self.state.fates[command.id]

    def push(self, run_id: str, on_busy: OnBusy = "enqueue", **more: str) -> Fate:
        """Say something."""
        message = Message.user(f"do {run_id}")
        push = Push(id=f"c-{run_id}", at=2.0, run_id=run_id, message=message, on_busy=on_busy)
        return self.told(replace(push, **more))

    def steer(self, name: str, run_id: str | None = None, when: When = "next") -> Fate:
        """Say something to a live run."""
        return self.told(Steer(id=name, at=2.0, message=Message.user(name), run_id=run_id, when=when))

    def cancel(self, run_id: str | None = None, *, stop: Stop = NOW, queued: bool = False) -> Fate:
        """Cancel."""
        return self.told(Cancel(id=self._next(), at=2.0, stop=stop, run_id=run_id, queued=queued))

    def pause(self) -> Fate:
        """Pause."""
        return self.told(Pause(id=self._next(), at=2.0, stop=HELD))

    def halt(self, stop: Stop | None = None) -> Fate:
        """Stop the session."""
        return self.told(Halt(id=self._next(), at=2.0, stop=stop))

    def resume(self, run_id: str) -> Fate:
        """Resume."""
        return self.told(resume(run_id))

    def answer(self, run_id: str, **answers: object) -> Fate:
        """Answer."""
        return self.told(Answer(id=f"c-{run_id}", at=2.0, run_id=run_id, answers=answers))

    def start(self) -> str:
        """Start what is ready, with what it was asked."""
        ready = self.state.ready
        assert ready is not None
        self.write(RunStarted(run_id=ready.run_id, agent="a", at=3.0, checkpoint=ready.checkpoint))
        if ready.message is not None:
            self.write(MessageAdded(message=ready.message))
        if ready.stop is not None:
            self.write(StopRequested(stop=ready.stop))
        return ready.run_id

    def die(self) -> None:
        """Let the worker die, and the next one take the run up."""
        live = self.state.live
        assert live is not None
        self.write(RunStarted(run_id=live.run_id, agent="a", checkpoint=live.checkpoint("a")))

    def end(self, reason: StopReason = "end_turn", *asked: str) -> None:
        """End the live run."""
        live = self.state.live
        assert live is not None
        left = None if reason == "end_turn" else checkpoint(live.state, "a")
        self.write(MessageAdded(message=Message.assistant(f"{live.run_id} is done")))
        self.write(
            RunEnded(
                at=4.0,
                outcome=Outcome(
                    run_id=live.run_id,
                    stop_reason=reason,
                    checkpoint=left,
                    cancelled=CUT if reason == "cancelled" else None,
                    interrupts=tuple(map(Interrupt, asked)),
                ),
            )
        )

    def run(self, reason: StopReason = "end_turn", *asked: str) -> str:
        """Start what is ready, and end it."""
        run_id = self.start()
        self.end(reason, *asked)
        return run_id

    def states(self) -> dict[str, str]:
        """What the list of runs says, by the rows that have changed."""
        return {row.run_id: row.state for row in self.state.rows()}

    @property
    def words(self) -> list[str]:
        """What was said so far."""
        return [message.text for message in self.state.messages]

    @property
    def queue(self) -> list[str]:
        """What waits."""
        return [one.run_id for one in self.state.queue]

    @property
    def stop(self) -> Stop:
        """What the live run is asked."""
        assert self.state.live is not None
        assert self.state.live.stop is not None
        return self.state.live.stop

    def _next(self) -> str:
        self.count += 1
        return f"command {self.count}"


def busy(*waiting: str) -> Desk:
    """A session with a live run, and some that wait."""
    desk = Desk()
    desk.push("live")
    desk.start()
    for run_id in waiting:
        desk.push(run_id)
    return desk


# Messages, one after the other


def test_a_session_begins_with_its_first_item() -> None:
    """Before that there is none."""
    desk = Desk()
    assert not desk.state.exists
    desk.write(SessionCreated(at=1.5, state={"plan": "free"}))
    assert desk.state.exists
    assert desk.state.created is not None
    assert desk.state.created.state == {"plan": "free"}
    assert desk.state.touched == 1.5
    assert not desk.state.has_work


def test_runs_come_one_after_the_other_in_the_order_in_which_they_were_pushed() -> None:
    """Each goes on from what was said before."""
    desk = Desk()
    assert desk.push("one") == Fate(run_id="one")
    assert desk.push("two") == Fate(run_id="two")
    assert desk.states() == {"one": "queued", "two": "queued"}
    assert desk.start() == "one"
    assert desk.state.ready is None
    assert desk.states() == {"one": "running"}
    desk.end()
    assert desk.run() == "two"
    assert not desk.state.has_work
    assert desk.words == ["do one", "one is done", "do two", "two is done"]
    assert desk.states() == {"one": "finished", "two": "finished"}
    assert desk.state.cursor == 2


def test_a_run_knows_what_it_was_asked_and_by_whom() -> None:
    """Its limits, too: also after a crash."""
    desk = Desk()
    limits = Limits(model_calls=3)
    message = Message.user("go")
    desk.told(Push(id="c", at=2.0, by="ada", run_id="r", message=message, limits=limits))
    desk.start()
    live = desk.state.live
    assert live is not None
    assert (live.queued, live.began, live.by, live.prompt) == (2.0, 3.0, "ada", "go")
    assert live.limits == limits


def test_a_run_that_nobody_has_pushed_may_begin() -> None:
    """Whoever has the session may start one of its own."""
    desk = Desk()
    desk.write(RunStarted(run_id="own", agent="a"))
    desk.end()
    assert desk.words == ["own is done"]


def test_what_is_told_of_no_live_run_changes_nothing() -> None:
    """Whatever has written it."""
    desk = Desk()
    desk.write(MessageAdded(message=Message.user("go")))
    desk.write(RunEnded(outcome=Outcome(run_id="r", stop_reason="end_turn")))
    desk.write(HandedOver(run_id="r", checkpoint=Checkpoint(version=VERSION, run_id="r", agent="a")))
    assert (desk.words, desk.state.rows(), desk.state.n) == ([], [], 3)
    other = busy()
    assert other.state.live is not None
    before = other.state.live.state
    other.write(HandedOver(run_id="r", checkpoint=Checkpoint(version=VERSION, run_id="r", agent="a")))
    assert other.state.live.state is before


def test_a_run_that_the_session_does_not_know_has_no_row() -> None:
    """Nothing is made up."""
    assert busy("next").state.row("r") is None


def test_what_only_a_newer_version_knows_counts_and_changes_nothing_else() -> None:
    """The numbers stay without a gap."""
    state = fold_session(KEY, [Unknown(n=7, at=2.5, raw=b"{}")])
    assert (state.n, state.touched, state.exists) == (7, 2.5, True)


# While a run is live


def test_a_push_that_does_not_want_to_wait_is_rejected_while_the_session_is_busy() -> None:
    """Also while one only waits; else it is taken."""
    desk = Desk()
    assert desk.push("one", "reject").problem is None
    assert desk.push("two", "reject") == Fate(
        problem="session app/user/s is busy: wait, or push with another on_busy"
    )
    desk.start()
    assert desk.push("three", "reject").problem is not None
    assert desk.queue == []
    desk.end()
    assert desk.push("four", "reject").problem is None


@pytest.mark.parametrize("on_busy", ["enqueue", "preempt", "steer", "rollback"])
def test_where_nothing_is_live_every_push_simply_waits_for_its_turn(on_busy: OnBusy) -> None:
    """There is nothing to stop, and nobody to hear it."""
    desk = Desk()
    assert desk.push("one", on_busy) == Fate(run_id="one")
    assert desk.run() == "one"


def test_a_preempting_push_stops_the_live_run_at_a_safe_point_and_comes_next() -> None:
    """After some seconds now; what waited goes on waiting."""
    desk = busy("next")
    assert desk.push("urgent", "preempt", by="ada") == Fate(run_id="urgent")
    assert (desk.stop.points, desk.stop.immediate) == (Point.ANY, False)
    assert desk.stop.deadline == 2.0 + PREEMPT_GRACE
    assert [(cause.source, cause.by, cause.id) for cause in desk.stop.causes] == [
        ("preempt", "ada", "c-urgent")
    ]
    assert desk.states()["live"] == "stopping"
    desk.end("cancelled")
    assert desk.run() == "urgent"
    assert desk.run() == "next"
    assert desk.words[:2] == ["do live", "live is done"]


def test_pushes_that_preempt_keep_their_order() -> None:
    """What was said first is answered first."""
    desk = busy("next")
    desk.push("one", "preempt")
    desk.push("two", "rollback")
    desk.push("three", "preempt")
    desk.push("four")
    assert desk.queue == ["one", "two", "three", "next", "four"]


def test_a_push_that_rolls_back_takes_the_run_that_it_cuts_out_of_the_history() -> None:
    """The next one goes on from what was before; nothing of it is left to resume."""
    desk = Desk()
    desk.push("first")
    desk.run()
    desk.push("live")
    desk.start()
    desk.push("instead", "rollback")
    assert desk.stop.immediate
    desk.end("cancelled")
    assert desk.words == ["do first", "first is done"]
    assert desk.state.waiting is None
    desk.run()
    assert desk.words == ["do first", "first is done", "do instead", "instead is done"]
    assert desk.states()["live"] == "cancelled"


@pytest.mark.parametrize("reason", ["end_turn", "interrupt", "limit", "error"])
def test_a_run_that_ended_before_it_could_be_cut_is_not_rolled_back(reason: StopReason) -> None:
    """Its answer was given, or its error told."""
    desk = busy()
    desk.push("instead", "rollback")
    desk.end(reason)
    assert desk.words == ["do live", "live is done"]


def test_a_run_that_had_gone_on_or_was_taken_up_is_rolled_back_as_well() -> None:
    """To what was said before it began, or before it went on."""
    desk = Desk()
    desk.push("first")
    desk.run()
    desk.push("live")
    desk.run("cancelled")
    before = desk.words
    desk.resume("on")
    desk.start()
    desk.die()
    desk.push("instead", "rollback")
    desk.end("cancelled")
    assert desk.words == before
    desk.run()
    assert desk.words == [*before, "do instead", "instead is done"]
    desk.push("more")
    desk.start()
    desk.die()
    desk.push("other", "rollback")
    desk.end("cancelled")
    assert desk.words == [*before, "do instead", "instead is done"]


def test_what_is_said_to_a_live_run_is_said_until_it_was_heard() -> None:
    """Also by the next worker; and it is no run of its own."""
    desk = busy()
    assert desk.push("more", "steer") == Fate(run_id="live")
    assert desk.steer("please", when="idle") == Fate(run_id="live")
    assert desk.state.live is not None
    assert [(one.id, one.when) for one in desk.state.live.steers.values()] == [
        ("c-more", "next"),
        ("please", "idle"),
    ]
    desk.die()
    assert list(desk.state.live.steers) == ["c-more", "please"]
    desk.write(Steered(id="c-more", message=Message.user("do more")))
    desk.write(Steered(id="please", message=Message.user("please")))
    assert desk.state.live.steers == {}
    desk.end()
    assert desk.words == ["do live", "do more", "please", "live is done"]
    assert not desk.state.has_work
    assert desk.state.row("more") is None


def test_what_a_run_did_not_hear_any_more_becomes_a_run_or_is_told_to_be_unheard() -> None:
    """A push waits for its turn, before those that were only to wait; a steer was for that run only."""
    desk = busy("next")
    desk.push("more", "steer")
    desk.steer("please")
    desk.end()
    assert desk.queue == ["more", "next"]
    assert desk.state.said == {}
    assert desk.states() == {"live": "finished", "more": "queued", "next": "queued"}
    assert desk.state.fates["c-more"] == Fate(run_id="more")
    assert desk.state.fates["please"] == Fate(
        run_id="live", problem="run live ended before it heard this: push it instead"
    )
    assert desk.run() == "more"


def test_a_steer_is_for_a_live_run_only() -> None:
    """For the one that it names, if it names one."""
    problem = "no such run is live, so nobody could hear it: push it instead"
    assert Desk().steer("please") == Fate(problem=problem)
    desk = busy("next")
    assert desk.steer("please", "next") == Fate(problem=problem)
    assert desk.steer("you there", "live") == Fate(run_id="live")


# Cancel


def test_a_cancel_reaches_the_live_run() -> None:
    """With its name or without; what waits stays."""
    for run_id in (None, "live"):
        desk = busy("next")
        assert desk.cancel(run_id) == Fate(run_id="live")
        assert desk.stop == NOW
        assert desk.states() == {"live": "stopping", "next": "queued"}
        desk.end("cancelled")
        assert desk.run() == "next"


def test_cancels_are_joined() -> None:
    """None weakens another."""
    desk = busy()
    gentle = Stop.at(Point.TOOLS).bind(1.0, Cause(id="gentle"))
    desk.cancel(stop=gentle)
    desk.cancel()
    desk.cancel(stop=gentle)
    assert desk.stop == gentle.join(NOW)


def test_a_run_that_waits_is_cancelled_by_its_name_and_ends_before_it_starts() -> None:
    """The live one is left alone."""
    desk = busy("next", "last")
    assert desk.cancel("next") == Fate(run_id="next")
    assert desk.state.live is not None
    assert desk.state.live.stop is None
    assert desk.states() == {"live": "running", "next": "stopping", "last": "queued"}
    desk.end()
    assert desk.start() == "next"
    assert desk.stop.immediate
    desk.end("cancelled")
    assert desk.state.ready is not None
    assert desk.state.ready.stop is None


def test_a_run_that_waits_keeps_every_cause_of_its_end() -> None:
    """Who cancelled it first is not forgotten."""
    desk = busy("next")
    desk.cancel("next", stop=Stop.at(Point.TOOLS).bind(1.0, Cause("user", "bob", id="first")))
    desk.cancel("next")
    assert [one.stop and [cause.by for cause in one.stop.causes] for one in desk.state.queue] == [
        ["bob", "ada"]
    ]


def test_between_two_runs_a_cancel_is_for_the_one_that_comes_next() -> None:
    """Nobody has claimed it yet; those behind it stay."""
    desk = Desk()
    desk.push("one")
    desk.push("two")
    assert desk.cancel() == Fate(run_id="one")
    assert desk.run("cancelled") == "one"
    assert desk.state.ready is not None
    assert (desk.state.ready.run_id, desk.state.ready.stop) == ("two", None)


def test_with_queued_all_that_waits_is_cancelled_as_well() -> None:
    """Whether something is live or not."""
    desk = busy("one", "two")
    assert desk.cancel(queued=True) == Fate(run_id="live")
    assert [one.stop is not None for one in desk.state.queue] == [True, True]
    assert desk.stop == NOW


@pytest.mark.parametrize("verb", ["pause", "halt"])
def test_what_waits_in_a_session_that_is_held_can_be_cancelled_and_ends(verb: str) -> None:
    """The rest of it goes on waiting."""
    desk = Desk()
    desk.push("one")
    desk.push("two")
    getattr(desk, verb)()
    assert desk.cancel().report == StopReport(result=StopResult.NOTHING_RUNNING)
    assert not desk.state.has_work
    assert desk.cancel("two") == Fate(run_id="two")
    assert desk.state.has_work
    assert desk.run("cancelled") == "two"
    assert not desk.state.has_work
    assert desk.cancel(queued=True) == Fate(run_id="one")
    assert desk.run("cancelled") == "one"
    assert desk.resume("on") == Fate()  # what was cancelled before it began is done with


@pytest.mark.parametrize("reason", ["cancelled", "interrupt"])
def test_what_is_cancelled_before_it_begins_leaves_alone_what_can_go_on(reason: StopReason) -> None:
    """A paused run is resumed, a question is answered, as if the other had never been pushed."""
    desk = busy("never")
    desk.pause()
    desk.end(reason, *(["q"] if reason == "interrupt" else []))
    before = desk.words
    desk.cancel("never")
    assert desk.run("cancelled") == "never"
    assert desk.words == before
    assert desk.states()["never"] == "cancelled"
    assert desk.resume("on").problem is None
    if reason == "interrupt":
        assert desk.answer("yes", q="yes") == Fate(run_id="yes")
    desk.run()
    assert desk.words[0] == "do live"
    assert "do never" not in desk.words


def test_where_nothing_runs_a_cancel_says_so() -> None:
    """Any number of times, and nothing that comes later is hit."""
    desk = Desk()
    for _ in range(2):
        assert desk.cancel() == Fate(report=StopReport(result=StopResult.NOTHING_RUNNING))
    desk.push("one")
    desk.start()
    assert desk.state.live is not None
    assert desk.state.live.stop is None


def test_a_cancel_that_names_a_run_that_has_ended_never_hits_another() -> None:
    """It is told that the run ended first, or how it was stopped; with a newer one live it has a problem."""
    desk = busy("next")
    desk.end()
    assert desk.cancel("live") == Fate(
        run_id="live", report=StopReport(result=StopResult.FINISHED_FIRST, run_id="live")
    )
    desk.start()
    assert desk.cancel("live") == Fate(
        run_id="live", problem="run live has ended, and run next is live now: nothing was stopped"
    )
    assert desk.state.live is not None
    assert desk.state.live.stop is None
    desk.end("cancelled")
    assert desk.cancel("next") == Fate(run_id="next", report=CUT)
    assert desk.cancel("who") == Fate(problem="session app/user/s has no run who")


@pytest.mark.parametrize("run_id", [None, "live"])
def test_a_cancel_while_a_human_is_asked_gives_the_question_up(run_id: str | None) -> None:
    """Nobody can answer it any more."""
    desk = busy()
    desk.end("interrupt", "q")
    report = StopReport(
        result=StopResult.STOPPED, accepted=True, stopped_at=Where.PAUSED, causes=NOW.causes, run_id="live"
    )
    assert desk.cancel(run_id) == Fate(run_id="live", report=report)
    assert desk.state.waiting is None
    row = desk.state.row("live")
    assert row is not None
    assert (row.state, row.cancelled, row.interrupts) == ("cancelled", report, ())
    assert desk.answer("on", q="yes").problem == "session app/user/s waits for no answer"


@pytest.mark.parametrize("run_id", [None, "live"])
def test_a_cancel_while_the_session_is_paused_gives_the_run_up(run_id: str | None) -> None:
    """A resume then only lets the session go on."""
    desk = busy("next")
    desk.pause()
    desk.end("cancelled")
    fate = desk.cancel(run_id)
    assert fate.report is not None
    assert fate.report.stopped_at is Where.PAUSED
    assert desk.resume("on") == Fate()
    assert desk.run() == "next"


def test_a_run_that_was_cancelled_is_not_given_up_by_another_cancel() -> None:
    """It may still be resumed."""
    desk = busy()
    desk.cancel()
    desk.end("cancelled")
    assert desk.cancel().report == StopReport(result=StopResult.NOTHING_RUNNING)
    assert desk.resume("on") == Fate(run_id="on")


# Pause, resume, stop


def test_a_paused_session_holds_until_it_is_resumed_and_goes_on_where_it_was() -> None:
    """Pushes wait behind the run that goes on."""
    desk = busy()
    assert desk.pause() == Fate(run_id="live")
    assert desk.stop == HELD
    desk.end("cancelled")
    desk.push("next")
    assert not desk.state.has_work
    assert desk.resume("on") == Fate(run_id="on")
    row = desk.state.row("live")
    assert row is not None
    assert (row.state, row.went_on_as) == ("cancelled", "on")
    ready = desk.state.ready
    assert ready is not None
    assert ready.checkpoint is not None
    assert ready.checkpoint.messages == (Message.user("do live"),)
    assert desk.run() == "on"
    assert desk.words == ["do live", "on is done"]
    assert desk.run() == "next"


def test_a_session_may_be_paused_while_it_rests() -> None:
    """What is pushed then waits."""
    desk = Desk()
    assert desk.pause() == Fate(report=StopReport(result=StopResult.NOTHING_RUNNING))
    desk.push("one")
    assert not desk.state.has_work
    assert desk.resume("on") == Fate()
    assert desk.run() == "one"


def test_a_resume_that_comes_before_the_run_has_stopped_lets_it_go_on_once_it_has() -> None:
    """It is said which run it became as soon as that is known."""
    desk = busy("next")
    desk.pause()
    assert desk.resume("on") == Fate(run_id="live")
    assert desk.resume("on again") == Fate(run_id="live")
    desk.end("cancelled")
    assert desk.state.fates["c-on"] == Fate(run_id="on")
    assert desk.queue == ["on", "next"]
    assert desk.run() == "on"


@pytest.mark.parametrize("reason", ["end_turn", "interrupt", "limit", "error"])
def test_a_resume_that_comes_before_the_run_has_ended_by_itself_starts_nothing(reason: StopReason) -> None:
    """It had not been stopped; it is told of the run that it was about."""
    desk = busy("next")
    desk.pause()
    desk.resume("on")
    desk.end(reason, *(["q"] if reason == "interrupt" else []))
    assert desk.queue == ["next"]
    assert desk.state.fates["c-on"] == Fate(run_id="live")
    assert desk.state.has_work is (reason != "interrupt")  # what was said before waits for the answer


@pytest.mark.parametrize("verb", ["cancel", "pause", "preempt", "rollback"])
def test_a_stop_that_comes_after_the_resume_has_the_last_word(verb: str) -> None:
    """The run that was to go on does not."""
    desk = busy()
    desk.pause()
    desk.resume("on")
    if verb == "cancel":
        desk.cancel()
    elif verb == "pause":
        desk.pause()
    else:
        desk.push("next", verb)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    desk.end("cancelled")
    assert "on" not in desk.queue
    assert desk.state.fates["c-on"] == Fate(run_id="live")


def test_a_run_that_was_cancelled_or_has_failed_can_be_resumed() -> None:
    """The session was neither paused nor stopped."""
    for reason in ("cancelled", "limit", "error"):
        desk = busy()
        desk.end(reason)
        assert desk.resume("on") == Fate(run_id="on")
        assert desk.run() == "on"


def test_a_resume_with_nothing_to_resume_has_a_problem() -> None:
    """Whether something is live, waits for an answer, or nothing is there at all."""
    problem = "session app/user/s has nothing to resume: it is neither paused nor stopped"
    assert Desk().resume("on") == Fate(problem=problem)
    assert busy().resume("on") == Fate(problem=problem)
    desk = busy()
    desk.end("interrupt", "q")
    assert desk.resume("on") == Fate(problem=problem)
    assert desk.answer("yes", q="yes") == Fate(run_id="yes")


def test_a_stopped_session_takes_nothing_more_and_keeps_what_waits() -> None:
    """The live run goes on to its end, unless a stop is given."""
    desk = busy("next")
    assert desk.halt() == Fate(run_id="live")
    assert desk.state.live is not None
    assert desk.state.live.stop is None
    assert desk.push("more") == Fate(problem="session app/user/s was stopped: resume it first")
    desk.end()
    assert not desk.state.has_work
    assert desk.queue == ["next"]
    assert desk.resume("on") == Fate()
    assert desk.run() == "next"


def test_a_stopped_session_whose_run_is_cut_goes_on_with_it_when_it_is_resumed() -> None:
    """And then with what waited."""
    desk = busy("next")
    assert desk.halt(NOW) == Fate(run_id="live")
    assert desk.stop == NOW
    desk.end("cancelled")
    assert desk.resume("on") == Fate(run_id="on")
    assert [desk.run(), desk.run()] == ["on", "next"]


# Questions


def asking() -> Desk:
    """A session whose run has asked two questions."""
    desk = busy()
    desk.end("interrupt", "q1", "q2")
    return desk


def test_an_answer_lets_the_run_go_on_with_it() -> None:
    """All questions, or some of them: the rest is asked again."""
    for answers in ({"q1": "yes", "q2": ["no"]}, {"q2": 3}, {}):
        desk = asking()
        assert not desk.state.has_work
        assert desk.answer("on", **answers) == Fate(run_id="on")
        ready = desk.state.ready
        assert ready is not None
        assert ready.answers == answers
        assert ready.checkpoint is not None
        assert desk.run() == "on"
        row = desk.state.row("live")
        assert row is not None
        assert (row.state, row.went_on_as) == ("interrupted", "on")


def test_answers_that_nobody_asked_for_change_nothing() -> None:
    """It is said which questions are open."""
    desk = asking()
    assert desk.answer("on", q1="yes", q3="?") == Fate(
        problem="answers has 'q3', and the open interrupts are: q1, q2"
    )
    assert not desk.state.has_work
    assert desk.answer("on again", q1="yes") == Fate(run_id="on again")
    assert desk.answer("twice", q1="no") == Fate(problem="session app/user/s waits for no answer")
    assert desk.queue == ["on again"]


def test_a_paused_session_takes_an_answer_and_holds() -> None:
    """The run goes on once the session does."""
    desk = asking()
    desk.pause()
    assert desk.answer("on", q1="yes") == Fate(run_id="on")
    assert not desk.state.has_work
    assert desk.resume("go") == Fate()
    assert desk.run() == "on"


def test_an_ordinary_message_goes_on_without_an_answer() -> None:
    """The question is then nobody's, and the list of runs does not show it any more."""
    desk = asking()
    desk.push("never mind")
    desk.run()
    assert desk.answer("on", q1="yes") == Fate(problem="session app/user/s waits for no answer")
    row = desk.state.row("live")
    assert row is not None
    assert (row.state, row.interrupts) == ("interrupted", ())


# Deaths


def test_deaths_of_workers_are_counted_until_the_run_gets_on() -> None:
    """What has ended is progress; what has only begun is none, and a release counts anew."""
    desk = busy()
    live = desk.state.live
    assert live is not None
    call = Call("look", {}, "c")
    progress: list[Item] = [
        MessageAdded(message=Message.assistant(call)),
        ModelEnded(step=1),
        ToolEnded(call_id="c", name="look", state=ResultState.COMPLETED),
    ]
    for item in progress:
        desk.die()
        desk.write(ModelStarted(step=1))
        desk.write(ToolStarted(call_id="c", name="look"))
        desk.die()
        assert live.deaths == 2
        desk.write(item)
        assert live.deaths == 0


def test_a_session_in_quarantine_is_worked_on_by_nobody_until_it_is_released() -> None:
    """Its run waits where it was, and then nobody has died yet."""
    desk = busy("next")
    desk.die()
    desk.write(Quarantined(why="its worker died 5 times"))
    assert desk.state.quarantined == "its worker died 5 times"
    assert not desk.state.has_work
    assert desk.states()["live"] == "quarantined"
    assert desk.told(Release(id="let go", at=2.0)) == Fate()
    assert desk.state.has_work
    assert desk.state.live is not None
    assert desk.state.live.deaths == 0
    assert desk.states()["live"] == "running"
    assert desk.told(Release(id="again", at=2.0)) == Fate(problem="session app/user/s is not in quarantine")


def test_a_session_may_be_in_quarantine_without_a_run() -> None:
    """Whatever it was that its workers died of."""
    desk = Desk()
    desk.push("one")
    desk.write(Quarantined(why="nobody could read it"))
    assert desk.state.ready is None
    assert desk.told(Release(id="let go", at=2.0)) == Fate()
    assert desk.run() == "one"


def test_a_run_that_is_handed_over_is_live_and_nobody_has_died() -> None:
    """It goes on from the checkpoint that its worker left, with all that was asked of it."""
    desk = busy()
    live = desk.state.live
    assert live is not None
    desk.steer("please")
    desk.cancel()
    desk.die()
    left = checkpoint(live.state, "a")
    desk.write(MessageAdded(message=Message.assistant("half", Call("look", {}, "c"))))
    desk.write(HandedOver(run_id="live", checkpoint=left))
    assert desk.state.has_work
    assert live.checkpoint("a") == left
    desk.write(RunStarted(run_id="live", agent="a", checkpoint=left))
    assert live.deaths == 0
    assert (live.stop, list(live.steers)) == (NOW, ["please"])


# Once


def test_what_became_of_commands_is_forgotten_after_a_while() -> None:
    """The oldest first."""
    desk = Desk()
    for number in range(REMEMBERED + 1):
        desk.told(Release(id=f"{number}", at=1.0))
    assert len(desk.state.fates) == REMEMBERED
    assert "0" not in desk.state.fates


@pytest.mark.parametrize("on_busy", ["enqueue", "preempt", "steer", "rollback"])
def test_a_run_is_pushed_once_however_often_it_is_sent(on_busy: OnBusy) -> None:
    """While it waits, is live or heard, and after its end; also with another id of the command."""
    desk = busy()

    def send(name: str) -> None:
        before = (desk.words, desk.queue, list(desk.state.live.steers) if desk.state.live else [])
        desk.push("one", on_busy)
        fate = desk.push("one", on_busy, id=name)
        assert fate.run_id in {"one", "live"}
        assert (desk.words, desk.queue, list(desk.state.live.steers) if desk.state.live else []) == before

    desk.push("one", on_busy)
    send("while it waits")
    if on_busy == "steer":
        desk.write(Steered(id="c-one", message=Message.user("do one")))
        send("while it is heard")
        desk.end()
        send("at the end")
        assert desk.words == ["do live", "do one", "live is done"]
    else:
        desk.end("cancelled" if on_busy != "enqueue" else "end_turn")
        send("before it starts")
        desk.start()
        send("while it is live")
        desk.end()
        send("at the end")
        assert desk.words.count("do one") == 1


def test_what_was_said_before_a_question_waits_for_its_answer() -> None:
    """Otherwise the question would be lost to a run that nobody meant to have now."""
    desk = busy("next")
    desk.end("interrupt", "q")
    assert (desk.state.ready, desk.queue) == (None, ["next"])

    desk.answer("on", q="yes")
    assert desk.start() == "on"
    desk.end()

    assert desk.start() == "next"


def test_whoever_says_something_more_goes_on_without_an_answer() -> None:
    """An ordinary prompt just works, and what waited before it comes first."""
    desk = busy("next")
    desk.end("interrupt", "q")

    desk.push("more")

    assert desk.start() == "next"
    assert desk.answer("on", q="late").problem == "session app/user/s waits for no answer"


def test_a_question_that_was_given_up_holds_nothing_up() -> None:
    """Cancelled while it waited for a human."""
    desk = busy("next")
    desk.end("interrupt", "q")

    desk.cancel()

    assert desk.start() == "next"
