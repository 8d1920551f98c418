"""Stalls, drops, failures and bursts, at every place and in every API."""

import time

import anyio
import openai
import pytest
from anthropic import APIStatusError as AnthropicStatusError

from andon.testing.provider import (
    Burst,
    Drip,
    Drop,
    Exchange,
    Fail,
    FakeProvider,
    Part,
    Reasoning,
    Stall,
    Text,
    ToolCall,
)
from tests.testing.provider.clients import Clients

PLACES: dict[str, tuple[Part, ...]] = {
    "before the headers": (Stall(before="headers"), Text("a")),
    "before the first event": (Text("a"), Stall(before="events")),
    "before any content": (Stall(), Text("a")),
    "in the text": (Text("a"), Stall(), Text("b")),
    "in the reasoning": (Reasoning("a"), Stall(), Text("b")),
    "in the arguments": (ToolCall("f", {"query": "cord"}, chunks=4, midway=(2, Stall())),),
    "before the end": (Text("a"), Stall()),
}


async def read(clients: Clients, api: str, into: list[str] | None = None) -> None:
    """Read an answer to its end."""
    pieces = [] if into is None else into
    async for piece in clients.ask(api, "hi"):
        pieces.append(piece)


@pytest.mark.parametrize("place", PLACES)
async def test_a_client_that_leaves_a_stall_is_seen(
    provider: FakeProvider, clients: Clients, api: str, place: str
) -> None:
    """Wherever the provider hangs, the log has the close without the provider sending anything."""
    provider.reply(*PLACES[place])
    async with anyio.create_task_group() as group:
        group.start_soon(read, clients, api)
        await provider.stalled(1)
        assert provider.open_connections == 1
        group.cancel_scope.cancel()
    left = time.monotonic()
    closed = await provider.closed(1)

    assert closed.closed_by_client
    assert not closed.finished
    assert closed.stalls == 1
    assert closed.closed_at is not None
    assert closed.received_at < closed.closed_at < left + 0.1
    assert provider.open_connections == 0


@pytest.mark.parametrize("place", PLACES)
async def test_a_released_stall_goes_on_to_the_end(
    provider: FakeProvider, clients: Clients, api: str, place: str
) -> None:
    """The stall is a pause in an answer that is otherwise whole."""
    provider.reply(*PLACES[place])
    pieces: list[str] = []
    async with anyio.create_task_group() as group:
        group.start_soon(read, clients, api, pieces)
        await provider.stalled(1)
        provider.release(1)

    wanted = {"in the text": "ab", "in the reasoning": "b", "in the arguments": '{"query":"cord"}'}
    assert "".join(pieces) == wanted.get(place, "a")
    assert provider.exchanges[0].finished


async def test_the_status_tells_where_a_stall_stands(
    provider: FakeProvider, clients: Clients, api: str
) -> None:
    """No status before the headers, no chunk before the first event."""
    provider.reply(Stall(before="headers"), Stall(before="events"), Text("a"), Stall())
    seen: list[Exchange] = []
    async with anyio.create_task_group() as group:
        group.start_soon(read, clients, api)
        for times in (1, 2, 3):
            seen.append(await provider.stalled(1, times=times))
            provider.release()

    assert [(exchange.status, exchange.chunks_sent) for exchange in seen] == [(None, 0), (200, 0), (200, 1)]


async def test_release_ends_only_the_stall_that_is_named(provider: FakeProvider, clients: Clients) -> None:
    """Another exchange stalls on."""
    provider.reply(Stall(), Text("a"))
    provider.reply(Stall(), Text("b"))
    async with anyio.create_task_group() as group:
        group.start_soon(read, clients, "anthropic")
        group.start_soon(read, clients, "anthropic")
        await provider.stalled(1)
        await provider.stalled(2)
        provider.release(2)
        assert (await provider.closed(2)).finished
        assert provider.open_connections == 1
        provider.release()

    assert all(exchange.finished for exchange in provider.exchanges)


@pytest.mark.parametrize("parts", [(Text("a"), Drop()), (Drop(before="events"), Text("a"))])
async def test_a_drop_resets_the_stream(
    provider: FakeProvider, clients: Clients, api: str, parts: tuple[Part, ...]
) -> None:
    """The client gets an error of its transport, and what came before it."""
    provider.reply(*parts)
    pieces: list[str] = []
    # The SDKs wrap the error of their transport or let it through, and change their transport.
    with pytest.raises(Exception) as failure:  # noqa: PT011
        await read(clients, api, pieces)

    assert type(failure.value).__name__ in {"APIConnectionError", "ReadError"}
    assert "".join(pieces) == ("a" if parts[0] == Text("a") else "")
    dropped = await provider.closed(1)
    assert dropped.dropped
    assert not dropped.finished
    assert not dropped.closed_by_client


