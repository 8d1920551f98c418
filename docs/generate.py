"""Generate: the tables and diagrams of the pages, out of the code that they tell about.

`python -m docs.generate` writes them in their places; nothing in them is written by hand twice. The
last two come from runs that are really stopped and resumed, on a virtual clock.
"""

import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import get_args

from msgspec import Struct

from andon import Agent, Call, Message, Outcome, Point, Stop, sequence, tool
from andon.cli.report import STATES, WHERE
from andon.core.fold import Next, State, checkpoint, fold
from andon.core.items import Item, MessageAdded, RunEnded, RunStarted, Steered, ToolEnded
from andon.core.messages import ResultState
from andon.core.repair import NOT_STARTED, UNKNOWN
from andon.core.stop import Bond, Cause, Where
from andon.ports import ModelRequest
from andon.testing import Gate, run_virtual
from docs import turns

FOLDER = Path(__file__).parent
PLACE = re.compile(r"(<!-- generated: (?P<name>[a-z ]+) -->\n).*?(<!-- until here -->)", re.DOTALL)

ALL = Point.STREAM | Point.ANY
SUBSETS = [Point(number) for number in range(1, ALL.value + 1)]
LOOK = Call("look", {}, "1")


# What is written


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def mermaid(lines: Iterable[str]) -> str:
    """Write a diagram, which GitHub draws."""
    return "\n".join(["```mermaid", *lines, "```"])


def named(points: Point) -> str:
    """Name a set of points as one writes it in Python."""
    return " | ".join(point.name or "" for point in points)


# The lattice


def lattice() -> str:
    """Draw which request is stronger than which: an arrow leads to what joining one more thing gives."""
    stops = {named(points): Stop.at(points) for points in SUBSETS} | {"now": Stop.now()}
    ids = {name: name.replace(" | ", "_") for name in stops}
    above = {
        (low, high)
        for low, high in combinations(stops, 2)
        if stops[low].join(stops[high]) == stops[high] and stops[low] != stops[high]
    }
    covers = [
        (low, high)
        for low, high in sorted(above, key=lambda pair: [*map(list(stops).index, pair)])
        if not any((low, middle) in above and (middle, high) in above for middle in stops)
    ]
    return mermaid(
        [
            "flowchart LR",
            *(f'    {ids[name]}["{name}"]' for name in stops),
            *(f"    {ids[low]} --> {ids[high]}" for low, high in covers),
        ]
    )


class Asked(Struct, frozen=True):
    """A request, and the second at which it comes."""

    stop: Stop
    at: float = 0.0

    @property
    def bound(self) -> Stop:
        """The request with its grace as a deadline; who asked is of no interest here."""
        bound = self.stop.bind(self.at, Cause())
        return Stop(
            immediate=bound.immediate,
            points=bound.points,
            deadline=bound.deadline,
            recursive=bound.recursive,
        )

    def __str__(self) -> str:
        grace = "" if self.stop.grace is None else f", within {self.stop.grace:g} s"
        recursive = ", recursive" if self.stop.recursive else ""
        what = "now" if self.stop.immediate else named(self.stop.points)
        return f"{what}{grace}{recursive}" + (f", asked at {self.at:g} s" if self.at else "")


def told(stop: Stop) -> str:
    """Write a joined request down."""
    deadline = "" if stop.deadline is None else f", until second {stop.deadline:g}"
    recursive = ", recursive" if stop.recursive else ""
    return f"{'now' if stop.immediate else named(stop.points)}{deadline}{recursive}"


def joins() -> str:
    """Join requests in pairs, both ways round."""
    pairs = [
        (Asked(Stop.at(Point.MODEL)), Asked(Stop.at(Point.TOOLS))),
        (Asked(Stop.at(Point.TOOLS)), Asked(Stop.at(Point.TOOLS), 3)),
        (Asked(Stop.at(Point.TOOLS, grace=10)), Asked(Stop.at(Point.TOOLS, grace=5), 3)),
        (Asked(Stop.at(Point.TOOLS, grace=10)), Asked(Stop.at(Point.MODEL, grace=60), 3)),
        (Asked(Stop.at(Point.ANY)), Asked(Stop.at(Point.TOOLS, recursive=True), 3)),
        (Asked(Stop.at(Point.ANY, grace=10)), Asked(Stop.now(), 3)),
    ]
    rows: list[tuple[str, str, str]] = []
    for first, second in pairs:
        whole = first.bound.join(second.bound)
        if whole != second.bound.join(first.bound):
            sys.exit(f"join is not commutative: {first} and {second}")
        rows.append((str(first), str(second), told(whole)))
    return table(("one asks for", "another for", "together"), rows)


# Where a stop takes effect, and what a child is told


