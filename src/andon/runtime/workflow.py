"""Workflow: agents one after the other, beside each other, or again and again, as one agent.

A workflow is an agent whose model is a plan, and whose tools are its steps. They are part of its
run: a stop is judged at their points, and takes effect between two of them, whatever it asks for.
Each step sees what it is asked, and nothing of the conversation before. Where one does not give an
answer, the workflow ends as an error, and a resumed one tries that step again.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict, Unpack, cast

from andon.core.calls import fitting
from andon.core.limits import Limits
from andon.core.messages import Result
from andon.core.text import in_words
from andon.errors import UserError
from andon.ports import Observer, Store
from andon.runtime.agent import Agent
from andon.runtime.behind import step_tool
from andon.runtime.config import check_count
from andon.runtime.plan import Next, Plan

Until = Callable[[str], object]


class Options(TypedDict, total=False):
    """The options of `Agent` that a workflow has, too; `tool_concurrency` bounds the steps of `parallel`."""

    limits: Limits | None
    store: Store | None
    observers: Sequence[Observer]
    tool_concurrency: int | None
    tool_grace: float
    hook_timeout: float
    durable_timeout: float
    cancel_text: str


def sequence(
    *agents: Agent, name: str = "sequence", description: str = "", **options: Unpack[Options]
) -> Agent:
    """Make an agent that asks the first agent, then each next one with the answer before it.

    The last answer is the workflow's. The description tells models what it is for, the options are
    those of `Agent`, and the limits count all steps together.
    """
    steps = _steps("sequence", agents)

    def decide(request: str, results: Sequence[Result]) -> Next:
        last = results[-1].content if results else request
        return last if len(results) == len(steps) else [(steps[len(results)], last)]

    return _workflow(Plan(name, decide), zip(steps, agents, strict=True), description, options)


def parallel(
    *agents: Agent, name: str = "parallel", description: str = "", **options: Unpack[Options]
) -> Agent:
    """Make an agent that asks all agents at once, and answers with what each of them said.

    Its answer has a paragraph for each, which begins with the name. The description tells models
    what it is for, the options are those of `Agent`, and the limits count all steps together.
    """
    steps = _steps("parallel", agents)

    def decide(request: str, results: Sequence[Result]) -> Next:
        if not results:
            return [(step, request) for step in steps]
        return "\n\n".join(f"{result.name}: {result.content}" for result in results)

    return _workflow(Plan(name, decide), zip(steps, agents, strict=True), description, options)


def loop(
    *agents: Agent,
    until: Until | None = None,
    max: int = 10,  # noqa: A002 — the word that says it
    name: str = "loop",
    description: str = "",
    **options: Unpack[Options],
) -> Agent:
    """Make an agent that goes through the agents in turn, again and again.

    Each is asked with the answer before it. The last answer is the workflow's, when `until` says so
    of the last answer of a round, or after `max` rounds. The description tells models what it is
    for, the options are those of `Agent`, and the limits count all steps together.
    """
    check_count("max", max, 1)
    _check_until(until)
    steps = _steps("loop", agents)

    def decide(request: str, results: Sequence[Result]) -> Next:
        rounds, place = divmod(len(results), len(steps))
        last = results[-1].content if results else request
        over = rounds and not place and (rounds >= max or (until is not None and _says(name, until, last)))
        return last if over else [(steps[place], last)]

    return _workflow(Plan(name, decide), zip(steps, agents, strict=True), description, options)


def _steps(kind: str, agents: Sequence[Agent]) -> list[str]:
    """Name the steps: by their agents, and with their numbers where a name comes twice."""
    if not agents:
        msg = f"this {kind} has no agents: give its steps, as in {kind}(first, second)"
        raise UserError(msg)
    for agent in agents:
        _check_agent(kind, agent)
    names = [fitting(agent.name) for agent in agents]
    numbered = [f"{name[:60]}_{number}" for number, name in enumerate(names, start=1)]
    steps = [name if names.count(name) == 1 else other for name, other in zip(names, numbered, strict=True)]
    return steps if len(set(steps)) == len(steps) else numbered


def _check_agent(kind: str, agent: object) -> None:
    if isinstance(agent, Agent):
        return
    if isinstance(agent, list | tuple):
        listed = type(cast("object", agent)).__name__
        msg = f"{kind} was given a {listed}: give the agents one by one, as in {kind}(*agents)"
    else:
        msg = f"{kind} was given {agent!r}, which is no Agent: make one of it, or write it as a tool of one"
    raise UserError(msg)


def _check_until(until: object) -> None:
    if until is not None and not callable(until):
        msg = (
            f"until is {until!r}: give a function of the last answer, as in until=lambda text: 'DONE' in text"
        )
        raise UserError(msg)
    if inspect.iscoroutinefunction(until) or inspect.iscoroutinefunction(getattr(until, "__call__", None)):  # noqa: B004
        raise UserError(_ASYNC)


_ASYNC = (
    "until is async, and is called between two steps, where nothing is awaited: give a plain function, "
    "and where a model is to judge, make it the last agent of the loop, and let until read its answer"
)


def _says(name: str, until: Until, last: str) -> bool:
    try:
        said = until(last)
        if not inspect.isawaitable(said):
            return bool(said)
    except Exception as error:
        msg = f"until of {name} failed with {in_words(error)}"
        raise UserError(msg) from error
    if inspect.iscoroutine(said):
        said.close()
    raise UserError(_ASYNC)


def _workflow(plan: Plan, steps: Iterable[tuple[str, Agent]], description: str, options: Options) -> Agent:
    unknown = [option for option in options if option not in Options.__annotations__]
    if unknown:
        msg = (
            f"{plan.name} takes no {', '.join(unknown)}: it has no model of its own, so give that to its "
            f"agents; a workflow takes name, description, {', '.join(Options.__annotations__)}"
        )
        raise UserError(msg)
    tools = [step_tool(agent, step) for step, agent in steps]
    return Agent(plan, tools=tools, name=plan.name, instructions=description, **options)
