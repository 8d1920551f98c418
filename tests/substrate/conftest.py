"""Tests of substrates fail when code of Andon blocks the event loop."""

from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx


@pytest.fixture(autouse=True)
def blocking_is_an_error() -> Iterator[None]:
    """Watch for blocking calls; the tests' own files may read and write."""
    with blockbuster_ctx("andon") as watch:
        # Coverage notes the lines of many threads under a lock of its own.
        watch.functions["threading.Lock.acquire"].can_block_in("coverage/collector.py", "lock_data")
        yield
