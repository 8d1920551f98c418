"""Smoke: `make demo` in a fresh clone serves a run that can be stopped, and leaves when it is told to.

It is told where the clone is; needs nothing but Python.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

URL = "http://127.0.0.1:8484"
WITHIN = 300.0  # seconds to be set up and to answer, on a slow machine
LEAVES_WITHIN = 60.0
SESSION = f"/apps/demo/users/smoke/sessions/smoke-{os.getpid()}"


def ask(path: str, body: object = None) -> str:
    """Ask the server; with a body it is a POST."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"})  # noqa: S310 - our own
    with urllib.request.urlopen(asked, timeout=90) as answer:  # noqa: S310 - our own
        return answer.read().decode()


def wait_until_ready(demo: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    began = time.monotonic()
    while time.monotonic() - began < WITHIN:
        if demo.poll() is not None:
            sys.exit(f"make demo ended with {demo.returncode} before it served anything")
        try:
            ask("/readyz")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)  # noqa: TID251 - there is no event to wait for in another process
        else:
            print(f"smoke: make demo serves after {time.monotonic() - began:.1f} s")
            return
    sys.exit(f"make demo did not serve within {WITHIN:g} s")


def wait_until_gone() -> None:
    """Wait until nothing listens any more: make may end before what it has started."""
    began = time.monotonic()
    while time.monotonic() - began < LEAVES_WITHIN:
        try:
            ask("/healthz")
        except (urllib.error.URLError, ConnectionError):
            return
        time.sleep(0.2)  # noqa: TID251 - there is no event to wait for in another process
    sys.exit(f"the server still answers {LEAVES_WITHIN:g} s after it was told to leave")


def stop_a_run() -> None:
    """Look at the page, start a run, and cancel it."""
    if "<title>Andon</title>" not in ask("/"):
        sys.exit("the console is not at /")
    ask(SESSION, {})
    run = json.loads(ask(f"{SESSION}/runs", {"input": "tell me a story"}))
    report = json.loads(ask(f"{SESSION}:cancel", {"reason": "smoke"}))
    if report["result"] != "STOPPED" or report["run_id"] != run["run_id"]:
        sys.exit(f"the run was not stopped: {report}")
    print(f"smoke: cancelled a run {report.get('stopped_at')} in {report['latency'] * 1000:.1f} ms")


def main() -> None:
    """Serve, stop, leave."""
    clone = Path(sys.argv[1])
    demo = subprocess.Popen(["make", "-C", clone, "demo"], start_new_session=True)  # noqa: S603, S607 - our own
    try:
        wait_until_ready(demo)
        stop_a_run()
        os.killpg(demo.pid, signal.SIGINT)
        code = demo.wait(LEAVES_WITHIN)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
    print(f"smoke: make demo left with {code}")
    wait_until_gone()
    if code not in {0, 2, 130, -signal.SIGINT}:  # make's own, when it is interrupted
        sys.exit(f"make demo left with {code}")


if __name__ == "__main__":
    main()
