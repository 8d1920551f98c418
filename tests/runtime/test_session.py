"""Session: a conversation, and what becomes of a message that comes while its agent works."""

from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Cancelled, Message, ModelError, Point, Preempt, Stop, TurnLoop, tool
from andon.core.draft import Chunk
from andon.core.items import Event, Item, TurnEnded, TurnStarted
from andon.core.turns import Phase
from andon.ports import ModelRequest
from andon.runtime.receipt import Receipt
from andon.runtime.session import ON_BUSY, OnBusy, Session
from andon.runtime.turn import TurnView
from andon.testing import Gate, Hang, Reply, ScriptedModel, virtual
from tests.looped import held
from tests.whole import complaints


def session(*replies: Reply, gate: Gate | None = None, **options: Any) -> Session:  # noqa: ANN401 — the session's own
    """Make a session whose agent may work at a gate."""
    tools = [] if gate is None else [held(gate)]
    return Session(Agent(ScriptedModel(*replies), tools=tools), **options)


def words(messages: tuple[Message, ...]) -> list[str]:
    """Say what was said, in short."""
    return [f"{message.role}: {message.text}" for message in messages if message.text]


def loop_of(chat: Session) -> TurnLoop[Message]:
    """Look at the loop of a session."""
    return chat._loop  # pyright: ignore[reportPrivateUsage]


async def until_idle(chat: Session) -> None:
    """Wait until there is no turn and nothing to have one."""
    while loop_of(chat).busy:
        await anyio.lowlevel.checkpoint()


@virtual
async def test_each_message_is_a_turn_that_knows_all_before() -> None:
    """In order; the history grows by what was said and answered."""
    async with session("One.", "Two.") as chat:
        assert chat.push("first").accepted
        assert chat.push("second").accepted
    assert words(chat.messages) == ["user: first", "assistant: One.", "user: second", "assistant: Two."]
    exit_ = await chat.wait()
    assert (exit_.reason, exit_.unhandled) == (None, ())


@virtual
async def test_it_goes_on_with_a_conversation() -> None:
    """What it is given is the beginning of its history."""
    before = (Message.user("before"), Message.assistant("Yes."))
    async with session("Go on.", messages=before) as chat:
        chat.push("and now?")
    assert words(chat.messages) == ["user: before", "assistant: Yes.", "user: and now?", "assistant: Go on."]


@virtual
async def test_enqueue_waits_for_its_turn() -> None:
    """The turn under way is left alone, and the message is the next."""
    gate = Gate("tool")
    async with session(Call("work"), "One.", "Two.", gate=gate) as chat:
        chat.push("first")
        await gate.reached()
        assert chat.push("second", on_busy="enqueue").accepted
        assert chat.run is not None
        gate.open()
    assert words(chat.messages) == ["user: first", "assistant: One.", "user: second", "assistant: Two."]


@virtual
async def test_preempt_stops_the_turn_at_its_point_and_keeps_what_it_had_done() -> None:
    """The tool ends, the model is not asked again; the next turn knows of it."""
    gate = Gate("tool")
    async with session(Call("work"), "Two.", gate=gate) as chat:
        chat.push("first")
        await gate.reached()
        assert chat.push("second", on_busy="preempt").accepted
        gate.open()
    assert words(chat.messages) == [
        "user: first",
        "assistant: Cancelled by user",
        "user: second",
        "assistant: Two.",
    ]
    assert chat.messages[2].results[0].content == "done"
    assert complaints(chat.messages) == []


@virtual
async def test_the_way_to_preempt_is_a_setting() -> None:
    """By default a model that hangs is waited for, for ten seconds; another preempt cuts it at once."""
    for preempt, seconds in ((None, 10), (Preempt(Point.STREAM), 0)):
        began, gate = anyio.current_time(), Gate("model")
        async with session(["Half", gate], "Two.", preempt=preempt) as chat:
            chat.push("first")
            await gate.reached()
            chat.push("second", on_busy="preempt")
        assert anyio.current_time() - began == pytest.approx(seconds, abs=0.1)
        assert words(chat.messages)[1:] == ["assistant: Half", "user: second", "assistant: Two."]


