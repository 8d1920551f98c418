"""A file is one concept and stays small: sizes are measured on the syntax tree."""

import ast
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "andon").rglob("*.py"))
BANNED_NAMES = frozenset({"utils", "helpers", "common", "base", "misc", "manager", "handler"})

LONGEST_FILE = 400
LONGEST_FUNCTION = 40
DEEPEST_BLOCK = 3
MOST_PARAMETERS = 6

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


# What is measured


def lines(node: ast.stmt | ast.expr | ast.arg) -> int:
    """Lines from the first to the last of a node."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_table(node: ast.AST) -> bool:
    """Tell a flat table: a `match` whose cases hold no further block."""
    if not isinstance(node, ast.Match):
        return False
    body = [statement for case in node.cases for statement in case.body]
    return not any(
        isinstance(inner, BLOCKS + FUNCTIONS) for statement in body for inner in ast.walk(statement)
    )


def length(function: Function) -> int:
    """Lines of a function, without its flat tables and, in a constructor, its keyword-only options."""
    tables = sum(lines(node) for node in ast.walk(function) if isinstance(node, ast.Match) and is_table(node))
    options = sum(lines(option) for option in function.args.kwonlyargs) if function.name == "__init__" else 0
    return lines(function) - tables - options


def depth(node: ast.AST, *, is_elif: bool = False) -> int:
    """Blocks inside blocks; `elif` goes no deeper than its `if`, an inner function counts for itself."""
    own = isinstance(node, BLOCKS) and not is_table(node) and not is_elif
    only_else = node.orelse[0] if isinstance(node, ast.If) and len(node.orelse) == 1 else None
    below = [
        depth(child, is_elif=isinstance(child, ast.If) and child is only_else)
        for child in ast.iter_child_nodes(node)
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef))
    ]
    return own + max(below, default=0)


def parameters(function: Function) -> int:
    """Count what may be given by position, without `self` and `cls`."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len([name for name in names if name not in {"self", "cls"}])


def complaints(source: str) -> Iterator[str]:
    """Say what is too large in a source, with its line and what to do."""
    if (size := len(source.splitlines())) > LONGEST_FILE:
        yield f"1: {size} lines: split it by concept"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, FUNCTIONS):
            yield from function_complaints(node)


def function_complaints(function: Function) -> Iterator[str]:
    """Say what is too large in a function."""
    where = f"{function.lineno}: {function.name}"
    if (size := length(function)) > LONGEST_FUNCTION:
        yield f"{where} has {size} lines: name its parts"
    if (deep := depth(function)) > DEEPEST_BLOCK:
        yield f"{where} nests {deep} blocks: leave early, or name the inner one"
    if (count := parameters(function)) > MOST_PARAMETERS:
        yield f"{where} takes {count} by position: make them keyword-only, or one value"


def opening(source: str) -> str | None:
    """Give the first line of a module, if it is a docstring that says what the module is."""
    first = source.partition("\n")[0]
    said = ast.get_docstring(ast.parse(source)) if first.startswith('"""') else None
    summary = (said or "").partition("\n")[0]
    return summary if summary.endswith(".") and first.startswith(f'"""{summary}') else None


def named(path: Path) -> str:
    """Name a source in a test's id."""
    return path.relative_to(ROOT / "src").as_posix()


# What is held


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_source_stays_small_and_flat(path: Path) -> None:
    """400 lines a file, 40 a function, 3 blocks deep, 6 parameters by position."""
    assert list(complaints(path.read_text())) == []


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_source_says_in_its_first_line_what_it_is(path: Path) -> None:
    """The first line is a docstring of one sentence."""
    assert opening(path.read_text()), 'open the file with """One sentence."""'


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_source_is_named_after_a_concept(path: Path) -> None:
    """A name that fits anything gathers anything."""
    assert BANNED_NAMES.isdisjoint({path.stem, *path.relative_to(ROOT).parts})


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_source_never_comes_in_by_the_front_door(path: Path) -> None:
    """`from andon import …` inside the package would go round the layers."""
    tree = ast.parse(path.read_text())
    froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert "andon" not in froms | plain, "import from the module that defines the name"


