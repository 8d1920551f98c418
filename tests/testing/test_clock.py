"""The virtual clock jumps when nothing else can happen, and never while something else can."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from andon import run_process
from andon.runtime import isolate
from andon.testing import DeadlockError, Gate, VirtualLoop, run_virtual, virtual
from andon.testing.clock import waits_for

A_DAY = 86_400.0
A_WHILE = 0.05  # real seconds


class Clock:
    """Measures real and virtual seconds side by side."""

    def __init__(self) -> None:
        self._real = time.monotonic()
        self._virtual = asyncio.get_running_loop().time()

    @property
    def real(self) -> float:
        """Real seconds so far."""
        return time.monotonic() - self._real

    @property
    def virtual(self) -> float:
        """Virtual seconds so far."""
        return asyncio.get_running_loop().time() - self._virtual


def virtual_loop() -> VirtualLoop:
    """Give the running loop as what it is."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


@virtual
async def test_a_day_passes_at_once() -> None:
    """With nothing else to do, the clock jumps to the next timer."""
    clock = Clock()
    await anyio.sleep(30 * A_DAY)
    assert clock.virtual == pytest.approx(30 * A_DAY)
    assert clock.real < 1


@virtual
async def test_timers_come_in_the_order_of_their_times() -> None:
    """Jumping leaves nothing out and nothing early."""
    seen: list[tuple[float, float]] = []
    clock = Clock()

    async def after_seconds(seconds: float) -> None:
        await anyio.sleep(seconds)
        seen.append((seconds, round(clock.virtual, 6)))

    async with anyio.create_task_group() as group:
        for seconds in (5.0, 0.5, 50.0, 1.0):
            group.start_soon(after_seconds, seconds)
    assert seen == [(0.5, 0.5), (1.0, 1.0), (5.0, 5.0), (50.0, 50.0)]


@virtual
async def test_a_busy_loop_spends_no_virtual_time() -> None:
    """However slow the machine is, a step takes no time: the same test gives the same times."""
    clock = Clock()
    for _ in range(1_000):
        await anyio.lowlevel.checkpoint()
    assert clock.virtual == 0


@virtual
async def test_a_timeout_strikes_in_virtual_time() -> None:
    """Deadlines of anyio and asyncio go by the same clock."""
    clock = Clock()
    with anyio.move_on_after(10) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await anyio.sleep_forever()
    assert clock.virtual == pytest.approx(20)
    assert clock.real < 1


@virtual
async def test_the_clock_never_jumps_while_a_tool_thread_lives() -> None:
    """The thread might report at any moment: its run waits in real time."""
    clock = Clock()
    release = threading.Event()
    with anyio.move_on_after(A_WHILE):
        await isolate.in_thread(lambda: release.wait(5))
    assert A_WHILE * 0.9 <= clock.virtual <= clock.real + 0.01
    release.set()


@virtual
async def test_the_clock_never_jumps_while_the_default_executor_works() -> None:
    """A call in a pool is foreign until the loop was told; an idle pool is not."""
    loop = asyncio.get_running_loop()
    clock = Clock()
    release = threading.Event()
    loop.call_later(A_WHILE, release.set)
    assert await loop.run_in_executor(None, release.wait, 5)
    assert clock.real >= A_WHILE * 0.9
    await anyio.sleep(A_DAY)
    assert virtual_loop().foreign() == []
    assert clock.real < 3


@virtual
async def test_a_pool_of_ones_own_counts_while_its_calls_run() -> None:
    """The pool's own threads are foreign as well, as long as they live."""
    with ThreadPoolExecutor(1) as pool:
        assert await asyncio.get_running_loop().run_in_executor(pool, lambda: 7) == 7
        assert virtual_loop().foreign()
    assert virtual_loop().foreign() == []


@virtual
async def test_an_idle_worker_of_anyio_does_not_hold_the_clock() -> None:
    """Its thread lives on, but nothing will come of it."""
    clock = Clock()
    assert await anyio.to_thread.run_sync(lambda: 7) == 7
    await anyio.sleep(A_DAY)
    assert clock.real < 3


@virtual
async def test_the_clock_never_jumps_while_a_child_process_lives() -> None:
    """A child's end comes in real time, before any virtual timer that is later."""
    clock = Clock()
    with anyio.fail_after(30):
        done = await run_process([sys.executable, "-c", "print('here')"])
    assert done.stdout == b"here\n"
    assert clock.virtual < 30
    assert [child.get_returncode() for child in virtual_loop().children] == [0]


