"""TK: what a loop leaves in its store, and how the next one goes on from there."""

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest

from andon import Agent, Call, Cancelled, Message, ModelError, Stop, Turn
from andon.core.parked import Parked, unpark
from andon.errors import CheckpointError, Interrupted, UserError
from andon.runtime.isolate import Cut
from andon.runtime.turn import Exit, Planning
from andon.testing import Gate, ScriptedModel, virtual
from tests.looped import ID, Looped, asking
from tests.stores import BrokenStore, MemoryStore


class BlindStore(MemoryStore):
    """Cannot read."""

    async def get(self, _id: str, /) -> bytes | None:
        """Fail."""
        msg = "the disk is gone"
        raise OSError(msg)


async def stopped_in_a_turn(scene: Looped, gate: Gate, *items: str) -> Exit[str]:
    """Stop a loop now, while its turn is held at a gate."""
    async with scene.loop:
        scene.push(*items)
        await gate.reached()
        scene.loop.stop(Stop.now())
    return await scene.loop.wait()


async def left_in(store: MemoryStore, *unhandled: str) -> None:
    """Leave items in a store, as a loop does that is stopped before it ran."""
    scene = Looped(store=store)
    scene.push(*unhandled)
    scene.loop.stop()
    assert (await scene.loop.run()).unhandled == unhandled
    assert waiting(store) == list(unhandled)


def waiting(store: MemoryStore) -> list[str]:
    """Read the unhandled items that are stored."""
    return [msgspec.json.decode(item, type=str) for item in unpark(store.data[ID]).unhandled]


def in_flight(store: MemoryStore) -> list[str]:
    """Read the items of the turn in flight that is stored."""
    return [msgspec.json.decode(item, type=str) for item in unpark(store.data[ID]).interrupted]


@virtual
async def test_tk_01_without_an_id_nothing_is_stored() -> None:
    """The turn is cancelled, and the store stays empty."""
    store, gate = MemoryStore(), Gate("model")
    exit_ = await stopped_in_a_turn(Looped([gate], store=store, checkpoint_id=None), gate, "msg1")
    assert isinstance(exit_.reason, Cancelled)
    assert exit_.interrupted == ("msg1",)
    assert (exit_.checkpoint_attempted, exit_.checkpoint_error, store.data) == (False, None, {})


@virtual
async def test_tk_02_an_idle_loop_leaves_nothing() -> None:
    """There is nothing to go on from."""
    store = MemoryStore()
    scene = Looped("Done.", store=store)
    async with scene.loop:
        scene.push("msg1")
        await scene.over(1)
        scene.loop.stop()
    exit_ = await scene.loop.wait()
    assert (exit_.reason, exit_.checkpoint_attempted, store.data) == (None, False, {})


@virtual
async def test_tk_04_a_turn_that_was_stopped_goes_on_in_the_next_loop() -> None:
    """It is stored with its items; `gen_resume` is given them, the agent resumes, and the store is empty."""
    store, gate = MemoryStore(), Gate("model")
    exit_ = await stopped_in_a_turn(Looped(["Half", gate], store=store), gate, "msg1")
    assert isinstance(exit_.reason, Cancelled)
    assert (exit_.interrupted, exit_.unhandled) == (("msg1",), ())
    assert (exit_.checkpoint_attempted, exit_.checkpoint_error) == (True, None)
    assert in_flight(store) == ["msg1"]

    resumed = Looped("Whole.", store=store, gen_resume="on")
    exit_ = await resumed.to_the_end()
    assert exit_.reason is None
    assert resumed.resumes == [(["msg1"], [], [])]
    assert (resumed.batches, resumed.prepared) == ([], [["msg1"]])
    assert resumed.prompts == ["msg1"]
    assert (await resumed.runs[0].outcome()).text == "Whole."
    assert store.data == {}


