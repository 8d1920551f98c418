"""Signals: hears what is sent to this process in a thread of its own, whatever the main thread does.

Python calls a signal's handler between two instructions of the main thread. One that comes just
before the main thread begins to wait for a lock is not handled until that wait ends, and the wait
of a tool that blocks the event loop may never end. The wake-up pipe is written when the signal comes.
"""

import signal
import socket
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from threading import Thread
from types import FrameType

END = b"\0"


@contextmanager
def hearing(numbers: Collection[signal.Signals], heard: Callable[[signal.Signals], None]) -> Generator[None]:
    """Call `heard` with each of these signals that comes, in a thread; those ignored before stay ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    taken = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    listener = Thread(target=_listen, args=(ours, frozenset(taken), heard), name="andon-signals", daemon=True)
    listener.start()
    woken = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    for number in taken:
        signal.signal(number, _nothing)
    try:
        yield
    finally:
        for number, old in taken.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(woken)
        theirs.sendall(END)
        listener.join()
        ours.close()
        theirs.close()


def _listen(
    ours: socket.socket, taken: Collection[signal.Signals], heard: Callable[[signal.Signals], None]
) -> None:
    while (came := ours.recv(1)) != END:
        if came[0] in taken:
            heard(signal.Signals(came[0]))


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Be there, so that the signal has a handler and is written to the pipe."""
