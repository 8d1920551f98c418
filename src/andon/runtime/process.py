"""Process: run commands and tools in a process group of their own, which dies with whoever asked."""

import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from subprocess import PIPE

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from msgspec import Struct

from andon.errors import ToolError


class Completed(Struct, frozen=True, kw_only=True):
    """What a command left behind."""

    returncode: int
    stdout: bytes
    stderr: bytes


async def run_process(
    command: Sequence[str] | str,
    *,
    input: bytes | None = None,  # noqa: A002 — what subprocess calls it
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    grace: float = 1.0,
) -> Completed:
    """Run a command that dies with the tool that runs it, its children and theirs included.

    When the tool is cut, the whole process group is asked to end, and killed `grace` seconds later;
    what the command left running in the background is killed when the command itself has ended. A
    string is run by the shell. With `check`, a return code other than 0 raises ToolError.
    """
    async with _group(command, grace, cwd=cwd, env=env) as process:
        out, err = bytearray(), bytearray()
        code = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, out)
            tasks.start_soon(_read, process.stderr, err)
            tasks.start_soon(_write, process.stdin, input or b"")
            code = await process.wait()
            _signal(process, signal.SIGKILL)  # a child left behind would keep the pipes open
    if check and code != 0:
        tail = bytes(err[-2_000:]).decode(errors="replace").strip()
        msg = f"the command ended with code {code}: {tail or 'it wrote nothing to stderr'}"
        raise ToolError(msg)
    return Completed(returncode=code, stdout=bytes(out), stderr=bytes(err))


@asynccontextmanager
async def _group(
    command: Sequence[str] | str, grace: float, *, cwd: str | None, env: Mapping[str, str] | None
) -> AsyncGenerator[Process]:
    process = await anyio.open_process(
        command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
    )
    try:
        yield process
    finally:
        await _end(process, grace)


async def _end(process: Process, grace: float) -> None:
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with anyio.move_on_after(grace, shield=True):
                await process.wait()
    finally:
        # Before anything is awaited: a second cancellation, as when the loop is shut down, goes
        # through every shield, and whatever the group still runs would outlive this program.
        _signal(process, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return  # the whole group has ended
    except PermissionError:
        # macOS says so of a group in which only the dead are left.
        if process.returncode is None:
            raise


async def _read(stream: ByteReceiveStream | None, into: bytearray) -> None:
    if stream is not None:
        async for chunk in stream:
            into += chunk


async def _write(stream: ByteSendStream | None, data: bytes) -> None:
    if stream is None:
        return
    try:
        await stream.send(data)
    except (anyio.BrokenResourceError, ConnectionError):
        return  # a command may end without reading all of its input
    finally:
        await stream.aclose()
