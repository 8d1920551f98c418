"""A fake LLM provider over real TCP, scripted by the test, that writes down what it saw."""

from andon.testing.provider.log import Exchange, Waitable
from andon.testing.provider.request import Request
from andon.testing.provider.script import (
    Burst,
    Drip,
    Drop,
    Fail,
    Part,
    Reasoning,
    Reply,
    Stall,
    Text,
    ToolCall,
    Usage,
)
from andon.testing.provider.server import FakeProvider

__all__ = [
    "Burst",
    "Drip",
    "Drop",
    "Exchange",
    "Fail",
    "FakeProvider",
    "Part",
    "Reasoning",
    "Reply",
    "Request",
    "Stall",
    "Text",
    "ToolCall",
    "Usage",
    "Waitable",
]
