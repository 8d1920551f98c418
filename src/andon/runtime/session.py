"""Session: a conversation with one agent, and what becomes of a message that comes while it works."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Literal, Self, assert_never

from andon.core.items import Event
from andon.core.messages import Message
from andon.core.outcome import Outcome
from andon.core.stop import Point, Stop
from andon.core.turns import Phase, Preempt
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
        self._rolled_back: list[int] = []  # the turn of each push that has asked it
        self.messages = as_history(messages)
        self._loop: TurnLoop[Message] = TurnLoop(
            gen_input=self._plan, prepare_agent=self._answers, on_events=self._watch, name=agent.name
        )

    def push(self, prompt: Prompt, *, on_busy: OnBusy = "enqueue") -> Receipt:
        """Say something; from any thread, never blocking.

        Args:
            prompt: What to say.
            on_busy: If a turn is under way: "enqueue" makes it the next but those that wait; "preempt"
                stops the turn at a safe point, and is the next; "steer" says it to the run under way;
                "reject" does not take it; "rollback" cancels the turn now, takes it out of the history,
                and is the next. A "steer" that the run does not hear any more is a turn of its own.
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
                return self._roll_back(message)
            case "enqueue":
                return self._loop.push(message)
            case _:
                assert_never(on_busy)

    @property
    def run(self) -> Run | None:
        """The run of the turn that is under way, if there is one."""
        turn = self._loop.turn
        return None if turn is None else turn.run

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
        if said.delivery is not None and not said.delivery.delivered:
            return self._loop.push(message)
        said.when_settled(partial(self._unless_heard, said, message))
        return Receipt(accepted=True)

    def _unless_heard(self, said: SteerReceipt, message: Message) -> None:
        """Make a message that the run did not hear any more a turn of its own: it had been accepted."""
        if said.delivery is not None and not said.delivery.delivered:
            self._loop.give_back(message)

    def _roll_back(self, message: Message) -> Receipt:
        seen: list[TurnView[Message]] = []

        def look(turn: TurnView[Message] | None, _phase: Phase) -> Preempt | None:
            if turn is None:
                return None
            # First of all: the turn looks when it begins, and when it ends.
            self._rolled_back.append(turn.number)
            seen.append(turn)
            return self._preempt

        receipt = self._loop.push(message, strategy=look)
        for turn in seen:
            if not receipt.accepted:  # it makes way for nothing
                with suppress(ValueError):  # the turn has just ended
                    self._rolled_back.remove(turn.number)
            elif turn.run is not None:
                self._cut(turn.run)
        return receipt

    def _cut(self, run: Run) -> None:
        run.cancel(Stop.now(), source="preempt", reason="rolled back for what was said since")

    def _plan(self, about: Planning[Message], items: Sequence[Message]) -> Turn[Message]:
        chosen = about.preempting[0] if about.preempting else items[0]
        at = next(n for n, item in enumerate(items) if item is chosen)
        return Turn([*self.messages, chosen], consumed=[chosen], remaining=[*items[:at], *items[at + 1 :]])

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
        self._rolled_back[:] = [later for later in self._rolled_back if later > number]
        if not (rolled_back and outcome.stop_reason == "cancelled"):
            self.messages = outcome.messages

    def __repr__(self) -> str:
        return f"<Session {self._agent.name}, {len(self.messages)} messages, {self._loop!r}>"