@virtual
async def test_steer_says_it_to_the_run_under_way() -> None:
    """With its next model call, in the same turn."""
    gate = Gate("tool")
    async with session(Call("work"), "Heard.", gate=gate) as chat:
        chat.push("first")
        await gate.reached()
        assert chat.push("and this", on_busy="steer").accepted
        gate.open()
    assert words(chat.messages) == ["user: first", "user: and this", "assistant: Heard."]


@virtual
async def test_a_steer_that_was_not_heard_becomes_a_turn() -> None:
    """The run ends first, by an error or a stop of its own: the message is not lost."""
    gate = Gate("model")
    async with session([gate, ModelError("no such luck")], "Here I am.") as chat:
        chat.push("first")
        await gate.reached()
        assert chat.push("hello?", on_busy="steer").accepted
        gate.open()
    assert words(chat.messages)[-2:] == ["user: hello?", "assistant: Here I am."]
    assert len([one for one in words(chat.messages) if "hello?" in one]) == 1


@virtual
async def test_a_steer_to_a_turn_that_is_rolled_back_becomes_a_turn() -> None:
    """The run that was to hear it is cancelled, before the message that rolled it back."""
    gate = Gate("model")
    async with session([gate, Hang()], "One.", "Two.") as chat:
        chat.push("first")
        await gate.reached()
        chat.push("steered", on_busy="steer")
        chat.push("instead", on_busy="rollback")
    said = words(chat.messages)
    assert sorted(said) == sorted(["user: steered", "assistant: One.", "user: instead", "assistant: Two."])


@virtual
async def test_reject_does_not_take_it() -> None:
    """Only while a turn is under way, or something waits; what was not taken is nowhere."""
    gate = Gate("tool")
    async with session(Call("work"), "One.", "Two.", gate=gate) as chat:
        assert chat.push("first", on_busy="reject").accepted
        assert not chat.push("too soon", on_busy="reject").accepted
        await gate.reached()
        assert not chat.push("second", on_busy="reject").accepted
        gate.open()
        await until_idle(chat)
        assert chat.push("third", on_busy="reject").accepted
    assert words(chat.messages) == ["user: first", "assistant: One.", "user: third", "assistant: Two."]
    assert (await chat.wait()).late() == ()


@virtual
async def test_rollback_cuts_the_turn_and_takes_it_out_of_the_history() -> None:
    """Nothing of it is left: neither the message, nor what the agent had done."""
    gate = Gate("tool")
    before = (Message.user("before"), Message.assistant("Yes."))
    async with session(Call("work"), "Two.", gate=gate, messages=before) as chat:
        chat.push("first")
        await gate.reached()
        assert chat.push("second", on_busy="rollback").accepted
    assert words(chat.messages) == ["user: before", "assistant: Yes.", "user: second", "assistant: Two."]
    assert not gate.opened


@virtual
async def test_rollback_reaches_a_turn_that_is_still_being_planned() -> None:
    """It was pushed in the same breath, or by a thread: the turn is cut as soon as it is there."""
    chat = session("Two.")

    class Speaker:
        def observe(self, _name: str, item: Item, /) -> None:
            if isinstance(item, TurnStarted) and item.turn == 1:
                turn = loop_of(chat).turn
                assert turn is not None
                assert turn.phase is Phase.PLANNING
                chat.push("second", on_busy="rollback")

    loop_of(chat)._observers.append(Speaker())  # pyright: ignore[reportPrivateUsage]
    async with chat:
        chat.push("first")
    assert words(chat.messages) == ["user: second", "assistant: Two."]


