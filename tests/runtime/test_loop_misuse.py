"""Misuse of a turn loop: each error says what, which, and what now, and nothing changes."""

from collections.abc import Sequence
from typing import Any

import pytest

from andon import Agent, Message, Point, Preempt, Stop, Turn, TurnLoop
from andon.core.stop import MAX_REASON
from andon.errors import UserError
from andon.runtime.loop import MOST_ID
from andon.runtime.turn import Planning
from andon.testing import Gate, ScriptedModel, virtual
from tests.belt import Belt
from tests.stores import MemoryStore


def plan(_about: Planning[str], items: Sequence[str]) -> Turn[str]:
    """Take all."""
    return Turn("go", consumed=items)


def prepare(_about: Planning[str], _consumed: Sequence[str]) -> Agent:
    """Give an agent."""
    return Agent(ScriptedModel("Done."))


def made(**options: Any) -> TurnLoop[str]:  # noqa: ANN401 — whatever a caller may write
    """A loop with these options."""
    given: dict[str, Any] = {"gen_input": plan, "prepare_agent": prepare}
    return TurnLoop(**(given | options))


# When it is made


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"gen_input": None}, TypeError, "gen_input is None: give a function, plain or async"),
        ({"prepare_agent": None}, TypeError, "prepare_agent is None: give a function, plain or async"),
        (
            {"prepare_agent": Agent(ScriptedModel())},
            TypeError,
            "prepare_agent is <Agent agent, 0 live>: give",
        ),
        ({"on_events": "print"}, TypeError, "on_events is 'print': give a function"),
        ({"gen_resume": 7}, TypeError, "gen_resume is 7: give a function"),
        ({"on_preempt": "keep"}, ValueError, 'on_preempt is \'keep\': it is "discard" or "requeue"'),
        ({"checkpoint_id": ""}, ValueError, "checkpoint_id has 0 characters: give 1 to 200"),
        ({"checkpoint_id": "x" * (MOST_ID + 1)}, ValueError, "checkpoint_id has 201 characters"),
        ({"codec": Gate}, TypeError, "codec is <class 'andon.testing.gates.Gate'>, which is no JSON"),
        ({"codec": 7}, TypeError, "codec is 7, which is no JSON"),
        (
            {"store": object(), "checkpoint_id": "id"},
            UserError,
            "the store has no get and no set and no delete",
        ),
    ],
)
def test_a_loop_that_could_not_work_is_not_made(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """With or without a store."""
    with pytest.raises(error) as told:
        made(**options)
    assert words in str(told.value)


def test_required_callbacks_cannot_be_left_out() -> None:
    """Python names the one that is missing."""
    with pytest.raises(TypeError, match="gen_input"):
        TurnLoop(prepare_agent=prepare)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="prepare_agent"):
        TurnLoop(gen_input=plan)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_a_loop_with_all_its_options_is_made() -> None:
    """At the bounds; an id without a store, and a store without an id, keep nothing and are no error."""
    made(codec=Message, on_preempt="requeue", checkpoint_id="x" * MOST_ID, store=MemoryStore())
    made(checkpoint_id="id")
    made(store=MemoryStore(), on_events=None, gen_resume=None)


# When it is pushed to


def preempts(*_: object) -> Preempt:
    """A strategy."""
    return Preempt(Point.ANY)


def no_preempt(*_: object) -> bool:
    """A strategy that returns what is none."""
    return True


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"preempt": Preempt(Point.ANY), "strategy": preempts},
            ValueError,
            "a push has a preempt or a strategy that decides on one: give one of them; nothing was pushed",
        ),
        (
            {"preempt": Point.ANY},
            TypeError,
            "preempt is <Point.ANY: 6>: give a Preempt, such as Preempt(Point.T",
        ),
        ({"preempt": Stop.now()}, TypeError, "preempt is Stop(now): give a Preempt"),
        ({"strategy": no_preempt}, TypeError, "what the strategy returned is True: give a Preempt"),
        ({"item": object()}, UserError, "cannot be kept as JSON (Encoding objects of type object is unsup"),
    ],
)
def test_a_push_that_cannot_be_is_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Nothing was pushed."""
    loop = made(store=MemoryStore(), checkpoint_id="id")
    options.setdefault("item", "a")
    with pytest.raises(error) as told:
        loop.push(**options)
    assert words in str(told.value)
    assert repr(loop) == "<TurnLoop loop, new, turn 0, 0 waiting>"


class StrategyError(Exception):
    """A strategy's own."""


@virtual
async def test_what_a_strategy_raises_is_the_pushers() -> None:
    """Nothing was pushed, and the loop goes on."""

    def decide(*_: object) -> Preempt:
        raise StrategyError

    belt = Belt()
    async with belt.loop:
        with pytest.raises(StrategyError):
            belt.loop.push("a", strategy=decide)
        belt.loop.push("b")
    assert belt.given == [["b"]]


