"""The benchmarks work, and what they count holds; no time is asserted here."""

import re

import pytest

from bench.__main__ import BENCHES, chosen, main
from bench.measure import Bench, Claim, Figure, Report, Size
from bench.table import brief, page, put_in, table

PLACE = re.compile(r"/(home|root|Users|work|tmp)/")


def stub(name: str, report: Report) -> Bench:
    """Make a benchmark that finds what it is told."""
    size = Size(1, 1)
    return Bench(letter=name, title=name, floor="nothing", full=size, tiny=size, measure=lambda _: report)


@pytest.mark.parametrize("bench", BENCHES, ids=[bench.letter for bench in BENCHES])
def test_a_benchmark_works_and_what_it_counts_holds(bench: Bench) -> None:
    """Chunks after the stop, streams left open and tasks left are counted at any size."""
    report = bench.measure(bench.tiny)

    assert report.figures
    assert all(len(figure.pairs) == bench.tiny.rounds for figure in report.figures)
    assert [claim.name for claim in report.claims if not claim.holds] == []


def test_every_letter_has_its_benchmark() -> None:
    """A to I, in order, each with its floor said in one line."""
    assert "".join(bench.letter for bench in BENCHES) == "ABCDEFGHIJ"
    assert all(bench.floor and "\n" not in bench.floor for bench in BENCHES)


def test_cancel_and_many_runs_are_counted() -> None:
    """The promises that a slow machine cannot excuse."""
    counted = {
        bench.letter: len(bench.measure(bench.tiny).claims) for bench in BENCHES if bench.letter in "DE"
    }

    assert counted == {"D": 2, "E": 2}


def test_a_ratio_is_taken_within_a_round() -> None:
    """A slow moment that hits both sides changes nothing."""
    figure = Figure(name="x", pairs=[(1.0, 3.0), (10.0, 30.0), (1.0, 3.0), (2.0, 8.0)], goal=3.0)

    assert figure.quartiles == (3.0, 3.0, 3.25)
    assert figure.met is True


@pytest.mark.parametrize(
    ("goal", "absolute", "met"), [(2.9, False, False), (3.0, False, True), (5.9, True, False)]
)
def test_a_goal_is_for_the_ratio_or_for_ours(goal: float, *, absolute: bool, met: bool) -> None:
    """Memory has a goal of its own, whatever the floor weighs."""
    figure = Figure(name="x", pairs=[(2.0, 6.0)], goal=goal, absolute=absolute)

    assert figure.met is met


def test_a_missed_goal_is_said_in_the_table() -> None:
    """Met, missed, or without a goal."""
    figures = [Figure(name=str(goal), pairs=[(1.0, 3.0)], goal=goal) for goal in (4.0, 2.0, None)]
    rows = table([(stub("X", Report(figures)), Report(figures))]).splitlines()[2:]

    assert ["met" in row for row in rows] == [True, False, False]
    assert ["MISSED" in row for row in rows] == [False, True, False]


def test_the_page_says_what_was_counted_and_knows_no_place() -> None:
    """A broken claim stands out; no path of a machine is in it."""
    report = Report([Figure(name="x", pairs=[(1.0, 1.0)])], [Claim("left", 2, 1), Claim("open", 0)])
    text = page([(stub("X", report), report)])

    assert "left: 2 (at most 1 may be): BROKEN" in text
    assert "open: 0 (none may be): holds" in text
    assert PLACE.search(text) is None


def test_some_benchmarks_may_be_chosen() -> None:
    """In their own order, in either case; all without a choice."""
    assert [bench.letter for bench in chosen(["c", "A"])] == ["A", "C"]
    assert chosen([]) == list(BENCHES)


def test_an_unknown_letter_is_refused() -> None:
    """The message names it, and those there are."""
    with pytest.raises(SystemExit, match=r"no benchmark X: choose from A B C D E F G"):
        main(["X"])


def test_the_readme_takes_the_figures_that_have_a_goal() -> None:
    """They stand between two marks, which stay, as does all around them."""
    met = Figure(name="with", pairs=[(1.0, 2.0)], goal=2.0)
    heavy = Figure(name="by weight", pairs=[(1.0, 5.0)], unit="KiB", goal=6.0, absolute=True)
    report = Report([met, heavy, Figure(name="without", pairs=[(1, 1)])])
    results = [(stub("A", report), report)]
    page_before = "# Top\n<!-- written by make bench -->\nold\n<!-- until here -->\nend\n"

    page_after = put_in(page_before, brief(results))

    assert page_after.startswith("# Top\n<!-- written by make bench -->\n| figure ")
    assert page_after.endswith("|\n<!-- until here -->\nend\n")
    rows = [" ".join(line.split()) for line in page_after.splitlines()]
    assert "| A with | 2.00 x | ≤ 2 x | met |" in rows
    assert "| A by weight | 5 KiB | ≤ 6 KiB | met |" in rows
    assert "without" not in page_after
    with pytest.raises(ValueError, match="no place for the figures"):
        put_in("# Top\n", "")
