"""Belt: a turn loop that notes what its callbacks are given, for tests to hold it at gates."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from andon import Agent, Turn, TurnLoop
from andon.core.items import Event, Item, TurnEnded, TurnStarted
from andon.runtime.bell import Bell
from andon.runtime.turn import Planning, TurnView
from andon.testing import Reply, ScriptedModel

ENOUGH = 50  # answers that a belt has after those of its script


class Belt:
    """A loop over texts; each turn takes the first item that waits, and its agent is asked that.

    `given` are the batches that were planned over, `prepared` the items that agents were prepared
    for, `views` the turns that were active, `ended` the stop reasons of their runs, and `told` what
    observers were told. Callbacks can be replaced by name.
    """

    def __init__(self, *replies: Reply, tools: Iterable[Any] = (), **options: Any) -> None:  # noqa: ANN401 — the loop's own
        self.model = ScriptedModel(*replies, *["Done."] * ENOUGH)
        self.agent = Agent(self.model, tools=tools)
        self.given: list[list[str]] = []
        self.about: list[Planning[str]] = []
        self.prepared: list[list[str]] = []
        self.views: list[TurnView[str]] = []
        self.ended: list[str] = []
        self.told: list[Item] = []
        self._bell = Bell()
        callbacks: dict[str, Any] = {
            "gen_input": self.plan,
            "prepare_agent": self.prepare,
            "on_events": self.watch,
            "observers": [self],
        }
        self.loop: TurnLoop[str] = TurnLoop(**{**callbacks, **options})

    def plan(self, about: Planning[str], items: Sequence[str]) -> Turn[str]:
        """Take the first."""
        self.note(about, items)
        return Turn(items[0], consumed=items[:1], remaining=items[1:])

    def note(self, about: Planning[str], items: Sequence[str]) -> None:
        """Note what a turn is planned over."""
        self.about.append(about)
        self.given.append(list(items))

    def prepare(self, _about: Planning[str], consumed: Sequence[str]) -> Agent:
        """Give the one agent."""
        self.prepared.append(list(consumed))
        return self.agent

    async def watch(self, turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        """Read all events."""
        self.views.append(turn)
        async for _ in events:
            pass
        assert turn.run is not None
        self.ended.append((await turn.run.outcome()).stop_reason)

    def observe(self, _name: str, item: Item, /) -> None:
        """Note what observers are told."""
        self.told.append(item)
        self._bell.ring()

    async def until(self, words: str) -> None:
        """Wait until a turn is so far, for example "1 began" or "2 completed"."""
        while words not in self.turns:
            await self._bell.wait(lambda: words in self.turns)

    @property
    def turns(self) -> list[str]:
        """What was told of turns, in order."""
        words: list[str] = []
        for item in self.told:
            if isinstance(item, TurnStarted):
                words.append(f"{item.turn} began")
            if isinstance(item, TurnEnded):
                words.append(f"{item.turn} {item.end}")
        return words

    @property
    def consumed(self) -> list[str]:
        """The items of the turns that were active, in order."""
        return [item for view in self.views for item in view.consumed]
