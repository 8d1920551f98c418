"""Attacks by the store of a turn loop: slow, silent, failing, written by others, and a process that dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
import pytest

from andon import Cancelled, Stop, Turn
from andon.core.parked import unpark
from andon.core.turns import Phase
from andon.errors import CheckpointError
from andon.runtime.isolate import Cut
from andon.testing import Gate, virtual
from tests.looped import ID, Looped, state_of
from tests.stores import MemoryStore

SILENT = 40.0  # seconds after which a store that says nothing has been given up


class OddStore(MemoryStore):
    """Keeps like any other, until one of its verbs is told to hang or to fail."""

    def __init__(self, data: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.data = {} if data is None else data
        self.hangs: set[str] = set()
        self.fails: set[str] = set()
        self.ignores = False
        self.log: list[str] = []

    async def _do(self, verb: str) -> None:
        self.log.append(verb)
        if verb in self.fails:
            msg = f"no {verb} today"
            raise OSError(msg)
        while verb in self.hangs:
            try:
                await anyio.sleep_forever()
            except Cut:
                if not self.ignores:
                    raise

    async def get(self, checkpoint_id: str, /) -> bytes | None:
        """Give, or not."""
        await self._do("get")
        return await super().get(checkpoint_id)

    async def set(self, checkpoint_id: str, data: bytes, /) -> None:
        """Keep, or not."""
        await self._do("set")
        await super().set(checkpoint_id, data)

    async def delete(self, checkpoint_id: str, /) -> None:
        """Forget, or not."""
        await self._do("delete")
        await super().delete(checkpoint_id)


async def left_in_flight(store: MemoryStore, *items: str) -> None:
    """Leave a turn in flight over the first item, and the others unhandled."""
    gate = Gate("model")
    scene = Looped([gate], store=store)
    async with scene.loop:
        scene.push(*items)
        await gate.reached()
        scene.loop.stop(Stop.now())
    assert unpark(store.data[ID]).turn is not None


@virtual
async def test_a_store_that_is_slow_is_waited_for() -> None:
    """The exit is there only when what it says is stored."""
    store, saving = OddStore(), Gate("save")

    class Slow(OddStore):
        async def set(self, checkpoint_id: str, data: bytes, /) -> None:
            await saving
            await super().set(checkpoint_id, data)

    store = Slow()
    scene = Looped(store=store)
    scene.push("a")
    scene.loop.stop()
    async with scene.loop:
        await saving.reached()
        await anyio.sleep(10)
        assert (scene.loop.turn, state_of(scene).phase) == (None, Phase.CLOSED)
        assert not scene.push("late")[0].accepted
        saving.open()
    exit_ = await scene.loop.wait()
    assert (exit_.checkpoint_error, exit_.unhandled, exit_.late()) == (None, ("a",), ("late",))
    assert [msgspec.json.decode(item) for item in unpark(store.data[ID]).unhandled] == ["a"]


@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("verb", ["get", "set", "delete"])
def test_a_store_that_says_nothing_is_given_up(verb: str, *, ignores: bool) -> None:
    """When it loads, after a turn, and at the exit: the loop goes on to its end, and says so."""

    @virtual
    async def bounded() -> None:
        store = OddStore()
        await left_in_flight(store, "a")
        store.hangs, store.ignores = {verb}, ignores
        began = anyio.current_time()
        scene = Looped("Whole.", store=store, gen_resume="on")
        async with scene.loop:
            scene.push("b")
            await (scene.loop.wait() if verb == "get" else scene.over(1))
            if verb == "set":
                scene.loop.stop()
            scene.model.script("Done.")
        exit_ = await scene.loop.wait()
        assert anyio.current_time() - began <= 2 * SILENT
        error = exit_.reason if verb == "get" else exit_.checkpoint_error
        assert isinstance(error, TimeoutError)
        assert ID in store.data

    bounded()


@virtual
async def test_a_store_that_hangs_while_it_is_read_does_not_hold_a_cancelled_loop() -> None:
    """Whoever cancels the loop's task need not wait for it."""
    store = OddStore()
    store.hangs = {"get"}
    scene = Looped(store=store)
    scene.push("a")
    began = anyio.current_time()
    with anyio.move_on_after(1) as scope:
        await scene.loop.run()
    assert scope.cancelled_caught
    assert anyio.current_time() - began <= 2.01
    assert (await scene.loop.wait()).unhandled == ("a",)


@virtual
async def test_a_store_that_fails_in_between_and_then_works_again_has_kept_the_last() -> None:
    """An error that a later save has made good is no error of the exit."""
    store = OddStore()
    await left_in_flight(store, "a", "b")
    gate = Gate("model")
    scene = Looped("Whole.", [gate, "Done."], store=store, gen_resume="on")
    store.fails = {"set"}
    async with scene.loop:
        await gate.reached()
        store.fails = set()
        scene.push("c")
        scene.loop.stop()
        gate.open()
    exit_ = await scene.loop.wait()
    assert (exit_.reason, exit_.checkpoint_error, exit_.unhandled) == (None, None, ("c",))
    parked = unpark(store.data[ID])
    assert parked.turn is None
    assert [msgspec.json.decode(item) for item in parked.unhandled] == ["c"]


@virtual
async def test_a_store_that_cannot_delete_is_told_and_the_work_is_not_lost() -> None:
    """The turn is done and its checkpoint stays: it may be resumed once more, but is not lost in silence."""
    store = OddStore()
    await left_in_flight(store, "a")
    store.fails = {"delete"}
    exit_ = await Looped("Whole.", store=store, gen_resume="on").to_the_end()
    assert exit_.reason is None
    assert isinstance(exit_.checkpoint_error, OSError)
    assert ID in store.data