@virtual
async def test_tk_05_an_agent_that_asks_a_human_ends_the_loop_and_goes_on_in_the_next() -> None:
    """Nobody stopped anything: the exit carries the questions, and what is stored can be resumed."""
    store = MemoryStore()
    log: list[object] = []
    agent = Agent(ScriptedModel(Call("ask"), "Asked."), tools=[asking(log=log)])
    exit_ = await Looped(agent=agent, store=store).to_the_end("msg1", "msg2")
    assert isinstance(exit_.reason, Interrupted)
    (question,) = exit_.reason.interrupts
    assert question.payload == "sure?"
    assert (exit_.interrupted, exit_.unhandled, exit_.failed) == (("msg1",), ("msg2",), ())
    assert (exit_.checkpoint_attempted, exit_.checkpoint_error) == (True, None)

    def resume(
        _: object, interrupted: Sequence[str], unhandled: Sequence[str], new: Sequence[str]
    ) -> Turn[str]:
        assert (interrupted, unhandled, new) == (["msg1"], ["msg2"], ["msg3"])
        return Turn(consumed=interrupted, dropped=[*unhandled, *new], answers={question.id: "yes"})

    exit_ = await Looped(agent=agent, store=store, gen_resume=resume).to_the_end("msg3")
    assert (exit_.reason, log, store.data) == (None, ["yes"], {})


@pytest.mark.parametrize("kept", ["no store", "no entry", "an empty entry"])
def test_tk_08_with_nothing_to_go_on_from_a_loop_starts_afresh(kept: str) -> None:
    """Through `gen_input`, also where `gen_resume` is given."""

    @virtual
    async def fresh() -> None:
        store = MemoryStore()
        if kept == "an empty entry":
            store.data[ID] = b""
        options: dict[str, Any] = {"checkpoint_id": ID} if kept == "no store" else {"store": store}
        exit_ = await (scene := Looped("Done.", gen_resume=refuse, **options)).to_the_end("msg1")
        assert (exit_.reason, scene.batches) == (None, [["msg1"]])

    def refuse(*_: object) -> Turn[str]:
        raise AssertionError

    fresh()


@virtual
async def test_tk_09_a_store_that_cannot_be_read_ends_the_loop() -> None:
    """With its error; nothing is run, and what was pushed is unhandled."""
    exit_ = await (scene := Looped(store=BlindStore())).to_the_end("msg1")
    assert isinstance(exit_.reason, OSError)
    assert "the disk is gone" in str(exit_.reason)
    assert (scene.batches, scene.prepared, exit_.unhandled) == ([], [], ("msg1",))
    assert not exit_.checkpoint_attempted


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"version":1,"interrupted":["msg0"]}', "nothing of its agent"),
        (b'{"version":2}', "format version 2"),
        (b"no JSON at all", "cannot be read"),
        (b'{"version":1,"unhandled":[["no text"]]}', "codec cannot read"),
    ],
)
def test_tk_11_what_cannot_be_gone_on_from_ends_the_loop(data: bytes, words: str) -> None:
    """It says what is wrong, leaves the store as it is, and gives back what was pushed."""

    @virtual
    async def refused() -> None:
        store = MemoryStore()
        store.data[ID] = data
        exit_ = await (scene := Looped(store=store, codec=str)).to_the_end("msg1")
        assert isinstance(exit_.reason, CheckpointError)
        assert words in str(exit_.reason)
        assert (exit_.unhandled, scene.batches) == (("msg1",), [])
        assert store.data == {ID: data}

    refused()


@virtual
async def test_tk_12_a_save_that_fails_after_a_cancel_is_told_beside_the_reason() -> None:
    """The reason is the cancel alone."""
    gate = Gate("model")
    exit_ = await stopped_in_a_turn(Looped([gate], store=BrokenStore()), gate, "msg1")
    assert isinstance(exit_.reason, Cancelled)
    assert exit_.reason.__cause__ is None
    assert exit_.checkpoint_attempted
    assert isinstance(exit_.checkpoint_error, OSError)
    assert exit_.interrupted == ("msg1",)


