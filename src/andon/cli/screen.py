"""Screen: show the events of a run, to a person or as lines of JSON."""

import json
import sys
from typing import Protocol, TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text
from typing_extensions import override

from andon.cli.report import STATES, print_report, seconds
from andon.cli.streams import safe
from andon.core.items import (
    Event,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    Path,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    to_json,
)
from andon.core.messages import Call, Result, ResultState
from andon.core.outcome import Outcome
from andon.core.stop import StopReport

LONGEST = 100
GOES_ON = ("…", "magenta", "goes on when the run is resumed")


class Screen(Protocol):
    """Where a run is shown."""

    def show(self, event: Event, /) -> None:
        """Show one event."""
        ...

    def notice(self, text: str, /) -> None:
        """Say something that is no event."""
        ...

    def end(self, outcome: Outcome, report: StopReport | None, /) -> None:
        """Show how the run ended, and what became of the requests to stop it."""
        ...


class Words(Screen):
    """Shows a run to a person: the answer goes to `out`, if there is one, and all else to the console.

    What a child run says is no part of the answer: it is shown like reasoning, with the name of its agent.
    """

    def __init__(self, out: TextIO | None, console: Console, *, spins: bool = True) -> None:
        self._spins = spins and console.is_terminal
        self._out = out
        self._console = console
        self._said = ""  # the end of the paragraph that is open
        self._says: tuple[type[Event], Path] | None = None
        self._agents: dict[str, str] = {}
        self._calls: dict[str, Call] = {}
        self._running: dict[str, ToolStarted] = {}
        self._results: list[Result] = []
        self._status: Status | None = None

    @override
    def show(self, event: Event) -> None:
        match event:
            case TextDelta(text=text, path=path):
                self._say(TextDelta, path, text)
            case ReasoningDelta(text=text, path=path):
                self._say(ReasoningDelta, path, text)
            case RunStarted():
                self._run_started(event)
            case MessageAdded(message=message):
                self._calls |= {call.id: call for call in message.calls}
            case ModelStarted(attempt=attempt):
                self.close()
                self._wait("asking the model" if attempt == 1 else f"asking again, attempt {attempt}")
            case ModelEnded(end="failed", error=error):
                self._line(Text(f"✗ the model failed: {error}", "red"))
            case ToolStarted():
                self._tool_started(event)
            case ToolProgress(call_id=call_id, value=value):
                name = self._running[call_id].name if call_id in self._running else "tool"
                self._line(Text(f"  {name}: {_short(str(value))}", "dim"))
            case ToolEnded():
                self._tool_ended(event)
            case RunEnded():
                self.close()
            case _:
                pass

    @override
    def notice(self, text: str) -> None:
        self._line(Text(text, "bold magenta"))

    @override
    def end(self, outcome: Outcome, report: StopReport | None) -> None:
        self.close()
        match outcome.stop_reason:
            case "error":
                self._line(Text(f"failed: {outcome.error}", "bold red"))
            case "limit":
                self._line(Text(f"ended at a limit: {outcome.limit}", "bold magenta"))
            case "cancelled":
                self._line(Text("cancelled", "bold magenta"))
            case "interrupt":
                for question in outcome.interrupts:
                    self._line(Text(f"waits for an answer: {_short(str(question.payload))}", "bold magenta"))
                    self._line(Text(f"asked by: {' → '.join(question.path)}", "dim"))
            case "end_turn":
                pass
        if report is not None:
            print_report(self._console, report, self._results)

    def close(self) -> None:
        """End the open paragraph, and wait for nothing."""
        self._wait(None)
        if self._says is not None and not self._said.endswith("\n"):
            self._say(*self._says, "\n")
        self._says = None

    def _run_started(self, event: RunStarted) -> None:
        self._agents[event.run_id] = event.agent
        kept = () if event.checkpoint is None else event.checkpoint.messages[-1:]
        self._calls |= {call.id: call for message in kept for call in message.calls}

    def _tool_started(self, event: ToolStarted) -> None:
        call = self._calls.get(event.call_id)
        arguments = call.arguments if call is not None else {}
        told = ", ".join(f"{key}={json.dumps(value, default=str)}" for key, value in arguments.items())
        self._line(
            Text.assemble(_indent(event.path), ("→ ", "cyan"), (event.name, "bold"), f"({_short(told)})")
        )
        self._running[event.call_id] = event
        self._wait_for_tools()

    def _tool_ended(self, event: ToolEnded) -> None:
        self._results.append(Result(event.call_id, event.name, event.content, event.state))
        started = self._running.pop(event.call_id, None)
        sign, style, words = STATES[event.state] if not event.again else GOES_ON
        took = "" if started is None else f" ({seconds(event.at - started.at)})"
        said = "" if event.state in {ResultState.UNKNOWN, ResultState.NOT_STARTED} else _short(event.content)
        line = Text.assemble(
            _indent(event.path), (f"{sign} ", style), (event.name, "bold"), f" {words}{took}"
        )
        self._line(line.append(f": {said}" if said else "", "dim"))
        self._wait_for_tools()

    def _say(self, kind: type[Event], path: Path, text: str) -> None:
        if self._says != (kind, path):
            self.close()
            self._wait(None)
            if path:
                self._console.print(
                    Text(safe(f"{_indent(path)}{self._agents.get(path[-1], '')}: "), "dim"), end=""
                )
        self._wait(None)
        self._says = (kind, path)
        self._said = text or self._said
        if self._out is None or path or kind is ReasoningDelta:
            style = "dim" if path or kind is ReasoningDelta else ""
            self._console.print(Text(safe(text), style), end="", soft_wrap=True)
            return
        self._out.write(safe(text) if self._out.isatty() else text)
        self._out.flush()

    def _line(self, line: Text) -> None:
        self.close()
        line.plain = safe(line.plain)
        self._console.print(line, soft_wrap=True)

    def _wait_for_tools(self) -> None:
        names = ", ".join(started.name for started in self._running.values())
        self._wait(names or None)

    def _wait(self, what: str | None) -> None:
        """Show, on a terminal, that something is awaited; None takes it away."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if what is not None and self._spins and self._says is None:
            self._status = self._console.status(Text(safe(what), "dim"))
            self._status.start()


class Lines(Screen):
    """Writes a run as lines of JSON, one an event; notices go to the console."""

    def __init__(self, out: TextIO, console: Console) -> None:
        self._out = out
        self._console = console

    @override
    def show(self, event: Event) -> None:
        self._out.write(f"{to_json(event).decode()}\n")
        self._out.flush()

    @override
    def notice(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @override
    def end(self, outcome: Outcome, report: StopReport | None) -> None:
        """The last event has said it all."""


class Plainly(Console):
    """A console that lets a broken pipe be seen, instead of ending the program."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(*, as_json: bool) -> Screen:
    """Make the screen for this process: answers to stdout, all else to stderr."""
    console = Plainly(file=sys.stderr)
    return Lines(sys.stdout, console) if as_json else Words(sys.stdout, console)


def _indent(path: Path) -> str:
    return "  " * len(path)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
