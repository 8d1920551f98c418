"""Live: the run of a session that is under way, the runs inside it, and those before and after it."""

from typing import TYPE_CHECKING, Self, cast

from msgspec import Struct
from msgspec.structs import replace

from andon.core.checkpoint import Checkpoint
from andon.core.command import Answer, Push, Resume, Steer
from andon.core.fold import Next, State, checkpoint, going_on
from andon.core.items import Item, MessageAdded, Path, RunStarted, ToolEnded
from andon.core.limits import Limits
from andon.core.messages import Call, Message
from andon.core.outcome import Interrupt
from andon.core.repair import unknown
from andon.core.stop import Stop
from andon.core.tree import answered, answered_inside, interrupts, tool_site, without_shared

if TYPE_CHECKING:
    from andon.core.journal import Entry, HandedOver


class Queued(Struct, frozen=True, kw_only=True, gc=False):
    """A run that waits for its turn: with something new to answer, or going on from a checkpoint.

    One that comes `first` goes before those that were only put behind each other.
    """

    run_id: str
    at: float
    by: str | None = None
    message: Message | None = None
    limits: Limits | None = None
    checkpoint: Checkpoint | None = None
    answers: dict[str, object] = {}
    stop: Stop | None = None
    first: bool = False


def queued_for(push: Push) -> Queued:
    """Let what somebody said wait for its turn."""
    return Queued(
        run_id=push.run_id,
        at=push.at,
        by=push.by,
        message=push.message,
        limits=push.limits,
        first=push.on_busy in {"preempt", "rollback"},
    )


class Waiting(Struct, frozen=True, kw_only=True):
    """The last run, if something is left of it to go on from.

    With `holds` it has asked something, and nobody has said anything since: what was said before waits.
    """

    run_id: str
    checkpoint: Checkpoint
    interrupts: tuple[Interrupt, ...] = ()
    limits: Limits | None = None
    holds: bool = False

    def goes_on(self, asked: Resume | Answer, answers: dict[str, object]) -> Queued:
        """Let it go on as another run, before all others."""
        return Queued(
            run_id=asked.run_id,
            at=asked.at,
            by=asked.by,
            limits=self.limits,
            checkpoint=self.checkpoint,
            answers=answers,
            first=True,
        )


