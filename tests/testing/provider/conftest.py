"""A running provider, and the real clients of all three APIs in front of it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from andon.testing.provider import FakeProvider
from tests.testing.provider.clients import PATHS, Clients


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """Give a fake provider on a free port."""
    with FakeProvider() as running:
        yield running


@pytest.fixture
async def clients(provider: FakeProvider) -> AsyncIterator[Clients]:
    """Give the SDKs, pointed at it."""
    both = Clients(provider)
    yield both
    await both.close()


@pytest.fixture(params=PATHS)
def api(request: pytest.FixtureRequest) -> str:
    """Name each API in turn."""
    return str(request.param)
