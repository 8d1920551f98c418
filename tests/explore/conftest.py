"""The other process, in which all that is stopped here goes on."""

from collections.abc import Iterator

import pytest

from tests.explore.elsewhere import Elsewhere


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Elsewhere]:
    """Give one process for all: each order gets a fresh scene there."""
    with Elsewhere() as other:
        yield other
