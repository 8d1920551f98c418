"""Resume of a tree: stopped anywhere, as often as you like, it goes on inside its deepest child.

Every fifth step is swept; with ANDON_EXPLORE=full in the environment, every one.
"""

import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial

import pytest

from andon import Outcome, Point, Run, Stop
from andon.core.checkpoint import Checkpoint
from andon.core.items import Event, MessageAdded
from andon.core.messages import ResultState
from andon.testing import VirtualLoop, run_virtual
from tests.runtime.tree_of_three import Order, Tree, in_new_process
from tests.whole import check

EVERY = 1 if os.environ.get("ANDON_EXPLORE") == "full" else 5  # of so many places, one is stopped at

ANSWERS = {"first?": "A"}  # what the human says to each question; to all others it is B

AT_POINTS = [
    Stop.at(Point.MODEL),
    Stop.at(Point.TOOLS),
    Stop.at(Point.MODEL, recursive=True),
    Stop.at(Point.TOOLS, recursive=True),
    Stop.graceful(),
]
IN_MODELS = [Stop.gently(), Stop.at(Point.STREAM, recursive=True)]
BY_FORCE = [Stop.now(), Stop.now(recursive=True), Stop.at(Point.ANY, grace=0.15), Stop.graceful(grace=0.15)]

# What each call of the tree, by its id, stands for.
EFFECTS: Mapping[str, Sequence[str]] = {
    "r1": ["pay root 1"],
    "r2": ["pay middle 1", "pay middle 2", "pay leaf 1", "ask"],
    "r3": ["pay side 1", "wrap"],
    "r4": ["pay root 2"],
    "m2": ["pay leaf 1", "ask"],
    "m3": ["pay middle 1"],
    "m4": ["pay middle 2"],
    "l1": ["pay leaf 1"],
    "l2": ["ask"],
    "s1": ["pay side 1"],
}
ONCE = frozenset(effect for effects in EFFECTS.values() for effect in effects)