async def test_a_drop_before_the_headers_is_a_connection_error(
    provider: FakeProvider, clients: Clients
) -> None:
    """Not even a status line arrives."""
    provider.reply(Drop(before="headers"))
    with pytest.raises(openai.APIConnectionError):
        await read(clients, "openai-chat")

    assert (await provider.closed(1)).status is None


@pytest.mark.parametrize("status", [400, 429, 500, 529])
async def test_a_failure_comes_in_the_providers_own_words(
    provider: FakeProvider, clients: Clients, api: str, status: int
) -> None:
    """The SDKs raise the error they have for it, and read when to come again."""
    provider.reply(Fail(status, "no", retry_after=1.5))
    with pytest.raises((openai.APIStatusError, AnthropicStatusError)) as failure:
        await read(clients, api)

    assert failure.value.status_code == status
    assert failure.value.response.headers["retry-after"] == "1.5"
    assert "no" in failure.value.message
    assert provider.exchanges[0].status == status
    assert provider.exchanges[0].finished


async def test_the_type_of_a_failure_is_the_providers(provider: FakeProvider, clients: Clients) -> None:
    """Each provider has its own names for the same status, and the script may name another."""
    for fail in (Fail(429), Fail(429), Fail(529), Fail(400, type="billing_error")):
        provider.reply(fail)
    bodies: list[object] = []
    for api in ("openai-chat", "anthropic", "anthropic", "anthropic"):
        with pytest.raises((openai.APIStatusError, AnthropicStatusError)) as failure:
            await read(clients, api)
        bodies.append(failure.value.body)

    kinds = ("requests", "rate_limit_error", "overloaded_error", "billing_error")
    assert all(f"'{kind}'" in str(body) for kind, body in zip(kinds, bodies, strict=True))


async def test_a_failure_inside_the_stream_is_an_error_event(
    provider: FakeProvider, clients: Clients
) -> None:
    """The status was 200; the SDKs raise all the same."""
    for api in ("openai-chat", "anthropic"):
        provider.reply(Text("a"), Fail(529, "overloaded"))
        pieces: list[str] = []
        with pytest.raises((openai.APIError, AnthropicStatusError), match="overloaded"):
            await read(clients, api, pieces)
        assert "".join(pieces) == "a"
    assert [exchange.status for exchange in provider.exchanges] == [200, 200]


async def test_a_response_that_fails_midway_says_failed(provider: FakeProvider, clients: Clients) -> None:
    """Responses has an event for it."""
    provider.reply(Text("a"), Fail(429, "slow down"))
    stream = await clients.openai.responses.create(model="m", input="hi", stream=True)
    async with stream:
        kinds = [event.type async for event in stream]

    assert kinds[-2:] == ["error", "response.failed"]


async def test_a_burst_and_a_drip_arrive_whole(provider: FakeProvider, clients: Clients, api: str) -> None:
    """Every chunk is counted, fast or slow."""
    provider.reply(Burst(500, "x"), Drip("y", times=3, interval=0.001))
    pieces: list[str] = []
    await read(clients, api, pieces)

    assert "".join(pieces) == "x" * 500 + "yyy"
    closed = await provider.closed(1)
    assert closed.chunks_sent == 503
    assert closed.finished


async def test_a_burst_stops_when_the_client_leaves(
    provider: FakeProvider, clients: Clients, api: str
) -> None:
    """What was not sent by then is never sent."""
    provider.reply(Burst(1_000_000, "x" * 100))
    async with anyio.create_task_group() as group:
        group.start_soon(read, clients, api)
        await provider.sent(1, 100)
        group.cancel_scope.cancel()
    closed = await provider.closed(1)

    assert closed.closed_by_client
    assert closed.chunks_sent < 1_000_000


async def test_a_drip_inside_the_arguments_delays_them(provider: FakeProvider, clients: Clients) -> None:
    """A drip midway adds its own pieces to the arguments."""
    provider.reply(ToolCall("f", '{"q":""}', chunks=1, midway=(0, Drip(" ", times=3, interval=0.001))))
    pieces: list[str] = []
    await read(clients, "openai-chat", pieces)

    assert "".join(pieces) == '   {"q":""}'


async def test_faults_hold_for_answers_without_a_stream(provider: FakeProvider, clients: Clients) -> None:
    """The whole body waits behind the stall."""
    provider.reply(Text("a"), Stall(), Text("b"))
    texts: list[str | None] = []

    async def complete() -> None:
        answer = await clients.openai.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}]
        )
        texts.append(answer.choices[0].message.content)

    async with anyio.create_task_group() as group:
        group.start_soon(complete)
        assert (await provider.stalled(1)).status == 200
        provider.release()

    assert texts == ["ab"]
    provider.reply(Text("a"), Fail(500))
    with pytest.raises(openai.InternalServerError):
        await complete()
