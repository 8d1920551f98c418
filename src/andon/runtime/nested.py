"""Nested: where a run is started inside another, and what goes between the two.

Which run code belongs to is known by a context variable, `HERE`: our tasks and threads carry it,
a foreign executor does not (`ToolContext.child` links it). A run that begins where `HERE` is set is
a child of that place: its events go up, the stops of its parent come down, and both may be in
different threads.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NoReturn, cast

import msgspec
from typing_extensions import override

from andon.core.checkpoint import Checkpoint
from andon.core.items import Delta, Interrupted, Item
from andon.core.stop import Bond, Where
from andon.core.tree import with_shared, without_shared
from andon.errors import CheckpointError, RunStateError, UserError
from andon.runtime.isolate import turn

if TYPE_CHECKING:
    from andon.runtime.record import Record
    from andon.runtime.run import Run


CLAIM = Lock()  # held for a look at a short list, and only where a resumed call starts its agents


class Suspended(BaseException):
    """The work goes on after a resume; let it pass, so that the run can end whole."""

    def __init__(self, where: Where) -> None:
        super().__init__(f"this work was stopped ({where}) and goes on when the run is resumed")
        self.where = where


class Place:
    """One tool call, or one moment of hooks: where children start and questions are asked."""

    __slots__ = (
        "_asked",
        "_kept",
        "bond",
        "call_id",
        "harmful",
        "left",
        "record",
        "runs",
        "site",
    )

    def __init__(
        self,
        record: "Record",
        bond: Bond = "aside",
        *,
        call_id: str = "",
        site: str = "",
    ) -> None:
        self.record = record
        self.bond: Bond = bond
        self.call_id = call_id
        self.site = site
        self.runs: list[Run] = []
        self.harmful = False
        self.left = False
        self._asked = 0
        self._kept = list(record.state.again.get(call_id, ())) if call_id else []

    def enter(self, run: "Run", child: "Record") -> Checkpoint | None:
        """Tie a run to this place; gives what it goes on from, if it was here before."""
        kept = self._claim(child.config.name) if self._kept else None
        self.runs.append(run)
        if kept is None:
            return None
        self.harmful = self.harmful or kept.usage.tool_calls > 0
        return with_shared(kept, self.record.state.messages)

    def _claim(self, agent: str) -> Checkpoint | None:
        """Take what the first run of this agent goes on from that has not come back; from any thread."""
        with CLAIM:
            for number, kept in enumerate(self._kept):
                if kept.agent == agent:  # by name: in threads they may come back in another order
                    return self._kept.pop(number)
            if not self._kept:
                return None
            msg = (
                f"this call goes on with the agent {self._kept[0].agent!r}, and {agent!r} was started: "
                "the code has changed since the checkpoint, or begins another agent first; start the run anew"
            )
            raise CheckpointError(msg)

    def take(self, child: "Record", item: Item) -> None:
        """Take an item of a child, in whatever thread it happens."""
        self._in_order(partial(self.record.take, child.run_id, item))

    def show(self, child: "Record", delta: Delta) -> None:
        """Take what passes by in a child, in whatever thread it happens."""
        self._in_order(partial(self.record.show_of, child.run_id, delta))

    def _in_order(self, act: Callable[[], None]) -> None:
        if not self.record.scope.is_here():
            self.record.scope.soon(partial(self._unless_left, act))
        elif not self.left:
            act()

    def _unless_left(self, act: Callable[[], None]) -> None:
        if not self.left:  # an abandoned call may still work, but nobody listens
            act()

    @property
    def live(self) -> "list[Run]":
        """The runs that were started here and have not ended."""
        return [run for run in self.runs if not (run.ended or run.lost)]

    async def quiet(self) -> None:
        """Wait until all runs that were started here have ended."""
        while live := self.live:
            await live[0].over()

    async def heard(self) -> None:
        """Wait for the same, and until what they have told in other threads has been taken here."""
        await self.quiet()
        await turn()

    def keeps(self, *, agent: bool) -> bool:
        """Say whether the call, now that it was cut, goes on inside the runs it had started.

        What does nothing but ask an agent always may. Other code may have done more since its runs had
        ended: it goes on only inside one that the stop left, or that it had not come back to.
        """
        stop = self.record.scope.stop
        if stop is None or not stop.keeps(self.bond) or not all(run.ended for run in self.runs):
            return False
        if self._kept:
            return True
        return any(agent or run.left_at() is not None for run in self.runs)

    def leave(self) -> None:
        """Be done: nobody listens to what still works here, and it cannot ask any more."""
        self.left = True
        self.site = ""

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Write down what the runs that were started here go on from, and then those yet to come back."""
        history = self.record.state.messages
        return (*(without_shared(run.checkpoint(), history) for run in self.runs), *self._kept)

    def ask(self, payload: object) -> object:
        """Give the answer to the next question of this site; without one, ask it, and leave."""
        if not self.site:
            msg = "only tools and the hooks before_tool and before_model can ask, while they run: do it there"
            raise RunStateError(msg)
        k = self._asked
        self._asked += 1
        known = [asked for asked in self.record.state.asked if (asked.site, asked.k) == (self.site, k)]
        if known and known[0].answered:
            return known[0].answer
        self._tell(as_json("the payload of an interrupt", payload), k)
        raise Suspended(Where.PAUSED)

    def ask_again(self) -> None:
        """Ask once more what was asked here and has no answer yet; the code that asked need not run."""
        for asked in self.record.state.asked:
            if asked.site == self.site and not asked.answered:
                self._tell(asked.payload, asked.k)
                raise Suspended(Where.PAUSED)

    def _tell(self, payload: object, k: int) -> None:
        # A tool in a thread may ask by a loop of its own; only the run's own thread appends.
        self.record.scope.on_loop(partial(self._add_question, self.site, payload, k))

    def _add_question(self, site: str, payload: object, k: int) -> None:
        record = self.record
        record.add(
            Interrupted(
                n=record.items + 1,
                at=record.scope.now(),
                id=os.urandom(8).hex(),
                payload=payload,
                site=site,
                k=k,
            )
        )


class Loading(Place):
    """Where code is loaded for a tool in a process of its own: no run may begin there."""

    __slots__ = ()

    def __init__(self) -> None:  # pyright: ignore[reportMissingSuperCall] — there is no run that it is part of
        return

    @override
    def enter(self, run: "Run", child: "Record") -> NoReturn:
        """Refuse: the script would do once more what it is doing already."""
        msg = (
            "a tool with isolate='process' is loaded in a process of its own, for which this script was run "
            "once more, and it begins a run: put what begins it under `if __name__ == '__main__':`"
        )
        raise RunStateError(msg)


HERE: ContextVar[Place | None] = ContextVar("andon.here", default=None)


@contextmanager
def at(place: Place | None) -> Generator[None]:
    """Be at a place: what is started inside belongs to it."""
    token = HERE.set(place)
    try:
        yield
    finally:
        HERE.reset(token)


def suspension(error: BaseException | None) -> Suspended | None:
    """Find the suspension in what work has raised, also behind a task group."""
    if isinstance(error, Suspended):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    inside = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return next((one for one in map(suspension, inside) if one is not None), None)


def as_json(what: str, value: object) -> object:
    """Give a value as it comes back from its JSON."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"{what} is kept as JSON, and this one is not ({error}): give text or a dict"
        raise UserError(msg) from error
