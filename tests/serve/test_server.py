"""The server as a process: it says where it listens, and leaves in order when it is told to."""

import signal
import subprocess
import sys
from textwrap import dedent

import anyio
import httpx
import pytest

from andon import Agent
from andon.errors import UserError
from andon.runtime.memory import MemorySubstrate
from andon.serve.server import listen, serve
from andon.serve.settings import Settings
from andon.testing import ScriptedModel
from tests.serve.scene import FREE, scene

PROGRAM = dedent(
    """
    import anyio
    from andon import Agent
    from andon.runtime.memory import MemorySubstrate
    from andon.serve.server import serve
    from andon.serve.settings import Settings

    async def model(request):
        yield "Let me think. "
        await anyio.sleep_forever()

    def started(address):
        print(address, flush=True)

    async def main():
        settings = Settings(port=0, drain_grace={grace})
        await serve({{"trips": Agent(model)}}, MemorySubstrate(), settings, started=started)
        print("left", flush=True)

    anyio.run(main)
    """
)


def begun(grace: float) -> tuple[subprocess.Popen[str], str]:
    """Start the server as a process, with a run that never ends by itself."""
    process = subprocess.Popen(  # noqa: S603 — our own program
        [sys.executable, "-c", PROGRAM.format(grace=grace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:"), process.communicate()[1]
    path = f"{address}/apps/trips/users/ann/sessions/s1"
    assert httpx.post(path).status_code == 200
    run = httpx.post(f"{path}/runs", json={"input": "hello"}).json()["run_id"]
    with httpx.stream("GET", f"{path}/events") as answer:
        assert any("model_started" in line for line in answer.iter_lines())
    assert httpx.get(f"{address}/runs/{run}").json()["state"] == "running"
    return process, address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_it_and_it_leaves_with_success(number: signal.Signals) -> None:
    """Exit code 0, streams end with an event that says so, and nothing is said on the error stream."""
    process, address = begun(0.05)
    path = f"{address}/apps/trips/users/ann/sessions/s1/events"
    with httpx.stream("GET", path) as answer:
        lines = answer.iter_lines()
        assert any("model_started" in line for line in lines)
        process.send_signal(number)
        last = list(lines)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "left\n", "")
    assert "event: end" in last
    assert "event: handed_over" in last


def test_a_second_signal_leaves_at_once() -> None:
    """Though the drain may take long."""
    process, _ = begun(3_600)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    assert process.communicate(timeout=30)[0] in {"left\n", ""}


async def test_it_says_where_it_listens() -> None:
    """And is reached there."""
    async with scene() as s:
        assert s.server.address.startswith("http://127.0.0.1:")
        assert (await s.client.get("/healthz")).status_code == 200


async def test_it_listens_on_the_sixth_version_too() -> None:
    """With its address in brackets."""
    async with scene(Settings(port=0, host="::1")) as s:
        assert s.server.address.startswith("http://[::1]:")
        assert (await s.client.get("/healthz")).status_code == 200


async def test_a_port_that_is_taken_is_a_clear_error() -> None:
    """It names the port, and what to do."""
    with listen(FREE) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=rf"it cannot listen on 127\.0\.0\.1:{port} .*: choose another"):
            await serve({"trips": Agent(ScriptedModel())}, MemorySubstrate(), Settings(port=port))


async def test_other_machines_are_refused_before_anything_is_opened() -> None:
    """Without tokens there is no server on 0.0.0.0."""
    with pytest.raises(UserError, match="lets other machines in"):
        await serve({"trips": Agent(ScriptedModel())}, MemorySubstrate(), Settings(host="0.0.0.0"))  # noqa: S104 — refused


async def test_serve_is_over_when_it_is_cancelled() -> None:
    """It leaves in order then, too."""
    addresses: list[str] = []
    async with anyio.create_task_group() as group:

        def started(address: str) -> None:
            addresses.append(address)
            group.cancel_scope.cancel()

        await serve({"trips": Agent(ScriptedModel())}, MemorySubstrate(), FREE, started=started)
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(addresses[0])
