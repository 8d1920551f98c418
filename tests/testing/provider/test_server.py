"""The provider as a server: what it refuses, what it logs, and that it leaves nothing behind."""

import asyncio
import gc
import re
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection

import anyio
import openai
import pytest
from blockbuster import blockbuster_ctx

from andon.testing.provider import Burst, Drop, FakeProvider, Part, Reply, Request, Stall, Text, Usage
from tests.testing.provider.clients import PATHS, Clients

BODY: dict[str, bytes] = {
    "openai-chat": b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}',
    "openai-responses": b'{"model": "m", "input": "hi"}',
    "anthropic": b'{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}',
}
STREAMED = b'{"model": "m", "input": "hi", "stream": true}'
KEYS = {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}


def port(provider: FakeProvider) -> int:
    """Give the port it listens on."""
    return int(provider.url.rpartition(":")[2])


def connect(provider: FakeProvider) -> socket.socket:
    """Open a connection without any client's help."""
    return socket.create_connection(("127.0.0.1", port(provider)), timeout=5)


def send(line: socket.socket, body: bytes) -> None:
    """Send a request, and wait for nothing."""
    head = f"POST /v1/responses HTTP/1.1\r\nauthorization: k\r\ncontent-length: {len(body)}\r\n\r\n"
    line.sendall(head.encode() + body)