@virtual
async def test_tk_13_a_save_that_fails_after_a_plain_stop_leaves_the_exit_clean() -> None:
    """The reason is None, and the error of the store is told."""
    scene = Looped(store=BrokenStore())
    scene.push("a")
    scene.loop.stop()
    exit_ = await scene.loop.run()
    assert (exit_.reason, exit_.unhandled, exit_.checkpoint_attempted) == (None, ("a",), True)
    assert isinstance(exit_.checkpoint_error, OSError)


@virtual
async def test_tk_14_without_a_store_nothing_is_attempted() -> None:
    """And nothing fails."""
    gate = Gate("model")
    exit_ = await stopped_in_a_turn(Looped([gate]), gate, "msg1", "msg2")
    assert (exit_.checkpoint_attempted, exit_.checkpoint_error) == (False, None)
    assert (exit_.interrupted, exit_.unhandled) == (("msg1",), ("msg2",))


@virtual
async def test_tk_15_an_error_is_no_stop_and_stores_nothing() -> None:
    """The second plan fails: that is the reason, and no checkpoint is attempted."""
    store = MemoryStore()
    error = LookupError("no more ideas")

    def plan(about: Planning[str], items: Sequence[str]) -> Turn[str]:
        if about.turn == 2:
            raise error
        return Turn("go", consumed=items[:1], remaining=items[1:])

    exit_ = await Looped("Done.", store=store, gen_input=plan).to_the_end("a", "b")
    assert exit_.reason is error
    assert (exit_.unhandled, exit_.checkpoint_attempted, store.data) == (("b",), False, {})


@virtual
async def test_tk_16_an_error_exit_stores_nothing_though_a_stop_was_called_too() -> None:
    """`prepare_agent` fails after the stop: its error is the reason, and nothing was saved."""
    store, preparing = MemoryStore(), Gate("preparing")
    error = LookupError("no agent")

    async def prepare(*_: object) -> Agent:
        await preparing
        raise error

    scene = Looped(store=store, prepare_agent=prepare)
    async with scene.loop:
        scene.push("a")
        await preparing.reached()
        scene.loop.stop()
        preparing.open()
    exit_ = await scene.loop.wait()
    assert exit_.reason is error
    assert (exit_.unhandled, exit_.checkpoint_attempted, store.data) == (("a",), False, {})


@virtual
async def test_tk_18_what_was_stored_and_dealt_with_is_deleted_though_the_loop_is_cancelled_later() -> None:
    """The next loop deals with all there is, and then its task is cancelled: nothing is left to do twice."""
    store = MemoryStore()
    await left_in(store, "a")
    scene = Looped("Done.", store=store, gen_input="all")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            scene.push("b")
            group.start_soon(scene.loop.run)
            await scene.over(1)
            while scene.loop.busy or store.data:
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    exit_ = await scene.loop.wait()
    assert isinstance(exit_.reason, Cut)
    assert scene.turns[0].consumed == ("a", "b")
    assert (store.data, exit_.failed, exit_.unhandled) == ({}, (), ())


@virtual
async def test_tk_20_a_turn_in_flight_needs_gen_resume() -> None:
    """Without it the loop says so, and the checkpoint stays as it was."""
    store, gate = MemoryStore(), Gate("model")
    await stopped_in_a_turn(Looped([gate], store=store), gate, "msg1")
    before = dict(store.data)
    exit_ = await (scene := Looped(store=store)).to_the_end("msg2")
    assert isinstance(exit_.reason, UserError)
    assert "gen_resume is required for resume" in str(exit_.reason)
    assert (store.data, exit_.unhandled, scene.batches) == (before, ("msg2",), [])


@virtual
async def test_tk_22_what_was_stored_comes_before_what_is_pushed() -> None:
    """Also over a loop in between that was stopped before it ran, whose own items are stored too."""
    store = MemoryStore()
    await left_in(store, "a", "b")
    first = dict(store.data)
    between = Looped(store=store)
    between.push("c")
    between.loop.stop()
    await between.loop.run()
    assert store.data != first
    assert waiting(store) == ["a", "b", "c"]
    scene = Looped(*["Done."] * 4, store=store)
    exit_ = await scene.to_the_end("d")
    assert scene.batches[0] == ["a", "b", "c", "d"]
    assert (exit_.reason, store.data) == (None, {})


