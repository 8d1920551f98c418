"""Looped: a turn loop over texts that notes what its callbacks are given, and lives again from its store."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from andon import Agent, Run, Stop, ToolContext, Turn, TurnLoop, tool
from andon.core.items import Event, Item, StopRequested, TurnEnded
from andon.core.turns import Preempt, PreemptResult, State
from andon.runtime.bell import Bell
from andon.runtime.receipt import Receipt
from andon.runtime.turn import Exit, Planning, TurnView
from andon.testing import Gate, Reply, ScriptedModel

ID = "chat-42"


class Looped:
    """A turn takes the first item that waits; its agent is told that item, and calls `tools`.

    `batches` is what each `gen_input` was given, `about` what it was told; `prepared` the items of each
    agent; `resumes` the three lists of each `gen_resume`; `turns` the views of active turns; `ends` what
    observers were told. Whatever is given by keyword replaces a callback, or is an option of the loop;
    gen_input="all" consumes all there is, and gen_resume="on" goes on with what was interrupted.
    """

    def __init__(
        self,
        *replies: Reply,
        tools: Iterable[Any] = (),
        agent: Agent | None = None,
        **options: Any,  # noqa: ANN401 — the loop's own
    ) -> None:
        self.model = ScriptedModel(*replies)
        self.agent = agent or Agent(self.model, tools=tools)
        self.batches: list[list[str]] = []
        self.about: list[Planning[str]] = []
        self.prepared: list[list[str]] = []
        self.resumes: list[tuple[list[str], list[str], list[str]]] = []
        self.turns: list[TurnView[str]] = []
        self.ends: list[str] = []
        self._ended = Bell()
        callbacks: dict[str, Any] = {
            "gen_input": self.first,
            "prepare_agent": self.prepare,
            "on_events": self.watch,
            "observers": [self],
        }
        if "store" in options:
            options.setdefault("checkpoint_id", ID)
        if options.get("gen_input") == "all":
            options["gen_input"] = self.all
        if options.get("gen_resume") == "on":
            options["gen_resume"] = self.resume
        self.loop: TurnLoop[str] = TurnLoop(**{**callbacks, **options})

    def note(self, about: Planning[str], items: Sequence[str]) -> None:
        """Note what a turn is planned over."""
        self.about.append(about)
        self.batches.append(list(items))

    def first(self, about: Planning[str], items: Sequence[str]) -> Turn[str]:
        """Consume the first item."""
        self.note(about, items)
        return Turn(items[0], consumed=items[:1], remaining=items[1:])

    def all(self, about: Planning[str], items: Sequence[str]) -> Turn[str]:
        """Consume all there is."""
        self.note(about, items)
        return Turn(" ".join(items), consumed=items)

    def prepare(self, _about: Planning[str], consumed: Sequence[str]) -> Agent:
        """Give the agent."""
        self.prepared.append(list(consumed))
        return self.agent

    async def watch(self, turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
        """Read all there is, and note the turn."""
        self.turns.append(turn)
        async for _ in events:
            pass

    def resume(
        self, _about: Planning[str], interrupted: Sequence[str], unhandled: Sequence[str], new: Sequence[str]
    ) -> Turn[str]:
        """Go on with what was interrupted, and keep the rest."""
        self.resumes.append((list(interrupted), list(unhandled), list(new)))
        return Turn(consumed=interrupted, remaining=[*unhandled, *new])

    def observe(self, _name: str, item: Item, /) -> None:
        """Note how turns end."""
        if isinstance(item, TurnEnded):
            self.ends.append(item.end)
            self._ended.ring()

    async def over(self, n: int = 1) -> None:
        """Wait until n turns are over."""
        while len(self.ends) < n:
            await self._ended.wait(lambda: len(self.ends) >= n)

    def push(self, *items: str, preempt: Preempt | None = None) -> list[Receipt]:
        """Push several."""
        return [self.loop.push(item, preempt=preempt) for item in items]

    async def to_the_end(self, *items: str) -> Exit[str]:
        """Push, deal with all that was pushed, and give the exit."""
        self.push(*items)
        async with self.loop:
            pass
        return await self.loop.wait()

    @property
    def runs(self) -> list[Run]:
        """The runs of the turns that were active."""
        return [turn.run for turn in self.turns if turn.run is not None]

    @property
    def prompts(self) -> list[str]:
        """What the model was told last, at each request."""
        return [request.messages[-1].text for request in self.model.requests]


def state_of(scene: Looped) -> State:
    """Look at what the decisions of a loop are made from."""
    return scene.loop._desk.state  # pyright: ignore[reportPrivateUsage]


async def asked_of(run: Run) -> list[Stop]:
    """Give what a run was asked, each time joined with all that was asked before."""
    return [event.stop async for event in run.events() if isinstance(event, StopRequested)]


def held(gate: Gate, name: str = "work") -> Any:  # noqa: ANN401 — a tool of any kind
    """Make a tool that waits at a gate."""

    async def work() -> str:
        """Work."""
        await gate
        return "done"

    return tool(name=name)(work)


def asking(question: str = "sure?", log: list[object] | None = None) -> Any:  # noqa: ANN401 — a tool of any kind
    """Make a tool, `ask`, that asks a human, and gives the answer."""

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask a human."""
        answer = await ctx.interrupt(question)
        if log is not None:
            log.append(answer)
        return f"the human says {answer}"

    return ask


def items_of(exit_: Exit[str]) -> list[str]:
    """Give all items that an exit accounts for."""
    return [*exit_.unhandled, *exit_.interrupted, *exit_.failed, *exit_.late()]


async def answer(receipt: Receipt) -> PreemptResult:
    """Wait for what became of the preempt of an accepted push."""
    assert receipt.accepted
    assert receipt.preempt is not None
    return await receipt.preempt