# When it is stopped


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"stop": Stop.now(), "when_idle_for": 1},
            ValueError,
            "when_idle_for waits for the turns to end, and a stop cancels one: give one of them",
        ),
        ({"when_idle_for": "1"}, TypeError, "when_idle_for is '1': give a number of seconds"),
        ({"when_idle_for": True}, TypeError, "when_idle_for is True: give a number of seconds"),
        ({"stop": "now"}, TypeError, "stop is 'now': give a Stop, such as Stop.now()"),
        ({"cause": "x" * (MAX_REASON + 1)}, ValueError, "reason has 1001 characters, 1000 are allowed"),
        ({"cause": 7}, TypeError, "reason is 7: give text"),
    ],
)
def test_a_stop_that_cannot_be_is_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Nothing was asked."""
    loop = made()
    with pytest.raises(error) as told:
        loop.stop(skip_checkpoint=True, **options)
    assert words in str(told.value)
    assert repr(loop) == "<TurnLoop loop, new, turn 0, 0 waiting>"
    assert not loop._desk.state.skip_checkpoint  # pyright: ignore[reportPrivateUsage]


# What its callbacks return


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (None, "gen_input returned None: return a Turn, with what is consumed, remaining or dropped"),
        (Turn("go", consumed=["a", "b", "x"]), "returned items that it was not given, or twice: ['x']"),
        (Turn("go", consumed=["a", "b"], dropped=["a"]), "was not given, or twice: ['a']"),
        (Turn("go", consumed=["a"]), "gen_input left items out: ['b']; name them in consumed"),
        (Turn("go", remaining=["a", "b"]), "consumed and dropped nothing of 2 items, and would be asked"),
        (Turn(consumed=["a", "b"]), "there is nothing to answer: give a prompt, or messages"),
        (Turn(["go", 7], consumed=["a", "b"]), "the prompt holds a int: give texts"),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    ],
)
@virtual
async def test_a_turn_that_cannot_be_ends_the_loop(turn: Turn[str] | None, words: str) -> None:
    """The error is the exit's reason, and no item is lost."""

    def gen_input(*_: object) -> Turn[str] | None:
        return turn

    belt = Belt(gen_input=gen_input)
    belt.loop.push("a")
    belt.loop.push("b")
    exit_ = await belt.loop.run()
    assert isinstance(exit_.reason, UserError)
    assert words in str(exit_.reason)
    assert exit_.unhandled == ("a", "b")


def no_agent(*_: object) -> str:
    """Prepare no agent."""
    return "an agent"


@virtual
async def test_what_is_no_agent_ends_the_loop() -> None:
    """It says what to return."""
    belt = Belt(prepare_agent=no_agent)
    belt.loop.push("a")
    exit_ = await belt.loop.run()
    assert isinstance(exit_.reason, UserError)
    assert str(exit_.reason) == "prepare_agent returned 'an agent': return an Agent"
    assert exit_.unhandled == ("a",)


def ready(*_: object) -> Agent:
    """Prepare an agent."""
    return Agent(ScriptedModel("Done."))


class Same:
    """Items that are equal to each other, and cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same)


@virtual
async def test_items_that_are_equal_are_told_apart_by_their_number() -> None:
    """An equal one stands for one that was given, and for no second one."""
    given: list[int] = []

    def gen_input(_about: Planning[Same], items: Sequence[Same]) -> Turn[Same]:
        given.append(len(items))
        return Turn("go", consumed=[Same()], remaining=[Same() for _ in items[1:]])

    loop = TurnLoop[Same](gen_input=gen_input, prepare_agent=ready)
    for _ in range(3):
        loop.push(Same())
    async with loop:
        pass
    assert (await loop.wait()).reason is None
    assert given == [3, 2, 1]


@virtual
async def test_the_same_object_pushed_twice_is_two_items() -> None:
    """Each is dealt with on its own."""
    belt = Belt()
    for _ in range(3):
        belt.loop.push("a")
    async with belt.loop:
        pass
    assert belt.given == [["a"] * 3, ["a"] * 2, ["a"]]


@virtual
async def test_a_turn_may_be_a_conversation_or_a_list_of_parts() -> None:
    """Messages that end with the user's, or what a prompt is made of."""

    def gen_input(_about: Planning[str], items: Sequence[str]) -> Turn[str]:
        if items[0] == "a":
            history = [Message.user("hi"), Message.assistant("hello"), Message.user("a")]
            return Turn(history, consumed=items[:1], remaining=items[1:])
        return Turn(["b", "c"], consumed=items)

    belt = Belt(gen_input=gen_input)
    belt.loop.push("a")
    belt.loop.push("b")
    async with belt.loop:
        pass
    asked = [[message.text for message in request.messages] for request in belt.model.requests]
    assert asked == [["hi", "hello", "a"], ["bc"]]
