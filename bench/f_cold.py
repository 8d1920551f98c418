"""F: what a cold start costs: a whole process with one run in it, and the import alone."""

import asyncio
import compileall
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import andon
from bench.measure import MILLISECONDS, Bench, Figure, Report, Sample, Size, in_turns, in_unit

BARE = """
import asyncio
from contextlib import aclosing

async def model(messages):
    yield "Four."

async def turn(prompt):
    messages = [{"role": "user", "content": prompt}]
    async with aclosing(model(messages)) as chunks:
        text = "".join([chunk async for chunk in chunks])
    messages.append({"role": "assistant", "content": text})
    return messages

print(asyncio.run(turn("What is two and two?"))[-1]["content"])
"""

OURS = """
from andon import Agent

async def model(request):
    yield "Four."

print(Agent(model).run_sync("What is two and two?").text)
"""

TIMED = """
from time import perf_counter
start = perf_counter()
import {}
print(perf_counter() - start)
"""


def run(program: str) -> str:
    """Run a program in a fresh interpreter, and give what it prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 — our own


def process(program: str) -> Sample:
    """Time a whole process, from its start to its end."""

    async def sample() -> float:
        start = perf_counter()
        said = run(program)
        spent = perf_counter() - start
        assert said == "Four.\n"
        return spent

    return sample


def importing(modules: str) -> Sample:
    """Time an import, as a fresh interpreter sees it."""
    program = TIMED.format(modules)

    async def sample() -> float:
        return float(run(program))

    return sample


def compiled() -> None:
    """Compile our modules to bytecode, as pip does with all that it installs, the floor's modules included.

    An editable install has none where PYTHONDONTWRITEBYTECODE is set, and a compiler would be measured.
    """
    assert compileall.compile_dir(Path(andon.__file__).parent, quiet=1)


async def _measure(size: Size) -> Report:
    compiled()
    figures: list[Figure] = []
    for name, floor, ours in (
        ("a program with one run", process(BARE), process(OURS)),
        ("`import andon`", importing("asyncio, anyio, msgspec"), importing("andon")),
    ):
        pairs = await in_turns(floor, ours, size.rounds)
        figures.append(Figure(name=name, pairs=in_unit(pairs, MILLISECONDS), unit="ms", goal=2))
    return Report(figures)


def measure(size: Size) -> Report:
    """Measure cold starts."""
    return asyncio.run(_measure(size))


BENCH = Bench(
    letter="F",
    title="Cold start",
    floor="a fresh interpreter that imports asyncio and runs the raw turn of B on a one-word answer, start of"
    " the process to its end; for the import, `import asyncio, anyio, msgspec`, timed inside the interpreter;"
    " all of it compiled to bytecode before, as pip installs it",
    full=Size(25, 1),
    tiny=Size(1, 1),
    measure=measure,
)
