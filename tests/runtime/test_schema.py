"""The schema of a tool, and the strict check of what a model sends."""

import datetime as dt
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pydantic
import pytest

from andon import ToolContext, ToolError, tool
from andon.errors import ToolDefinitionError


class Place(pydantic.BaseModel):
    """Where to go."""

    city: str = pydantic.Field(description="Its name.")
    nights: int = 1


class Size(Enum):
    """How large."""

    SMALL = "s"
    LARGE = "l"


@dataclass
class Span:
    """From day to day."""

    first: dt.date
    last: dt.date | None = None


@tool
async def book(
    place: Place,
    span: Span,
    size: Size = Size.SMALL,
    *,
    context: ToolContext,
    kind: Literal["bed", "suite"] = "bed",
    people: Annotated[int, pydantic.Field(ge=1)] = 2,
) -> str:
    """Book a room.

    It can be cancelled for a day.

    Args:
        place: Where it is.
        span: When it is.
        people: How many come.
    """
    return f"{place} {span} {size} {kind} {people} {context}"


def test_the_schema_says_what_the_docstring_says() -> None:
    """Types, defaults, choices and descriptions; the context is not shown."""
    properties: dict[str, dict[str, Any]] = book.spec.parameters["properties"]  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert set(properties) == {"place", "span", "size", "kind", "people"}
    assert book.spec.parameters["required"] == ["place", "span"]
    assert book.spec.parameters["additionalProperties"] is False
    assert properties["place"]["description"] == "Where it is."
    assert properties["people"] == {
        "type": "integer",
        "minimum": 1,
        "default": 2,
        "description": "How many come.",
    }
    assert properties["kind"] == {"type": "string", "enum": ["bed", "suite"], "default": "bed"}
    definitions: dict[str, dict[str, Any]] = book.spec.parameters["$defs"]  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert definitions["Place"]["properties"]["city"]["description"] == "Its name."
    assert book.spec.name == "book"
    assert book.spec.description == "Book a room.\n\nIt can be cancelled for a day."


def test_arguments_become_what_the_function_takes() -> None:
    """Models, dataclasses, enums and dates."""
    checked = book.arguments.check(
        {"place": {"city": "Bonn"}, "span": {"first": "2026-05-01"}, "size": "l", "people": 3}
    )
    assert checked == {
        "place": Place(city="Bonn"),
        "span": Span(dt.date(2026, 5, 1)),
        "size": Size.LARGE,
        "people": 3,
    }


BONN = {"place": {"city": "Bonn"}, "span": {"first": "2026-05-01"}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "place: Field required; span: Field required"),
        ({**BONN, "people": "3"}, "people: Input should be a valid integer"),
        ({**BONN, "people": 0}, "people: Input should be greater than or equal to 1"),
        ({**BONN, "people": True}, "people: Input should be a valid integer"),
        ({**BONN, "kind": "tent"}, "kind: Input should be 'bed' or 'suite'"),
        ({**BONN, "extra": 1}, "extra: Extra inputs are not permitted"),
        ({**BONN, "context": 1}, "context: Extra inputs are not permitted"),
        ({"place": {}, "span": {"first": "soon"}}, "place.city: Field required; span.first: "),
    ],
)
def test_what_does_not_fit_is_told_so_that_a_model_can_mend_it(
    arguments: dict[str, object], words: str
) -> None:
    """Which tool, which argument, what is wrong, what now."""
    with pytest.raises(ToolError) as caught:
        book.arguments.check(arguments)
    assert str(caught.value).startswith("Invalid arguments for book: ")
    assert words in str(caught.value)
    assert str(caught.value).endswith(" Correct them and call the tool again.")


def test_arguments_that_cannot_be_json_are_refused() -> None:
    """A scripted model may send anything."""
    with pytest.raises(ToolError, match="Invalid arguments for book: "):
        book.arguments.check({"place": object()})


def test_a_tool_without_arguments_takes_none() -> None:
    """An empty object, and nothing else."""

    @tool
    async def ping() -> None:
        """Ping."""

    assert ping.spec.parameters["properties"] == {}
    assert ping.arguments.check({}) == {}
    with pytest.raises(ToolError, match="Extra inputs"):
        ping.arguments.check({"x": 1})


