"""Office: what may be asked of sessions, from any process: it sends commands, and tells what became of them.

A command goes into the session's mailbox, then its worker is rung. What it did is read from the journal,
so an answer says only what is durable, and says the same whoever asks.
"""

import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from andon.core.command import (
    Answer,
    Cancel,
    Command,
    Halt,
    Key,
    OnBusy,
    Pause,
    Push,
    Release,
    Resume,
    Steer,
    command_from_json,
    command_to_json,
)
from andon.core.journal import SessionCreated, record_to_json
from andon.core.limits import Limits
from andon.core.row import Row, row_of_pushed
from andon.core.session import Fate, SessionState
from andon.core.steer import When
from andon.core.stop import Cause, Source, Stop, StopReport, as_stop
from andon.errors import SessionError
from andon.ports import SessionInfo, Substrate
from andon.runtime.bell import wall_clock
from andon.runtime.feed import ENDS, Feed, Told
from andon.runtime.kept import Kept
from andon.runtime.prompt import Prompt, as_message
from andon.runtime.reply import effect_of, report_of

T = TypeVar("T")

ANSWERED_WITHIN = 10.0  # seconds that a worker has to take a command whose effect is to be told
MOST_QUEUED = 1_000  # runs that wait in one session
REMEMBERED = 256  # sessions whose folded state is kept at hand


