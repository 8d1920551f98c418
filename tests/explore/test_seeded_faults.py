"""The explorer is awake: it catches each of these faults, seeded into the runtime one at a time."""
# pyright: reportPrivateUsage=false
# The faults are inside: that is where they are seeded.

from collections.abc import Callable, Mapping, Sequence

import pytest

from andon.core.draft import Draft
from andon.core.items import Item, StopRequested
from andon.core.messages import Call, Message, Result, ResultState, Text
from andon.core.outcome import Outcome
from andon.core.repair import UNKNOWN
from andon.core.stop import Cause, Stop, StopReport
from andon.errors import ModelError
from andon.runtime import ending
from andon.runtime.ask import Ask
from andon.runtime.ending import Ending
from andon.runtime.isolate import Cut, Job
from andon.runtime.live import Live
from andon.runtime.record import Record
from andon.runtime.run import Run
from andon.runtime.running import Ended, Running
from andon.runtime.scope import Scope
from andon.runtime.ticket import Ticket
from andon.testing import explore
from tests.explore.scenarios import ON_ONE_LOOP

Patch = pytest.MonkeyPatch
MOST = 12


def nothing(*_: object) -> None:
    """Stand where something was done."""


def open_calls_stay_open(patch: Patch) -> None:
    """The answer to a round leaves out what was not completed."""

    def answer(_: Sequence[Call], results: Mapping[str, Result]) -> Message:
        return Message("tool", tuple(one for one in results.values() if not one.is_error))

    patch.setattr(ending, "answer", answer)


def the_model_is_left_open(patch: Patch) -> None:
    """A burst that was left is not closed."""

    async def close(*_: object) -> None: ...

    patch.setattr(Ask, "_close", close)


def a_cancellation_is_swallowed(patch: Patch) -> None:
    """Whoever cancels the task gets an outcome instead."""
    outcome = Run.outcome

    async def swallow(self: Run) -> Outcome:
        try:
            return await outcome(self)
        except Cut:
            self.cancel()
            return await outcome(self)

    patch.setattr(Run, "outcome", swallow)


def the_end_comes_twice(patch: Patch) -> None:
    """There are two terminal events."""
    finish = Ending.finish

    def twice(self: Ending, report: StopReport) -> None:
        finish(self, report)
        self._record.events.append(self._record.events[-1])

    patch.setattr(Ending, "finish", twice)


def a_finished_result_is_overwritten(patch: Patch) -> None:
    """What ended after the stop is said to be cut."""
    ended = Running.ended

    def overwritten(self: Running) -> Ended:
        return Ended(ResultState.UNKNOWN, UNKNOWN) if self._record.scope.cuts else ended(self)

    patch.setattr(Running, "ended", overwritten)


def a_number_is_skipped(patch: Patch) -> None:
    """The items have a gap after each request to stop."""
    add = Record.add

    def skip(self: Record, item: Item) -> None:
        add(self, item)
        self.items += isinstance(item, StopRequested)

    patch.setattr(Record, "add", skip)


def a_ticket_is_forgotten(patch: Patch) -> None:
    """The tickets that came while the run was live never resolve."""
    settle = Scope.settle

    def forget(self: Scope, report: StopReport) -> None:
        self._tickets.clear()
        settle(self, report)

    patch.setattr(Scope, "settle", forget)


def a_tool_is_leaked(patch: Patch) -> None:
    """What is cut is not waited for, and nobody says so."""

    def leak(self: Job, _: float, *, cancel: bool) -> None:
        self.cut = cancel
        self._end()

    patch.setattr(Job, "end_within", leak)


def the_partial_answer_is_lost(patch: Patch) -> None:
    """A cut answer keeps nothing of what the user has read."""

    def lose(_: Draft, note: str) -> Message:
        return Message("assistant", (Text(note),), cut=True)

    patch.setattr(Draft, "cut", lose)


def the_note_is_missing(patch: Patch) -> None:
    """A history ends with the results of tools."""
    patch.setattr(ending, "seal", nothing)


def an_escalation_is_not_told(patch: Patch) -> None:
    """The deadline cuts, and the report says that a point was reached."""

    def expire(self: Scope) -> None:
        self._timer = None
        if self.stop is not None and not self.final:
            self._take_effect(self.stop.join(Stop.now()))

    patch.setattr(Scope, "_expire", expire)


def the_next_run_is_poisoned(patch: Patch) -> None:
    """A stop stays with the agent after the run that it was meant for."""
    leave = Live.leave

    def poison(self: Live, run: Run, *, paused: bool = False) -> None:
        leave(self, run, paused=paused)
        if run._record.scope.stop is not None:
            self._armed.append((Stop.now(), Cause(), Ticket()))

    patch.setattr(Live, "leave", poison)


def a_stop_waits_for_the_next_chunk(patch: Patch) -> None:
    """The flag is there, and nothing is cut while it waits."""
    patch.setattr(Scope, "cutting", nothing)


def a_cut_is_retried(patch: Patch) -> None:
    """A stop looks like a failure of the provider."""

    def failed(self: Ask) -> str:
        self.error = ModelError("cut", transient=True)
        return "failed"

    patch.setattr(Ask, "_was_cancelled", failed)


def a_late_stop_is_accepted(patch: Patch) -> None:
    """Every ticket says that its request was in time."""

    def accept(self: Ticket, *, accepted: bool) -> None:
        self._accepted = accepted or True

    patch.setattr(Ticket, "accept", accept)


FAULTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (open_calls_stay_open, "one tool", "each call has one result"),
    (the_model_is_left_open, "text", "the model is closed before the run has ended"),
    (a_cancellation_is_swallowed, "text", "it was swallowed"),
    (the_end_comes_twice, "text", "one terminal event: there are 2"),
    (a_finished_result_is_overwritten, "a tool that finishes", "finished work is kept"),
    (a_number_is_skipped, "text", "without a gap"),
    (a_ticket_is_forgotten, "text", "every ticket resolves"),
    (a_tool_is_leaked, "one tool", "nothing is left running"),
    (the_partial_answer_is_lost, "text", "what the model said is kept"),
    (the_note_is_missing, "one tool", "the history ends with words of the assistant"),
    (an_escalation_is_not_told, "one tool", "is ESCALATED"),
    (the_next_run_is_poisoned, "text", "the next run works"),
    (a_stop_waits_for_the_next_chunk, "one tool", "a stop now ends the run within"),
    (a_cut_is_retried, "text", "a stop now ends the run within"),
    (a_late_stop_is_accepted, "text", "accepted is told truly"),
]


@pytest.mark.parametrize(("fault", "name", "words"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_seeded_fault_is_caught(
    fault: Callable[[Patch], None], name: str, words: str, monkeypatch: Patch
) -> None:
    """At least one violation, and one that says what is wrong."""
    scenario = next(one for one in ON_ONE_LOOP if one.name == name)
    fault(monkeypatch)
    found = explore(scenario, most=MOST)
    assert any(words in one.broken for one in found.violations), found.report()
    with pytest.raises(AssertionError, match=f"{name}: .* violation"):
        found.check()
