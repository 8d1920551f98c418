"""Agent: a model with tools, instructions and hooks, from which runs are started."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from andon.core.checkpoint import Checkpoint, check_whole
from andon.core.frozen import frozen
from andon.core.limits import Limits, Price, as_limits
from andon.core.messages import Message
from andon.core.outcome import Outcome
from andon.core.stop import MAX_ID, Cause, Source, Stop, as_stop, check_flag
from andon.core.text import check_text
from andon.core.tree import check_answers, with_partial
from andon.errors import CheckpointError, UserError
from andon.ports import Journal, Model, Observer, Store
from andon.runtime.behind import agent_tool, hand_over_tool
from andon.runtime.budget import UNBOUNDED
from andon.runtime.config import Config, model_name, pricing
from andon.runtime.hooks import Hook, Hooks
from andon.runtime.isolate import run_to_end
from andon.runtime.live import Live
from andon.runtime.nested import as_json
from andon.runtime.prompt import Prompt, as_history, as_message, asks
from andon.runtime.run import Run
from andon.runtime.ticket import Ticket
from andon.runtime.tools import Tool, toolbox

if TYPE_CHECKING:
    from pydantic import BaseModel

H = TypeVar("H", bound=Hook)
T = TypeVar("T")

NO_CHECKPOINT = (
    "checkpoint is a {}: give outcome.checkpoint, or its JSON; a run that gave its answer has none"
)


class Agent:
    """A model with tools; many runs of it may be live at once.

    Args:
        model: "provider:name", a `ports.Model`, or an async generator function.
        tools: Tools, or functions to make tools of.
        hand_over: Agents that this one may hand the conversation over to; their answer is the run's.
        instructions: What the model is told first, with every request.
        name: What the agent is called in records; "agent" by default.
        settings: Passed to the model, for example {"temperature": 0}.
        limits: What a run may spend.
        fallback: Models to ask, in order, when the first has failed for good.
        retries: How often a transient failure of a model is tried again.
        tool_concurrency: How many tools of a round run beside each other; None is no bound.
        tool_grace: Seconds a tool or model that was cut has to clean up before it is abandoned.
        finish_timeout: Seconds a `finish=True` tool has after a stop before it is abandoned.
        hook_timeout: Seconds an async hook may take.
        durable_timeout: Seconds to wait for the store before the report says `durable=False`.
        cancel_text: What the history says where a run was cancelled before any words had come.
        prices: What models cost, by their names as given; they go before the prices that are known.
        store: Where checkpoints are kept, by `checkpoint_id` or else the run's id; what stops together
            with the run above it is kept there only.
        observers: Who reads the items of all runs.
    """

    def __init__(
        self,
        model: str | Model,
        *,
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
        hand_over: Sequence["Agent"] = (),
        instructions: str = "",
        name: str = "agent",
        settings: Mapping[str, object] | None = None,
        limits: Limits | None = None,
        fallback: Sequence[str | Model] = (),
        retries: int = 2,
        tool_concurrency: int | None = None,
        tool_grace: float = 2.0,
        finish_timeout: float = 60.0,
        hook_timeout: float = 30.0,
        durable_timeout: float = 30.0,
        cancel_text: str = "Cancelled by user",
        prices: Mapping[str, Price] | None = None,
        store: Store | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        box = toolbox(tools, *map(hand_over_tool, _targets(hand_over)))
        models = tuple(_model(given) for given in (model, *_listed("fallback", fallback)))
        self._config = Config(
            name=name,
            models=models,
            names=tuple(map(model_name, models)),
            hands_over=bool(hand_over),
            tools=box,
            specs=tuple(made.spec for made in box.values()),
            hooks=Hooks(hook_timeout),
            observers=tuple(_listed("observers", observers)),
            instructions=instructions,
            settings=_settings(settings),
            limits=as_limits(limits, UNBOUNDED),
            retries=retries,
            tool_grace=tool_grace,
            finish_timeout=finish_timeout,
            durable_timeout=durable_timeout,
            tool_concurrency=tool_concurrency,
            cancel_text=cancel_text,
            pricing=pricing(models, prices or {}),
            store=store,
        )
        self._live = Live()

    @property
    def name(self) -> str:
        """What the agent is called."""
        return self._config.name

    @property
    def instructions(self) -> str:
        """What the model is told first."""
        return self._config.instructions

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        """The agent's tools."""
        return tuple(self._config.tools.values())

    def start(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Message] = (),
        limits: Limits | None = None,
        checkpoint_id: str | None = None,
        journal: Journal | None = None,
    ) -> Run:
        """Make a run, which begins when it is entered with `async with`, iterated or asked for its outcome.

        It goes on from `messages` if there are any. With a journal, what happens is written down there before
        it has an effect: no model is asked, no tool runs and nobody is told of the end before that.
        """
        history = as_history(messages)
        check_text("checkpoint_id", checkpoint_id, MAX_ID)
        if prompt is None and not asks(history):
            msg = "there is nothing to answer: give a prompt, or messages that end with a user's"
            raise UserError(msg)
        return Run(
            self._config,
            self._live,
            prompt=None if prompt is None else as_message(prompt),
            history=history,
            limits=as_limits(limits, self._config.limits),
            checkpoint_id=checkpoint_id,
            journal=journal,
        )

    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Message] = (),
        limits: Limits | None = None,
        checkpoint_id: str | None = None,
    ) -> Outcome:
        """Run to the end, and give the outcome; an error of the model is an outcome too."""
        run = self.start(prompt, messages=messages, limits=limits, checkpoint_id=checkpoint_id)
        async with run:
            return await run.outcome()

    def run_sync(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Message] = (),
        limits: Limits | None = None,
        checkpoint_id: str | None = None,
    ) -> Outcome:
        """`run`, for callers without an event loop."""
        return run_to_end(
            lambda: self.run(prompt, messages=messages, limits=limits, checkpoint_id=checkpoint_id)
        )

    async def resume(
        self,
        checkpoint: Checkpoint | bytes | str | None = None,
        *,
        answers: Mapping[str, object] | None = None,
        keep_partial: bool = False,
        limits: Limits | None = None,
        checkpoint_id: str | None = None,
    ) -> Outcome:
        """Go on from where a run was stopped or paused; what has been done is not done again.

        Args:
            checkpoint: `outcome.checkpoint`, or its JSON; without it, what is stored as `checkpoint_id`.
            answers: Those to the outcome's interrupts, by id, kept as JSON; questions without one are
                asked again.
            keep_partial: Whether a model that was cut is shown what it had said, and told to go on;
                else it is asked once more as if it had said nothing.
            limits: What the resumed run may spend, with the calls, tokens and cost of before counted in;
                seconds and failures in a row are counted anew.
            checkpoint_id: Where its own checkpoint is kept; after its answer, none is left there.
        """
        run = self.start_from(
            await self._stored(checkpoint_id) if checkpoint is None else checkpoint,
            answers=answers,
            keep_partial=keep_partial,
            limits=limits,
            checkpoint_id=checkpoint_id,
        )
        async with run:
            return await run.outcome()

    async def _stored(self, checkpoint_id: str | None) -> bytes:
        """Get what a run is to go on from out of the store, and leave it there."""
        store = self._config.store
        if checkpoint_id is None:
            raise CheckpointError(NO_CHECKPOINT.format("NoneType"))
        if store is None:
            msg = (
                f"agent {self.name!r} has no store to find {checkpoint_id!r} in: make it with Agent(store=…)"
            )
            raise UserError(msg)
        found = await store.get(checkpoint_id)
        if found is None:
            msg = f"nothing is stored as {checkpoint_id!r}: no run was left there, or it has its answer now"
            raise CheckpointError(msg)
        return found

    def start_from(
        self,
        checkpoint: Checkpoint | bytes | str,
        *,
        answers: Mapping[str, object] | None = None,
        keep_partial: bool = False,
        limits: Limits | None = None,
        checkpoint_id: str | None = None,
        journal: Journal | None = None,
    ) -> Run:
        """Make a run that goes on from a checkpoint; `resume`, to be watched, and with a journal."""
        if isinstance(checkpoint, bytes | str):
            checkpoint = Checkpoint.from_json(checkpoint)
        if not isinstance(checkpoint, Checkpoint):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CheckpointError(NO_CHECKPOINT.format(type(checkpoint).__name__))
        check_whole(checkpoint)
        check_answers(checkpoint, answers or {})
        check_text("checkpoint_id", checkpoint_id, MAX_ID)
        check_flag("keep_partial", keep_partial)
        bounds = as_limits(limits, self._config.limits)
        self._live.check(checkpoint.run_id)
        return Run(
            self._config,
            self._live,
            prompt=None,
            history=(),
            limits=bounds,
            checkpoint=with_partial(checkpoint) if keep_partial else checkpoint,
            answers={name: as_json("an answer", given) for name, given in (answers or {}).items()},
            checkpoint_id=checkpoint_id,
            journal=journal,
        )

    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        input_model: "type[BaseModel] | None" = None,
        history: bool = False,
    ) -> Tool[..., Any]:
        """Make a tool of this agent: its runs are children of the run that calls it.

        Args:
            name: What the model calls it; the agent's name by default.
            description: What it is for; the agent's instructions by default.
            input_model: A pydantic model of its arguments; one text, `request`, by default.
            history: Whether it is shown the conversation so far.
        """
        return agent_tool(self, name=name, description=description, input_model=input_model, history=history)

    def cancel(
        self,
        stop: Stop | None = None,
        *,
        arm: bool | None = None,
        reason: str | None = None,
        by: str | None = None,
        source: Source = "user",
    ) -> Ticket:
        """Cancel every live run of this agent, from any thread; with none live, perhaps the next one.

        With none live, `arm=None` stops the next run only if this agent has never run, `True` does
        always and `False` never; else the ticket says NOTHING_RUNNING.
        """
        if arm is not None:
            check_flag("arm", arm)
        return self._live.cancel(as_stop(stop), Cause(source, by, reason), arm=arm)

    @overload
    def on(self, moment: str, hook: H, *, safe: bool = False) -> H: ...
    @overload
    def on(self, moment: str, hook: None = None, *, safe: bool = False) -> Callable[[H], H]: ...
    def on(self, moment: str, hook: Hook | None = None, *, safe: bool = False) -> Any:
        """Call a function at a moment of every run: `agent.on("before_tool", f)`, or as a decorator.

        The moments are run_started, before_model, after_model, before_tool, after_tool,
        message_added and run_ended. A text that `before_tool` returns refuses the call. An error
        ends the run, unless the hook is `safe`.
        """
        if hook is None:
            return partial(self.on, moment, safe=safe)
        self._config.hooks.add(moment, hook, safe=safe)
        return hook

    def __repr__(self) -> str:
        return f"<Agent {self.name}, {len(self._live)} live>"


