"""Each invariant of a family of runs is awake: a lie about a child is named."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from andon import Agent, Call, Point, Stop, tool
from andon.core.items import (
    Item,
    MessageAdded,
    ModelStarted,
    RunStarted,
    StopRequested,
    ToolEnded,
    ToolStarted,
)
from andon.core.messages import ResultState
from andon.testing import Delay, Mode, Scenario, Scene, ScriptedModel, Tally
from andon.testing.invariants import broken
from andon.testing.trial import Seen, Trial


def story() -> Scene:
    """Set up a run that asks another, which uses a tool."""
    tally = Tally("look")

    @tool
    async def look() -> str:
        """Look around."""
        with tally.of("look"):
            return "nothing"

    inside = ScriptedModel(Call("look"), ["Nothing ", Delay(1), "there."])
    inner = Agent(inside, tools=[look], name="inner", instructions="Look.")
    model = ScriptedModel(Call("inner", {"request": "Look."}), ["So be it."])
    return Scene(agent=Agent(model, tools=[inner.as_tool()]), models=[model, inside], tally=tally)


def seen(stop: Stop | None = None) -> Seen:
    """See the story, stopped while the child answers."""
    mode = Mode(name="somehow", stops=() if stop is None else (stop,))
    whole = Trial(Scenario(name="story", make=story), mode).go()
    last = [
        place for place, what in enumerate(whole.boundaries) if what == "its child: TextDelta is in the log"
    ]
    return whole if stop is None else Trial(whole.scenario, mode, at_boundary=last[0]).go()


def untouched() -> Seen:
    """See it to its end."""
    return seen()


def cut() -> Seen:
    """See it cut, so that the state of the child is kept."""
    return seen(Stop.now(recursive=True))


def torn() -> Seen:
    """See it cut, with nothing kept of the child."""
    return seen(Stop.now())


def child_of(trial: Seen) -> str:
    """Give the id of the child."""
    return list(trial.family)[1]


def family(trial: Seen, run_id: str, change: Callable[[list[Item]], list[Item]]) -> None:
    """Change what was seen of one run."""
    trial.family = {**trial.family, run_id: change(list(trial.family[run_id]))}


def in_child(change: Callable[[list[Item]], list[Item]]) -> Callable[[Seen], None]:
    """Make a lie of what the child did."""
    return lambda trial: family(trial, child_of(trial), change)


def in_root(kind: type[Item], **what: object) -> Callable[[Seen], None]:
    """Make a lie of what the root did."""

    def lie(trial: Seen) -> None:
        def change(items: list[Item]) -> list[Item]:
            return [replace(one, **what) if isinstance(one, kind) and not one.path else one for one in items]

        family(trial, next(iter(trial.family)), change)

    return lie


def without(kind: type[Item]) -> Callable[[list[Item]], list[Item]]:
    """Leave items out."""
    return lambda items: [one for one in items if not isinstance(one, kind)]


LIES: list[tuple[Callable[[], Seen], Callable[[Seen], None], str]] = [
    (untouched, lambda trial: setattr(trial, "alive_at_end", ["it"]), "have ended when it has: 1 had not"),
    (untouched, in_child(lambda items: items[1:]), "a child says of which run it is one"),
    (untouched, in_child(lambda items: [*items, items[-2]]), "the terminal event of a child is its last"),
    (untouched, in_child(without(MessageAdded)), "in its child inner: the messages of the events"),
    (untouched, in_child(without(ToolEnded)), "in its child inner: each call ends exactly once"),
    (untouched, in_child(without(ToolStarted)), "the log of its parent has what the child inner did"),
    (untouched, in_child(without(ModelStarted)), "the usage of a tree adds up"),
    (cut, in_child(without(StopRequested)), "a stop that is for the child inner reaches it"),
    (cut, in_root(StopRequested, stop=Stop.at(Point.TOOLS)), "leaves its child inner undisturbed"),
    (cut, in_root(ToolEnded, again=False), "with recursive the state of what runs inside is kept"),
    (torn, in_root(ToolEnded, again=True), "what began inside inner must not begin twice"),
]


@pytest.mark.parametrize("honest", [untouched, cut, torn])
def test_the_truth_of_a_family_breaks_nothing(honest: Callable[[], Seen]) -> None:
    """What really happened is in order."""
    assert list(broken(honest())) == []


@pytest.mark.parametrize(("honest", "lie", "words"), LIES, ids=[words for *_, words in LIES])
def test_a_lie_about_a_child_is_named(
    honest: Callable[[], Seen], lie: Callable[[Seen], None], words: str
) -> None:
    """Whatever else it breaks, this is said of it."""
    trial = honest()
    lie(trial)
    assert any(words in one for one in broken(trial)), list(broken(trial))


def test_the_story_is_what_it_says() -> None:
    """Otherwise the lies would lie about something else."""
    kept, lost = cut(), torn()
    assert kept.outcome is not None
    assert kept.outcome.checkpoint is not None
    assert len(kept.outcome.checkpoint.children) == 1
    assert lost.outcome is not None
    unknown = [one.state for message in lost.outcome.messages for one in message.results]
    assert unknown == [ResultState.UNKNOWN]
    items = kept.family[child_of(kept)]
    assert isinstance(items[0], RunStarted)
    assert items[0].call_id