def places() -> str:
    """Ask every kind of stop whether it takes effect at every place."""
    kinds = {"now": Stop.now(), **{point.name or "": Stop.at(point) for point in ALL}}
    rows = [
        (f"`{where}`", WHERE[where], *("yes" if stop.due(where) else "" for stop in kinds.values()))
        for where in Where
    ]
    return table(("`stopped_at`", "the run was stopped", *kinds), rows)


BONDS: dict[Bond, str] = {
    "step": "a step of a workflow, or handed over to",
    "tool": "behind a tool call",
    "aside": "started by a hook or a model",
}


def children() -> str:
    """Ask every kind of stop what it passes on over every bond, and whether it keeps the child's state."""
    kinds = {
        "at points": Stop.at(Point.ANY),
        "at points, recursive": Stop.at(Point.ANY, recursive=True),
        "now": Stop.now(),
        "now, recursive": Stop.now(recursive=True),
    }
    rows = [(BONDS[bond], *(_passed(stop, bond) for stop in kinds.values())) for bond in get_args(Bond)]
    return table(("the child is", *kinds), rows)


def _passed(stop: Stop, bond: Bond) -> str:
    told = stop.passed_on(bond)
    if told is None:
        return "nothing"
    what = "now" if told.immediate else "the points"
    return f"{what}; its state is kept" if stop.keeps(bond) else what


# What a run does next


START = RunStarted(run_id="r", agent="a")
ASKED = [START, MessageAdded(message=Message.user("hi"))]
CALLED = [*ASKED, MessageAdded(message=Message.assistant(LOOK, Call("look", {}, "2")))]
ENDED_1 = ToolEnded(call_id="1", name="look", state=ResultState.COMPLETED)
ENDED_2 = ToolEnded(call_id="2", name="look", state=ResultState.COMPLETED)
ROUND = [*CALLED, ENDED_1, ENDED_2]
RESULTS = MessageAdded(message=Message("tool", ()))
ANSWER = MessageAdded(message=Message.assistant("done"))
OVER = RunEnded(outcome=Outcome(run_id="r", stop_reason="cancelled"))
STOPPED = "a stop, a question, a limit or a failure"

# What happens to a run, after which items; where it leads is for the fold to say.
MOVES: Sequence[tuple[Sequence[Item], Item, str]] = [
    ([START], ASKED[1], "a prompt"),
    (ASKED, CALLED[-1], "an answer with calls"),
    (ASKED, ANSWER, "a final answer, or one handed over"),
    (CALLED, ENDED_1, "a call has ended"),
    ([*CALLED, ENDED_1], ENDED_2, "the last call has ended"),
    (ROUND, RESULTS, "the results join the history"),
    ([*ASKED, ANSWER], Steered(message=Message.user("and?")), "steered"),
    (ASKED, OVER, STOPPED),
    (CALLED, OVER, STOPPED),
    (ROUND, OVER, STOPPED),
    ([*ASKED, ANSWER], OVER, "nothing more was said"),
]
# Where a run that was stopped goes on: after which items its checkpoint was taken.
RESUMED: Sequence[tuple[Sequence[Item], str]] = [
    (ASKED, "resumed in a model call, or after the tools"),
    (CALLED, "resumed with calls open"),
    (ROUND, "resumed with all calls ended"),
]


def edges() -> Iterator[tuple[str, str, str]]:
    """Give from where to where a run moves, and what moves it."""
    for before, item, label in MOVES:
        source = "[*]" if before == [START] else fold(before).next.name
        yield source, fold([*before, item]).next.name, label
    for before, label in RESUMED:
        kept = checkpoint(fold(before), "a")
        yield "[*]", State().apply(RunStarted(run_id="s", agent="a", checkpoint=kept)).next.name, label


def moves() -> str:
    """Draw what a run does next, and what changes it."""
    return mermaid(
        [
            "stateDiagram-v2",
            *(f"    {step.name} : {step.value.replace(': ', ', ')}" for step in Next),  # one colon a line
            *(f"    {source} --> {target} : {label}" for source, target, label in edges()),
            f"    {Next.ENDED.name} --> [*]",
        ]
    )


# How a tool call ends


READS = {
    ResultState.COMPLETED: "its result",
    ResultState.FAILED: "its error",
    ResultState.NOT_STARTED: f"“{NOT_STARTED}”",
    ResultState.UNKNOWN: f"“{UNKNOWN}”",
}


def calls() -> str:
    """End a call in every way, take the checkpoint, and look whether it would be made once more."""
    rows: list[tuple[str, ...]] = []
    for state in ResultState:
        runs = _runs_on_resume(ToolEnded(call_id="1", name="look", state=state))
        rows.append((f"`{state}`", STATES[state][2], READS[state], "it runs" if runs else "its result stays"))
    return table(("state", "the call", "the model reads", "when the run is resumed"), rows)


