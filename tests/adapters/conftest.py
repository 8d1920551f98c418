"""A strict provider on a port, and models of ours that talk to it through the real SDKs."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import anyio
import anyio.lowlevel
import pytest

from andon.adapters.models import ProviderModel, resolve
from andon.testing.provider import FakeProvider

NAMES = {
    "openai-chat": "openai-chat:gpt-4o",
    "openai-responses": "openai:gpt-5",
    "anthropic": "anthropic:claude-fake",
}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """Give a fake provider, to which the environment points."""
    with FakeProvider() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture(params=NAMES)
def api(request: pytest.FixtureRequest) -> str:
    """Name each API in turn."""
    return str(request.param)


@pytest.fixture
async def model(provider: FakeProvider, api: str) -> AsyncIterator[ProviderModel]:
    """Give the model of each API in turn; a test that leaves anything open fails."""
    async for model in using(provider, NAMES[api]):
        yield model


@pytest.fixture
async def claude(provider: FakeProvider) -> AsyncIterator[ProviderModel]:
    """Give one model, for what does not depend on the API."""
    async for model in using(provider, NAMES["anthropic"]):
        yield model


async def using(provider: FakeProvider, name: str) -> AsyncIterator[ProviderModel]:
    """Make a model, and look afterwards that no task and no connection is left of it."""
    model = resolve(name)
    yield model
    await model.aclose()
    await settled()
    assert [task for task in map(repr, asyncio.all_tasks()) if "TestRunner" not in task] == []
    await provider.until(lambda exchanges: all(seen.closed_at is not None for seen in exchanges))
    assert provider.open_connections == 0


async def settled() -> None:
    """Let the loop end the generators that the SDKs have left to it."""
    await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()
