"""Andon: agent runs that can be stopped, truthfully, at any moment."""

import importlib
import sys
import typing

from andon.core.items import TextDelta, ToolEnded, ToolStarted
from andon.core.limits import Limits, Price, Usage
from andon.core.messages import Call, Image, Message, Reasoning
from andon.core.outcome import Outcome
from andon.core.stop import Point, Stop, StopReport, StopResult
from andon.errors import AndonError, Cancelled, ModelError, ToolError
from andon.runtime.agent import Agent
from andon.runtime.run import Run
from andon.runtime.tools import ToolContext, tool

if typing.TYPE_CHECKING:
    from andon.core.turns import Preempt
    from andon.runtime.loop import TurnLoop
    from andon.runtime.process import run_process
    from andon.runtime.turn import Turn
    from andon.runtime.workflow import loop, parallel, sequence

__all__ = [
    "Agent",
    "AndonError",
    "Call",
    "Cancelled",
    "Image",
    "Limits",
    "Message",
    "ModelError",
    "Outcome",
    "Point",
    "Preempt",
    "Price",
    "Reasoning",
    "Run",
    "Stop",
    "StopReport",
    "StopResult",
    "TextDelta",
    "ToolContext",
    "ToolEnded",
    "ToolError",
    "ToolStarted",
    "Turn",
    "TurnLoop",
    "Usage",
    "loop",
    "parallel",
    "run_process",
    "sequence",
    "tool",
]

# What a plain run does without is a quarter of the package: it is loaded when it is first asked for.
_LATER = {
    "Preempt": "andon.core.turns",
    "Turn": "andon.runtime.turn",
    "TurnLoop": "andon.runtime.loop",
    "loop": "andon.runtime.workflow",
    "parallel": "andon.runtime.workflow",
    "run_process": "andon.runtime.process",
    "sequence": "andon.runtime.workflow",
}


def __getattr__(name: str) -> object:
    """Give a name that is loaded at its first use."""
    if name not in _LATER:
        msg = f"module 'andon' has no attribute {name!r}"
        raise AttributeError(msg, name=name, obj=sys.modules[__name__])
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    """List these names too."""
    return sorted({*globals(), *__all__})
