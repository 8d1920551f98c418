"""A server is killed at random moments under load: what it acknowledged is there once, and all goes on."""

from pathlib import Path

import pytest

from tests.chaos.scene import Chaos

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


async def test_a_server_that_is_killed_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    """Nor does a reader who comes again and again miss an item, or read one twice."""
    chaos = Chaos(tmp_path, seed=1, sessions=4, lease=3_600.0)
    assert await chaos.play(kills=10) == []
    assert all(one.pushed for one in chaos.told)


async def test_two_servers_that_share_a_file_are_killed_in_turn(tmp_path: Path) -> None:
    """Or told to leave, in the midst of whatever they do: nobody is cancelled by that."""
    chaos = Chaos(tmp_path, seed=2, sessions=4, servers=2, drains=0.5, lease=3_600.0)
    assert await chaos.play(kills=4) == []
    assert chaos.left > 2


async def test_a_disk_that_is_full_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """Work waits until there is room."""
    chaos = Chaos(tmp_path, seed=3, sessions=4, full=True, lease=3_600.0)
    assert await chaos.play(kills=4) == []
