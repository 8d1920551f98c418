"""TV: what cannot be asked for."""

import pytest

from andon import Point, Preempt, Stop
from andon.testing import virtual
from tests.belt import Belt

NO_SECONDS = [0, 0.0, -1, -0.5, float("nan"), float("inf")]


@pytest.mark.parametrize("grace", NO_SECONDS)
def test_tv_01_a_grace_that_is_no_time_is_refused(grace: float) -> None:
    """When the stop is made, whichever way."""
    with pytest.raises(ValueError, match=r"grace is .*: give a number of seconds above 0"):
        Stop.graceful(grace=grace)
    with pytest.raises(ValueError, match="grace is"):
        Stop.gently(grace=grace)
    with pytest.raises(ValueError, match="grace is"):
        Stop.at(Point.TOOLS, grace=grace)


def test_tv_02_a_safe_point_must_be_named() -> None:
    """No point, and bits that are no points."""
    with pytest.raises(ValueError, match="points is empty: name at least one"):
        Stop.at(Point(0))
    with pytest.raises(ValueError, match="points is empty: name at least one"):
        Preempt(Point(0))
    with pytest.raises(TypeError, match="points is 2: give a Point"):
        Preempt(2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="8"):
        Point(8)


@pytest.mark.parametrize("grace", NO_SECONDS)
def test_tv_05_the_grace_and_the_delay_of_a_preempt_are_times(grace: float) -> None:
    """Each on its own."""
    with pytest.raises(ValueError, match=r"grace is .*: give a number of seconds above 0"):
        Preempt(Point.ANY, grace=grace)
    with pytest.raises(ValueError, match=r"delay is .*: give a number of seconds above 0"):
        Preempt(Point.ANY, delay=grace)


@pytest.mark.parametrize("idle", NO_SECONDS)
@virtual
async def test_tv_05_the_idle_time_of_a_stop_is_a_time(idle: float) -> None:
    """Refused at the call, and nothing changes."""
    belt = Belt()
    async with belt.loop:
        with pytest.raises(ValueError, match=r"when_idle_for is .*: give a number of seconds above 0"):
            belt.loop.stop(when_idle_for=idle, cause="why", skip_checkpoint=True)
        assert "stop" not in repr(belt.loop)
    assert (await belt.loop.wait()).stop_cause == ""
