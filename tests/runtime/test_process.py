"""Processes: a command or tool in a group of its own, which dies with whoever asked, grandchildren too."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from andon import Agent, Call, Outcome, ToolError, run_process, tool
from andon.runtime.tools import Tool
from andon.testing import ScriptedModel
from tests.runtime import process_tools
from tests.whole import whole


def alive(pid: int) -> bool:
    """Look a process up in the process table; the dead that nobody has collected are dead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pids: list[int]) -> None:
    """Wait until none of them is in the process table."""
    with anyio.fail_after(10):
        while any(alive(pid) for pid in pids):
            await anyio.lowlevel.checkpoint()


class Desk:
    """Where processes tell their pids."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pids: list[int] = []
        self.told = anyio.Event()

    async def take(self, stream: SocketStream) -> None:
        """Take the pids that one process tells, and keep the connection."""
        async with stream:
            self.pids += [int(pid) for pid in (await stream.receive()).split()]
            self.told.set()
            try:
                await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return


@asynccontextmanager
async def desk() -> AsyncGenerator[Desk]:
    """Open a desk."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        opened = Desk(listener.extra(SocketAttribute.local_port))  # noqa: S610 - no Django here
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, opened.take)
            with anyio.fail_after(30):
                yield opened
            tasks.cancel_scope.cancel()


async def used(made: Tool[..., Any], **arguments: object) -> tuple[str, str]:
    """Run one call of a tool, and give its result."""
    outcome = await Agent(ScriptedModel(Call(made.name, arguments), "Done."), tools=[made]).run("go")
    result = outcome.messages[2].results[0]
    return result.state.value, result.content


async def test_a_tool_in_a_process_gets_its_arguments_and_gives_its_result() -> None:
    """A model goes there, JSON comes back, and what it prints is not the answer."""
    state, content = await used(process_tools.add, pair={"a": 2, "b": 3})
    assert state == "completed"
    assert content.startswith('{"sum":5,"pid":')
    assert str(os.getpid()) not in content
    assert await used(process_tools.later) == ("completed", "later")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("tool", "no seats left"),
        ("value", "ValueError: bad date"),
        ("die", "its process ended with code 3 and no result: out of luck"),
        ("json", "fail returned a object, which is not JSON"),
    ],
)
async def test_a_tool_that_fails_in_its_process_tells_the_model(kind: str, content: str) -> None:
    """As any tool does; one that dies is told by its code."""
    state, said = await used(process_tools.fail, kind=kind)
    assert state == "failed"
    assert said.startswith(content)


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_cut_ends_the_whole_group(deaf: bool) -> None:  # noqa: FBT001 - a table
    """The tool, and the grandchild that ignores SIGTERM; also if the tool itself ignores it."""
    async with desk() as opened:
        call = Call("hold", {"port": opened.port, "deaf": deaf})
        agent = Agent(ScriptedModel(call), tools=[process_tools.hold], tool_grace=2)
        async with agent.start("go") as run:
            await opened.told.wait()
            assert all(alive(pid) for pid in opened.pids)
            report = await run.cancel()
            assert not any(alive(pid) for pid in opened.pids[:1])
            outcome: Outcome = await whole(run)
        assert len(opened.pids) == 2
        await gone(opened.pids)
    assert outcome.messages[2].results[0].state == "unknown"
    assert report.abandoned == ()


# run_process


PRINT = "import sys; print(sys.stdin.read().upper()); sys.stderr.write('noted')"


async def test_a_command_gives_what_it_wrote() -> None:
    """Input goes in, both outputs come out."""
    done = await run_process([sys.executable, "-c", PRINT], input=b"hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"HELLO\n", b"noted")


async def test_a_string_is_run_by_the_shell_where_and_as_it_is_told(tmp_path: Path) -> None:
    """Folder and environment are the caller's."""
    done = await run_process("echo $CORD; pwd", cwd=str(tmp_path), env={"CORD": "red"})
    assert done.stdout.decode().split() == ["red", str(tmp_path)]


async def test_a_command_that_fails_raises_what_the_model_can_read() -> None:
    """The code and the end of stderr; or not, if the caller checks for itself."""
    with pytest.raises(ToolError, match="the command ended with code 3: no such cord"):
        await run_process("echo no such cord >&2; exit 3")
    with pytest.raises(ToolError, match="ended with code 4: it wrote nothing to stderr"):
        await run_process("exit 4")
    assert (await run_process("exit 5", check=False)).returncode == 5


async def test_a_command_may_leave_its_input_unread() -> None:
    """A broken pipe is no failure."""
    done = await run_process("exit 0", input=b"x" * 1_000_000)
    assert done.returncode == 0


async def test_what_a_command_leaves_behind_is_ended_with_it() -> None:
    """A background child would hold the pipes open for ever."""
    async with desk() as opened:
        code = (
            "import subprocess, sys, socket\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
            f"socket.create_connection(('127.0.0.1', {opened.port})).sendall(str(child.pid).encode())\n"
            "print('done')"
        )
        done = await run_process([sys.executable, "-c", code])
        assert done.stdout == b"done\n"
        await opened.told.wait()
        await gone(opened.pids)


async def test_a_command_dies_with_the_tool_that_runs_it() -> None:
    """Its grandchildren included; SIGTERM first, SIGKILL after the grace."""
    async with desk() as opened:

        @tool
        async def build() -> str:
            """Build."""
            code = f"from tests.runtime.process_tools import hold; hold(port={opened.port}, deaf=True)"
            await run_process([sys.executable, "-c", code], grace=0.2)
            return "built"

        async with Agent(ScriptedModel(Call("build")), tools=[build]).start("go") as run:
            await opened.told.wait()
            report = await run.cancel()
            await whole(run)
        await gone(opened.pids)
    assert len(opened.pids) == 2
    assert report.abandoned == ()
    assert report.latency >= 0.2


async def test_a_second_cancellation_kills_the_group_at_once() -> None:
    """As when the loop is shut down during the grace: nothing outlives it, however long the grace."""
    async with desk() as opened:
        code = f"from tests.runtime.process_tools import hold; hold(port={opened.port}, deaf=True)"
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run_process([sys.executable, "-c", code], grace=600))
            await opened.told.wait()
            task.cancel()
            await anyio.wait_all_tasks_blocked()
            assert not task.done()
            task.cancel()
        assert len(opened.pids) == 2
        await gone(opened.pids)


async def test_a_command_that_is_not_there_says_so() -> None:
    """As subprocess does."""
    with pytest.raises(FileNotFoundError):
        await run_process(["no-such-command-anywhere"])


async def test_many_commands_at_once_leave_nothing_behind() -> None:
    """All cut."""
    async with desk() as opened:
        code = (
            "import os, socket, threading\n"
            f"told = socket.create_connection(('127.0.0.1', {opened.port}))\n"
            "told.sendall(f'{os.getpid()} '.encode())\n"
            "threading.Event().wait()"
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_process([sys.executable, "-S", "-c", code])) for _ in range(5)]
            while len(opened.pids) < 5:
                await anyio.lowlevel.checkpoint()
            for task in tasks:
                task.cancel()
        await gone(opened.pids)
    assert len(set(opened.pids)) == 5