@virtual
async def test_of_two_loops_on_one_id_the_second_to_save_is_refused() -> None:
    """Both started from nothing; what the first has left is left alone, and the second says so."""
    store, gates = MemoryStore(), [Gate("one"), Gate("two")]
    one, two = Looped([gates[0]], store=store), Looped([gates[1]], store=store)
    async with one.loop, two.loop:
        one.push("a")
        two.push("b")
        await gates[0].reached()
        await gates[1].reached()
        one.loop.stop(Stop.now())
        assert (await one.loop.wait()).checkpoint_error is None
        kept = dict(store.data)
        two.loop.stop(Stop.now())
    exit_ = await two.loop.wait()
    assert isinstance(exit_.reason, Cancelled)
    assert isinstance(exit_.checkpoint_error, CheckpointError)
    assert "another loop" in str(exit_.checkpoint_error)
    assert (exit_.interrupted, exit_.checkpoint_attempted, store.data) == (("b",), True, kept)


@virtual
async def test_what_another_loop_has_written_meanwhile_is_not_deleted() -> None:
    """The resumed turn is done, but the entry is not that which was read: it is somebody else's."""
    store, gate = MemoryStore(), Gate("model")
    await left_in_flight(store, "a")
    scene = Looped([gate, "Whole."], store=store, gen_resume="on")
    async with scene.loop:
        await gate.reached()
        store.data[ID] = theirs = b'{"version":1,"revision":"theirs","unhandled":["x"]}'
        gate.open()
    exit_ = await scene.loop.wait()
    assert isinstance(exit_.checkpoint_error, CheckpointError)
    assert store.data == {ID: theirs}


@virtual
async def test_an_entry_that_vanished_meanwhile_is_noticed() -> None:
    """Another loop has consumed it: this one does not write over that, and says so."""
    store, gate = MemoryStore(), Gate("model")
    await left_in_flight(store, "a")
    scene = Looped([gate, "Whole."], store=store, gen_resume="on")
    async with scene.loop:
        await gate.reached()
        store.data.clear()
        scene.push("b")
        scene.loop.stop()
        gate.open()
    exit_ = await scene.loop.wait()
    assert isinstance(exit_.checkpoint_error, CheckpointError)
    assert (store.data, exit_.unhandled) == ({}, ("b",))


LIFE = """
import asyncio, os, sys
from pathlib import Path
from tests.adversarial.test_stores import FileStore, goes_on
asyncio.run(goes_on(Path(sys.argv[1]), dies=sys.argv[2]))
"""


class FileStore:
    """Keeps in files; its process dies, as by `kill -9`, before or after the verb that it is told."""

    def __init__(self, folder: Path, dies: str = "") -> None:
        self.folder = folder
        self.dies = dies

    async def get(self, checkpoint_id: str, /) -> bytes | None:
        """Read."""
        file = anyio.Path(self.folder / checkpoint_id)
        return await file.read_bytes() if await file.exists() else None

    async def set(self, checkpoint_id: str, data: bytes, /) -> None:
        """Write, all or nothing."""
        self._die("before set")
        new = anyio.Path(self.folder / f"{checkpoint_id}.new")
        await new.write_bytes(data)
        await new.replace(self.folder / checkpoint_id)
        self._die("after set")

    async def delete(self, checkpoint_id: str, /) -> None:
        """Delete."""
        self._die("before delete")
        await anyio.Path(self.folder / checkpoint_id).unlink()
        self._die("after delete")

    def _die(self, when: str) -> None:
        if self.dies == when:
            os.kill(os.getpid(), signal.SIGKILL)


async def goes_on(folder: Path, *, dies: str) -> list[list[str]]:
    """Go on from what is in a folder, and log there what is done."""
    log = folder / "log"

    def resume(_: object, interrupted: Sequence[str], *rest: Sequence[str]) -> Turn[str]:
        return Turn(consumed=interrupted, remaining=[item for items in rest for item in items])

    scene = Looped(*["Done."] * 3, store=FileStore(folder, dies), gen_resume=resume)
    scene.model.on_step = lambda what: note(log, what) if what == "pull" else None
    await scene.to_the_end()
    return [*scene.batches, *[list(turn.consumed) for turn in scene.turns]]


def note(log: Path, what: str) -> None:
    """Write a line."""
    with log.open("a") as file:
        file.write(f"{what}\n")


@pytest.mark.parametrize("dies", ["before set", "after set", "before delete", "after delete"])
async def test_a_process_that_dies_around_a_save_loses_no_item(tmp_path: Path, dies: str) -> None:
    """The next life does again, at most, the turn whose end was not stored yet; and then nothing is left."""
    store = FileStore(tmp_path)
    gate = Gate("model")
    left = Looped([gate], store=store)
    async with left.loop:
        left.push("a", "b")
        await gate.reached()
        left.loop.stop(Stop.now())
    life = [sys.executable, "-c", LIFE, str(tmp_path), dies]
    died = await anyio.to_thread.run_sync(lambda: subprocess.run(life, check=False, timeout=50))  # noqa: S603
    assert died.returncode == -signal.SIGKILL
    turns = await goes_on(tmp_path, dies="")
    expected = {
        "before set": [["b"], ["a"], ["b"]],  # nothing of the first turn's end was stored
        "after set": [["b"], ["b"]],
        "before delete": [["b"], ["b"]],  # the end of the second was not stored
        "after delete": [],
    }
    assert turns == expected[dies]
    assert os.listdir(tmp_path) == ["log"]  # noqa: PTH208 — for the lines above it is the same