class Office:
    """Asks on behalf of clients; `by` is who they are."""

    def __init__(self, substrate: Substrate) -> None:
        self.substrate = substrate
        self._states: OrderedDict[Key, Kept] = OrderedDict()
        self._feeds: dict[Key, tuple[Feed, int]] = {}
        self._pushed: OrderedDict[str, Row] = OrderedDict()
        self._waits: set[anyio.CancelScope] = set()
        self._closed = False
        self.now = wall_clock()

    def close(self) -> None:
        """Let everybody go who waits or reads, as the process ends; what was asked of sessions stands."""
        self._closed = True
        for scope in self._waits:
            scope.cancel()
        for feed, _ in list(self._feeds.values()):
            feed.close()

    # Sessions

    async def create(self, key: Key, state: Mapping[str, object] | None = None) -> None:
        """Begin a session; `conflict` if there is one of that name."""
        first = SessionCreated(n=1, at=self.now(), state=dict(state or {}))
        try:
            await self.substrate.append(key, record_to_json([first]), head=0)
        except SessionError as error:
            if error.kind != "fenced":
                raise
            raise SessionError(f"there is a session {key} already: choose another id", "conflict") from error

    async def sessions(self, app: str | None = None, user: str | None = None) -> Sequence[SessionInfo]:
        """List sessions."""
        return await self.substrate.sessions(app, user)

    async def state(self, key: Key) -> SessionState:
        """Give what a session is now; `missing` if there is none. Read it, and leave it as it is."""
        kept = self._states.get(key) or Kept(key)
        self._states[key] = kept
        self._states.move_to_end(key)
        if len(self._states) > REMEMBERED:
            self._states.popitem(last=False)
        async with kept.lock:
            await kept.read_on(self.substrate)
        if not kept.state.exists:
            self._states.pop(key, None)
            raise SessionError(f"there is no session {key}: create it first", "missing")
        return kept.state

    async def delete(self, key: Key, *, by: str | None = None, grace: float | None = None) -> None:
        """Cancel what is live in a session, and forget all of it."""
        state = await self.state(key)
        if state.live is not None or state.queue:
            stop = Stop.now(recursive=True)
            await self.cancel(
                key, stop, reason="the session is deleted", by=by, queued=True, wait=grace or 10.0
            )
        await self.substrate.delete(key)
        self._states.pop(key, None)

    # Commands

    async def push(
        self,
        key: Key,
        prompt: Prompt,
        *,
        run_id: str | None = None,
        on_busy: OnBusy = "enqueue",
        limits: Limits | None = None,
        by: str | None = None,
    ) -> str:
        """Say something, which becomes a run; gives its id. The same `run_id` twice is one run."""
        state = await self.state(key)
        known = run_id is not None and state.row(run_id) is not None
        if state.closed and not known:
            raise SessionError(f"session {key} was stopped: resume it first", "conflict")
        if len(state.queue) >= MOST_QUEUED and not known:
            msg = f"{len(state.queue)} runs wait in session {key}, which is the most: try again later"
            raise SessionError(msg, "full")
        message = as_message(prompt)
        run_id = run_id or new_id()
        command = Push(
            id=f"push-{run_id}",
            at=self.now(),
            by=by,
            run_id=run_id,
            message=message,
            on_busy=on_busy,
            limits=limits,
        )
        if on_busy in {"reject", "steer"}:
            return effect_of(await self._ask(key, command)).run_id or run_id
        await self._send(key, command)
        self._pushed[run_id] = row_of_pushed(key, command)
        if len(self._pushed) > REMEMBERED:
            self._pushed.popitem(last=False)
        return run_id

    async def cancel(
        self,
        key: Key,
        stop: Stop | None = None,
        *,
        run_id: str | None = None,
        queued: bool = False,
        reason: str | None = None,
        by: str | None = None,
        source: Source = "user",
        wait: float = 10.0,
    ) -> StopReport | None:
        """Cancel what is live; gives the report once the run has really ended, None if `wait` was too short.

        A run of a name that has ended already is `FINISHED_FIRST`, and a `conflict` if a newer one is live:
        a late Stop never hits the next run.
        """
        state = await self.state(key)
        if run_id is not None:
            await self._check_run(state, run_id)
        command_id = new_id()
        bound = as_stop(stop).bind(self.now(), Cause(source, by, reason, command_id))
        command = Cancel(id=command_id, at=self.now(), by=by, stop=bound, run_id=run_id, queued=queued)
        return await self._until(key, command, wait, report_of(command))

    async def stop(
        self,
        key: Key,
        stop: Stop | None = None,
        *,
        reason: str | None = None,
        by: str | None = None,
        wait: float = 10.0,
    ) -> StopReport | None:
        """Stop a session: until it is resumed, what waits stays unhandled, and what comes is refused."""
        command_id = new_id()
        bound = None if stop is None else stop.bind(self.now(), Cause("user", by, reason, command_id))
        command = Halt(id=command_id, at=self.now(), by=by, stop=bound)
        await self.state(key)
        return await self._until(key, command, wait, report_of(command))

    async def pause(
        self,
        key: Key,
        *,
        grace: float | None = None,
        reason: str | None = None,
        by: str | None = None,
        wait: float = 10.0,
    ) -> StopReport | None:
        """Stop the live run so that it can go on, and hold the session: pushes queue up until `resume`."""
        command_id = new_id()
        cause = Cause("pause", by, reason, command_id)
        stop = Stop.graceful(grace=grace).bind(self.now(), cause)
        await self.state(key)
        command = Pause(id=command_id, at=self.now(), by=by, stop=stop)
        return await self._until(key, command, wait, report_of(command))

    async def resume(self, key: Key, *, by: str | None = None) -> str | None:
        """Let a session go on; gives the id of the run that goes on from where one was stopped, if any."""
        run_id = new_id()
        command = Resume(id=f"resume-{run_id}", at=self.now(), by=by, run_id=run_id)
        return effect_of(await self._ask(key, command)).run_id

    async def answer(
        self, key: Key, answers: Mapping[str, object], *, run_id: str | None = None, by: str | None = None
    ) -> str:
        """Answer questions; gives the id of the run that goes on."""
        run_id = run_id or new_id()
        command = Answer(id=f"answer-{run_id}", at=self.now(), by=by, run_id=run_id, answers=dict(answers))
        return effect_of(await self._ask(key, command)).run_id or run_id

    async def steer(
        self,
        key: Key,
        prompt: Prompt,
        *,
        when: When = "next",
        run_id: str | None = None,
        steer_id: str | None = None,
        by: str | None = None,
    ) -> str:
        """Say something to the live run; gives its id. `conflict` if none is live."""
        command = Steer(
            id=steer_id or new_id(),
            at=self.now(),
            by=by,
            message=as_message(prompt),
            when=when,
            run_id=run_id,
        )
        return effect_of(await self._ask(key, command)).run_id or ""

    async def release(self, key: Key, *, by: str | None = None) -> None:
        """Let a session be worked on again that was put into quarantine."""
        effect_of(await self._ask(key, Release(id=new_id(), at=self.now(), by=by)))

    # Runs

    async def run(self, run_id: str) -> Row:
        """Tell of one run; `missing` if there is none."""
        row = await self.substrate.row(run_id)
        if row is not None:
            self._pushed.pop(run_id, None)
            return Row.from_json(row)
        pushed = self._pushed.get(run_id)  # no worker has taken it yet
        if pushed is None or not await self.substrate.head(pushed.key):
            raise SessionError(f"there is no run {run_id!r}", "missing")
        _check_pushed(await self.state(pushed.key), run_id)
        return pushed

    async def runs(self) -> list[Row]:
        """Tell of all runs, the newest first."""
        rows = [Row.from_json(row) for row in await self.substrate.rows()]
        return sorted(rows, key=lambda row: row.queued, reverse=True)

    async def ended(self, key: Key, run_id: str, wait: float | None = None) -> Row | None:
        """Wait until a run has ended; None if `wait` was too short."""

        def look(state: SessionState) -> Row | None:
            _check_pushed(state, run_id)
            return state.ended.get(run_id)

        return await self._look_until(key, wait, look)

    # What is told

    @asynccontextmanager
    async def follow(self, key: Key, *, after: int = 0) -> AsyncGenerator[AsyncIterator[Sequence[Told]]]:
        """Read what a session tells from item number `after` on; what passes by counts from here on."""
        await self.state(key)
        if self._closed:  # looked at only now: nobody would tell a reader who came while this read
            raise SessionError(ENDS, "closed")
        feed, readers = self._feeds.get(key, (None, 0))
        if feed is None or feed.failure is not None:
            feed, readers = Feed(self.substrate, key), 0
        self._feeds[key] = (feed, readers + 1)
        reader = feed.read(after)
        try:
            await feed.open()
            yield reader
        finally:
            await reader.aclose()
            self._leave(feed)

    def _leave(self, feed: Feed) -> None:
        current, readers = self._feeds.get(feed.key, (feed, 1))
        if current is not feed:
            return
        self._feeds[feed.key] = (feed, readers - 1)
        if readers <= 1:
            del self._feeds[feed.key]
            feed.close()

    # Inside

    async def _send(self, key: Key, command: Command) -> None:
        await self.substrate.send(key, command.id, command_to_json(command))
        await self.substrate.ring(key)

    async def _ask(self, key: Key, command: Command) -> Fate:
        """Send a command, and wait for what becomes of it: a worker takes it soon, or nobody works at all."""
        await self.state(key)
        fate = await self._until(key, command, ANSWERED_WITHIN, lambda state: state.fates.get(command.id))
        if fate is None:
            msg = f"no worker has taken it within {ANSWERED_WITHIN:g} s: the request stands, look again later"
            raise SessionError(msg, "busy")
        return fate

    async def _until(
        self, key: Key, command: Command, wait: float, look: Callable[[SessionState], T | None]
    ) -> T | None:
        await self._send(key, command)
        return await self._look_until(key, wait, look)

    async def _look_until(
        self, key: Key, wait: float | None, look: Callable[[SessionState], T | None]
    ) -> T | None:
        """Look at the state whenever the journal has grown, until there is what is looked for."""
        with anyio.move_on_after(0 if self._closed else wait) as scope:
            self._waits.add(scope)
            try:
                return await self._look(key, look)
            finally:
                self._waits.discard(scope)
        return None

    async def _look(self, key: Key, look: Callable[[SessionState], T | None]) -> T:
        async with self.substrate.watch(key) as news:
            found = look(await self.state(key))
            while found is None:
                if await anext(news) is None:
                    found = look(await self.state(key))
            return found

    async def _check_run(self, state: SessionState, run_id: str) -> None:
        """Refuse to cancel what is not there, and what has ended long since."""
        row = state.row(run_id)
        if row is None and not await self._is_sent(state, run_id):
            row = (await self.state(state.key)).row(run_id)  # a worker may just have taken it
            if row is None:
                raise SessionError(f"session {state.key} has no run {run_id!r}", "missing")
        newer = state.live is not None or (bool(state.queue) and not state.held)
        if row is not None and not row.is_live and newer:
            msg = (
                f"run {run_id} has ended, and a newer one is live in session {state.key}: name that, or none"
            )
            raise SessionError(msg, "conflict")

    async def _is_sent(self, state: SessionState, run_id: str) -> bool:
        """Whether a run waits in the mailbox, where no worker has taken it yet."""
        waiting = await self.substrate.commands(state.key, after=state.cursor)
        commands = [command_from_json(data) for _, data in waiting]
        return any(isinstance(one, Push | Resume | Answer) and one.run_id == run_id for one in commands)


def new_id() -> str:
    """Make an id that nobody can guess."""
    return os.urandom(16).hex()


def _check_pushed(state: SessionState, run_id: str) -> None:
    """Tell whoever pushed that it was refused, where it was."""
    fate = state.fates.get(f"push-{run_id}")
    if fate is not None:
        effect_of(fate)