@pytest.mark.parametrize("policy", ["preempt", "rollback"])
def test_what_makes_a_turn_give_way_is_the_next(policy: OnBusy) -> None:
    """Before what waits already, which keeps its order, also where it is the same message."""

    @virtual
    async def next_but_none() -> None:
        gate, same = Gate("tool"), Message.user("again")
        async with session(Call("work"), *["Yes."] * 4, gate=gate) as chat:
            chat.push("first")
            await gate.reached()
            chat.push(same)
            chat.push(same)
            assert chat.push("urgent", on_busy=policy).accepted
            assert chat.push("urgent, too", on_busy=policy).accepted
            gate.open()
        asked = [message.text for message in chat.messages if message.role == "user"]
        first = [] if policy == "rollback" else ["first"]
        assert asked == [*first, "urgent", "urgent, too", "again", "again"]
        exit_ = await chat.wait()
        assert (exit_.reason, exit_.unhandled, exit_.failed) == (None, (), ())

    next_but_none()


@virtual
async def test_a_turn_that_is_rolled_back_knows_that_it_was_preempted() -> None:
    """So do observers: it has not been completed."""
    gate, turns, ends = Gate("model"), list[TurnView[Message]](), list[str]()

    class Observer:
        def observe(self, _name: str, item: Item, /) -> None:
            if isinstance(item, TurnEnded):
                ends.append(item.end)

    async def watch(turn: TurnView[Message], events: AsyncGenerator[Event]) -> None:
        turns.append(turn)
        async for _ in events:
            pass

    chat = session([gate, Hang()], "Two.", on_events=watch)
    loop_of(chat)._observers.append(Observer())  # pyright: ignore[reportPrivateUsage]
    async with chat:
        chat.push("first")
        await gate.reached()
        chat.push("second", on_busy="rollback")
    assert [turn.preempted for turn in turns] == [True, False]
    assert ends == ["preempted", "completed"]


@virtual
async def test_a_rollback_that_comes_too_late_for_the_session_takes_nothing_out() -> None:
    """The turn under way is left alone: it would make way for nothing. What was taken in time counts."""
    for in_time in (False, True):
        gate = Gate("tool")
        async with session(Call("work"), "One.", gate=gate) as chat:
            chat.push("first")
            await gate.reached()
            if in_time:
                assert chat.push("in time", on_busy="rollback").accepted
            chat.stop()
            late = chat.push("second", on_busy="rollback")
            assert not late.accepted
            chat.stop(Stop.now())
        assert words(chat.messages)[:1] == ([] if in_time else ["user: first"])
        exit_ = await chat.wait()
        assert [message.text for message in exit_.unhandled] == (["in time"] if in_time else [])
        assert [message.text for message in exit_.late()] == ["second"]
        assert chat._rolled_back == []  # pyright: ignore[reportPrivateUsage]


@virtual
async def test_a_steer_that_a_stop_of_the_session_overtakes_is_unhandled() -> None:
    """It was accepted: it is no late item; what waits before it and after it keeps its order."""
    gate = Gate("model")
    async with session([gate, Hang()]) as chat:
        chat.push("first")
        chat.push("second")
        await gate.reached()
        assert chat.push("and this", on_busy="steer").accepted
        assert chat.push("and that", on_busy="steer").accepted
        chat.stop(Stop.now())
        assert not chat.push("too late", on_busy="enqueue").accepted
    exit_ = await chat.wait()
    assert [message.text for message in exit_.unhandled] == ["second", "and this", "and that"]
    assert [message.text for message in exit_.late()] == ["too late"]


