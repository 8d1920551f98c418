"""The terminal of the tests is the same wherever they run: in the background, under nohup, in a pipe."""

import signal

import pytest

from tests.cli.terminal import HEARD, PATIENCE, spawn


@pytest.mark.parametrize("number", [number for number, _ in HEARD])
def test_what_the_tests_were_told_to_ignore_is_heard_by_what_they_start(number: signal.Signals) -> None:
    """And ignored by the tests as before."""
    tell = f"import signal; print(signal.getsignal({int(number)}) is signal.SIG_IGN)"
    before = signal.signal(number, signal.SIG_IGN)
    try:
        out, _ = spawn(["-c", tell]).communicate(timeout=PATIENCE)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)

    assert out == b"False\n"
