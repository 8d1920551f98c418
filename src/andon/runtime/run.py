"""Run: the handle of one invocation of an agent, and its verbs."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import Self

import anyio
from msgspec.structs import replace

from andon.core.checkpoint import Checkpoint, changes
from andon.core.fold import checkpoint
from andon.core.items import Answered, Event, RunStarted
from andon.core.limits import Limits, Usage
from andon.core.messages import Message
from andon.core.outcome import Outcome
from andon.core.steer import WHEN, When
from andon.core.stop import Cause, Source, Stop, Where, as_stop
from andon.errors import RunStateError
from andon.ports import Journal
from andon.runtime.bell import Bell
from andon.runtime.carrier import Carrier
from andon.runtime.config import Config
from andon.runtime.ending import Ending
from andon.runtime.isolate import Cut
from andon.runtime.live import Live
from andon.runtime.nested import HERE, Suspended
from andon.runtime.prompt import Prompt, as_message
from andon.runtime.record import Late, Record
from andon.runtime.steering import SteerReceipt
from andon.runtime.ticket import Ticket


class Run:
    """One invocation of an agent; it begins when it is entered, iterated or asked for its outcome.

    Iterate it for its events, from the first to the terminal one; any number of readers may, each
    at its own pace. Leaving `async with` ends what still runs.
    """

    __slots__ = (
        "__weakref__",
        "_answers",
        "_began",
        "_checkpoint",
        "_checkpoint_id",
        "_done",
        "_history",
        "_limits",
        "_live",
        "_prompt",
        "_record",
    )

    def __init__(
        self,
        config: Config,
        live: Live,
        *,
        prompt: Message | None,
        history: tuple[Message, ...],
        limits: Limits,
        checkpoint: Checkpoint | None = None,
        answers: Mapping[str, object] | None = None,
        checkpoint_id: str | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._record = Record(self, config, journal)
        self._live = live
        self._prompt = prompt
        self._history = history
        self._limits = limits
        self._checkpoint = checkpoint
        self._answers = answers or {}
        self._checkpoint_id = checkpoint_id
        self._done = Bell()
        self._began = False

    @property
    def id(self) -> str:
        """The run's own id."""
        return self._record.run_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history so far."""
        return tuple(self._record.state.messages)

    @property
    def usage(self) -> Usage:
        """What the run has spent so far."""
        return self._record.state.spent()

    @property
    def late(self) -> tuple[Late, ...]:
        """What abandoned tools gave after the run had stopped waiting for them; kept out of the history."""
        return tuple(self._record.late)

    @property
    def children(self) -> "tuple[Run, ...]":
        """The live runs of agents that this run's tools and hooks have started."""
        return tuple(self._record.children.values())

    def child(self, run_id: str) -> "Run":
        """Give a live child, whose verbs leave this run alone."""
        child = self._record.children.get(run_id)
        if child is None:
            known = ", ".join(self._record.children) or "none"
            msg = f"run {self.id} has no live child {run_id!r}; live are: {known}"
            raise RunStateError(msg)
        return child

    @property
    def ended(self) -> bool:
        """Whether the outcome is there."""
        return self._record.state.ended is not None

    @property
    def error(self) -> BaseException | None:
        """What failed, once the run has ended as an error."""
        return self._record.failure

    @property
    def lost(self) -> bool:
        """Whether its event loop was closed before it ended, so that nothing of it runs any more."""
        return self._record.scope.lost

    def cancel(
        self,
        stop: Stop | None = None,
        *,
        reason: str | None = None,
        by: str | None = None,
        source: Source = "user",
    ) -> Ticket:
        """End the run: now, or as `stop` says; from any thread, at any time, never blocking.

        Several requests are joined, and none weakens another. The ticket gives the stop report, once
        the run has ended: a run that never begins gives it when it is closed.
        """
        ticket = self._record.scope.request(as_stop(stop), Cause(source, by, reason))
        if self.lost:
            self._record.steering.close()  # nobody will hear any more what was said
        return ticket

    def join(self, stop: Stop) -> None:
        """Take a stop that was bound to its time and causes elsewhere, as often as it is told."""
        self._record.scope.join(stop)

    def steer(self, prompt: Prompt, *, when: When = "next", steer_id: str | None = None) -> SteerReceipt:
        """Say something to the run while it works, from any thread, never blocking.

        It joins the history as the user's, once, in order, and the same run answers it, or the agent that
        has the conversation since the run has handed it over. `await` the receipt that this gives, or
        `receipt.wait()` in a thread, to learn when it was heard, or that the run ended first: by a stop, a
        limit or an error, or because a stop was pending when the answer came. Do not wait for it in a tool,
        hook or model of this very run, for which it waits.

        Args:
            prompt: What to say: text, a Message, or a list of texts and Images, as where a run begins.
            when: "next" is with the next model call, after the tools that run; where the run would
                have ended, one more call is made. "idle" is only where the run would end. "now" cuts
                the model call in flight, keeps what it had said, and asks again with this; with none
                in flight it is as "next", for tools and hooks are not cut.
            steer_id: What its item is called; made up by default.
        """
        message = as_message(prompt)
        if when not in WHEN:
            msg = f"when is {when!r}: it is one of {', '.join(WHEN)}; nothing was said"
            raise ValueError(msg)
        record = self._record
        if record.config.plan is not None:
            steps = ", ".join(record.children) or "none is live"
            msg = (
                f"{record.config.name} is a workflow, which has no model that could hear it: "
                f"steer one of its steps, run.child(id).steer(…); their ids are: {steps}"
            )
            raise RunStateError(msg)
        receipt = record.steering.say(message, when, steer_id)
        if self._began and not record.scope.soon(self._hear_now):
            record.steering.close()  # its loop is closed: nobody will hear it
        return receipt

    @property
    def aside(self) -> bool:
        """Whether a hook or a model of another run has started it."""
        return self._record.place is not None and not self._record.place.call_id

    def now(self) -> float:
        """Give the wall time, as this run counts it."""
        return self._record.scope.now()

    def patience(self) -> float:
        """Give the seconds that it may take to end after a cut."""
        return self._record.patience()

    def left_at(self) -> Where | None:
        """Say where it was left, if it goes on when its parent is resumed."""
        return self._record.left_at()

    def _hear_now(self) -> None:
        if self._record.steering.urgent:
            self._cut_to_hear()

    def _cut_to_hear(self) -> None:
        self._record.scope.hear()
        for child in self.children:
            if self._record in child._record.above:  # noqa: SLF001 — it has the conversation now
                child._cut_to_hear()  # noqa: SLF001

    async def outcome(self) -> Outcome:
        """Wait until the run has ended, and give how.

        Where a tool waits for an agent that is to go on after a resume, the tool is left here, too.
        """
        ended = await self._wait()
        await self._leave()
        return ended

    async def _leave(self) -> None:
        """Leave the tool that waited for this, where this goes on after a resume."""
        place = self._record.place
        if place is not None and HERE.get() is place:
            where = self._record.left_at()
            if where is not None:
                await place.quiet()  # what leaves the tool would cut the runs beside this one
                raise Suspended(where)

    async def over(self) -> None:
        """Wait until the run, which has begun, has ended."""
        await self._done.wait(lambda: self.ended)

    async def _wait(self) -> Outcome:
        self._begin_once()
        await self.over()
        ended = self._record.state.ended
        if ended is None:
            msg = f"run {self.id} was left before it ended"
            raise RunStateError(msg)
        return ended

    def checkpoint(self) -> Checkpoint:
        """Write down what the run, which has ended, goes on from; after its answer nothing is left to do."""
        ended = self._record.state.ended
        if ended is not None and ended.checkpoint is not None:
            return ended.checkpoint
        config = self._record.config
        return checkpoint(self._record.state, config.name, config.model, config.tools)

    def events(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Iterate events from the start, or those that follow item number `after`."""
        self._begin_once()
        return self._record.read(after)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.events()

    async def __aenter__(self) -> Self:
        if self._began:
            msg = f"run {self.id} has begun already: start another with agent.start()"
            raise RunStateError(msg)
        self._begin_once()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if error is None:  # also where the block only watched
            await self._leave()

    async def close(self) -> None:
        """End what still runs, and wait for that; the tickets of a run that never began settle too."""
        if self.ended:
            return
        if not self._record.scope.cuts:  # else it ends already, for the reason that was given
            why = "the block of the run was left" if self._began else "the run was closed before it began"
            self._record.scope.request(Stop.now(), Cause("code", reason=why))
        self._begin_once(entered=self._began)
        # Bounded by the run itself: tools by their grace, hooks and the store by their time-outs.
        again: Cut | None = None
        while not self.ended:
            try:
                with anyio.CancelScope(shield=True):
                    await self._wait()
            except Cut as cut:  # whoever cancels once more waits as well
                again = cut
        if again is not None:
            raise again

    def _begin_once(self, *, entered: bool = True) -> None:
        if self._began:
            return
        record = self._record
        record.scope.begin()  # raises outside an event loop, and then nothing has begun
        if entered and self._checkpoint is not None:
            self._live.resume(self._checkpoint.run_id)  # raises where it was discarded meanwhile
        self._go_on_from(self._belong())  # raises where the code has changed, and then nothing has begun
        self._began = True
        # A run that is closed before it began is never live, and leaves what is armed to the next one.
        armed = self._live.enter(self) if entered else []
        record.add(
            RunStarted(
                n=1,
                at=record.scope.now(),
                run_id=record.run_id,
                agent=record.config.name,
                parent="" if record.place is None else record.place.record.run_id,
                call_id="" if record.place is None else record.place.call_id,
                model=record.config.model,
                history=self._history,
                checkpoint=self._checkpoint,
                changed=self._changed(),
            )
        )
        for interrupt_id, answer in self._answers.items():
            record.add(Answered(n=record.items + 1, at=record.scope.now(), id=interrupt_id, answer=answer))
        for stop, cause, ticket in armed:
            record.scope.request(stop, cause, ticket)
        record.scope.drain()  # what was asked before the run: its first item is that it began
        ending = Ending(record, self._checkpoint_id, self._ended, self._live.discard)
        Carrier(record, self._limits, ending).begin(self._prompt, armed=bool(armed))

    def _belong(self) -> Checkpoint | None:
        """Become the child of the place this begins at, if there is one; gives what it left there."""
        place = HERE.get()
        if place is None:
            return None
        record = self._record
        kept = place.enter(self, record)
        record.belong(place)
        place.record.children[self.id] = self
        place.record.scope.adopt(self.id, record.scope, place.bond)
        return kept

    def _go_on_from(self, kept: Checkpoint | None) -> None:
        if kept is not None:
            self._prompt, self._history, self._checkpoint = None, (), kept
        given = self._checkpoint
        if given is not None:
            stands = self._record.config.stands
            results = tuple(result for result in given.results if stands(result, given))
            done = {result.call_id for result in results}
            children = {call_id: inside for call_id, inside in given.children.items() if call_id not in done}
            self._checkpoint = replace(given, results=results, children=children)

    def _changed(self) -> tuple[str, ...]:
        config, given = self._record.config, self._checkpoint
        if given is None:
            return ()
        return changes(given, agent=config.name, model=config.model, tools=config.tools)

    def resumed(self) -> bool:
        """Be told that another run goes on from where this one paused; False if that was given up."""
        return self._record.scope.resumed()

    def _ended(self) -> None:
        ended = self._record.state.ended
        self._live.leave(self, paused=ended is not None and ended.stop_reason == "interrupt")
        if self._record.place is not None:
            self._record.place.record.children.pop(self.id, None)
            self._record.place.record.scope.release(self.id)
        self._done.ring()

    def __repr__(self) -> str:
        outcome = self._record.state.ended
        if outcome is not None:
            return f"<Run {self.id} {outcome.stop_reason}>"
        return f"<Run {self.id} {'running' if self._began else 'new'}, {self._record.scope!r}>"
