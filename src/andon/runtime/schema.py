"""Schema: what a function takes, as JSON schema, and a strict check of what a model sends.

The one place that imports pydantic and griffe; it is loaded when the first tool is made.
"""

import inspect
import logging
import typing
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NotRequired

import griffe
import msgspec
import pydantic
import pydantic_core
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict, override

from andon.core.text import clean
from andon.errors import ToolDefinitionError, ToolError
from andon.runtime.function import body, docstring

_CONFIG = pydantic.ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=False)
_REFUSED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


class Arguments:
    """The arguments of one function."""

    __slots__ = ("_adapter", "context", "description", "name", "parameters")

    def __init__(self, name: str, function: Callable[..., object], context_type: type) -> None:
        self.name = name
        self.description, described = _docstring(function)
        self.context: str | None = None
        fields: dict[str, Any] = {}
        defaults: dict[str, object] = {}
        for parameter, kind in self._annotated(function):
            if kind is context_type:
                self.context = parameter.name
                continue
            note = described.get(parameter.name)
            field = Annotated[kind, pydantic.Field(description=note)] if note else kind
            if isinstance(parameter.default, FieldInfo):  # its default is filled in with the check
                field = Annotated[field, parameter.default]
            elif parameter.default is not inspect.Parameter.empty:
                field = NotRequired[field]
                defaults[parameter.name] = parameter.default
            fields[parameter.name] = field
        self._adapter = self._build(fields)
        self.parameters = self._adapter.json_schema()
        self.parameters.pop("title", None)
        for property_name, schema in self.parameters.get("properties", {}).items():
            schema.pop("title", None)
            if property_name in defaults:
                _add_default(schema, defaults[property_name])

    def check(self, arguments: dict[str, object]) -> dict[str, Any]:
        """Give the keyword arguments; what does not fit raises a ToolError that the model can use."""
        try:
            return self._taken(msgspec.json.encode(arguments))
        except pydantic.ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
                for problem in error.errors(include_url=False, include_input=False)
            )
            msg = f"Invalid arguments for {self.name}: {problems}. Correct them and call the tool again."
            raise ToolError(msg) from error
        except (TypeError, ValueError) as error:
            msg = f"Invalid arguments for {self.name}: {error}"
            raise ToolError(msg) from error

    def _taken(self, arguments: bytes) -> dict[str, Any]:
        return self._adapter.validate_json(arguments, strict=True)

    def _annotated(self, function: Callable[..., object]) -> list[tuple[inspect.Parameter, Any]]:
        try:
            hints = typing.get_type_hints(body(function), include_extras=True)
            parameters = inspect.signature(function).parameters.values()
        except NameError as error:
            raise ToolDefinitionError(
                self.name, str(error), "import the name where the tool is defined"
            ) from error
        except (TypeError, ValueError) as error:
            raise ToolDefinitionError(
                self.name, f"it does not say what it takes ({error})", "call it in a function of your own"
            ) from error
        given = function.keywords if isinstance(function, partial) else {}
        annotated: list[tuple[inspect.Parameter, Any]] = []
        for parameter in parameters:
            if parameter.name in given:
                continue
            if parameter.kind in _REFUSED:
                raise ToolDefinitionError(
                    self.name,
                    f"parameter '{parameter}' has no name a model could use",
                    "use named parameters",
                )
            if parameter.name not in hints:
                raise ToolDefinitionError(
                    self.name,
                    f"parameter {parameter.name!r} has no annotation",
                    f"write its type, for example '{parameter.name}: str'",
                )
            annotated.append((parameter, hints[parameter.name]))
        return annotated

    def _build(self, fields: dict[str, Any]) -> pydantic.TypeAdapter[dict[str, Any]]:
        # Made at run time from the function's own annotations, which no type checker can follow.
        make: Any = TypedDict
        shape: Any = pydantic.with_config(_CONFIG)(make("Arguments", fields))
        try:
            return pydantic.TypeAdapter(shape)
        except pydantic.PydanticUserError as error:
            problem = str(error).splitlines()[0]
            raise ToolDefinitionError(
                self.name, problem, "use JSON types, dataclasses or pydantic models"
            ) from error


class ModelArguments(Arguments):
    """The arguments that a pydantic model describes, given to the function whole, as `request`."""

    __slots__ = ("_model",)

    def __init__(self, name: str, model: type[pydantic.BaseModel]) -> None:
        if not (isinstance(model, type) and issubclass(model, pydantic.BaseModel)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolDefinitionError(name, f"input_model is {model!r}", "give a pydantic BaseModel class")
        self.name = name
        self.description = inspect.getdoc(model) or ""
        self.context = None
        self.parameters = model.model_json_schema()
        self.parameters.pop("title", None)
        self._model = model

    @override
    def _taken(self, arguments: bytes) -> dict[str, Any]:
        return {"request": self._model.model_validate_json(arguments, strict=True)}


def to_text(name: str, value: object) -> str:
    """Write a tool's result as the text that the model reads: words as they are, all else as JSON."""
    if isinstance(value, str):
        return clean(value)  # half a character cannot be sent to anybody
    try:
        return pydantic_core.to_json(value, inf_nan_mode="strings").decode()
    except (pydantic_core.PydanticSerializationError, ValueError) as error:
        kind = type(value).__name__
        msg = f"{name} returned a {kind}, which is not JSON ({error}); return str, dict, list or a model"
        raise ToolError(msg) from error


def _add_default(schema: dict[str, Any], default: object) -> None:
    try:
        schema["default"] = pydantic_core.to_jsonable_python(default)
    except (pydantic_core.PydanticSerializationError, ValueError):
        schema.pop("default", None)  # a default that is no JSON is simply not shown


def _docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    text = docstring(function)
    if not text:
        return "", {}
    logger = logging.getLogger("griffe")
    was, logger.disabled = logger.disabled, True  # it warns of docstrings that are not its style
    try:
        sections = griffe.parse_auto(griffe.Docstring(text))
    finally:
        logger.disabled = was
    described: dict[str, str] = {}
    words: list[str] = []
    for section in sections:
        if isinstance(section, griffe.DocstringSectionParameters):
            described = {item.name: item.description for item in section.value}
        elif isinstance(section, griffe.DocstringSectionText):
            words.append(section.value)
    return "\n\n".join(words) or text, described
