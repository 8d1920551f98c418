"""Behind: agents behind tool calls: a child that answers a call, or one that takes the conversation over."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from andon.core.calls import fitting
from andon.core.messages import Message, Text
from andon.core.outcome import Outcome
from andon.core.repair import answer, without_blanks
from andon.core.stop import Bond
from andon.errors import ToolDefinitionError, ToolError
from andon.runtime.nested import HERE
from andon.runtime.tools import Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

    from andon.runtime.agent import Agent

Ask = Callable[..., Awaitable[str]]
See = Callable[[], tuple[Message, ...]]  # what an agent sees of the conversation before it is asked


def agent_tool(
    agent: "Agent",
    *,
    name: str | None = None,
    description: str | None = None,
    input_model: "type[BaseModel] | None" = None,
    history: bool = False,
) -> Tool[..., Any]:
    """Make a tool that asks an agent, and answers with its last words."""
    name = agent.name if name is None else name
    description = agent.instructions if description is None else description
    if not name.strip() or not description.strip():
        raise ToolDefinitionError(
            name,
            f"an agent behind a tool needs a name and a description, and has {name!r} and {description!r}",
            "give both: agent.as_tool(name=…, description=…)",
        )
    sees = _history if history else _nothing
    function = _asks(agent, sees) if input_model is None else _is_given(agent, sees)
    return Tool(function, name=name, description=description, input_model=input_model, agent=True)


def hand_over_tool(target: "Agent") -> Tool[..., Any]:
    """Make a tool by which a model leaves the rest of the conversation to another agent."""
    description = f"Leave the conversation to {target.name}, who answers the user. {target.instructions}"
    return Tool(
        _asks(target, _conversation),
        name=fitting(f"hand_over_to_{target.name}"),
        description=description.strip(),
        agent=True,
        bond="step",
        final=True,
        sequential=True,
    )


def step_tool(agent: "Agent", name: str) -> Tool[..., Any]:
    """Make a tool of a step of a workflow, which is a part of the run that calls it."""
    bond: Bond = "step"

    async def ask(request: str) -> str:
        return _told(agent, await agent.run(_with_pictures(request)))

    return Tool(ask, name=name, description="A step.", agent=True, bond=bond)


def _asks(agent: "Agent", sees: See) -> Ask:
    async def ask(request: str) -> str:
        return _told(agent, await agent.run(request, messages=sees()))

    return ask


def _is_given(agent: "Agent", sees: See) -> Ask:
    async def ask(request: "BaseModel") -> str:
        return _told(agent, await agent.run(request.model_dump_json(), messages=sees()))

    return ask


def _nothing() -> tuple[Message, ...]:
    return ()


def _history() -> tuple[Message, ...]:
    """Give the conversation so far, without the round of calls that this is in."""
    place = HERE.get()
    return () if place is None else tuple(place.record.state.messages[:-1])


def _conversation() -> tuple[Message, ...]:
    """Give the conversation so far, with what else the model said and did as it handed over."""
    place = HERE.get()
    if place is None:
        return ()
    state = place.record.state
    calls = tuple(call for call in state.calls if call.id in state.results)
    said = tuple(part for part in state.messages[-1].parts if isinstance(part, Text) or part in calls)
    last = without_blanks(Message("assistant", said))
    more = (last, answer(calls, state.results)) if calls else (last,)
    return (*state.messages[:-1], *(more if last.parts else ()))


def _with_pictures(request: str) -> str | Message:
    """Give what the user asked as it is, where that is what the step is asked."""
    place = HERE.get()
    history = () if place is None else place.record.state.messages
    asked = next((message for message in reversed(history) if message.role == "user"), None)
    return asked if asked is not None and asked.text == request else request


def _told(agent: "Agent", outcome: Outcome) -> str:
    match outcome.stop_reason:
        case "end_turn":
            return outcome.text
        case "cancelled":
            cause = None if outcome.cancelled is None else outcome.cancelled.cause
            by = "" if cause is None else f" by {cause.by or cause.source}"
            why = f": {cause.reason}" if cause is not None and cause.reason else ""
            msg = f"The agent {agent.name} was cancelled{by}{why}"
        case "limit":
            msg = f"The agent {agent.name} reached its limit {outcome.limit}"
        case "error" | "interrupt":
            msg = f"The agent {agent.name} failed: {outcome.error or 'it waits for an answer'}"
    raise ToolError(msg)