@virtual
async def test_a_steer_to_a_run_that_has_ended_is_a_push() -> None:
    """The turn is still under way, for its callback is: the receipt says whether the message was taken."""
    for stopped in (False, True):
        busy = Gate("callback")

        async def watch(_: TurnView[Message], events: AsyncGenerator[Event], busy: Gate = busy) -> None:
            async for _event in events:
                pass
            await busy

        async with session("One.", "Two.", on_events=watch) as chat:
            chat.push("first")
            await busy.reached()
            if stopped:
                chat.stop()
            assert chat.push("second", on_busy="steer").accepted is not stopped
            busy.open()
        exit_ = await chat.wait()
        assert [message.text for message in exit_.late()] == (["second"] if stopped else [])
        assert len(words(chat.messages)) == (2 if stopped else 4)


@virtual
async def test_rollback_of_a_turn_that_has_its_answer_takes_nothing_out() -> None:
    """It came too late: the turn is part of the conversation."""
    busy = Gate("callback")

    async def watch(_: TurnView[Message], events: AsyncGenerator[Event]) -> None:
        async for _event in events:
            pass
        await busy

    async with session("One.", "Two.", on_events=watch) as chat:
        chat.push("first")
        await busy.reached()
        chat.push("second", on_busy="rollback")
        busy.open()
    assert words(chat.messages) == ["user: first", "assistant: One.", "user: second", "assistant: Two."]
    assert chat._rolled_back == []  # pyright: ignore[reportPrivateUsage]


@virtual
async def test_after_the_end_of_a_turn_every_policy_is_a_plain_push() -> None:
    """Nothing is under way: each begins a turn at once."""
    async with session(*["Yes."] * 5) as chat:
        for policy in ("enqueue", "preempt", "steer", "reject", "rollback"):
            assert chat.push(policy, on_busy=policy).accepted
            await until_idle(chat)
    assert [m.text for m in chat.messages if m.role == "user"] == list(ON_BUSY)
    assert [m.text for m in chat.messages if m.role == "assistant"] == ["Yes."] * 5


@virtual
async def test_a_callback_that_raises_cancelled_keeps_the_history() -> None:
    """For a turn that was preempted it counts as returning: what was said is known to the next."""

    async def watch(turn: TurnView[Message], events: AsyncGenerator[Event]) -> None:
        async for _ in events:
            pass
        if turn.preempted:
            raise Cancelled

    gate = Gate("tool")
    async with session(Call("work"), "Two.", gate=gate, on_events=watch) as chat:
        chat.push("first")
        await gate.reached()
        chat.push("second", on_busy="preempt")
        gate.open()
    assert words(chat.messages)[0] == "user: first"
    assert words(chat.messages)[-1] == "assistant: Two."


@virtual
async def test_a_callback_that_fails_ends_the_session_and_keeps_the_history() -> None:
    """Its error is the reason; the turn is cut, and the conversation can still be sent."""

    async def watch(*_: object) -> None:
        raise ZeroDivisionError

    async with session(["Half", Hang()], on_events=watch) as chat:
        chat.push("first")
        exit_ = await chat.wait()
    assert isinstance(exit_.reason, ZeroDivisionError)
    assert words(chat.messages)[0] == "user: first"
    assert complaints(chat.messages) == []


@virtual
async def test_a_callback_that_returns_early_ends_the_turn() -> None:
    """The agent is cancelled, and what it had said is in the history."""

    async def watch(_: TurnView[Message], events: AsyncGenerator[Event]) -> None:
        async for event in events:
            if type(event).__name__ == "TextDelta":
                return

    async with session(["Half", Hang()], on_events=watch) as chat:
        chat.push("first")
    assert words(chat.messages) == ["user: first", "assistant: Half"]


@virtual
async def test_a_stop_of_the_session_keeps_what_was_said() -> None:
    """The turn is cancelled, its words stay; what waits is unhandled, what comes later is late."""
    gate = Gate("model")
    async with session(["Half", gate]) as chat:
        chat.push("first")
        chat.push("second")
        await gate.reached()
        chat.stop(Stop.now(), cause="deploy")
        assert not chat.push("third").accepted
    exit_ = await chat.wait()
    assert isinstance(exit_.reason, Cancelled)
    assert [message.text for message in exit_.unhandled] == ["second"]
    assert [message.text for message in exit_.late()] == ["third"]
    assert (words(chat.messages), exit_.stop_cause) == (["user: first", "assistant: Half"], "deploy")


