"""A live run, folded from what its worker has written: the same at every item, and whole after a crash.

The story is a tree of three agents that asks a human twice; every item of it is looked at, and at every
item a worker dies. What a run says at its end to make its history whole is written with that end, at once.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache, partial

import pytest

from andon import Agent, Call, Outcome, Point, Stop, tool
from andon.core.checkpoint import Checkpoint
from andon.core.fold import State
from andon.core.items import (
    Answered,
    Interrupted,
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    RunStarted,
    ToolStarted,
)
from andon.core.journal import Entry, HandedOver
from andon.core.limits import Limits
from andon.core.messages import Message, ResultState
from andon.core.repair import unknown
from andon.core.stop import Where
from andon.core.tree import interrupts
from andon.ports import Observer
from andon.testing import ScriptedModel
from tests.core.recorded import Book, Worker, reply, resume, said, sealed
from tests.runtime.tree_of_three import Tree

Snapshot = tuple[Entry, Counter[str]]
STOPS = [
    Stop.at(Point.MODEL, recursive=True),
    Stop.graceful(),
    Stop.gently(),
    Stop.now(),
    Stop.now(recursive=True),
]


class Story:
    """One session of the tree, from its prompt to its answer; what was done is noted at each item."""

    def __init__(self, entries: Sequence[Entry] = (), counts: Counter[str] | None = None) -> None:
        self.book = Book(entries)
        self.counts: Counter[str] = Counter(counts)
        self.notes: list[Counter[str]] = [Counter(self.counts) for _ in entries]
        self.again = False

    def work(self, stop: Stop | None = None, step: int = 0) -> Outcome:
        """Let a new worker carry a run to its end; at every item, what is read is what was written."""
        worker = Worker(self.book, self._root)

        def compare(_item: Item) -> None:
            self._note()
            live = self.book.state.live
            assert worker.whole is not None
            if live is not None:
                assert facts(live.state) == facts(worker.whole)

        worker.after = compare
        outcome = worker.work(stop, step)
        waiting = self.book.state.waiting
        assert self.book.state.messages == list(outcome.messages)
        assert (waiting and waiting.checkpoint) == outcome.checkpoint
        return outcome

    def begin(self) -> "Story":
        """Ask."""
        self.book.tell(said("go", "r1"))
        self._note()
        return self

    def to_the_end(self) -> Outcome | None:
        """Work, answer and resume until there is nothing left to do."""
        outcome = None
        while (state := self.book.state).has_work or state.waiting is not None:
            if state.waiting is not None and not state.has_work:
                name = f"r{state.n}"
                asks = bool(state.waiting.interrupts)
                self.book.tell(reply(state.waiting, name, **{"first?": "A"}) if asks else resume(name))
                self._note()
            outcome = self.work()
            assert outcome.stop_reason != "error", outcome.error
        return outcome

    def _root(self, observer: Observer) -> Agent:
        return Tree(self.counts, observers=[observer], again=self.again).root

    def _note(self) -> None:
        missing = len(self.book.entries) - len(self.notes)
        self.notes += [Counter(self.counts) for _ in range(missing)]


def facts(state: State) -> dict[str, object]:
    """All that a state says of what has happened and what comes next."""
    names = ("messages", "results", "calls", "asked", "again", "steps", "next", "started", "repeated")
    return {**{name: getattr(state, name) for name in names}, "spent": state.spent()}


@cache
def told(*, again: bool) -> Story:
    """The story that nobody disturbs."""
    story = Story()
    story.again = again
    story.begin().to_the_end()
    return story


def crashes(story: Story) -> list[int]:
    """Say behind which entries a worker may die with something left to do."""
    whole = sealed(story.book.entries)
    return [place for place in range(1, len(story.book.entries)) if place not in whole]


def crashed(story: Story, place: int) -> Story:
    """Let the worker die behind an entry: what it had done is done, and what it knew is forgotten."""
    other = Story(story.book.entries[:place], story.notes[place - 1])
    other.again = story.again
    return other


def unanswered(entries: Sequence[Entry]) -> int:
    """Count the model calls whose answers are not in the journal."""
    asked: set[tuple[str, ...]] = set()
    for entry in entries:
        if isinstance(entry, ModelStarted):
            asked.add(entry.path)
        elif isinstance(entry, MessageAdded):
            asked.discard(entry.path)
    return len(asked)


def test_a_session_is_read_as_it_was_written_at_every_item() -> None:
    """The messages, results, questions and costs; tools, runs inside, questions and answers among them."""
    story = told(again=False)
    assert story.book.state.messages[-1].text == "All is done."
    assert [row.state for row in story.book.state.ended.values()] == [
        "interrupted",
        "interrupted",
        "finished",
    ]
    assert len(story.book.entries) > 100
    assert {times for name, times in story.counts.items() if name != "read"} == {1}
    again = Book(story.book.entries)
    assert facts_of(again) == facts_of(story.book)


def facts_of(book: Book) -> tuple[object, ...]:
    """What a session has come to."""
    state = book.state
    return state.n, state.messages, state.ended, state.fates, state.waiting, state.queue


@pytest.mark.parametrize("stop", STOPS, ids=repr)
@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_run_that_was_stopped_is_read_as_it_was_written_and_resumed(stop: Stop, part: int) -> None:
    """Wherever it was stopped, whether it had begun or had gone on with an answer."""
    for step in range(0, 60, 7):
        story = Story().begin()
        for number in range(part):
            outcome = story.work()
            assert story.book.state.waiting is not None, outcome
            story.book.tell(reply(story.book.state.waiting, f"p{number}", **{"first?": "A"}))
        story.work(stop, step)
        ended = story.to_the_end()
        assert ended is None or ended.text == "All is done."
        assert story.book.state.messages[-1].text == "All is done."
        assert {name: n for name, n in story.counts.items() if n > 1 and "pay" in name} == {}


def test_a_crash_at_any_item_leaves_the_same_history_where_tools_are_idempotent() -> None:
    """No model whose answer is stored is asked again, and no tool that has ended runs again."""
    story = told(again=True)
    finished = Counter[str]()
    for place in crashes(story):
        other = crashed(story, place)
        before = other.book.entries[:place]
        other.to_the_end()
        assert other.book.state.messages == story.book.state.messages, place
        more = other.counts - story.counts
        models = sum(times for name, times in more.items() if "model" in name)
        tools = sum(times for name, times in more.items() if "model" not in name)
        assert models <= unanswered(before), (place, more)
        assert tools <= len(_open_tools(before)), (place, more)
        finished += more
    assert finished  # something was in flight, somewhere


def _open_tools(entries: Sequence[Entry]) -> set[tuple[object, ...]]:
    open_: set[tuple[object, ...]] = set()
    for entry in entries:
        if isinstance(entry, ToolStarted):
            open_.add((entry.path, entry.call_id))
        elif isinstance(entry, MessageAdded) and entry.message.role == "tool":
            open_ = {one for one in open_ if one[0] != entry.path}
        elif getattr(entry, "call_id", None) is not None and not isinstance(entry, RunStarted):
            open_.discard((entry.path, getattr(entry, "call_id", "")))  # type: ignore[union-attr]
    return open_


def test_a_crash_at_any_item_does_nothing_twice_and_tells_the_truth() -> None:
    """What had begun and must not begin twice is unknown; a run inside goes on, at any depth."""
    story = told(again=False)
    unknown = Counter[str]()
    for place in crashes(story):
        other = crashed(story, place)
        other.to_the_end()
        twice = {n: t for n, t in other.counts.items() if t > 1 and "model" not in n and n != "read"}
        assert twice == {}, place
        assert other.book.state.messages[-1].text == "All is done."
        for ours, theirs in zip(other.book.state.messages, story.book.state.messages, strict=True):
            for mine, its in zip(ours.results, theirs.results, strict=True):
                assert mine == its or mine.state is ResultState.UNKNOWN, place
                unknown[mine.name] += mine != its
    # An agent goes on inside; plain code around one does not, as the journal does not know what else it did.
    assert set(unknown) == {"pay", "wrap", "leave_to"}
    assert unknown["leave_to"] == 0
    assert unknown["pay"]
    assert unknown["wrap"]


def test_a_crash_of_the_worker_that_goes_on_after_a_crash_changes_nothing_more() -> None:
    """Dying again and again, it comes to the same end."""
    story = told(again=True)
    for place in crashes(story)[::6]:
        other = crashed(story, place)
        if other.book.state.live is None:
            continue
        other.work()
        for later in range(place + 1, len(other.book.entries), 9):
            if later in sealed(other.book.entries):
                continue
            third = crashed(other, later)
            third.to_the_end()
            assert third.book.state.messages == story.book.state.messages, (place, later)


def test_what_a_run_was_asked_is_not_lost_where_only_its_start_was_written() -> None:
    """The prompt and the conversation before it, its note of a stop included."""
    story = Story(told(again=False).book.entries)
    story.book.tell(said("And now?", "more"))
    note = Message("assistant", Message.assistant("Cancelled by user").parts, synthetic=True, cut=True)
    story.book.state.messages.append(note)
    history = list(story.book.state.messages)
    story.book.write(RunStarted(run_id="more", agent="root"))
    live = story.book.state.live
    assert live is not None
    left = live.checkpoint("root")
    assert left.messages == (*history, Message.user("And now?"))
    assert left.partial is None
    story.book.write(MessageAdded(message=Message.user("And now?")))
    assert live.checkpoint("root").messages == left.messages


def test_an_answer_is_not_lost_where_only_the_start_was_written() -> None:
    """It was given once, and nobody is asked again what was answered."""
    story = Story().begin()
    story.work()
    waiting = story.book.state.waiting
    assert waiting is not None
    story.book.tell(reply(waiting, "on", **{"first?": "A"}))
    story.book.write(RunStarted(run_id="on", agent="root", checkpoint=waiting.checkpoint))
    story.to_the_end()
    assert story.book.state.messages == told(again=False).book.state.messages
    assert len(story.book.state.ended) == len(told(again=False).book.state.ended)


def in_a_call(*more: Entry) -> Checkpoint:
    """What a run goes on from whose worker has died in the middle of a call."""
    book = Book()
    book.tell(said("go", "r1"))
    book.write(RunStarted(run_id="r1", agent="root"))
    book.write(MessageAdded(message=Message.user("go")))
    book.write(MessageAdded(message=Message.assistant(Call("pay", {}, "c"))))
    for entry in (ToolStarted(call_id="c", name="pay"), *more):
        book.write(entry)
    assert book.state.live is not None
    return book.state.live.checkpoint("root")


def test_a_call_that_was_under_way_is_unknown_unless_its_tool_says_that_it_may_begin_again() -> None:
    """Also one that had gone on with an answer: nobody knows how far it came."""
    left = in_a_call()
    assert left.results == (unknown(Call("pay", {}, "c")),)
    assert left.children == {"c": ()}
    asked = Interrupted(id="q", site="tool:c", payload="may I?")
    answered_then = in_a_call(asked, Answered(id="q", answer="yes"))
    assert answered_then.results == left.results
    inside = RunStarted(run_id="x", agent="side", call_id="c", path=("x",))
    begun = MessageAdded(message=Message.user("look"), path=("x",))
    deep = in_a_call(inside, begun)
    assert deep.results == left.results
    assert [child.messages for child in deep.children["c"]] == [(Message.user("look"),)]


def test_a_call_that_waits_for_a_human_goes_on_with_the_answer() -> None:
    """It does nothing meanwhile; nor does one inside which a run waits."""
    left = in_a_call(Interrupted(id="q", site="tool:c", payload="may I?"))
    assert (left.results, left.children) == ((), {"c": ()})
    assert [one.payload for one in interrupts(left)] == ["may I?"]
    deep = in_a_call(
        RunStarted(run_id="x", agent="side", call_id="c", path=("x",)),
        MessageAdded(message=Message.user("look"), path=("x",)),
        Interrupted(id="q", site="before_model", payload="may I?", path=("x",)),
    )
    assert deep.results == ()
    assert [one.payload for one in interrupts(deep)] == ["may I?"]


def test_limits_hold_for_a_run_that_goes_on() -> None:
    """After a crash, and after an answer: what was bounded stays so."""
    story = Story()
    limits = Limits(model_calls=40)
    bounded = said("go", "r1")
    story.book.tell(type(bounded)(id="c", at=1.0, run_id="r1", message=bounded.message, limits=limits))
    story.work()
    waiting = story.book.state.waiting
    assert waiting is not None
    assert waiting.limits == limits
    story.book.tell(reply(waiting, "on"))
    ready = story.book.state.ready
    assert ready is not None
    assert ready.limits == limits
    story.book.write(RunStarted(run_id="on", agent="root", checkpoint=ready.checkpoint))
    assert story.book.state.live is not None
    assert story.book.state.live.limits == limits


# Handed over


def test_a_run_that_is_handed_over_goes_on_where_it_was_left_and_nobody_has_died() -> None:
    """By its checkpoint, inside its children; its stop, if it had one, is not weaker for it."""
    story = Story().begin()
    first = Worker(story.book, partial(_tree, story))
    outcome = first.work(Stop.graceful(), step=30)
    assert outcome.cancelled is not None
    assert outcome.cancelled.stopped_at is not Where.BEFORE_START
    assert outcome.checkpoint is not None
    whole = min(sealed(story.book.entries), default=len(story.book.entries))
    other = Story(story.book.entries[: whole - 1], story.counts)
    other.book.write(HandedOver(run_id="r1", checkpoint=outcome.checkpoint))
    live = other.book.state.live
    assert live is not None
    assert live.checkpoint("root", *_of(outcome)).children == outcome.checkpoint.children
    other.book.write(RunStarted(run_id="r1", agent="root", checkpoint=outcome.checkpoint))
    assert live.deaths == 0
    live.stop = None  # it was the shutdown's, which no journal holds
    other.to_the_end()
    assert other.book.state.messages == told(again=False).book.state.messages


def _tree(story: Story, observer: Observer) -> Agent:
    return Tree(story.counts, observers=[observer]).root


def _of(outcome: Outcome) -> tuple[str, tuple[str, ...]]:
    assert outcome.checkpoint is not None
    return outcome.checkpoint.model, outcome.checkpoint.tools


# Runs inside


def test_the_runs_inside_a_call_are_forgotten_when_it_has_ended() -> None:
    """At every depth; what is live in a call that has not ended is known."""
    seen: set[int] = set()
    book = Book()
    for entry in told(again=False).book.entries:
        book.state.apply(entry)
        live = book.state.live
        if live is not None:
            seen.add(len(live.inside))
            assert not live.inside or live.state.pending
    assert seen == {0, 1, 2}


def test_a_run_in_a_hook_does_not_go_on() -> None:
    """It is aside: nothing waits for it."""
    story = Story().begin()
    story.book.write(RunStarted(run_id="r1", agent="root"))
    story.book.write(RunStarted(run_id="x", agent="judge", path=("x",)))
    story.book.write(MessageAdded(message=Message.user("Is it good?"), path=("x",)))
    story.book.write(ModelStarted(step=1, path=("x",)))
    story.book.write(ModelEnded(step=1, path=("x",)))
    live = story.book.state.live
    assert live is not None
    assert live.inside == {}
    assert live.state.spent().model_calls == 1


def test_a_tool_that_had_started_two_agents_goes_on_inside_both() -> None:
    """Also if the worker dies again before it has come to the second."""

    def agent(observer: Observer) -> Agent:
        def one(name: str) -> Agent:
            replies = [[Call("look", {}, f"{name}1")], [f"{name} is done."]]
            return Agent(ScriptedModel(*replies, by_round=True, name=name), tools=[look], name=name)

        first, second = one("first"), one("second")

        @tool(idempotent=True)
        async def both() -> str:
            """Ask one after the other."""
            return (await first.run("go")).text + (await second.run("go")).text

        model = ScriptedModel([Call("both", {}, "b")], ["Done."], by_round=True, name="root_model")
        return Agent(model, tools=[both], name="root", observers=[observer])

    @tool(idempotent=True)
    async def look() -> str:
        """Look."""
        return "red"

    book = Book()
    book.tell(said("go", "r1"))
    Worker(book, agent).work()
    ends = book.state.messages
    for place in range(1, len(book.entries) - 1):
        other = Book(book.entries[:place])
        Worker(other, agent).work()
        assert other.state.messages == ends
        for later in range(place + 1, len(other.entries) - 1):
            third = Book(other.entries[:later])
            Worker(third, agent).work()
            assert third.state.messages == ends
            asked = [one for one in third.entries if isinstance(one, ModelStarted)]
            assert len(asked) <= 6 + 2, (place, later)  # one in flight at each death