def _targets(given: Iterable[Agent]) -> Sequence[Agent]:
    targets = tuple(_listed("hand_over", given))
    for agent in targets:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"hand_over holds {agent!r}, which is no Agent: give Agents, or make a tool of it"
            raise UserError(msg)
    names = [agent.name for agent in targets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        msg = f"hand_over holds two agents named {twice!r}: a model tells them apart by name, rename one"
        raise UserError(msg)
    return targets


def _settings(given: Mapping[str, object] | None) -> Mapping[str, object]:
    if not isinstance(given, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"settings is {given!r:.80}: give a dict, such as {{'temperature': 0}}"
        raise UserError(msg)
    return frozen(dict(given or {}))


def _listed(name: str, given: Iterable[T]) -> Iterable[T]:
    """Refuse what is no list: a text would be taken letter by letter."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{name} is {given!r:.80}: give a list, such as {name}=[…]"
        raise UserError(msg)
    return given


def _model(given: str | Model) -> Model:
    if isinstance(given, str):
        # Loaded here and not above: what looks through installed packages is slow to import.
        found: Model = importlib.import_module("andon.runtime.resolve").resolve(given)
        return found
    if inspect.iscoroutinefunction(given):
        msg = f"model {given.__name__!r} is a coroutine function: `yield` its answer instead of returning it"
        raise UserError(msg)
    if not callable(given):
        msg = f"model is {given!r}: give 'provider:name', a ports.Model or an async generator function"
        raise UserError(msg)
    return given