@virtual
async def test_its_state_shows() -> None:
    """Who it is with, how long it is, and what its loop does."""
    async with session("One.") as chat:
        chat.push("first")
        await until_idle(chat)
        assert repr(chat).startswith("<Session agent, 2 messages, <TurnLoop agent, idle, turn 1, 0 waiting")


def test_another_policy_is_refused() -> None:
    """Nothing was said."""
    chat = session()
    with pytest.raises(ValueError, match="enqueue, preempt, steer, reject, rollback; nothing was said"):
        chat.push("first", on_busy="shout")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert not loop_of(chat).busy


async def test_of_many_threads_that_would_be_rejected_one_is_taken() -> None:
    """They all find the session idle, and only one of them begins the turn."""
    for _ in range(20):
        gate, barrier = Gate("model"), Barrier(16)
        chat = session([gate, "One."])

        def push(number: int, chat: Session = chat, barrier: Barrier = barrier) -> bool:
            barrier.wait(30)
            return chat.push(f"{number}", on_busy="reject").accepted

        with ThreadPoolExecutor(16) as pool:
            async with chat:
                pushes = [pool.submit(push, number) for number in range(16)]
                taken = [await anyio.to_thread.run_sync(one.result, 30) for one in pushes]
                gate.open()
        assert sum(taken) == 1
        assert len(words(chat.messages)) == 2


@pytest.mark.parametrize("policy", ON_BUSY)
async def test_threads_that_speak_around_the_end_of_turns_are_heard_once(policy: OnBusy) -> None:
    """Whichever way each race goes, what was taken is heard, and once; what was rolled back is gone."""

    async def model(_: ModelRequest) -> AsyncIterator[Chunk]:
        yield "Yes."

    barrier = Barrier(4)
    chat = Session(Agent(model), preempt=Preempt(Point.ANY, grace=0.01))

    def push(number: int) -> list[tuple[str, Receipt]]:
        barrier.wait(30)
        names = [f"{number}-{n}" for n in range(25)]
        return [(name, chat.push(name, on_busy=policy)) for name in names]

    with ThreadPoolExecutor(4) as pool:
        async with chat:
            pushes = [pool.submit(push, number) for number in range(4)]
            told = [one for push_ in pushes for one in await anyio.to_thread.run_sync(push_.result, 30)]
            await until_idle(chat)
    exit_ = await chat.wait()
    taken = [name for name, receipt in told if receipt.accepted]
    said = [message.text for message in chat.messages if message.role == "user"]
    assert len(said) == len(set(said))
    assert set(said) <= set(taken)
    assert (exit_.reason, exit_.unhandled, exit_.failed, exit_.late()) == (None, (), (), ())
    assert complaints(chat.messages) == []
    if policy in {"enqueue", "steer", "reject", "preempt"}:
        assert sorted(said) == sorted(taken)
    if policy == "rollback":
        assert said
    if policy != "reject":
        assert len(taken) == 100


@virtual
async def test_tools_of_the_agent_may_speak_to_their_session() -> None:
    """A tool pushes to its own session, in every way that does not cut it: nothing deadlocks."""

    @tool
    async def speak() -> str:
        """Say something to the session."""
        assert chat.push("enqueued").accepted
        assert chat.push("steered", on_busy="steer").accepted
        assert not chat.push("rejected", on_busy="reject").accepted
        return "said"

    chat = Session(Agent(ScriptedModel(Call("speak"), "One.", "Two."), tools=[speak]))
    async with chat:
        chat.push("first")
    assert words(chat.messages) == [
        "user: first",
        "user: steered",
        "assistant: One.",
        "user: enqueued",
        "assistant: Two.",
    ]
