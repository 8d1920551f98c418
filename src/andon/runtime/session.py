"""Session: a conversation with one agent, and what becomes of a message that comes while it works."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Literal, Self

from andon.core.items import Event
from andon.core.messages import Message
from andon.core.outcome import Outcome
from andon.core.stop import Point, Stop
from andon.core.turns import Preempt
from andon.runtime.agent import Agent
from andon.runtime.loop import TurnLoop
from andon.runtime.prompt import Prompt, as_history, as_message
from andon.runtime.receipt import Receipt
from andon.runtime.run import Run
from andon.runtime.steering import SteerReceipt
from andon.runtime.turn import Exit, Planning, Turn, TurnView

OnBusy = Literal["enqueue", "preempt", "steer", "reject", "rollback"]
ON_BUSY: tuple[str, ...] = OnBusy.__args__  # type: ignore[attr-defined]
OnEvents = Callable[[TurnView[Message], AsyncGenerator[Event]], Awaitable[None]]


class Session:
    """One conversation: a turn for each message, in order; `async with session:` runs it.

    Args:
        agent: Who answers.
        messages: The conversation so far.
        on_events: Watches the events of a turn, as that of a `TurnLoop` does.
        preempt: How a turn is preempted; by default at the next safe point, now after ten seconds.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        messages: Sequence[Message] = (),
        on_events: OnEvents | None = None,
        preempt: Preempt | None = None,
    ) -> None:
        self._agent = agent
        self._on_events = on_events
        self._preempt = preempt or Preempt(Point.ANY, grace=10)
        self._rolled_back: set[int] = set()
        self.messages = as_history(messages)
        self._loop: TurnLoop[Message] = TurnLoop(
            gen_input=self._plan, prepare_agent=self._answers, on_events=self._watch, name=agent.name
        )

    def push(self, prompt: Prompt, *, on_busy: OnBusy = "enqueue") -> Receipt:
        """Say something; from any thread, never blocking.

        Args:
            prompt: What to say.
            on_busy: If a turn is under way: "enqueue" makes it the next but those that wait; "preempt"
                stops the turn at a safe point for it; "steer" says it to the run under way; "reject"
                does not take it; "rollback" cancels the turn now, and takes it out of the history.
        """
        message = as_message(prompt)
        if on_busy not in ON_BUSY:
            msg = f"on_busy is {on_busy!r}: it is one of {', '.join(ON_BUSY)}; nothing was said"
            raise ValueError(msg)
        match on_busy:
            case "preempt":
                return self._loop.push(message, preempt=self._preempt)
            case "steer":
                return self._steer(message)
            case "reject":
                return self._loop.push_unless_busy(message)
            case "rollback":
                self._roll_back()
            case "enqueue":
                pass
        return self._loop.push(message)

    @property
    def run(self) -> Run | None:
        """The run of the turn that is under way, if there is one."""
        return None if self._loop.turn is None else self._loop.turn.run

    def stop(
        self, stop: Stop | None = None, *, when_idle_for: float | None = None, cause: str | None = None
    ) -> None:
        """Let the session shut down, as a turn loop does."""
        self._loop.stop(stop, when_idle_for=when_idle_for, cause=cause)

    async def wait(self) -> Exit[Message]:
        """Wait until the session has ended."""
        return await self._loop.wait()

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._loop.__aexit__(kind, error, trace)

    def _steer(self, message: Message) -> Receipt:
        turn = self._loop.turn
        if turn is None or turn.run is None:
            return self._loop.push(message)
        said = turn.run.steer(message)
        said.when_settled(partial(self._unless_heard, said, message))
        return Receipt(accepted=True)

    def _unless_heard(self, said: SteerReceipt, message: Message) -> None:
        """Make a message that the run did not hear any more a turn of its own."""
        if said.delivery is not None and not said.delivery.delivered:
            self._loop.push(message)

    def _roll_back(self) -> None:
        turn = self._loop.turn
        if turn is None:
            return
        self._rolled_back.add(turn.number)  # first of all: a turn that is still planned looks when it begins
        if turn.run is not None:
            self._cut(turn.run)

    def _cut(self, run: Run) -> None:
        run.cancel(Stop.now(), source="preempt", reason="rolled back for what was said since")

    def _plan(self, _about: Planning[Message], items: Sequence[Message]) -> Turn[Message]:
        return Turn([*self.messages, items[0]], consumed=items[:1], remaining=items[1:])

    def _answers(self, _about: Planning[Message], _consumed: Sequence[Message]) -> Agent:
        return self._agent

    async def _watch(self, turn: TurnView[Message], events: AsyncGenerator[Event]) -> None:
        """Watch a turn, and take its history over when it has ended, whatever becomes of who watches."""
        run = turn.run
        if run is None:
            return
        if turn.number in self._rolled_back:
            self._cut(run)
        try:
            if self._on_events is not None:
                await self._on_events(turn, events)
        finally:
            if self._on_events is not None and not run.ended:
                run.cancel(Stop.now(), source="code", reason="its events are not watched any more")
            self._take_over(turn.number, await run.outcome())

    def _take_over(self, number: int, outcome: Outcome) -> None:
        rolled_back = number in self._rolled_back
        self._rolled_back.discard(number)
        if not (rolled_back and outcome.stop_reason == "cancelled"):
            self.messages = outcome.messages

    def __repr__(self) -> str:
        return f"<Session {self._agent.name}, {len(self.messages)} messages, {self._loop!r}>"
