"""One model object serves many runs, loops and threads, and leaves nothing open."""

import asyncio
import gc
import threading

import anyio
import httpx2
import pytest

from andon import Agent, Message
from andon.adapters.models import ProviderModel, resolve
from andon.adapters.models.connection import Watch, on_response
from andon.ports import ModelRequest
from andon.testing.provider import FakeProvider, Stall, Text
from tests.adapters.conftest import settled

MANY = 50


async def test_many_runs_at_once(provider: FakeProvider, model: ProviderModel) -> None:
    """Each gets its own answer."""
    agent = Agent(model)
    answers: dict[int, str] = {}

    async def one(n: int) -> None:
        outcome = await agent.run(f"number {n}")
        answers[n] = outcome.messages[-1].text

    async with anyio.create_task_group() as group:
        for n in range(MANY):
            group.start_soon(one, n)

    assert answers == {n: f"number {n}" for n in range(MANY)}
    assert len(provider.exchanges) == MANY


async def test_many_cuts_at_once(provider: FakeProvider, model: ProviderModel) -> None:
    """Every connection is closed."""
    provider.respond(lambda _: (Text("Once"), Stall()))
    agent = Agent(model)

    async def one() -> None:
        outcome = await agent.run("hi")
        assert outcome.stop_reason == "cancelled"

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(one)
        await provider.until(lambda exchanges: sum(seen.stalls for seen in exchanges) == MANY)
        await agent.cancel()

    seen = await provider.until(lambda exchanges: all(one.closed_at is not None for one in exchanges))
    assert all(one.closed_by_client for one in seen)


async def test_a_connection_is_used_again(provider: FakeProvider, claude: ProviderModel) -> None:
    """A conversation does not shake hands at every step."""
    agent = Agent(claude)
    await agent.run("one")
    await agent.run("two")

    assert [exchange.connection for exchange in provider.exchanges] == [1, 1]


async def test_a_closed_model_opens_again(provider: FakeProvider, claude: ProviderModel) -> None:
    """`aclose` is no end."""
    agent = Agent(claude)
    await agent.run("one")
    await claude.aclose()
    await claude.aclose()
    outcome = await agent.run("two")

    assert outcome.messages[-1].text == "two"
    assert [exchange.connection for exchange in provider.exchanges] == [1, 2]


def test_two_threads_share_a_model(provider: FakeProvider) -> None:
    """Each loop has its own client; a barrier holds both requests in flight at once."""
    agent = Agent("anthropic:claude-fake")
    provider.reply(Stall(), Text("a"))
    provider.reply(Stall(), Text("a"))
    answers: list[str] = []

    def work() -> None:
        answers.extend(agent.run_sync("a").messages[-1].text for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    provider.until(lambda exchanges: sum(seen.stalls for seen in exchanges) == 2).wait()
    provider.release()
    for thread in threads:
        thread.join()

    assert answers == ["a"] * 6
    assert {exchange.status for exchange in provider.exchanges} == {200}


@pytest.mark.usefixtures("provider")
def test_a_loop_that_ends_closes_its_connections() -> None:
    """Nobody told us; a connection left open would be a ResourceWarning, and so an error here."""
    model = resolve("openai-chat:gpt-4o")
    agent = Agent(model)
    clients: list[httpx2.AsyncClient] = []

    async def work() -> None:
        await agent.run("hi")
        clients.extend(session.client for session in model.sessions.opened.values())

    asyncio.run(work())
    agent.run_sync("hi")
    gc.collect()

    assert [client.is_closed for client in clients] == [True]
    assert len(model.sessions.opened) == 1  # the ended loops are forgotten as new ones come


@pytest.mark.usefixtures("provider")
async def test_a_model_that_nobody_has_closes_its_connections() -> None:
    """Agents may be made by the request: what they opened goes with them."""
    model = resolve("openai-chat:gpt-4o")
    await Agent(model).run("hi")
    (session,) = model.sessions.opened.values()
    client = session.client
    del model, session

    async with asyncio.timeout(10):
        while not client.is_closed:
            gc.collect()
            await settled()


async def test_what_a_library_leaves_open_is_closed(provider: FakeProvider) -> None:
    """The watch closes responses that were begun and forgotten."""
    provider.reply(Text("Once"), Stall())
    async with httpx2.AsyncClient(event_hooks={"response": [on_response]}) as client:
        async with Watch():
            asked = client.build_request(
                "POST",
                f"{provider.openai_url}/chat/completions",
                headers={"authorization": "x"},
                json={"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]},
            )
            response = await client.send(asked, stream=True)
            assert not response.is_closed
        closed = await provider.closed(1)

    assert closed.closed_by_client


async def test_a_pump_that_is_cancelled_from_outside_says_so(
    provider: FakeProvider, claude: ProviderModel
) -> None:
    """A loop that is shut down cancels all tasks; the reader is not left waiting."""
    provider.reply(Text("Once"), Stall())
    chunks = claude(ModelRequest((Message.user("hi"),)))
    await anext(aiter(chunks))
    for task in asyncio.all_tasks():
        if "Job._run" in repr(task):
            task.cancel()
    said = ""
    try:
        async for _ in chunks:
            pass
    except Exception as error:  # noqa: BLE001 — shown below
        said = str(error)

    assert "cancelled from outside" in said
