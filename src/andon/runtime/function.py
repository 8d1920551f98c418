"""Function: what is inside the functions, partials and objects that a user may give as one."""

import inspect
from collections.abc import Callable
from functools import partial

Function = Callable[..., object]


def body(given: Function) -> Function:
    """Give the function that is called in the end: it has the annotations, and says what it is."""
    if isinstance(given, partial):
        return body(given.func)
    if inspect.isroutine(given) or inspect.isclass(given):
        return given
    return given.__call__


def name_of(given: Function) -> str:
    """Name it: as the function, or as the class of an object."""
    if isinstance(given, partial):
        return name_of(given.func)
    name = getattr(given, "__name__", None)
    return name if isinstance(name, str) else type(given).__name__


def docstring(given: Function) -> str:
    """Give what it says of itself; for an object whose call says nothing, what its class says."""
    if isinstance(given, partial):
        return docstring(given.func)
    inside = body(given)
    says = inside if inside is given or inside.__doc__ else type(given)
    return inspect.getdoc(says) or ""


def is_async(given: Function) -> bool:
    """Say whether it gives a coroutine."""
    return inspect.iscoroutinefunction(body(given))
