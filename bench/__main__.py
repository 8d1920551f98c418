"""Run the benchmarks: `python -m bench`, or some of them: `python -m bench A C`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from bench import a_chunk, b_turn, c_cycle, d_cancel, e_many, f_cold, g_memory, h_tree, i_loop, j_stream
from bench.measure import Bench
from bench.table import brief, claims, page, put_in, table

BENCHES: tuple[Bench, ...] = tuple(
    module.BENCH
    for module in (a_chunk, b_turn, c_cycle, d_cancel, e_many, f_cold, g_memory, h_tree, i_loop, j_stream)
)
RESULTS = Path(__file__).parent / "results.md"
README = Path(__file__).parent.parent / "README.md"


def chosen(letters: Sequence[str]) -> list[Bench]:
    """Give the benchmarks of these letters; all of them, if there are none."""
    known = {bench.letter: bench for bench in BENCHES}
    wanted = [letter.upper() for letter in letters] or list(known)
    unknown = [letter for letter in wanted if letter not in known]
    if unknown:
        sys.exit(f"there is no benchmark {', '.join(unknown)}: choose from {' '.join(known)}")
    return [known[letter] for letter in known if letter in wanted]


def main(letters: Sequence[str]) -> int:
    """Measure, print the table, and write it down if it is whole; 1 if something counted is wrong."""
    start = perf_counter()
    benches = chosen(letters)
    results = [(bench, bench.measure(bench.full)) for bench in benches]
    print(table(results))
    print(f"\n{claims(results)}\n{perf_counter() - start:.0f} s")
    if len(benches) == len(BENCHES):
        RESULTS.write_text(page(results))
        README.write_text(put_in(README.read_text(), brief(results)))
    return 0 if all(claim.holds for _, report in results for claim in report.claims) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