class Story:
    """One tree from its prompt to its end, through any number of stops; each part has fresh agents."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.steps = 0

    def begin(self, stop: Stop | None = None, step: int = 0) -> Outcome:
        """Run until something ends it."""
        return self._part(Tree(self.counts).root.start("go"), stop, step)

    def go_on(self, outcome: Outcome, stop: Stop | None = None, step: int = 0) -> Outcome:
        """Go on from the JSON of a checkpoint, with an answer to every question."""
        assert outcome.checkpoint is not None
        saved = outcome.checkpoint.to_json()
        assert Checkpoint.from_json(saved) == outcome.checkpoint
        run = Tree(self.counts).root.start_from(saved, answers=answers(outcome))
        return self._part(run, stop, step)

    def stopped(self, stop: Stop, part: int, step: int) -> Outcome:
        """Stop it at one step of one part: the first, or one that goes on with an answer."""
        outcome = self.begin(stop, step) if not part else self.begin()
        for number in range(1, part + 1):
            outcome = self.go_on(outcome, stop, step) if number == part else self.go_on(outcome)
        return outcome

    def to_the_end(self, outcome: Outcome) -> Outcome:
        """Go on, with nobody stopping it, to the final answer."""
        for _ in range(4):
            if outcome.stop_reason == "end_turn":
                return outcome
            assert outcome.stop_reason in {"cancelled", "interrupt"}, outcome.error
            outcome = self.go_on(outcome)
        pytest.fail(f"it never ends: {outcome}")

    def _part(self, run: Run, stop: Stop | None, step: int) -> Outcome:
        loop = VirtualLoop()

        async def main() -> Outcome:
            first = loop.steps
            if stop is not None:
                loop.before_step = partial(_cancel_at, first + step, run, stop)
            async with run:
                outcome = await run.outcome()
                events = [event async for event in run]
            self.steps = loop.steps - first
            check(events, outcome)
            self._tells_the_truth(events)
            return outcome

        return run_virtual(main, loop=loop)

    def _tells_the_truth(self, events: Sequence[Event]) -> None:
        """Hold every result, of the root and of its children, to what the tools counted themselves."""
        added = [event.message for event in events if isinstance(event, MessageAdded)]
        for result in [result for message in added for result in message.results]:
            done = [self.counts[effect] for effect in EFFECTS.get(result.call_id, ())]
            assert result.state is not ResultState.FAILED, result
            assert result.state is not ResultState.NOT_STARTED or not any(done), (result, done)
            assert result.state is not ResultState.COMPLETED or all(done), (result, done)

    def nothing_was_done_twice(self) -> None:
        """Hold every tool that is not idempotent to one use."""
        assert {name: times for name, times in self.counts.items() if name in ONCE and times > 1} == {}


def _cancel_at(step: int, run: Run, stop: Stop, now: int) -> None:
    if now == step:
        run.cancel(stop)


def answers(outcome: Outcome) -> dict[str, str]:
    """What the human says."""
    return {one.id: ANSWERS.get(str(one.payload), "B") for one in outcome.interrupts}


@cache
def undisturbed() -> tuple[Outcome, Counter[str], list[tuple[int, int]]]:
    """The story that nobody stops: its end, its counts, and the places where it may be stopped."""
    story = Story()
    outcome = story.begin()
    places = [(0, step) for step in range(story.steps)]
    for part in (1, 2):
        outcome = story.go_on(outcome)
        places += [(part, step) for step in range(story.steps)]
    return outcome, story.counts, places


def test_the_story_that_nobody_stops_does_all_that_it_has_to_once() -> None:
    """So that what is compared with it says something."""
    outcome, counts, places = undisturbed()
    assert outcome.text == "All is done."
    assert [[result.content for result in message.results] for message in outcome.messages] == [
        [],
        [],
        ["paid root 1", "The middle is done."],
        [],
        ["The side is done.", "paid root 2"],
        [],
    ]
    assert {counts[name] for name in ONCE} == {1}
    assert {times for name, times in counts.items() if "model" in name} == {1}
    assert counts["middle model 2, shown 6"] == 1  # its parent's first message among them
    assert (outcome.usage.model_calls, outcome.usage.tool_calls) == (11, 12)
    assert len(places) > 150


@pytest.mark.parametrize("stop", AT_POINTS, ids=repr)
def test_stopped_at_a_point_asked_for_at_any_step_it_ends_as_if_nobody_had(stop: Stop) -> None:
    """The same history, the same counts: no model is asked again, no tool runs again."""
    outcome, counts, places = undisturbed()
    for place in places[::EVERY]:
        story = Story()
        ended = story.to_the_end(story.stopped(stop, *place))
        assert ended.messages == outcome.messages, place
        assert ended.usage == outcome.usage, place
        assert story.counts == counts, place


@pytest.mark.parametrize("stop", IN_MODELS, ids=repr)
def test_stopped_in_a_model_only_that_model_is_asked_again(stop: Stop) -> None:
    """The same history; no tool runs again, and one model at most answers twice."""
    outcome, counts, places = undisturbed()
    for place in places[::EVERY]:
        story = Story()
        ended = story.to_the_end(story.stopped(stop, *place))
        assert ended.messages == outcome.messages, place
        more = story.counts - counts
        assert sum(more.values()) <= 1, place
        assert all("model" in name for name in more), place


@pytest.mark.parametrize("stop", BY_FORCE, ids=repr)
def test_stopped_by_force_at_any_step_it_ends_and_differs_only_in_what_is_unknown(stop: Stop) -> None:
    """Nothing is done twice; every result that is not the same says that it is not known."""
    outcome, _, places = undisturbed()
    for place in places[::EVERY]:
        story = Story()
        ended = story.to_the_end(story.stopped(stop, *place))
        story.nothing_was_done_twice()
        assert ended.text == outcome.text
        for ours, theirs in zip(ended.messages, outcome.messages, strict=True):
            for mine, other in zip(ours.results, theirs.results, strict=True):
                assert mine == other or mine.state is ResultState.UNKNOWN, place


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("pool", ["points", "all"])
def test_stopped_and_resumed_many_times_it_still_ends_so(seed: int, pool: str) -> None:
    """Up to eight stops of any kind, at any steps, one after the other, questions in between."""
    chance = random.Random(seed)  # noqa: S311 — a story, not a secret
    stops = AT_POINTS if pool == "points" else [*AT_POINTS, *IN_MODELS, *BY_FORCE]
    outcome, counts, places = undisturbed()
    story = Story()
    ended = story.stopped(chance.choice(stops), *chance.choice(places))
    for _ in range(chance.randrange(8)):
        if ended.stop_reason != "end_turn":
            ended = story.go_on(ended, chance.choice(stops), chance.randrange(80))
    ended = story.to_the_end(ended)
    story.nothing_was_done_twice()
    assert ended.text == outcome.text
    if pool == "points":
        assert (ended.messages, ended.usage) == (outcome.messages, outcome.usage)
        assert story.counts == counts


@pytest.mark.parametrize("stop", [Stop.graceful(), Stop.now(recursive=True), Stop.now()], ids=repr)
def test_in_a_new_process_it_ends_as_it_would_have_here(stop: Stop) -> None:
    """The checkpoint of every step, as JSON over stdin; what was done here is not done there."""
    _, _, places = undisturbed()
    begun = [(story := Story(), story.stopped(stop, *place)) for place in places[::EVERY]]
    stories = [(story, outcome) for story, outcome in begun if outcome.checkpoint is not None]
    assert len(stories) > 20

    async def there() -> list[tuple[Outcome, dict[str, int]]]:
        return [
            (told.outcome, told.counts)
            for told in await in_new_process(*(order(outcome) for _, outcome in stories))
            if told.outcome is not None
        ]

    for (story, outcome), (ended, counts) in zip(stories, run_virtual(there), strict=True):
        before = Counter(story.counts)
        here = story.go_on(outcome)
        assert (ended.stop_reason, ended.messages) == (here.stop_reason, here.messages)
        assert ended.usage == here.usage
        assert [(one.payload, one.path) for one in ended.interrupts] == [
            (one.payload, one.path) for one in here.interrupts
        ]
        assert counts == story.counts - before


def order(outcome: Outcome) -> Order:
    """What the other process is told."""
    assert outcome.checkpoint is not None
    return Order(checkpoint=outcome.checkpoint.to_json().decode(), answers=answers(outcome))
