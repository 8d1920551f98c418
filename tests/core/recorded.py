"""A session as its worker writes it down: items that real runs have told, through JSON and back."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from andon import Agent, Outcome, Run, Stop
from andon.core.checkpoint import Checkpoint
from andon.core.command import Answer, Command, Key, Push, Resume
from andon.core.fold import State
from andon.core.items import Item, MessageAdded, RunEnded, RunStarted, ToolEnded
from andon.core.journal import Entry, Received, record_from_json, record_to_json, slim
from andon.core.live import Waiting
from andon.core.messages import Message, ResultState
from andon.core.session import fold_session
from andon.ports import Observer
from andon.testing import VirtualLoop, run_virtual

KEY = Key("app", "user", "s")


class Book:
    """The journal of one session, and the state that what is read from it adds up to."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries = list(entries)
        self.state = fold_session(KEY, entries)

    def write(self, entry: Entry) -> None:
        """Number it, make it slim, write it, read it back, and let it be true."""
        state = self.state
        ends = isinstance(entry, RunEnded) and state.live is not None and not entry.path
        history = state.live.state.messages if ends and state.live is not None else state.messages
        lean = slim(replace(entry, n=state.n + 1), history)
        for read in record_from_json(record_to_json([lean])):
            self.entries.append(read)
            state.apply(read)

    def tell(self, *commands: Command) -> None:
        """Take commands from the mailbox."""
        for command in commands:
            self.write(Received(seq=self.state.cursor + 1, at=command.at, command=command))


class Worker:
    """Does what the state of a session says, and writes down all that its runs tell; is their observer."""

    def __init__(self, book: Book, agent: Callable[[Observer], Agent]) -> None:
        self.book = book
        self.agent = agent(self)
        self.whole: State | None = None
        self.outcome: Outcome | None = None
        self.after: Callable[[Item], None] = _nothing
        self._root = ""
        self._run_id = ""

    def work(self, stop: Stop | None = None, step: int = 0) -> Outcome:
        """Carry the run that is live, or is next, to its end; or to where it is stopped."""
        self._root = ""
        run, loop = self._run(), VirtualLoop()

        def cancel_at(now: int) -> None:
            if stop is not None and now == first + step:
                run.cancel(stop)

        async def main() -> Outcome:
            async with run:
                return await run.outcome()

        first = loop.steps
        loop.before_step = cancel_at
        run_virtual(main, loop=loop)
        assert self.outcome is not None
        return self.outcome

    def _run(self) -> Run:
        state = self.book.state
        if state.live is not None:
            self._run_id = state.live.run_id
            left = state.live.checkpoint(self.agent.name, "root_model", _names(self.agent))
            return self.agent.start_from(left.to_json(), limits=state.live.limits)
        queued = state.ready
        assert queued is not None
        self._run_id = queued.run_id
        if queued.checkpoint is None:
            return self.agent.start(queued.message, messages=tuple(state.messages), limits=queued.limits)
        left = Checkpoint.from_json(queued.checkpoint.to_json())
        return self.agent.start_from(left, answers=queued.answers, limits=queued.limits)

    def observe(self, run_id: str, item: Item, /) -> None:
        """Write down what the root tells, under the id that the session knows it by."""
        self._root = self._root or run_id
        if run_id != self._root:
            return
        if isinstance(item, RunStarted) and not item.path:
            item = replace(item, run_id=self._run_id)
            self.whole = State()
        if isinstance(item, RunEnded):
            self.outcome = item.outcome
            item = replace(item, outcome=replace(item.outcome, run_id=self._run_id))
        assert self.whole is not None
        self.whole.apply(item)
        self.book.write(item)
        self.after(item)


def _names(agent: Agent) -> tuple[str, ...]:
    return tuple(tool.name for tool in agent.tools)


def _nothing(_item: Item) -> None:
    """Be there until somebody wants to know."""


def said(text: str, run_id: str, at: float = 1.0) -> Push:
    """A message that becomes a run."""
    return Push(id=f"c-{run_id}", at=at, run_id=run_id, message=Message.user(text))


def reply(waiting: Waiting, run_id: str, **words: str) -> Answer:
    """An answer to each question of a run, by what was asked; to all others it is B."""
    answers: dict[str, object] = {one.id: words.get(str(one.payload), "B") for one in waiting.interrupts}
    return Answer(id=f"c-{run_id}", at=1.0, run_id=run_id, answers=answers)


def resume(run_id: str) -> Resume:
    """Let the session go on."""
    return Resume(id=f"c-{run_id}", at=1.0, run_id=run_id)


def sealed(entries: Sequence[Entry]) -> set[int]:
    """Say behind which entries only the end of a run is missing, whose history is made whole already."""
    found: set[int] = set()
    for place, entry in enumerate(entries):
        if not isinstance(entry, RunEnded) or entry.outcome.checkpoint is None:
            continue
        while isinstance(entries[place - 1], MessageAdded):
            found.add(place)
            place -= 1  # noqa: PLW2901
        while _is_sealing(entries[place - 1]):
            found.add(place)
            place -= 1  # noqa: PLW2901
    return found


def _is_sealing(entry: Entry) -> bool:
    ends = isinstance(entry, ToolEnded) and not entry.path and not entry.again
    return ends and isinstance(entry, ToolEnded) and entry.state is not ResultState.COMPLETED
