"""Table: the figures and claims of some reports, as Markdown."""

import os
import platform
from collections.abc import Sequence

from bench.measure import Bench, Claim, Figure, Report

HEAD = ("figure", "floor", "ours", "ratio", "quartiles", "goal", "")
BEGIN, END = "<!-- written by make bench -->\n", "<!-- until here -->"
Results = Sequence[tuple[Bench, Report]]


def table(results: Results) -> str:
    """Write all figures as one table, with columns that line up."""
    return _lined_up([HEAD, *(row(bench, figure) for bench, report in results for figure in report.figures)])


def brief(results: Results) -> str:
    """Write the figures that have a goal: as ratios, or as they are where the goal is for ours."""
    lines = [("figure", "measured", "goal", "")]
    for bench, report in results:
        for figure in report.figures:
            if figure.goal is not None:
                name, _, ours, ratio, _, goal, verdict = row(bench, figure)
                lines.append((name, ours if figure.absolute else ratio, goal, verdict))
    return _lined_up(lines)


def put_in(text: str, lines: str) -> str:
    """Put lines between the marks in a page; the rest of it stays as it is."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        msg = f"the page has no place for the figures: put {BEGIN.strip()} and {END} in it"
        raise ValueError(msg)
    return f"{before}{begin}{lines}\n{end}{after}"


def row(bench: Bench, figure: Figure) -> tuple[str, ...]:
    """Write one figure."""
    low, middle, high = figure.quartiles
    goal, verdict = "", ""
    if figure.goal is not None:
        goal = f"≤ {figure.goal:g}" + (f" {figure.unit}" if figure.absolute else " x")
        verdict = "met" if figure.met else "MISSED"
    return (
        f"{bench.letter} {figure.name}",
        f"{figure.floor:.3g} {figure.unit}",
        f"{figure.ours:.3g} {figure.unit}",
        f"{middle:.2f} x",
        f"{low:.2f} to {high:.2f}",
        goal,
        verdict,
    )


def claims(results: Results) -> str:
    """Write what was counted."""
    return "\n".join(_claim(bench, claim) for bench, report in results for claim in report.claims)


def page(results: Results) -> str:
    """Write the whole of `results.md`."""
    floors = "\n".join(f"* **{bench.letter}, {bench.title.lower()}**: {bench.floor}." for bench, _ in results)
    return f"""# Andon against the bare floor

{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} CPUs.
`make bench` writes this page.

Floor and Andon run in turns in one process, the collector on for both. The ratio is the median of the
ratios of all rounds, with their quartiles beside it; floor and ours are medians.

{table(results)}

## Counted

{claims(results) or "Nothing in what was measured."}

## What the floor does

{floors}
"""


def _lined_up(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(line[column]) for line in rows) for column in range(len(rows[0]))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(cells, widths) for cells in (rows[0], rule, *rows[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _claim(bench: Bench, claim: Claim) -> str:
    most = f"at most {claim.most}" if claim.most else "none"
    verdict = "holds" if claim.holds else "BROKEN"
    return f"* {bench.letter}: {claim.name}: {claim.counted} ({most} may be): {verdict}"