@virtual
async def test_tk_23_the_answers_that_gen_resume_gives_reach_the_agent() -> None:
    """Each question gets its own; the items go to `prepare_agent`; what was not answered is asked again."""
    store = MemoryStore()
    log: list[object] = []
    model = ScriptedModel([Call("ask"), Call("ask")], "Asked twice.")
    agent = Agent(model, tools=[asking(log=log)])
    exit_ = await Looped(agent=agent, store=store).to_the_end("msg1")
    assert isinstance(exit_.reason, Interrupted)
    one, two = exit_.reason.interrupts

    def answering(**answers: object) -> Looped:
        def resume(_: object, interrupted: Sequence[str], *_rest: Sequence[str]) -> Turn[str]:
            return Turn(consumed=interrupted, answers={one.id: answers["one"]} if "one" in answers else last)

        return Looped(agent=agent, store=store, gen_resume=resume)

    last: dict[str, object] = {}
    first = answering(one="yes")
    exit_ = await first.to_the_end()
    assert first.prepared == [["msg1"]]
    assert isinstance(exit_.reason, Interrupted)
    (left,) = exit_.reason.interrupts
    assert left.payload == two.payload
    last[left.id] = "no"
    exit_ = await answering().to_the_end()
    assert (exit_.reason, sorted(map(str, log)), store.data) == (None, ["no", "yes"], {})


@virtual
async def test_tk_24_a_resumed_turn_that_is_interrupted_again_is_stored_again_whole() -> None:
    """Both exits are interrupts without an error of the store, and the second has all that the first had."""
    store = MemoryStore()
    model = ScriptedModel([Call("ask")], [Call("ask")], "All asked.")
    agent = Agent(model, tools=[asking()], name="careful", settings={"temperature": 0})
    exits = [await Looped(agent=agent, store=store).to_the_end("msg1")]
    stored = [unpark(store.data[ID])]

    def resume(_: object, interrupted: Sequence[str], *_rest: Sequence[str]) -> Turn[str]:
        reason = exits[-1].reason
        assert isinstance(reason, Interrupted)
        return Turn(consumed=interrupted, answers={one.id: "yes" for one in reason.interrupts})

    exits.append(await Looped(agent=agent, store=store, gen_resume=resume).to_the_end())
    stored.append(unpark(store.data[ID]))
    for exit_, parked in zip(exits, stored, strict=True):
        assert isinstance(exit_.reason, Interrupted)
        assert (exit_.checkpoint_attempted, exit_.checkpoint_error) == (True, None)
        assert exit_.interrupted == ("msg1",)
        check_turn_of(parked)
    first, second = (parked.turn for parked in stored)
    assert first is not None
    assert second is not None
    assert second.messages[: len(first.messages)] == first.messages
    assert (second.agent, second.tools) == (first.agent, first.tools) == ("careful", ("ask",))
    assert {request.settings.get("temperature") for request in model.requests} == {0}
    last = Looped(agent=agent, store=store, gen_resume=resume)
    assert (await last.to_the_end()).reason is None
    assert store.data == {}


def check_turn_of(parked: Parked) -> None:
    """Hold what is stored to the one turn in flight."""
    assert parked.turn is not None
    assert parked.turn.messages[0] == Message.user("msg1")
    assert [msgspec.json.decode(item) for item in parked.interrupted] == ["msg1"]
    assert parked.unhandled == ()


@virtual
async def test_tk_18_an_agent_that_fails_takes_nothing_of_what_waits() -> None:
    """What is stored and still waits stays stored, whatever ends the loop."""
    store = MemoryStore()
    await left_in(store, "a", "b")
    exit_ = await Looped(ModelError("no"), store=store, on_events=None).to_the_end()
    assert (exit_.failed, exit_.unhandled) == (("a",), ("b",))
    assert waiting(store) == ["b"]
