"""The generated parts of the pages are what the code says today."""

from collections.abc import AsyncIterator, Iterable

import pytest

from andon import Agent, Call, Point, Run, Stop, ToolStarted, tool
from andon.core.fold import Next, State
from andon.core.items import Event, MessageAdded
from andon.core.stop import Where
from andon.ports import ModelRequest
from andon.testing import virtual
from docs.generate import FOLDER, PAGES, PARTS, edges, generated, lattice, places

NAME = "how-stopping-works.md"
PAGE = FOLDER / NAME


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_not_behind_the_code(name: str) -> None:
    """Bring it up to date with `make docs`."""
    page = (FOLDER / name).read_text()

    assert generated(name, page) == page


def test_a_page_that_was_changed_by_hand_is_found_out() -> None:
    """Whatever stands between the marks is written anew, and nothing else is."""
    page = PAGE.read_text()
    changed = page.replace("point:step", "point:stop")

    assert changed != page
    assert generated(NAME, changed) == page


def test_a_page_without_a_place_for_a_part_is_refused() -> None:
    """No part is lost without a word."""
    with pytest.raises(ValueError, match="no place for: places"):
        generated(NAME, PAGE.read_text().replace("<!-- generated: places -->", ""))


def test_every_place_is_in_the_table() -> None:
    """And *now* is good at each."""
    rows = [line.split(" | ") for line in places().splitlines()[2:]]

    assert [row[0] for row in rows] == [f"| `{where}`" for where in Where]
    assert {row[2] for row in rows} == {"yes"}


def test_everything_leads_up_to_now() -> None:
    """Seven sets of points and *now*, which is above all of them."""
    arrows = [line.split(" --> ") for line in lattice().splitlines() if "-->" in line]
    above = {low.strip(): {high for lower, high in arrows if lower == low} for low, _ in arrows}

    assert len(above) == 7
    assert all(higher <= {*above, "now"} for higher in above.values())
    assert above["STREAM_MODEL_TOOLS"] == {"now"}


def test_every_step_of_a_run_is_in_the_diagram() -> None:
    """Each can be come to, and each but the last is left."""
    drawn = list(edges())

    assert {target for _, target, _ in drawn} == {step.name for step in Next}
    assert {source for source, _, _ in drawn} == {step.name for step in Next} - {"ENDED"} | {"[*]"}


def test_no_line_of_a_diagram_says_what_mermaid_cannot_read() -> None:
    """One colon a line, and no semicolon."""
    lines = [line for line in PARTS["moves"]().splitlines() if line.startswith("    ")]

    assert [line for line in lines if line.count(":") > 1 or ";" in line] == []


@virtual
async def test_runs_move_along_the_arrows_only() -> None:
    """One that is steered where it would end, and one that is stopped in a round and resumed."""
    drawn = {(source, target) for source, target, _ in edges()}
    calm = buyer()
    async with calm.start("buy") as steered:
        steered.steer("and more", when="idle")
        await steered.outcome()
    async with calm.start("buy") as stopped:
        async for event in stopped:
            if isinstance(event, ToolStarted):
                stopped.cancel(Stop.at(Point.TOOLS))
        kept = (await stopped.outcome()).checkpoint
    assert kept is not None
    async with calm.start_from(kept) as resumed:
        await resumed.outcome()

    assert ("FINISH", "ASK") in await moved(steered)
    assert ("ASK", "FINISH") in await moved(resumed)
    for run in (steered, stopped, resumed):
        assert await moved(run) <= drawn


def buyer() -> Agent:
    """Make an agent that buys twice at once, and says so."""

    @tool
    async def buy() -> str:
        """Buy."""
        return "bought"

    async def model(request: ModelRequest) -> AsyncIterator[str | Call]:
        if request.messages[-1].role == "user":
            yield Call("buy")
            yield Call("buy")
        else:
            yield "done"

    return Agent(model, tools=[buy])


async def moved(run: Run) -> set[tuple[str, str]]:
    """Give the moves of a run, from the item after its first."""
    events = [event async for event in run.events()]
    return set(_pairs(events))


def _pairs(events: Iterable[Event]) -> Iterable[tuple[str, str]]:
    state, source = State(), "[*]"
    for event in events:
        if isinstance(event, MessageAdded) and event.message.synthetic:
            continue
        target = state.apply(event).next.name
        if target != source and len(state.messages):
            yield source, target
            source = target
