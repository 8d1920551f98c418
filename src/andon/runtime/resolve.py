"""Resolve: find the model that a string names; loaded when the first such string is given."""

from collections.abc import Callable
from importlib.metadata import entry_points

from andon.errors import MissingExtraError, UnknownModelError
from andon.ports import Model

GROUP = "andon.models"


def resolve(string: str) -> Model:
    """Ask the provider before the colon for the model after it."""
    provider, colon, name = string.partition(":")
    if not colon or not name:
        raise UnknownModelError(string, "it names no provider")
    known = entry_points(group=GROUP)
    found = [point for point in known if point.name == provider]
    if not found:
        names = ", ".join(sorted(point.name for point in known))
        raise UnknownModelError(string, f"no provider is called {provider!r}, only {names}")
    try:
        make: Callable[[str], Model] = found[0].load()
    except ModuleNotFoundError as error:
        if str(error.name).startswith("andon"):
            raise
        raise MissingExtraError(f"model {string!r}", provider.partition("-")[0]) from error
    return make(string)
