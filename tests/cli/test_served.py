"""A server and the commands that ask it, as processes of their own."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from andon.serve.keys import new_key
from tests.cli.host import SERVED, Host, killed

SESSION = "the-waiter/ann/s1"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Have a place for servers; none of them outlives the test."""
    host = Host(tmp_path)
    yield host
    killed(host.programs)


def test_a_run_is_pushed_watched_and_cancelled(host: Host) -> None:
    """Each from another process; the list, the log and the report say the same."""
    host.start()
    run = host.pushed(SESSION, "wait")
    follower = host.reached(run, "tool_started")

    (row,) = host.told("ps")
    assert (row["run_id"], row["state"], row["step"]) == (run, "running", "wait")
    assert [part in host.asked("ps")[1] for part in (run[:12], SESSION, "running")] == [True] * 3

    code, out, _ = host.asked("cancel", run[:6], "--at", "tools", "--grace", "0.1", "--reason", "too slow")
    assert code == 0
    assert "result: stopped at once, because no safe point came within the grace" in out
    assert "because: too slow (asked for: when the tools have ended, within 0.1 s)" in out
    assert follower.ends()[0] == 3

    assert host.asked("ps")[1:] == ("", "nothing runs\n")
    assert "cancelled" in host.asked("ps", "--all")[1]
    assert host.told("cancel", SESSION)[0]["result"] == "NOTHING_RUNNING"
    code, out, err = host.asked("logs", run)
    assert code == 0
    assert out == "Let me wait. \n"
    assert "? wait was stopped; whether it took effect is not known" in err


def test_a_live_run_hears_what_it_is_told(host: Host) -> None:
    """The model call in flight is cut, and the next one answers; whoever follows sees it."""
    host.start()
    run = host.pushed(SESSION, "think")
    follower = host.reached(run, "model_started")

    assert host.asked("steer", run[:8], "hurry up", "--when", "now") == (0, f"{run}\n", "said\n")
    code, out, _ = follower.ends()
    assert code == 0
    assert "You said: hurry up" in out
    code, out, err = host.asked("logs", run)
    assert (code, out.splitlines()[-1]) == (0, "You said: hurry up")
    assert "steered: hurry up" in err


def test_a_question_is_answered(host: Host) -> None:
    """The list shows it, the answer lets the run go on as another one."""
    host.start()
    code, _, err = host.asked("push", "buyer/ann", "go", "--follow")
    assert code == 1
    assert "waits for an answer: buy bread?" in err

    (row,) = host.told("ps", "--all")
    run = str(row["run_id"])
    assert f"answer it with: andon answer {run[:12]}" in err
    assert "asks: buy bread?" in host.asked("ps", "-a")[1]
    code, _, err = host.asked("answer", run)
    assert code == 2
    assert "buy bread?" in err
    code, out, _ = host.asked("answer", run, "true")
    assert code == 0
    assert host.asked("logs", out.strip(), "--follow")[:2] == (0, "bought bread\n")
    assert host.asked("answer", run, "true")[0] == 1


def test_a_session_is_paused_resumed_and_stopped(host: Host) -> None:
    """What was stopped goes on, and a session that was stopped takes nothing more."""
    host.start()
    run = host.pushed(SESSION, "wait")
    host.reached(run, "tool_started")

    assert host.told("pause", run, "--grace", "0.1")[0]["result"] == "ESCALATED"
    assert "paused" in host.asked("sessions", SESSION)[1]
    again = str(host.told("resume", SESSION)[0]["run_id"])
    assert host.asked("logs", again, "--follow")[:2] == (0, "There it is.\n")
    assert host.told("stop", SESSION)[0]["result"] == "NOTHING_RUNNING"
    assert [one["id"] for one in host.told("sessions", "the-waiter/ann")] == ["s1"]
    assert host.told("sessions", SESSION)[0]["closed"] is True
    assert "was stopped: resume it first" in host.asked("push", SESSION, "more", "--on-busy", "reject")[2]


