"""Code blocks of a Markdown page, run in order, with `await` at the top level."""

import ast
import asyncio
import inspect
from pathlib import Path
from types import CodeType
from typing import Any

from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser

RUNNER = "__runner__"


def compiled(example: Example) -> CodeType:
    """Compile a block so that its line numbers are the page's."""
    source = "\n" * (example.line + example.parsed.line_offset) + example.parsed
    return compile(source, example.path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def run_block(example: Example) -> None:
    """Run a block in its page's namespace and, where it awaits, on its page's event loop."""
    outcome = eval(compiled(example), example.namespace)  # noqa: S307 - our own pages
    if inspect.iscoroutine(outcome):
        example.namespace[RUNNER].run(outcome)


def open_page(namespace: dict[str, Any]) -> None:
    """Let a page see itself as a script, with one event loop for all its blocks."""
    namespace.update({"__name__": "__main__", RUNNER: asyncio.Runner()})


def close_page(namespace: dict[str, Any]) -> None:
    """End the loop, and with it every task that a block left behind."""
    namespace[RUNNER].close()


def pages(root: Path) -> Sybil:
    """The README and everything under docs, of one repository."""
    return Sybil(
        parsers=[CodeBlockParser("python", run_block), SkipParser()],
        path=str(root),
        patterns=["README.md", "docs/*.md", "docs/*/*.md"],
        setup=open_page,
        teardown=close_page,
    )
