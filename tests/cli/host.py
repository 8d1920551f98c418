"""Host: `andon serve` in a process of its own, and commands that ask it, in theirs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from typer.testing import CliRunner

from andon.cli.commands import app
from tests.cli.terminal import PATIENCE, andon, spawn

SERVED = Path(__file__).with_name("served.py")


class Program:
    """A program whose lines are read as they come."""

    def __init__(self, *arguments: str) -> None:
        self.process = spawn(andon(*arguments))
        self.told = ""

    def until(self, text: str, *, out: bool = False) -> str:
        """Read to a line of stderr, or of stdout, that has this in it."""
        pipe = cast("IO[bytes]", self.process.stdout if out else self.process.stderr)
        for line in pipe:
            self.told += line.decode()
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"{text!r} was not said, but: {self.told}")

    def ends(self) -> tuple[int, str, str]:
        """Give the exit code, and what it said last."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out.decode(), err.decode()

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Host:
    """A server on one journal, which can be started again on it."""

    def __init__(self, folder: Path) -> None:
        self.db = folder / "kept" / "andon.db"
        self.url = ""
        self.programs: list[Program] = []

    def start(self, *options: str, port: str = "0") -> Program:
        """Start a server, and wait until it serves."""
        server = self.program("serve", str(SERVED), "--db", str(self.db), "--port", port, *options)
        said = server.until("serving ")
        self.url = said.partition(" at ")[2].partition(",")[0]
        return server

    def start_again(self, *options: str) -> Program:
        """Start a server where the one before was."""
        return self.start(*options, port=self.url.rpartition(":")[2])

    def program(self, *arguments: str) -> Program:
        """Start some command."""
        self.programs.append(Program(*arguments))
        return self.programs[-1]

    def ask(self, *arguments: str) -> Program:
        """Start a command that asks the server."""
        return self.program(*arguments, "--url", self.url)

    def asked(self, *arguments: str) -> tuple[int, str, str]:
        """Let a command ask the server from this process, and give its exit code and what it said."""
        done = CliRunner().invoke(app, [*arguments, "--url", self.url], catch_exceptions=False)
        return done.exit_code, done.stdout, done.stderr

    def told(self, *arguments: str) -> list[dict[str, object]]:
        """Let a command ask, and give the lines of JSON that it wrote."""
        code, out, err = self.asked(*arguments, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def pushed(self, session: str, prompt: str) -> str:
        """Push something, and give the run's id."""
        code, out, err = self.asked("push", session, prompt)
        assert code == 0, err
        return out.strip()

    def reached(self, run_id: str, kind: str) -> Program:
        """Follow a run until it has come to an item of a kind."""
        program = self.ask("logs", run_id, "--follow", "--json")
        program.until(f'"type":"{kind}"', out=True)
        return program


def killed(programs: Sequence[Program]) -> None:
    """End programs, whatever they do."""
    for program in programs:
        program.close()