def test_what_cannot_be_is_told_in_words(host: Host) -> None:
    """With the exit code that says whose fault it is."""
    host.start()

    assert host.asked("cancel", "0" * 32)[::2] == (1, f"andon: there is no run '{'0' * 32}'\n")
    assert host.asked("cancel", "none") == (
        1,
        "",
        "andon: there is no run 'none': `andon ps --all` lists them\n",
    )
    assert host.asked("cancel", "a/b")[0::2] == (
        2,
        "andon: 'a/b' is no session: write app/user/session, or a run's id\n",
    )
    assert host.asked("cancel", SESSION)[0] == 1
    assert "--grace is how long" in host.asked("cancel", SESSION, "--grace", "1")[2]
    assert "has buyer, the-waiter" in host.asked("push", "nobody", "hi")[2]
    assert host.asked("release", SESSION)[0] == 1
    host.url = "http://127.0.0.1:1"
    code, _, err = host.asked("ps")
    assert (code, "no server answers" in err) == (1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_server_that_is_asked_to_end_hands_its_runs_over(host: Host, number: signal.Signals) -> None:
    """Nobody is cancelled, and whoever follows sees the run go on with the next server."""
    server = host.start("--drain-grace", "0.2")
    run = host.pushed(SESSION, "wait")
    follower = host.reached(run, "tool_started")
    server.process.send_signal(number)
    code, _, err = server.ends()

    assert code == 0
    assert "once more to leave now" in err
    host.start_again()
    code, out, _ = follower.ends()
    assert code == 0
    assert '"stop_reason":"end_turn"' in out.splitlines()[-1]


def test_a_second_signal_leaves_now(host: Host) -> None:
    """What was live goes on all the same."""
    server = host.start()
    run = host.pushed(SESSION, "wait")
    host.reached(run, "tool_started")
    server.process.send_signal(signal.SIGINT)
    server.until("once more to leave now")
    server.process.send_signal(signal.SIGINT)

    assert server.ends()[0] == 130
    host.start_again()
    host.reached(run, "run_ended")
    assert [(row["run_id"], row["state"]) for row in host.told("ps", "--all")] == [(run, "finished")]


def test_a_server_that_was_killed_is_gone_on_from(host: Host) -> None:
    """The run is taken up when the claim of the dead ends, and the follower sees its end."""
    server = host.start()
    run = host.pushed(SESSION, "wait")
    follower = host.reached(run, "tool_started")
    server.process.kill()
    server.process.wait()
    host.start_again()
    follower.until('"state":"unknown"', out=True)

    assert follower.ends()[0] == 0
    assert host.asked("push", SESSION, "still there?", "--follow")[:2] == (0, "You said: still there?\n")


def test_leaving_a_log_leaves_the_run_alone(host: Host) -> None:
    """It is only a reader."""
    host.start()
    run = host.pushed(SESSION, "wait")
    follower = host.reached(run, "tool_started")
    follower.process.send_signal(signal.SIGINT)

    assert follower.ends() == (130, "", "")
    assert host.told("ps")[0]["state"] == "running"


def test_a_worker_takes_over_from_a_server(host: Host) -> None:
    """They share the journal; a worker drains as a server does."""
    server = host.start("--drain-grace", "0.2")
    run = host.pushed(SESSION, "wait")
    host.reached(run, "tool_started")
    worker = host.program("worker", str(SERVED), "--db", str(host.db))
    worker.until("works for")
    server.process.send_signal(signal.SIGTERM)
    server.ends()
    other = host.start_again()
    code, out, _ = host.asked("logs", run, "--follow")

    assert (code, out) == (0, "Let me wait. \nThere it is.\n")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ends()[0] == 0
    other.process.send_signal(signal.SIGTERM)
    assert other.ends()[0] == 0


def test_a_server_says_why_it_cannot_serve(host: Host) -> None:
    """Before it has done anything."""
    server = host.start()
    port = host.url.rpartition(":")[2]

    def refused(*arguments: str) -> str:
        code, _, err = host.program("serve", *arguments, "--db", str(host.db)).ends()
        assert code == 2
        return err

    assert "choose another port" in refused(str(SERVED), "--port", port)
    assert "lets other machines in" in refused(str(SERVED), "--host", "0.0.0.0")  # noqa: S104 - it is refused
    assert "there is no file none.py" in refused("none.py")
    assert server.process.poll() is None


def test_whoever_needs_a_token_is_told_so(host: Host, tmp_path: Path) -> None:
    """With it, one reaches what is one's own."""
    token, line = new_key("ann's", ["run", "cancel", "read"], user="ann")
    keys = tmp_path / "keys.jsonl"
    keys.write_text(line + "\n")
    host.start("--keys", str(keys))

    code, _, err = host.asked("ps")
    assert (code, "token" in err) == (2, True)
    assert host.asked("push", SESSION, "hello", "--token", token)[0] == 0
    assert host.asked("logs", SESSION, "--token", token)[0] == 0
    assert host.asked("push", "the-waiter/bob/s1", "hello", "--token", token)[0] == 1
