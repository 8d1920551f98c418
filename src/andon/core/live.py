"""Live: the run of a session that is under way, the runs inside it, and those before and after it."""

from typing import TYPE_CHECKING, cast

from msgspec import Struct
from msgspec.structs import replace

from andon.core.checkpoint import Checkpoint
from andon.core.command import Steer
from andon.core.fold import Next, State, checkpoint, fold, going_on
from andon.core.items import Item, Path, RunStarted, ToolEnded
from andon.core.limits import Limits
from andon.core.messages import Call, Message
from andon.core.outcome import Interrupt
from andon.core.stop import Stop
from andon.core.tree import with_shared, without_shared

if TYPE_CHECKING:
    from andon.core.journal import Entry, HandedOver


class Queued(Struct, frozen=True, kw_only=True, gc=False):
    """A run that waits for its turn: with something new to answer, or going on from a checkpoint."""

    run_id: str
    at: float
    by: str | None = None
    message: Message | None = None
    limits: Limits | None = None
    checkpoint: Checkpoint | None = None
    answers: dict[str, object] = {}
    stop: Stop | None = None


class Waiting(Struct, frozen=True, kw_only=True):
    """The last run, if something is left of it to go on from."""

    run_id: str
    checkpoint: Checkpoint
    interrupts: tuple[Interrupt, ...] = ()


class Inside:
    """A run that a call of the live run has started, or of one inside it."""

    __slots__ = ("agent", "call_id", "model", "state")

    def __init__(self, started: RunStarted) -> None:
        self.agent = started.agent
        self.model = started.model
        self.call_id = started.call_id
        self.state = State().apply(replace(started, path=()))


class Live:
    """One live run: its state, what was asked of it, and the runs inside it by their paths."""

    def __init__(self, run_id: str, state: State, *, base: int, began: float) -> None:
        self.run_id = run_id
        self.state = state
        self.base = base
        self.began = began
        self.queued = began
        self.prompt = ""
        self.by: str | None = None
        self.stop: Stop | None = None
        self.steers: dict[str, Steer] = {}
        self.else_queued: dict[str, Queued] = {}
        self.rolled_back = False
        self.resumes_as: str | None = None
        self.deaths = 0
        self.inside: dict[Path, Inside] = {}

    def apply(self, entry: "Entry") -> None:
        """Take one item of this run, or of one inside it."""
        item = cast("Item", entry)
        self.state.apply(item)
        if item.path:
            self._apply_inside(item)
        if isinstance(item, ToolEnded):
            self._leave(item)

    def _apply_inside(self, item: Item) -> None:
        if isinstance(item, RunStarted):
            self.inside[item.path] = Inside(item)
            return
        # Each run counts what is spent below it, as it did when this happened.
        for depth in range(1, len(item.path) + 1):
            run = self.inside.get(item.path[:depth])
            if run is not None:
                run.state.apply(replace(item, path=item.path[depth:]))

    def _leave(self, ended: ToolEnded) -> None:
        """Forget the runs inside a call that has ended."""
        for path in [path for path, run in self.inside.items() if _is_behind(path, run, ended)]:
            for below in [other for other in self.inside if other[: len(path)] == path]:
                del self.inside[below]

    def goes_on(self, item: RunStarted, messages: list[Message]) -> None:
        """Be taken up by another worker, after the one before it died."""
        self.state = going_on(item, messages)
        self.inside.clear()
        self.deaths += 1

    def hand_over(self, item: "HandedOver", messages: list[Message]) -> None:
        """Be left whole by a worker, for the next one."""
        given = with_shared(item.checkpoint, messages)
        self.state = fold([RunStarted(run_id=self.run_id, agent=given.agent, checkpoint=given)])
        self.inside.clear()
        self.deaths = -1  # the next to take it up does so after no death

    def checkpoint(self, agent: str, model: str = "", tools: tuple[str, ...] = ()) -> Checkpoint:
        """Write down what the run goes on from, where its worker died: inside the runs inside it, too."""
        return self._checkpoint((), self.state, agent, model, tools)

    def _checkpoint(
        self, path: Path, state: State, agent: str, model: str, tools: tuple[str, ...]
    ) -> Checkpoint:
        made = checkpoint(state, agent, model, tools)
        children = dict(made.children)
        for call in state.pending:
            inside = self._behind(path, call)
            if inside:
                children[call.id] = tuple(
                    without_shared(
                        self._checkpoint(where, run.state, run.agent, run.model, ()), state.messages
                    )
                    for where, run in inside
                )
        results = tuple(result for result in made.results if result.call_id not in children)
        return replace(made, children=children, results=results)

    def _behind(self, path: Path, call: Call) -> list[tuple[Path, Inside]]:
        return [
            (where, run)
            for where, run in self.inside.items()
            if where[:-1] == path and run.call_id == call.id
        ]

    def step(self) -> str:
        """Say in a few words what the run does."""
        match self.state.next:
            case Next.ASK:
                return "model"
            case Next.USE | Next.COLLECT:
                running = [call.name for call in self.state.pending if call.id in self.state.started]
                return ", ".join(running) or "tools"
            case Next.FINISH | Next.ENDED:
                return "ending"


def _is_behind(path: Path, run: Inside, ended: ToolEnded) -> bool:
    return path[:-1] == ended.path and run.call_id == ended.call_id
