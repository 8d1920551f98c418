"""Scene: one fresh set-up of a story; Scenario: how to set it up; Mode: a way to stop it."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct, field

from andon.core.messages import Message
from andon.core.outcome import Interrupt
from andon.core.steer import When
from andon.core.stop import Stop
from andon.runtime.agent import Agent
from andon.testing.script import ScriptedModel


class Tally:
    """Counts for each named tool how often it began, and how often it came to its end.

    A tool counts itself with `with tally.of("name"): …` around all that it does. Those in `again`
    may be repeated when a run is resumed; all others take effect at most as often as in a run that
    nobody stops.
    """

    def __init__(self, *names: str, again: Sequence[str] = ()) -> None:
        self.begun = dict.fromkeys((*names, *again), 0)
        self.ended = dict.fromkeys((*names, *again), 0)
        self.again = frozenset(again)

    def add(self, name: str) -> None:
        """Count one more tool."""
        self.begun.setdefault(name, 0)
        self.ended.setdefault(name, 0)

    @contextmanager
    def of(self, name: str) -> Generator[None]:
        """Count one use of a tool: begun where the block is entered, ended where it is left whole."""
        self.begun[name] += 1
        yield
        self.ended[name] += 1


class Scene(Struct, kw_only=True):
    """One fresh set-up of a scenario: the agent, its prompt, and what of it can be counted.

    `models` are all scripted models of the agent and of those inside it. `tally` counts its tools;
    those that it does not name are not counted. `within` is how many seconds a stop *now* may take
    here: nearly none, unless tools or hooks need time to end. `answer` answers what the agent asks
    a human. `let_go` opens what the scene still holds.
    """

    agent: Agent
    models: Sequence[ScriptedModel]
    prompt: str = "Go."
    messages: Sequence[Message] = ()
    tally: Tally = field(default_factory=Tally)
    within: float = 0.05
    answer: Callable[[Interrupt], object] = lambda _: "yes"
    let_go: Callable[[], None] = lambda: None


class Scenario(Struct, frozen=True, kw_only=True):
    """A story that can be told again and again: `make` sets up a fresh scene each time.

    `ends` is the stop reason of the run that nobody stops. `foreign` says that threads, processes
    or TCP take part, so that it is stopped at its boundaries only, never at the steps of the loop.

    `resumes` says that a run that was stopped can go on in a fresh scene, in this process or in another,
    and be compared with the one that nobody stopped: what its models and tools say depends only on
    what they are asked (`ScriptedModel(…, by_round=True)`). `needs_all` says that it fails where a run
    inside is cancelled alone, as workflows do.
    """

    name: str
    make: Callable[[], Scene]
    ends: str = "end_turn"
    foreign: bool = False
    resumes: bool = False
    needs_all: bool = False


class Mode(Struct, frozen=True, kw_only=True):
    """A way to stop a run: by one or several requests, some steps apart, or by its task.

    `whom` says whether the requests are for the run, or for the newest of the runs deepest inside
    it. With `steer` something is said to the run first.
    """

    name: str
    stops: tuple[Stop, ...] = ()
    apart: int = 3
    by_task: bool = False
    whom: Literal["root", "child"] = "root"
    steer: When | None = None