@virtual
async def test_a_shell_is_watched_as_any_child() -> None:
    """However it is started, a child is known to the loop."""
    with anyio.fail_after(30):
        done = await run_process("echo here")
    assert done.stdout == b"here\n"
    assert len(virtual_loop().children) == 1


@virtual
async def test_the_clock_never_jumps_while_a_socket_is_watched() -> None:
    """What comes by TCP comes in real time."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003 — as socket has it
    clock = Clock()
    with anyio.move_on_after(A_WHILE):
        await loop.sock_recv(ours, 1)
    assert clock.real >= A_WHILE * 0.9
    theirs.send(b"x")
    with anyio.fail_after(5):
        assert await loop.sock_recv(ours, 1) == b"x"
    ours.close()
    theirs.close()
    await anyio.sleep(A_DAY)
    assert clock.real < 3


@virtual
async def test_the_clock_never_jumps_inside_an_outside_block() -> None:
    """For work that the loop cannot see by itself."""
    clock = Clock()
    with virtual_loop().outside():
        await anyio.sleep(A_WHILE)
    assert clock.real >= A_WHILE * 0.9


@virtual
async def test_a_thread_that_ends_without_a_word_lets_the_clock_go() -> None:
    """The loop looks again; nobody has to wake it."""
    release = threading.Event()
    threading.Thread(target=release.wait, args=(5,), daemon=True).start()
    release.set()
    clock = Clock()
    await anyio.sleep(A_DAY)
    assert clock.real < 3


def test_a_loop_on_which_nothing_can_happen_says_who_waits_for_what() -> None:
    """Instead of hanging, the test fails, and names the gate that nobody opens."""

    async def hold() -> None:
        await Gate("the till")

    with pytest.raises(DeadlockError, match=r"(?s)deadlock.*waits in Gate\._until of <Gate the till closed"):
        run_virtual(hold)


def test_a_deadlock_inside_a_generator_is_named_at_its_innermost_await() -> None:
    """A scripted model hangs in a generator; that is where to look."""

    async def stuck_model() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async def read() -> None:
        async for _ in stuck_model():
            pass

    with pytest.raises(DeadlockError, match=r"Event\.wait of <asyncio\.locks\.Event"):
        run_virtual(read)


def test_a_task_that_has_not_begun_is_named_as_such() -> None:
    """It waits for nothing but its turn."""

    async def main() -> str:
        task = asyncio.get_running_loop().create_task(anyio.lowlevel.checkpoint())
        told = waits_for(task)
        await task
        return told

    assert run_virtual(main) == "for its first step"


def test_what_a_program_leaves_behind_is_cancelled_and_a_swallower_is_left() -> None:
    """The end of a test never hangs on a task that will not go."""
    told: list[str] = []

    async def stay(name: str, *, stubborn: bool) -> None:
        while True:
            try:
                await anyio.sleep(A_DAY)
            except asyncio.CancelledError:
                told.append(name)
                if not stubborn:
                    raise

    async def main() -> int:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(stay("a", stubborn=False)), loop.create_task(stay("b", stubborn=True))]
        await anyio.sleep(1)
        return len(tasks)

    assert run_virtual(main) == 2
    assert told == ["a", "b"]


def test_the_same_program_takes_the_same_steps() -> None:
    """The hook is called before each step, with its number, and the numbers have no gap."""

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3)
            group.start_soon(anyio.sleep, 2)

    def steps() -> tuple[list[int], int, int]:
        loop = VirtualLoop()
        seen: list[int] = []
        loop.before_step = seen.append
        run_virtual(main, loop=loop)
        return seen, len(seen), loop.jumps

    first = steps()
    assert first == steps()
    assert first[0] == list(range(first[1]))


def test_the_hook_may_act_on_the_loop() -> None:
    """That is how a run is cancelled at one exact step."""
    loop = VirtualLoop()
    release = asyncio.Event()
    loop.before_step = lambda step: release.set() if step == 1 else None

    async def main() -> bool:
        await anyio.lowlevel.checkpoint()
        return release.is_set()

    assert run_virtual(main, loop=loop)


@virtual
async def test_a_virtual_loop_inside_a_loop_is_refused() -> None:
    """The message says where to call it."""

    async def nothing() -> None: ...

    with pytest.raises(RuntimeError, match="call it from plain code"):
        run_virtual(nothing)


@pytest.mark.parametrize("number", [1, 2])
@virtual
async def test_a_virtual_test_takes_fixtures_and_parameters(number: int, tmp_path: object) -> None:
    """The decorator keeps the signature that pytest reads."""
    assert number
    assert tmp_path
