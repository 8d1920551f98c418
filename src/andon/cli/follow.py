"""Follow: shows what a server tells of a run as if the run were here."""

from contextlib import aclosing
from typing import Protocol

import msgspec

from andon.cli.asking import SHORT, line
from andon.cli.play import code_of
from andon.cli.screen import Screen, screen
from andon.cli.streams import OK
from andon.client.client import Client, Where
from andon.client.shape import News
from andon.core.command import Key, Push
from andon.core.items import (
    Event,
    MessageAdded,
    ModelStarted,
    Path,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    Steered,
    StopRequested,
    TextDelta,
)
from andon.core.journal import Partial, Quarantined, Received, Superseded, Unknown
from andon.core.stop import Stop, describe

GONE = "its worker has died; another one goes on"
ANEW = "said anew:"


class Shower(Protocol):
    """Where news are shown."""

    def take(self, news: News, /) -> None:
        """Show one thing."""
        ...


class Lines:
    """Writes news as lines of JSON."""

    def take(self, news: News) -> None:
        """Write one down."""
        raw = news.raw if isinstance(news, Unknown) else msgspec.json.encode(news, enc_hook=repr)
        line(raw.decode())


class Words:
    """Shows news on a screen; words that nobody was told on their way are told with what holds them."""

    def __init__(self) -> None:
        self._screen: Screen = screen(as_json=False)
        self._said: dict[tuple[Path, type[Event]], str] = {}

    def take(self, news: News) -> None:
        """Show one thing."""
        match news:
            case TextDelta(text=text, path=path) | ReasoningDelta(text=text, path=path):
                self._say(type(news), path, text)
            case Partial(text=text, reasoning=reasoning, path=path):
                self._catch_up(path, text, reasoning)
            case MessageAdded(message=message, path=path) if message.role == "assistant":
                if not message.synthetic:
                    self._catch_up(path, message.text, message.reasoning)
                self._forget(path)
                self._screen.show(news)
            case ModelStarted(path=path):
                self._forget(path)
                self._screen.show(news)
            case RunStarted(path=()):
                self._screen = screen(as_json=False)
                self._screen.show(news)
            case RunEnded(path=(), outcome=outcome):
                self._screen.show(news)
                self._screen.end(outcome, outcome.cancelled)
                if outcome.stop_reason == "interrupt":
                    self._screen.notice(f"answer it with: andon answer {outcome.run_id[:SHORT]} …")
            case StopRequested(path=(), stop=stop):
                self._screen.notice(f"asked to stop {_asked(stop)}")
            case Steered(path=(), message=message):
                self._screen.notice(f"steered: {message.text}")
            case Received(command=Push(message=message)):
                self._screen.notice(f"> {message.text}")
            case Quarantined(why=why):
                self._screen.notice(f"in quarantine: {why}")
            case Superseded():
                self._screen.notice(GONE)
            case _:
                if isinstance(news, Event):
                    self._screen.show(news)

    def _say(self, kind: type[TextDelta | ReasoningDelta], path: Path, text: str) -> None:
        self._said[path, kind] = self._said.get((path, kind), "") + text
        self._screen.show(kind(text, path))

    def _forget(self, path: Path) -> None:
        for kind in (TextDelta, ReasoningDelta):
            self._said.pop((path, kind), None)

    def _catch_up(self, path: Path, text: str, reasoning: str) -> None:
        """Say what has not been said yet; if it is not what was said, say it anew."""
        for kind, whole in ((ReasoningDelta, reasoning), (TextDelta, text)):
            said = self._said.get((path, kind), "")
            if said and not whole.startswith(said):
                self._screen.notice(ANEW)
                said = self._said[path, kind] = ""
            if whole != said:
                self._say(kind, path, whole.removeprefix(said))


def _asked(stop: Stop) -> str:
    cause = stop.causes[-1] if stop.causes else None
    if cause is None:
        return describe(stop)
    why = "" if cause.reason is None else f", because: {cause.reason}"
    return f"({describe(cause.asked or stop)}) by {cause.by or cause.source}{why}"


async def follow(client: Client, where: Where, *, as_json: bool) -> int:
    """Show all of a run until it ends, and give its exit code; a session is shown until somebody leaves."""
    shower: Shower = Lines() if as_json else Words()
    code = OK
    async with aclosing(client.events(where)) as told:
        async for news in told:
            shower.take(news)
            if isinstance(news, RunEnded) and not news.path:
                code = code_of(news.outcome)
    return code


async def replay(client: Client, where: Where, *, as_json: bool) -> int:
    """Show what a run or a session has done so far."""
    if isinstance(where, Key):
        key, run_id = where, None
    else:
        row = await client.run(where)
        if not row.is_live:
            await follow(client, row.run_id, as_json=as_json)
            return OK
        key, run_id = row.key, row.run_id
    until = (await client.session(key)).n
    shower: Shower = Lines() if as_json else Words()
    shown = run_id is None
    async with aclosing(client.events(key)) as told:
        async for news in told:
            if isinstance(news, RunStarted) and not news.path and run_id is not None:
                shown = news.run_id == run_id
            if shown:
                shower.take(news)
            if getattr(news, "n", 0) >= until:
                break
    return OK
