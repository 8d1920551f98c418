"""Andon: agent runs that can be stopped, truthfully, at any moment."""

from andon.core.items import TextDelta, ToolEnded, ToolStarted
from andon.core.limits import Limits, Price, Usage
from andon.core.messages import Call, Image, Message, Reasoning
from andon.core.outcome import Outcome
from andon.core.stop import Point, Stop, StopReport, StopResult
from andon.core.turns import Preempt
from andon.errors import AndonError, Cancelled, ModelError, ToolError
from andon.runtime.agent import Agent
from andon.runtime.loop import TurnLoop
from andon.runtime.process import run_process
from andon.runtime.run import Run
from andon.runtime.tools import ToolContext, tool
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
