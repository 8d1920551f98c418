"""Gates hold tasks and threads at a named point, and tell the test that they are there."""

from threading import Thread

import anyio
import pytest

from andon.testing import Gate, virtual


@virtual
async def test_a_gate_holds_a_task_until_it_is_opened() -> None:
    """The test knows that the task is there, and that it has not passed."""
    gate = Gate("door")
    passed: list[int] = []

    async def come(number: int) -> None:
        await gate
        passed.append(number)

    async with anyio.create_task_group() as group:
        group.start_soon(come, 1)
        group.start_soon(come, 2)
        await gate.reached(2)
        assert (passed, gate.arrived, gate.opened) == ([], 2, False)
        gate.open()
    assert passed == [1, 2]
    await gate
    assert gate.arrived == 3


@virtual
async def test_reached_waits_for_as_many_as_it_says() -> None:
    """One is not two."""
    gate = Gate()
    async with anyio.create_task_group() as group:

        async def come() -> None:
            await gate

        group.start_soon(come)
        await gate.reached()
        with anyio.move_on_after(10) as scope:
            await gate.reached(2)
        assert scope.cancelled_caught
        gate.open()


@virtual
async def test_a_gate_holds_a_thread_that_the_loop_lets_go() -> None:
    """The loop waits for the thread in real time, and opens the gate from its own thread."""
    gate = Gate("thread")
    after = Gate("after")

    def work() -> None:
        gate.wait()
        after.open()

    thread = Thread(target=work, daemon=True)
    thread.start()
    await gate.reached()
    assert not after.opened
    gate.open()
    await after
    assert gate.arrived == 1


@virtual
async def test_a_thread_lets_a_task_go() -> None:
    """Opening works from any thread, and so does waiting for arrivals."""
    gate = Gate("task")

    def release() -> None:
        gate.wait_reached()
        gate.open()

    Thread(target=release, daemon=True).start()
    await gate
    assert repr(gate) == "<Gate task open, 1 arrived>"


@virtual
async def test_a_task_that_is_cancelled_at_a_gate_leaves_it() -> None:
    """It has arrived, and is forgotten; the gate goes on working for others."""
    gate = Gate()
    with anyio.move_on_after(1) as scope:
        await gate
    assert scope.cancelled_caught
    gate.open()
    await gate
    assert gate.arrived == 2


def test_an_open_gate_lets_a_thread_pass() -> None:
    """Nobody has to be there to open it."""
    gate = Gate(opened=True)
    gate.wait(timeout=0.01)
    assert gate.arrived == 1


def test_a_thread_does_not_wait_for_ever() -> None:
    """A failing test must not hang: the error names the gate."""
    with pytest.raises(TimeoutError, match=r"gate 'till' was not opened within 0.01 s"):
        Gate("till").wait(timeout=0.01)
    with pytest.raises(TimeoutError, match=r"gate 'till' was not reached by 2 within 0.01 s"):
        Gate("till").wait_reached(2, timeout=0.01)


@virtual
async def test_blocking_the_loop_at_a_gate_is_refused() -> None:
    """It could only be opened by the loop that it blocks."""
    with pytest.raises(RuntimeError, match="use `await gate`"):
        Gate().wait()