def _runs_on_resume(ended: ToolEnded) -> bool:
    kept = checkpoint(fold([*CALLED, ended]), "a")
    return LOOK in State().apply(RunStarted(run_id="s", agent="a", checkpoint=kept)).pending


# What happens in a tree


TWICE = 2
TIMES = ("never", "once", "twice")


class Seen:
    """Reads along how each run of a tree ends, by the name of its agent."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.ends: dict[str, Outcome] = {}

    def observe(self, run_id: str, item: Item, /) -> None:
        """Note who runs, and how it ends."""
        if isinstance(item, RunStarted) and not item.path:
            self.names[run_id] = item.agent
        if isinstance(item, RunEnded):
            self.ends[self.names[run_id]] = item.outcome


class Tree:
    """A root with a child: the child looks, is asked once more, looks again, and answers."""

    def __init__(self, bond: Bond) -> None:
        self.asked: Counter[str] = Counter()
        self.looks = 0
        self.gate = Gate("in the child's second model call")
        self.seen = Seen()
        child = Agent(self.child, tools=[tool(name="look", description="Look.")(self.look)], name="child")
        if bond == "step":
            self.root = sequence(child, name="root", observers=[self.seen])
        else:
            tools = [child.as_tool(description="Looks.")]
            self.root = Agent(self.model, tools=tools, name="root", observers=[self.seen])

    async def look(self) -> str:
        """Look, and count it."""
        self.looks += 1
        return "seen"

    async def model(self, request: ModelRequest) -> AsyncIterator[str | Call]:
        """Ask the child, then answer."""
        self.asked["root"] += 1
        yield Call("child", {"request": "look"}) if request.messages[-1].role == "user" else "done"

    async def child(self, request: ModelRequest) -> AsyncIterator[str | Call]:
        """Look twice, then answer; wait to be let go in between."""
        self.asked["child"] += 1
        looks = sum(len(message.results) for message in request.messages)
        if looks == 1:
            await self.gate
        yield Call("look") if looks < TWICE else "seen twice"

    async def stopped(self, stop: Stop) -> tuple[str, ...]:
        """Stop it while the child is in its second model call, resume it, and tell what became of it."""
        async with self.root.start("go") as run:
            await self.gate.reached()
            run.cancel(stop)
            self.gate.open()
            outcome = await run.outcome()
        child, root = _ended(self.seen.ends["child"]), _ended(outcome)
        [result] = outcome.messages[2].results
        self.asked.clear()
        if outcome.checkpoint is not None:
            await self.root.resume(outcome.checkpoint)
        asked = ", ".join(f"{name} {TIMES[count]}" for name, count in sorted(self.asked.items())) or "nobody"
        return (child, root, f"`{result.state}`", asked, TIMES[self.looks])


def _ended(outcome: Outcome) -> str:
    report = outcome.cancelled
    return "gives its answer" if report is None else f"stops, `{report.stopped_at}`"


TREE_STOPS: dict[str, Stop] = {
    "at(TOOLS)": Stop.at(Point.TOOLS),
    "at(TOOLS, recursive=True)": Stop.at(Point.TOOLS, recursive=True),
    "graceful()": Stop.graceful(),
    "gently()": Stop.gently(),
    "now()": Stop.now(),
    "now(recursive=True)": Stop.now(recursive=True),
}


def tree(bond: Bond) -> str:
    """Stop a root and its child in every way, resume them, and tell what happened."""
    rows = [
        (f"`Stop.{name}`", *run_virtual(lambda stop=stop: Tree(bond).stopped(stop)))
        for name, stop in TREE_STOPS.items()
    ]
    head = (
        "stop",
        "the child",
        "the root",
        "its call is",
        "then resumed, asked are",
        "in all, the child's tool ran",
    )
    return table(head, rows)


# The page


PARTS: dict[str, Callable[[], str]] = {
    "lattice": lattice,
    "joins": joins,
    "places": places,
    "moves": moves,
    "calls": calls,
    "children": children,
    "behind a tool call": lambda: tree("tool"),
    "a step of a workflow": lambda: tree("step"),
}


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "how-stopping-works.md": PARTS,
    "turn-loop.md": {"phases": turns.phases, "stages": turns.stages, "ends": turns.ends},
}


def generated(name: str, page: str) -> str:
    """Write every generated part of a page anew; the rest of it stays as it is."""
    parts = PAGES[name]
    missing = parts.keys() - {found["name"] for found in PLACE.finditer(page)}
    if missing:
        msg = f"{name} has no place for: {', '.join(sorted(missing))}"
        raise ValueError(msg)
    return PLACE.sub(lambda found: f"{found[1]}{parts[found['name']]()}\n{found[3]}", page)


def main() -> None:
    """Bring the pages up to date."""
    for name in PAGES:
        path = FOLDER / name
        path.write_text(generated(name, path.read_text()))


if __name__ == "__main__":
    main()