# The measure itself


def function(body: str, head: str = "def f(a):") -> str:
    """Write a function around a body."""
    return f"{head}\n{indent(dedent(body).strip(), '    ')}\n"


DEEP = """
for x in a:
    with x:
        try:
            if x:
                pass
        finally:
            pass
"""
ELIFS = """
if a == 1:
    pass
elif a == 2:
    pass
elif a == 3:
    pass
elif a == 4:
    pass
else:
    pass
"""
ELSE_IF = """
while a:
    if a == 1:
        pass
    else:
        if a == 2:
            pass
        a = 3
        with a:
            if a:
                pass
"""
TABLE = "match a:\n" + "".join(f"    case {n}:\n        return {n}\n" for n in range(40))
NOT_A_TABLE = TABLE + "    case _:\n        if a:\n            return a\n"
DEEP_TABLE = "for b in a:\n    with b:\n        if b:\n" + indent(TABLE, " " * 12)
INNER = """
with a:
    if a:
        def g():
            while a:
                if a:
                    pass
"""
OPTIONS = "def __init__(self, *,\n" + "".join(f"    option{n}: int = {n},\n" for n in range(50)) + "):"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("pass\n" * LONGEST_FILE, id="a file just short enough"),
        pytest.param(function("pass\n" * (LONGEST_FUNCTION - 1)), id="a function just short enough"),
        pytest.param(function(ELIFS), id="elif is no deeper than if"),
        pytest.param(function(TABLE), id="a long flat table"),
        pytest.param(function(DEEP_TABLE), id="a flat table goes no deeper"),
        pytest.param(function(INNER), id="an inner function counts for itself"),
        pytest.param(function("pass", OPTIONS), id="a constructor with many options"),
        pytest.param(function("pass", "def f(self, a, b, c, d, e, f): "), id="six by position, and self"),
        pytest.param(function("pass", "def f(a, *, b, c, d, e, f, g, h):"), id="many by name"),
    ],
)
def test_the_measure_lets_pass(source: str) -> None:
    """What is within the limits, or exempt, is no complaint."""
    assert list(complaints(source)) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        pytest.param("pass\n" * (LONGEST_FILE + 1), "1: 401 lines", id="a long file"),
        pytest.param(function("pass\n" * LONGEST_FUNCTION), "1: f has 41 lines", id="a long function"),
        pytest.param(function(NOT_A_TABLE), "1: f has 85 lines", id="a table that is not flat"),
        pytest.param(function(DEEP), "1: f nests 4 blocks", id="a deep function"),
        pytest.param(function(DEEP, "async def f(a):"), "1: f nests 4 blocks", id="a deep coroutine"),
        pytest.param(function(ELSE_IF), "1: f nests 4 blocks", id="an if among others under else"),
        pytest.param(f"class C:\n{indent(function(DEEP), '    ')}", "2: f nests 4", id="a deep method"),
        pytest.param(
            function(DEEP, "with a:\n  def f(a):").replace("\n    ", "\n        "), "2: f", id="anywhere"
        ),
        pytest.param(
            function("pass", "def f(a, b, c, /, d, e, f, g):"), "1: f takes 7", id="seven by position"
        ),
    ],
)
def test_the_measure_complains_of(source: str, complaint: str) -> None:
    """What is too large is named, with its line."""
    (found,) = complaints(source)
    assert found.startswith(complaint)


@pytest.mark.parametrize(
    "source", ["", "import ast\n", "# A comment.\n", '"""No full stop"""\n', '"""\nBelow.\n"""\n']
)
def test_an_opening_must_be_a_sentence_on_the_first_line(source: str) -> None:
    """A comment, a heading or a line further down is not enough."""
    assert opening(source) is None


@pytest.mark.parametrize("source", ['"""One sentence."""\n', '"""One sentence.\n\nAnd the reasons.\n"""\n'])
def test_an_opening_may_be_followed_by_reasons(source: str) -> None:
    """The first line is what counts."""
    assert opening(source) == "One sentence."