def exchange(
    provider: FakeProvider, path: str, body: bytes, headers: Mapping[str, str] = KEYS, method: str = "POST"
) -> tuple[int, str]:
    """Send one request and give the status and the body of its answer."""
    line = HTTPConnection("127.0.0.1", port(provider), timeout=5)
    with closing(line):
        line.request(method, path, body, headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode()


def to_the_end(line: socket.socket) -> bytes:
    """Read what comes until the connection ends in order, or raise as it breaks."""
    return b"".join(iter(lambda: line.recv(65536), b""))


def test_a_request_without_a_key_is_refused(provider: FakeProvider, api: str) -> None:
    """401, in the provider's own words."""
    status, answer = exchange(provider, PATHS[api], BODY[api], headers={})

    assert status == 401
    assert ("authentication_error" if api == "anthropic" else "invalid_api_key") in answer


def test_what_is_no_json_object_is_refused(provider: FakeProvider, api: str) -> None:
    """400, and the body is not in the log."""
    for body in (b"", b"{", b"[1]", b"\xff"):
        assert exchange(provider, PATHS[api], body)[0] == 400
    assert [one.body for one in provider.exchanges] == [None] * 4


def test_an_unknown_path_or_method_is_refused(provider: FakeProvider) -> None:
    """404 and 405; the log has them too."""
    assert exchange(provider, "/v1/nothing", b"{}")[0] == 404
    assert exchange(provider, "/v1/messages", b"{}", method="GET")[0] == 405
    assert [(one.path, one.api, one.status) for one in provider.exchanges] == [
        ("/v1/nothing", None, 404),
        ("/v1/messages", "anthropic", 405),
    ]


def test_a_strict_provider_refuses_an_invalid_conversation(provider: FakeProvider, api: str) -> None:
    """The refusal takes no reply from the queue."""
    provider.reply(Text("kept"))
    body = b'{"model": "m", "max_tokens": 9, "messages": [], "input": []}'

    assert "invalid_request_error" in exchange(provider, PATHS[api], body)[1]
    assert "kept" in exchange(provider, PATHS[api], BODY[api])[1]
    assert [one.status for one in provider.exchanges] == [400, 200]


def test_a_provider_that_is_not_strict_takes_anything(api: str) -> None:
    """For tests of what a sloppy server lets through."""
    with FakeProvider(strict=False) as provider:
        assert exchange(provider, PATHS[api], b"{}", headers={"authorization": "k"})[0] == 200


def test_a_whole_exchange_is_written_down(provider: FakeProvider) -> None:
    """Everything but the key, which may be a real one."""
    exchange(provider, "/v1/responses?beta=true", BODY["openai-responses"])
    (one,) = provider.exchanges

    assert (one.n, one.connection, one.api, one.path) == (1, 1, "openai-responses", "/v1/responses")
    assert one.body == {"model": "m", "input": "hi"}
    assert one.headers["authorization"] == "(not kept)"
    assert (one.status, one.chunks_sent, one.finished, one.closed_by_client) == (200, 1, True, False)
    assert one.closed_at is not None
    assert one.received_at < one.closed_at
    assert re.fullmatch(r"<FakeProvider \S+ \[1 exchanges, 0 open, 0 replies queued\]>", repr(provider))


def test_what_a_client_has_received_is_in_the_log(provider: FakeProvider) -> None:
    """No wait is needed after an answer."""
    for n in range(1, 101):
        exchange(provider, "/v1/responses", BODY["openai-responses"])
        assert provider.exchanges[n - 1].finished


def test_requests_on_one_connection_follow_each_other(provider: FakeProvider) -> None:
    """Also when the client sends the second before the first is answered."""
    with connect(provider) as line:
        provider.reply(Stall(), Text("first"))
        provider.reply(Text("second"))
        send(line, BODY["openai-responses"])
        send(line, BODY["openai-responses"])
        provider.stalled(1).wait()
        assert len(provider.exchanges) == 1
        provider.release()
        provider.closed(2).wait()

    assert [one.connection for one in provider.exchanges] == [1, 1]


async def test_the_clients_reuse_their_connection(provider: FakeProvider, clients: Clients, api: str) -> None:
    """A whole answer leaves the connection ready for the next."""
    for _ in range(3):
        assert [piece async for piece in clients.ask(api, "hi")]

    assert {one.connection for one in provider.exchanges} == {1}
    assert provider.open_connections == 0


async def test_fifty_clients_at_once_are_all_answered(provider: FakeProvider, clients: Clients) -> None:
    """Each gets its own prompt back, all of them being in flight together."""
    provider.respond(lambda request: (Stall(), Text(request.prompt)))
    answers: dict[int, str] = {}

    async def ask(number: int) -> None:
        api = list(PATHS)[number % 3]
        answers[number] = "".join([piece async for piece in clients.ask(api, f"number {number}")])

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(ask, number)
        await provider.until(lambda exchanges: sum(one.stalls for one in exchanges) == 50)
        assert provider.open_connections == 50
        provider.release()

    assert answers == {number: f"number {number}" for number in range(50)}
    assert all(one.finished for one in provider.exchanges)


def test_a_drop_is_a_reset(provider: FakeProvider) -> None:
    """What was sent before arrives; then it is RST, not an orderly end."""
    provider.reply(Text("hello"), Drop())
    with connect(provider) as line:
        send(line, STREAMED)
        provider.sent(1).wait()
        received = line.recv(65536)
        with pytest.raises(ConnectionResetError):
            to_the_end(line)

    assert received.startswith(b"HTTP/1.1 200 OK")
    assert provider.exchanges[0].dropped


def test_a_client_that_does_not_read_is_not_sent_more(provider: FakeProvider) -> None:
    """What waits for it waits in the script; when it reads again, everything arrives."""
    provider.reply(Burst(3000, "x" * 10_000))
    with connect(provider) as line:
        send(line, STREAMED)
        assert not provider.sent(1).wait().finished
        end = b""
        while not end.endswith(b"0\r\n\r\n"):
            end = end[-9:] + line.recv(1 << 20)
        closed = provider.closed(1).wait()

    assert closed.finished
    assert closed.chunks_sent == 3000


def test_a_client_that_never_reads_is_seen_leaving(provider: FakeProvider) -> None:
    """Also while the provider waits for room to write."""
    provider.reply(Burst(3000, "x" * 10_000))
    with connect(provider) as line:
        send(line, STREAMED)
        provider.sent(1).wait()
    left = provider.closed(1).wait()

    assert left.closed_by_client
    assert left.chunks_sent < 3000


def test_half_a_request_is_no_exchange(provider: FakeProvider) -> None:
    """Nor is what is not HTTP at all."""
    for start in (b"POST /v1/messages HTTP/1.1\r\ncontent-length: 9\r\n\r\n{", b"hello\r\n\r\n"):
        with connect(provider) as line:
            line.sendall(start)
            line.shutdown(socket.SHUT_WR)
            assert line.recv(1) == b""

    assert provider.exchanges == ()


async def test_the_log_is_true_while_the_loop_hangs(provider: FakeProvider) -> None:
    """The provider runs on its own thread: a blocked loop does not delay what it sees."""
    provider.reply(Stall())
    line = connect(provider)
    send(line, BODY["openai-responses"])
    provider.stalled(1).wait()  # blocks the loop, on purpose
    line.close()

    assert provider.closed(1).wait().closed_by_client


async def test_starting_and_stopping_does_not_block_the_loop() -> None:
    """Not by what blockbuster knows, and not for long."""
    with blockbuster_ctx():
        started = time.monotonic()
        async with FakeProvider() as provider:
            provider.reply(Stall())
            reader, writer = await asyncio.open_connection("127.0.0.1", port(provider))
            writer.write(b"POST /v1/responses HTTP/1.1\r\nauthorization: k\r\ncontent-length: 29\r\n\r\n")
            writer.write(BODY["openai-responses"])
            await provider.stalled(1)
        assert await reader.read()
        writer.close()

    assert time.monotonic() - started < 1
    assert not provider.exchanges[0].closed_by_client


def test_nothing_is_left_behind() -> None:
    """No thread, and no socket, though clients are connected, idle, stalled and half-way."""
    before = set(threading.enumerate())
    with FakeProvider() as provider:
        provider.reply(Stall())
        lines = [connect(provider) for _ in range(3)]
        send(lines[0], BODY["openai-responses"])
        lines[1].sendall(b"POST ")
        provider.stalled(1).wait()

    assert set(threading.enumerate()) == before
    for line in lines:
        # What was sent and not read makes the end a reset.
        with line, suppress(ConnectionResetError):
            to_the_end(line)
    with pytest.raises(ConnectionRefusedError):
        connect(provider)
    gc.collect()


def test_a_wait_that_fails_says_what_was_seen() -> None:
    """Not a hang, but an error that shows the log."""
    with FakeProvider(patience=0.01) as provider:
        exchange(provider, "/v1/responses", BODY["openai-responses"])
        with pytest.raises(TimeoutError, match=r"(?s)0\.01 s have passed.*path='/v1/responses'"):
            provider.requested(2).wait()
        with pytest.raises(TimeoutError):
            provider.requested(2).wait(timeout=0.001)


def test_a_wait_ends_with_the_provider() -> None:
    """What has been seen can still be asked, what has not fails at once."""
    with FakeProvider() as provider:
        exchange(provider, "/v1/responses", BODY["openai-responses"])
        pending = provider.requested(2)

    for wait in (pending, provider.stalled(1)):
        with pytest.raises(TimeoutError, match="was shut down"):
            wait.wait()
    assert provider.closed(1).wait().finished
    with pytest.raises(RuntimeError, match="use it inside `with"):
        provider.release()


async def test_giving_up_a_wait_does_not_spoil_it(provider: FakeProvider) -> None:
    """The same wait can be awaited again."""
    wait = provider.requested(1)
    with anyio.move_on_after(0.001):
        await wait
    await anyio.to_thread.run_sync(exchange, provider, "/v1/responses", BODY["openai-responses"])

    assert (await wait).n == 1


def test_the_error_of_a_condition_is_the_waiters(provider: FakeProvider) -> None:
    """The provider itself goes on."""
    wait = provider.until(lambda exchanges: exchanges[0].finished)
    with pytest.raises(IndexError):
        wait.wait()


def test_the_error_of_a_script_is_told_and_raised_in_the_end() -> None:
    """The client gets a 500, the test its own error."""

    def script(request: Request) -> list[Part]:
        raise LookupError(f"no answer to {request.prompt}")

    def scene() -> None:
        with FakeProvider() as provider:
            provider.respond(script)
            assert "LookupError" in exchange(provider, "/v1/responses", BODY["openai-responses"])[1]

    with pytest.raises(LookupError, match="no answer to hi"):
        scene()


async def test_a_script_may_give_a_whole_reply(provider: FakeProvider, clients: Clients) -> None:
    """With its usage, or by a generator; the queue goes first."""
    provider.respond(lambda _: Reply((Text("scripted"),), usage=Usage(1, 2)))
    provider.reply(Text("queued"))
    first = await clients.openai.responses.create(model="m", input="hi")
    second = await clients.openai.responses.create(model="m", input="hi")

    assert (first.output_text, second.output_text) == ("queued", "scripted")
    assert second.usage is not None
    assert second.usage.total_tokens == 3


async def test_a_refusal_reaches_the_real_clients_as_their_own_error(clients: Clients) -> None:
    """The SDK's bad request, with the provider's words."""
    with pytest.raises(openai.BadRequestError, match="preceeding message"):
        await clients.openai.chat.completions.create(
            model="m", messages=[{"role": "tool", "tool_call_id": "c1", "content": "x"}]
        )