class Inside:
    """A run that a call of the live run has started, or of one inside it."""

    __slots__ = ("agent", "asked", "call_id", "model", "state")

    def __init__(self, started: RunStarted) -> None:
        self.asked = started.checkpoint is not None  # until then there is nothing to go on from
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
        self.agent = ""
        self.model = ""
        self.unsaid: Message | None = None
        self.answers: dict[str, object] = {}
        self.limits: Limits | None = None
        self.by: str | None = None
        self.stop: Stop | None = None
        self.steers: dict[str, Steer] = {}
        self.else_queued: dict[str, Queued] = {}
        self.early = False
        self.rolled_back = False
        self.resumes: Resume | None = None
        self.deaths = 0
        self.inside: dict[Path, Inside] = {}

    def take_up(self, queued: Queued) -> None:
        """Be the run that has waited: what it was asked is kept until it is in the history.

        One that was cancelled before it began comes `early`: it only ends.
        """
        self.early = queued.stop is not None and queued.checkpoint is None
        self.queued, self.by, self.stop, self.limits = queued.at, queued.by, queued.stop, queued.limits
        self.unsaid, self.answers = queued.message, queued.answers
        self.prompt = "" if queued.message is None else queued.message.text

    def apply(self, entry: "Entry") -> None:
        """Take one item of this run, or of one inside it."""
        item = cast("Item", entry)
        self.state.apply(item)
        if item.path:
            self._apply_inside(item)
        if self.inside and isinstance(item, ToolEnded):
            self._leave(item)
        elif self.unsaid is not None and isinstance(item, MessageAdded) and not item.path:
            self.unsaid = None  # it is what a run adds first

    def hear(self, command_id: str) -> None:
        """Have what was said in the history: it is not said again."""
        self.steers.pop(command_id, None)
        self.else_queued.pop(command_id, None)

    def join(self, stop: Stop) -> None:
        """Ask the run to stop so as well."""
        self.stop = stop if self.stop is None else self.stop.join(stop)

    def _apply_inside(self, item: Item) -> None:
        if isinstance(item, RunStarted):
            if item.call_id:  # what runs aside, in a hook, does not go on
                self.inside[item.path] = Inside(item)
            return
        # Each run counts what is spent below it, as it did when this happened.
        for depth in range(1, len(item.path) + 1):
            run = self.inside.get(item.path[:depth])
            if run is not None:
                run.state.apply(replace(item, path=item.path[depth:]))
                run.asked = run.asked or isinstance(item, MessageAdded)

    def _leave(self, ended: ToolEnded) -> None:
        """Forget the runs inside a call that has ended."""
        for path in [path for path, run in self.inside.items() if _is_behind(path, run, ended)]:
            for below in [other for other in self.inside if other[: len(path)] == path]:
                del self.inside[below]

    def begun_by(self, item: RunStarted) -> Self:
        """Note which agent and model the worker has."""
        self.agent, self.model = item.agent, item.model
        return self

    def goes_on(self, item: RunStarted, messages: list[Message]) -> None:
        """Be taken up by another worker, after the one before it died."""
        self._begin_anew(going_on(item, messages))
        self.begun_by(item).deaths += 1

    def hand_over(self, item: "HandedOver", messages: list[Message]) -> None:
        """Be left whole by a worker, for the next one."""
        given = item.checkpoint
        started = RunStarted(run_id=self.run_id, agent=given.agent, checkpoint=given)
        self._begin_anew(going_on(started, messages))
        self.deaths = -1  # the next to take it up does so after no death

    def _begin_anew(self, state: State) -> None:
        self.state = state
        self.inside.clear()
        self.unsaid, self.answers = None, {}  # they are in the checkpoint that it goes on from

    def checkpoint(self, agent: str, model: str = "", tools: tuple[str, ...] = ()) -> Checkpoint:
        """Write down what the run goes on from, where its worker died: inside the runs inside it, too.

        What it was asked or answered is in it, also if that had not come into its history yet.
        """
        made = self._checkpoint((), self.state, agent, model, tools)
        if self.unsaid is not None:
            made = replace(made, messages=(*self.state.messages, self.unsaid), partial=None)
        for name, answer in self.answers.items():
            asked = answered(made.asked, name, answer)
            made = replace(made, asked=asked, children=answered_inside(made.children, name, answer))
        return made

    def _checkpoint(
        self, path: Path, state: State, agent: str, model: str, tools: tuple[str, ...]
    ) -> Checkpoint:
        made = checkpoint(state, agent, model, tools)
        begun = [call for call in state.pending if call.id in state.started]
        children = {**made.children, **{call.id: self._going_on(path, state, call) for call in begun}}
        waits = {call.id for call in begun if _waits(state, call, children[call.id])}
        known = {result.call_id for result in made.results}
        # Whether it goes on or stays unknown, its tool decides: the journal does not know the tools.
        lost = (unknown(call) for call in begun if call.id not in known)
        results = tuple(result for result in (*made.results, *lost) if result.call_id not in waits)
        return replace(made, children=children, results=results)

    def _going_on(self, path: Path, state: State, call: Call) -> tuple[Checkpoint, ...]:
        """Give what the runs inside a call go on from, and those that it had not come to again."""
        inside = tuple(
            without_shared(self._checkpoint(where, run.state, run.agent, run.model, ()), state.messages)
            for where, run in self._behind(path, call)
        )
        return (*inside, *state.again.get(call.id, ())[len(inside) :])

    def _behind(self, path: Path, call: Call) -> list[tuple[Path, Inside]]:
        return [
            (where, run)
            for where, run in self.inside.items()
            if where[:-1] == path and run.call_id == call.id and run.asked
        ]

    def step(self) -> str:
        """Say in a few words what the run does."""
        match self.state.next:
            case Next.ASK:
                return "model"
            case Next.USE | Next.COLLECT:
                running = [call.name for call in self.state.pending if call.id in self.state.started]
                return ", ".join(running) or "tools"
            case _:  # FINISH, or ENDED
                return "ending"


def _waits(state: State, call: Call, inside: tuple[Checkpoint, ...]) -> bool:
    """Say whether a call has asked a human, itself or inside, and does nothing until there is an answer."""
    site = tool_site(call.id)
    own = any(asked.site == site and not asked.answered for asked in state.asked)
    return own or any(any(interrupts(child)) for child in inside)


def _is_behind(path: Path, run: Inside, ended: ToolEnded) -> bool:
    return path[:-1] == ended.path and run.call_id == ended.call_id
