"""A run that goes on is held to the one that nobody stopped: each way to differ is named."""

from collections.abc import Callable

import anyio
import pytest
from msgspec.structs import replace

from andon import Agent, Call, Message, Point, Stop, tool
from andon.core.messages import Result, ResultState
from andon.core.repair import UNKNOWN
from andon.testing import Mode, Scenario, Scene, ScriptedModel, Tally, explore
from andon.testing.again import End, differences, end_of, go_on, normal, same
from andon.testing.trial import Seen, Trial


def story() -> Scene:
    """Set up a run that asks another, which uses a tool that must not be repeated, and one that may."""
    tally = Tally("pay", again=["look"])

    @tool
    async def pay() -> str:
        """Pay."""
        with tally.of("pay"):
            await anyio.sleep(1)
        return "paid"

    @tool(idempotent=True)
    async def look() -> str:
        """Look around."""
        with tally.of("look"):
            await anyio.sleep(2)
        return "nothing"

    inside = ScriptedModel("Hm.", by_round=True)
    inner = Agent(inside, name="inner", instructions="Think.")
    calls = [Call("pay"), Call("look"), Call("inner", {"request": "Think."})]
    model = ScriptedModel(calls, "Done.", by_round=True)
    agent = Agent(model, tools=[pay, look, inner.as_tool()])
    return Scene(agent=agent, models=[model, inside], tally=tally)


SCENARIO = Scenario(name="story", make=story, resumes=True)
WHOLE = end_of(Trial(SCENARIO, Mode(name="not at all")).go())


def stopped(stop: Stop, what: str) -> Seen:
    """See the story stopped at the first boundary of a name."""
    mode = Mode(name="somehow", stops=(stop,))
    boundaries = Trial(SCENARIO, mode).go().boundaries
    return Trial(SCENARIO, mode, at_boundary=boundaries.index(what)).go()


def at_the_point() -> Seen:
    """See it stopped before its tools."""
    return stopped(Stop.at(Point.MODEL), "pull")


def cut() -> Seen:
    """See it cut in its tools."""
    return stopped(Stop.now(), "its child: ModelEnded is in the log")


def said(text: str) -> Callable[[End], End]:
    """Make a lie of the last words."""
    return lambda end: replace(end, messages=(*end.messages[:-1], Message.assistant(text)))


def result(content: str, state: ResultState) -> Callable[[End], End]:
    """Make a lie of the first result."""

    def lie(end: End) -> End:
        results = [
            replace(end.messages[2].results[0], content=content, state=state),
            *end.messages[2].results[1:],
        ]
        return replace(end, messages=(*end.messages[:2], Message("tool", tuple(results)), end.messages[3]))

    return lie


def begun(name: str, times: int) -> Callable[[End], End]:
    """Make a lie of the tally."""
    return lambda end: replace(end, begun={**end.begun, name: times})


THE_SAME = "a resumed run has the history of one that nobody stopped"
LIES: list[tuple[Callable[[], Seen], Callable[[End], End], str]] = [
    (at_the_point, lambda end: replace(end, stop_reason="limit"), "ends as end_turn: it ended as limit"),
    (at_the_point, said("Never."), f"{THE_SAME}: message 3 is"),
    (
        at_the_point,
        lambda end: replace(end, messages=end.messages[:2]),
        f"{THE_SAME}: it has 2 messages, not 4",
    ),
    (at_the_point, result(UNKNOWN, ResultState.UNKNOWN), f"{THE_SAME}: message 2 is"),
    (
        at_the_point,
        begun("pay", 2),
        "what must not be repeated is not: pay began 2 times over all, 1 are due",
    ),
    (at_the_point, begun("pay", 0), "pay began 0 times over all, 1 are due"),
    (at_the_point, lambda end: replace(end, asked=9), "no model is asked again"),
    (at_the_point, lambda end: replace(end, inside=()), "the histories inside a resumed run"),
    (at_the_point, lambda end: replace(end, broken=("oh",)), "once it has gone on: oh"),
    (cut, said("Never."), f"{THE_SAME}: message 3 is"),
    (cut, result("lost", ResultState.FAILED), f"{THE_SAME}: message 2 is"),
    (cut, begun("pay", 1), "what must not be repeated is not: pay began 2 times"),
]


@pytest.mark.parametrize("honest", [at_the_point, cut])
def test_a_run_that_goes_on_ends_as_if_nobody_had_stopped_it(honest: Callable[[], Seen]) -> None:
    """What was cut and is not known is forgiven."""
    assert list(differences(WHOLE, honest(), go_on)) == []


@pytest.mark.parametrize(
    ("honest", "lie", "words"), LIES, ids=[f"{lie[0].__name__}: {lie[2]}" for lie in LIES]
)
def test_each_way_to_end_otherwise_is_named(
    honest: Callable[[], Seen], lie: Callable[[End], End], words: str
) -> None:
    """A lie about how it went on."""
    trial = honest()
    found = list(differences(WHOLE, trial, lambda scenario, saved: lie(go_on(scenario, saved))))
    assert any(words in one for one in found), found


def test_what_may_be_repeated_may_begin_more_often() -> None:
    """Only its side effects are not counted."""

    def resume(scenario: Scenario, saved: bytes) -> End:
        return begun("look", 9)(go_on(scenario, saved))

    assert list(differences(WHOLE, cut(), resume)) == []


def test_a_stopped_run_without_a_checkpoint_is_named() -> None:
    """There is nothing to go on from."""
    trial = at_the_point()
    assert trial.outcome is not None
    trial.outcome = replace(trial.outcome, checkpoint=None)
    assert list(differences(WHOLE, trial, go_on)) == [
        "a run that ended as cancelled can be resumed: it has no checkpoint"
    ]


def test_the_same_checkpoint_is_resumed_once() -> None:
    """Up to the names of runs, of which each has its own."""
    resumed: list[bytes] = []

    def resume(scenario: Scenario, saved: bytes) -> End:
        resumed.append(same(saved))
        return go_on(scenario, saved)

    found = explore(SCENARIO, modes=[Mode(name="at MODEL", stops=(Stop.at(Point.MODEL),))], resume=resume)
    found.check()
    assert found.resumed == len(resumed) == len(set(resumed)) == 1


def test_calls_are_named_by_their_order() -> None:
    """Their ids hold the id of the run, which differs."""

    def told(call_id: str) -> list[Message]:
        return [
            Message.user("Go."),
            Message.assistant(Call("pay", id=call_id)),
            Message("tool", (Result(call_id, "pay", "paid"),)),
        ]

    assert normal(told("call_0a_1_0")) == normal(told("call_7f_2_0"))
