"""Functions in every shape can be tools: partials, methods, and objects that are called like functions."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pydantic
import pytest

from andon import Agent, Call, ToolContext, tool
from andon.errors import ToolDefinitionError
from andon.testing import ScriptedModel, virtual
from tests.runtime.test_tools_cut import contents


class Search:
    """Search the catalogue."""

    def __init__(self, shelf: str) -> None:
        self._shelf = shelf

    async def __call__(self, query: str) -> str:  # noqa: D102 — it is the class that says it
        return f"{query} on {self._shelf}"

    def count(self, query: str) -> int:
        """Count what is there."""
        return len(query)


class Streams:
    """Streams."""

    async def __call__(self, to: int) -> Any:  # noqa: ANN401 - an async generator
        """Count up.

        Args:
            to: Where to end.
        """
        for number in range(to):
            yield number


class Repeats:
    """Repeats."""

    def __call__(self, word: str, context: ToolContext) -> str:
        """Say a word, and by whom it is said."""
        return f"{word} by {context.tool}"


async def add(x: int, y: int, z: int = 3) -> int:
    """Add up."""
    return x + y + z


SHAPES: list[tuple[Callable[..., Any], str, str, dict[str, object], str]] = [
    (Search("top"), "Search", "Search the catalogue.", {"query": "cord"}, "cord on top"),
    (Search("top").count, "count", "Count what is there.", {"query": "cord"}, "4"),
    (Streams(), "Streams", "Count up.", {"to": 3}, "2"),
    (Repeats(), "Repeats", "Say a word, and by whom it is said.", {"word": "hi"}, "hi by Repeats"),
    (partial(add, 1), "add", "Add up.", {"y": 2}, "6"),
    (partial(add, y=1, z=2), "add", "Add up.", {"x": 4}, "7"),
    (partial(Search("top"), "rope"), "Search", "Search the catalogue.", {}, "rope on top"),
]


@virtual
@pytest.mark.parametrize(("shape", "name", "description", "arguments", "content"), SHAPES)
async def test_it_is_named_described_and_called(
    shape: Callable[..., Any], name: str, description: str, arguments: dict[str, object], content: str
) -> None:
    """By what is inside; the model is asked for what is still open, and for nothing else."""
    agent = Agent(ScriptedModel(Call(name, arguments), "Done."), tools=[shape])
    (made,) = agent.tools
    properties: dict[str, Any] = made.spec.parameters["properties"]  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert (made.spec.name, made.spec.description) == (name, description)
    assert set(arguments) <= set(properties) <= {*arguments, "z"}
    assert contents(await agent.run("go")) == [content]


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        (5, "tool '5': it is no function; write @tool above a function"),
        (max, "tool 'max': it does not say what it takes"),
        (len, "tool 'len': parameter 'obj' has no name a model could use"),
    ],
)
def test_what_cannot_be_one_says_why(given_: object, words: str) -> None:
    """In a list of tools, and alone."""
    for make in (lambda: Agent(ScriptedModel(), tools=[given_]), lambda: tool(given_)):  # type: ignore[list-item, call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
        with pytest.raises(ToolDefinitionError) as caught:
            make()
        assert words in str(caught.value)


@pytest.mark.parametrize("tools", ["search", b"search"])
def test_a_text_is_no_list_of_tools(tools: object) -> None:
    """It would be taken letter by letter."""
    with pytest.raises(ToolDefinitionError, match=r"it is no list of tools; write tools=\[…\]"):
        Agent(ScriptedModel(), tools=tools)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def fields(
    words: Annotated[str, pydantic.Field(min_length=1)],
    most: int = pydantic.Field(default=3, ge=1, description="How many."),
    among: list[int] = pydantic.Field(default_factory=list),  # noqa: B008 — how pydantic has it
    *,
    name: str = pydantic.Field(description="A name."),
) -> str:
    """Take fields.

    Args:
        most: Said otherwise.
    """
    return f"{words} {most!r} {among!r} {name}"


@virtual
async def test_a_default_that_is_a_field_of_pydantic_is_read_as_one() -> None:
    """Its default is given to the function, and what it asks for is asked of the model."""
    model = ScriptedModel(
        [Call("fields", {"words": "a", "name": "b"}), Call("fields", {"words": "a"})], "Done."
    )
    agent = Agent(model, tools=[fields])
    parameters: dict[str, Any] = agent.tools[0].spec.parameters
    assert parameters["required"] == ["words", "name"]
    assert parameters["properties"]["most"] == {
        "type": "integer",
        "minimum": 1,
        "default": 3,
        "description": "How many.",
    }

    outcome = await agent.run("go")
    assert contents(outcome)[0] == "a 3 [] b"
    assert contents(outcome)[1].startswith("Invalid arguments for fields: name: Field required")
