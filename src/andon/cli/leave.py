"""Leave: end the process although a thread that was abandoned still runs."""

import atexit
import os
import sys
import threading
import time
from typing import NoReturn

GRACE = 1.0
CUT_SHORT = 130
LEFT = "left without a report"


def leave(code: int) -> NoReturn:
    """Exit with the code; threads that are still at work have a moment, then nobody waits for them."""
    threading.Thread(target=_watch, args=(code,), name="andon-leave", daemon=True).start()
    sys.exit(code)


def _watch(code: int) -> None:
    deadline = time.monotonic() + GRACE
    for thread in _others():
        thread.join(max(0.0, deadline - time.monotonic()))
    if _others():
        leave_at_once(code)


def leave_at_once(code: int) -> NoReturn:
    """Exit without a wait for any thread, and without a last flush of what nobody reads."""
    atexit._run_exitfuncs()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    os._exit(code)


def _others() -> list[threading.Thread]:
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if thread is not main and not thread.daemon]