def test_a_default_that_is_no_json_is_not_shown() -> None:
    """The function still has it."""
    nothing = object()

    @tool
    async def work(what: str | None = None, when: int = nothing) -> None:  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
        """Work."""
        assert what is None or when

    properties: dict[str, dict[str, Any]] = work.spec.parameters["properties"]  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert "default" not in properties["when"]
    assert properties["what"]["default"] is None


def test_name_and_description_may_be_given() -> None:
    """And a function without a docstring has none."""

    @tool(name="look-up", description="Look something up.")
    async def work() -> None:
        """Work."""

    @tool
    async def bare() -> None:
        pass

    assert (work.spec.name, work.spec.description) == ("look-up", "Look something up.")
    assert bare.spec.description == ""


# What cannot be a tool: which, what, what now


async def many(*names: str) -> None:
    """Work."""


async def any_keyword(**names: str) -> None:
    """Work."""


async def by_position(name: str, /) -> None:
    """Work."""


# Written as text: the checkers of this file would rightly refuse both.
FAULTY: dict[str, Any] = {}
exec("async def no_annotation(query): ...\nasync def unresolved(name: 'Unheard'): ...", FAULTY)  # noqa: S102


class Opaque:
    """Not for JSON."""


async def opaque(name: Opaque) -> None:
    """Work."""


def plain_generator(n: int) -> Any:  # noqa: ANN401 - what is tested
    """Work."""
    yield n


@pytest.mark.parametrize(
    ("function", "problem", "remedy"),
    [
        (
            FAULTY["no_annotation"],
            "parameter 'query' has no annotation",
            "write its type, for example 'query: str'",
        ),
        (many, "has no name a model could use", "use named parameters"),
        (any_keyword, "has no name a model could use", "use named parameters"),
        (by_position, "has no name a model could use", "use named parameters"),
        (FAULTY["unresolved"], "Unheard", "import the name where the tool is defined"),
        (opaque, "Opaque", "use JSON types, dataclasses or pydantic models"),
        (plain_generator, "a plain generator cannot stream", "make it `async def` with `yield`"),
    ],
)
def test_a_function_that_cannot_be_a_tool_says_why(function: Any, problem: str, remedy: str) -> None:  # noqa: ANN401
    """What, which, what now."""
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function)
    assert str(caught.value).startswith(f"tool {function.__name__!r}: ")
    assert problem in str(caught.value)
    assert str(caught.value).endswith(f"; {remedy}")
    assert caught.value.tool == function.__name__


async def fine() -> None:
    """Work."""


async def with_context(context: ToolContext) -> None:
    """Work."""
    assert context


async def stream() -> Any:  # noqa: ANN401 - what is tested
    """Work."""
    yield 1


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (fine, {"name": "no spaces please"}, "no provider takes this name; give one of letters, digits"),
        (fine, {"name": "9lives"}, "no provider takes this name"),
        (fine, {"name": "x" * 65}, "no provider takes this name"),
        (fine, {"isolate": "thread"}, "isolate is 'thread'; write isolate='process', or leave it out"),
        (with_context, {"isolate": "process"}, "cannot be given a ToolContext; drop that parameter"),
        (stream, {"isolate": "process"}, "a process of its own cannot stream; return a value instead"),
        (lambda: "x", {"isolate": "process", "name": "x"}, "define it at the top of a module"),
    ],
)
def test_options_that_cannot_be_say_why(function: Any, options: dict[str, Any], words: str) -> None:  # noqa: ANN401
    """What, which, what now."""
    with pytest.raises(ToolDefinitionError) as caught:
        tool(**options)(function)
    assert words in str(caught.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_is_no_time_is_refused(timeout: float) -> None:
    """Above 0, or None."""
    with pytest.raises(ValueError, match=r"timeout is .*: give a number of seconds above 0"):
        tool(timeout=timeout)(fine)


def test_a_tool_is_made_once() -> None:
    """Two decorators are one too many."""
    with pytest.raises(ToolDefinitionError, match="it is a tool already; write @tool once"):
        tool(tool(fine))
