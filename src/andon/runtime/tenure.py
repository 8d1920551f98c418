"""Tenure: one worker's hold of one session, from the claim until it leaves it.

What is to be done follows from the session's state alone (see `core/session.py`): this looks at it
whenever something has come, does it, and waits. So a command that comes twice, or a worker that takes
over from one that died, needs no case of its own.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio

from andon.core.checkpoint import UNREADABLE
from andon.core.command import command_from_json
from andon.core.items import Delta, Event, MessageAdded, RunEnded, RunStarted
from andon.core.journal import Quarantined, Received, record_from_json
from andon.core.live import Live, Queued
from andon.core.outcome import Outcome
from andon.core.session import SessionState
from andon.core.stop import Stop
from andon.core.text import in_words
from andon.errors import SessionError, UserError
from andon.ports import Claim, Substrate
from andon.runtime.agent import Agent
from andon.runtime.bell import Bell
from andon.runtime.book import Book, RunJournal
from andon.runtime.flight import Tagger
from andon.runtime.isolate import Job, nap
from andon.runtime.record import logger
from andon.runtime.run import Run

LEFT_WITHIN = 10.0  # seconds that a run has to come to a safe point where a newer worker is needed
NEWER = "a newer Andon has sent a command that this one cannot read, so newer workers are to go on"


async def load(substrate: Substrate, claim: Claim) -> tuple[SessionState, int]:
    """Fold the journal of a session; gives its head, too."""
    state, head = SessionState(claim.key), 0
    for head, record in await substrate.read(claim.key):  # noqa: B007 — the last one is wanted
        for entry in record_from_json(record):
            state.apply(entry)
    return state, head


class Tenure:
    """Works on one session.

    Args:
        claim: The hold on it.
        agent: Who answers there.
        substrate: Where it is kept.
        beat: Seconds between two signs of life.
        deaths: How many workers may die on one step before the session is put into quarantine.
    """

    def __init__(self, claim: Claim, agent: Agent, substrate: Substrate, *, beat: float, deaths: int) -> None:
        self._claim = claim
        self._agent = agent
        self._substrate = substrate
        self._beat = beat
        self._deaths = deaths
        self._book: Book | None = None
        self._run: Run | None = None
        self._journal: RunJournal | None = None
        self._tagger: Tagger | None = None
        self._told: Stop | None = None
        self._said: set[str] = set()
        self._bell = Bell()
        self._mail = True
        self._woken = False
        self._drain: Stop | None = None
        self._problem: SessionError | None = None

    async def work(self) -> None:
        """Work until there is nothing to do, the session is another's, or this worker shuts down."""
        state, head = await load(self._substrate, self._claim)
        if not state.exists:
            await self._refuse_all()
            return
        book = self._book = Book(self._substrate, state, head)
        book.on_failure = self._wake
        async with self._alive(book):
            try:
                await self._serve(book)
            except SessionError as error:
                if error.kind != "fenced":
                    raise
                logger.info("session %s was taken over by another worker", state.key)
            finally:
                with anyio.CancelScope(shield=True):  # bounded by the run itself
                    await self._leave_run(book)

    def drain(self, grace: float) -> None:
        """Bring the live run to a safe point within so many seconds, and leave the session to others."""
        if self._drain is None:
            self._drain = Stop.graceful(grace=grace)
            self._stop_run()
            self._wake()

    def _stop_run(self) -> None:
        if self._run is not None and self._journal is not None and self._drain is not None:
            self._journal.draining = True
            self._run.cancel(self._drain, source="shutdown", reason="this worker shuts down")

    async def _refuse_all(self) -> None:
        """Forget what was asked of a session that was deleted, unless it was made anew."""
        key = self._claim.key
        mail = await self._substrate.commands(key)
        last = max((seq for seq, _ in mail), default=0)
        if not await self._substrate.head(
            key
        ):  # so all of these are older than one that is made from here on
            await self._substrate.commands(key, after=last)
            if await self._claim.release(last):
                return
        await self._claim.give_back()

    async def _serve(self, book: Book) -> None:
        while True:
            self._woken = False
            if self._mail:
                self._mail = False
                await self._take_mail(book)
            if book.failure is not None:
                raise book.failure
            if self._drain is not None and self._run is None:
                await self._hand_over(book)
                return
            self._act(book)
            if self._run is None and await self._is_done(book):
                return
            await self._bell.wait(lambda: self._mail or self._woken)

    async def _hand_over(self, book: Book) -> None:
        """Leave the session to the next worker."""
        await book.sync()
        if self._problem is not None:
            raise self._problem
        await self._claim.give_back()

    async def _is_done(self, book: Book) -> bool:
        """Leave the session, if nothing is left to do."""
        await book.sync()
        if book.state.has_work or self._mail or self._drain is not None:
            self._wake()
            return False
        if await self._claim.release(book.state.cursor):
            return True
        self._mail = True
        return False

    async def _take_mail(self, book: Book) -> None:
        """Let the commands that have come take effect: first in the live run, which may be stopped."""
        mail = await self._substrate.commands(self._claim.key, after=book.state.cursor)
        for seq, data in mail if self._problem is None else ():
            try:
                command = command_from_json(data)
            except UNREADABLE as error:
                self._problem = SessionError(f"{NEWER}: {error}", "newer")
                self.drain(LEFT_WITHIN)
                break
            book.write(Received(seq=seq, command=command))
        self._act(book)
        await book.sync()

    def _act(self, book: Book) -> None:
        """Do what the state asks for."""
        state = book.state
        if self._run is None and self._drain is None:
            if state.live is not None and not state.quarantined:
                self._take_up(book, state.live)
            elif state.ready is not None:
                self._begin(book, state.ready)
        if self._run is not None and state.live is not None and state.live.run_id == self._run.id:
            self._pass_on(self._run, state.live)

    def _pass_on(self, run: Run, live: Live) -> None:
        if live.stop is not None and live.stop is not self._told:
            self._told = live.stop
            run.join(live.stop)
        for steer in tuple(live.steers.values()):
            if steer.id not in self._said:
                self._said.add(steer.id)
                try:
                    run.steer(steer.message, when=steer.when, steer_id=steer.id)
                except UserError as error:  # a workflow, which cannot hear: it is not delivered
                    logger.warning("run %s was not steered: %s", run.id, error)

    def _take_up(self, book: Book, live: Live) -> None:
        """Go on with a run whose worker died, or handed it over."""
        if live.deaths + 1 >= self._deaths:
            why = f"{live.deaths + 1} workers in a row died at the same step of run {live.run_id}"
            book.write(Quarantined(why=why))
            logger.error("session %s is in quarantine: %s", book.key, why)
            return
        tools = tuple(tool.name for tool in self._agent.tools)
        kept = live.checkpoint(live.agent, live.model, tools)
        queued = Queued(run_id=live.run_id, at=live.queued, by=live.by, limits=live.limits, checkpoint=kept)
        self._begin(book, queued)

    def _begin(self, book: Book, queued: Queued) -> None:
        journal = RunJournal(book, queued.run_id)
        try:
            run = self._make(book, queued, journal)
            if queued.stop is not None:
                run.join(queued.stop)
            events = run.events()
        except UserError as error:
            self._could_not_begin(book, queued, error)
            return
        self._run, self._journal, self._told, self._said = run, journal, queued.stop, set()
        tagger = self._tagger = Tagger(queued.run_id)
        narrated = Job().start(self._narrate(book, run, events, partial(_note, tagger, journal)))
        narrated.when_over(self._run_is_over)

    def _make(self, book: Book, queued: Queued, journal: RunJournal) -> Run:
        agent, given = self._agent, queued.checkpoint
        if given is not None:
            return agent.start_from(given, answers=queued.answers, limits=queued.limits, journal=journal)
        return agent.start(
            queued.message, messages=book.state.messages, limits=queued.limits, journal=journal
        )

    def _could_not_begin(self, book: Book, queued: Queued, error: UserError) -> None:
        """Let a run that cannot begin end as an error, so that nobody waits for it."""
        book.write(RunStarted(run_id=queued.run_id, agent=self._agent.name))
        if queued.message is not None:
            book.write(MessageAdded(message=queued.message))
        live = book.state.live
        messages = () if live is None else tuple(live.state.messages)
        outcome = Outcome(run_id=queued.run_id, stop_reason="error", messages=messages, error=in_words(error))
        book.write(RunEnded(outcome=outcome))
        self._wake()

    async def _narrate(
        self, book: Book, run: Run, events: AsyncIterator[Event], note: Callable[[Event], bytes | None]
    ) -> None:
        """Tell whoever watches what passes by in a run, until it is over."""
        try:
            async for event in events:
                passing = note(event)
                if passing is not None:
                    self._substrate.tell(book.key, passing)
        except Exception:  # noqa: BLE001 — who watches must not harm the run
            logger.exception("nothing more is told of run %s: a bug of Andon, please report it", run.id)
        await run.over()

    def _run_is_over(self) -> None:
        self._run = self._journal = self._tagger = None
        self._wake()

    async def _leave_run(self, book: Book) -> None:
        """End what still runs here when the session is left: it goes on elsewhere."""
        book.fence()
        if self._run is not None:
            self._run.cancel(source="code", reason="this worker has the session no longer")
        while self._run is not None:
            await self._bell.wait(lambda: self._run is None)

    @asynccontextmanager
    async def _alive(self, book: Book) -> AsyncGenerator[None]:
        """Give signs of life, and hear the doorbell; where that fails, so does the tenure."""
        jobs = [Job().start(self._keep(book)), Job().start(self._hear())]
        for job in jobs:
            job.when_over(partial(_fail_with, book, job))
        try:
            yield
        finally:
            for job in jobs:
                job.cancel()

    async def _keep(self, book: Book) -> None:
        while True:
            await nap(self._beat)
            try:
                kept = await self._claim.beat()
            except SessionError as error:
                logger.warning("session %s: no sign of life could be given: %s", self._claim.key, error)
                continue
            if not kept:
                book.fence()
                return

    async def _hear(self) -> None:
        while True:
            await self._claim.rung()
            self._mail = True
            self._bell.ring()
            # Somebody may have come to watch in the middle of an answer.
            for passing in () if self._tagger is None else self._tagger.partials():
                self._substrate.tell(self._claim.key, passing)

    def _wake(self) -> None:
        self._woken = True
        self._bell.ring()


def _note(tagger: Tagger, journal: RunJournal, event: Event) -> bytes | None:
    """Note an item; of what passes by, give what is told."""
    if isinstance(event, Delta):
        return tagger.tag(event)
    tagger.item(event, journal.number(event))
    return None


def _fail_with(book: Book, job: Job) -> None:
    if job.error is not None:
        book.fail(job.error)


def left_by(error: SessionError) -> float:
    """Say how long a session is left alone after such a failure."""
    return 60.0 if error.kind in {"newer", "broken"} else 1.0
