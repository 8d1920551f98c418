"""Cast: the agents, models and tools of one scene, all counted."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import anyio

from andon import Agent, Call, Outcome, ToolContext, ToolError, Usage
from andon.core.outcome import Interrupt
from andon.runtime.tools import Tool
from andon.testing import Reply, Scene, ScriptedModel, Tally, Yield

SPENT = Usage(input_tokens=7, output_tokens=3)


class Cast:
    """The agents of a scene with their models and tools, all counted."""

    def __init__(self, *, again: Sequence[str] = ()) -> None:
        self.models: list[ScriptedModel] = []
        self.tally = Tally(again=again)

    def agent(self, name: str, *replies: Reply, **options: Any) -> Agent:  # noqa: ANN401 — Agent's own
        """Make an agent whose replies depend on how many rounds of tools it has seen."""
        model = ScriptedModel(*replies, name=name, by_round=True)
        self.models.append(model)
        return Agent(model, name=name, instructions=f"You are {name}.", **options)

    def work(self, name: str, seconds: float = 0.5, **options: Any) -> Tool[..., Any]:  # noqa: ANN401 — tool's own
        """Make a tool that counts itself and takes its time."""

        async def work() -> str:
            """Work a while."""
            with self.tally.of(name):
                await anyio.sleep(seconds)
            return f"{name} is done"

        self.tally.add(name)
        return made(work, name, **options)

    def inquiry(self, name: str) -> Tool[..., Any]:
        """Make a tool that asks a human twice, then acts."""

        async def inquire(context: ToolContext) -> str:
            """Ask, ask again, and act."""
            first = await context.interrupt({"may": name})
            second = await context.interrupt({"sure": first})
            with self.tally.of(name):
                await anyio.sleep(0.1)
            return f"{name}: {first}, {second}"

        self.tally.add(name)
        return made(inquire, name)

    def scene(self, agent: Agent, **options: Any) -> Scene:  # noqa: ANN401 — Scene's own
        """Put them on."""
        return Scene(agent=agent, models=self.models, tally=self.tally, answer=yes_to, **options)


def yes_to(asked: Interrupt) -> object:
    """Allow what an agent asks, in words that show which question it was."""
    return f"yes to {asked.payload}"


Options = tuple[tuple[str, Any], ...]
_made: dict[tuple[object, str, Options], Tool[..., Any]] = {}


def made(function: Callable[..., Any], name: str, **options: Any) -> Tool[..., Any]:  # noqa: ANN401 — tool's own
    """Make a tool; the schema of functions that differ only in what they close over is made once."""
    key = (function.__code__, name, tuple(sorted(options.items())))
    if key not in _made:
        _made[key] = Tool(function, name=name, **options)
    again = copy(_made[key])
    again.function = function
    return again


def ask(name: str) -> Call:
    """Call an agent behind a tool."""
    return Call(name, {"request": f"See to it, {name}."})


def said(outcome: Outcome) -> str:
    """Give an agent's answer; without one, the tool that asked fails."""
    if outcome.stop_reason != "end_turn":
        msg = f"there is no answer: {outcome.stop_reason}"
        raise ToolError(msg)
    return outcome.text


def worker(cast: Cast, name: str, seconds: float = 0.5, **options: Any) -> Agent:  # noqa: ANN401 — tool's own
    """Make an agent that uses one tool of its own, then answers."""
    return cast.agent(
        name,
        [Yield(), f"I am {name}.", Call(f"work_{name}"), SPENT],
        [f"{name} ", Yield(), "has worked."],
        tools=[cast.work(f"work_{name}", seconds, **options)],
    )
