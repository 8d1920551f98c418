"""Presence: what becomes of a run when the client that started it goes away."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from msgspec import Struct

from andon.core.command import Key
from andon.core.stop import Stop
from andon.errors import SessionError
from andon.runtime.isolate import Job
from andon.runtime.office import Office
from andon.runtime.record import logger


class Leash(Struct, frozen=True):
    """A run that ends when nobody is there for it, and how long that may be."""

    key: Key
    run_id: str
    grace: float


class Presence:
    """Knows the runs that end with their clients, and cancels those whose client did not come back.

    There for a run is the connection that has started it, and whoever reads on in it, or in its session,
    from something that they were told: nobody who only looks on.
    """

    def __init__(self, office: Office) -> None:
        self._office = office
        self._leashes: dict[str, Leash] = {}
        self._there: Counter[str | Key] = Counter()
        self._jobs: dict[str, Job] = {}
        self._closed = False

    @property
    def held(self) -> int:
        """How many runs end with their clients."""
        return len(self._leashes)

    @property
    def is_empty(self) -> bool:
        """Whether nobody is there, nobody is waited for, and nothing is held."""
        return not (self._leashes or self._there or self._jobs)

    @contextmanager
    def starts(self, leash: Leash | None) -> Generator[None]:
        """Be the connection that starts a run."""
        if leash is not None:
            self._leashes[leash.run_id] = leash
        with self.reads(None if leash is None else leash.run_id):
            yield

    @contextmanager
    def reads(self, place: str | Key | None) -> Generator[None]:
        """Be there for a run, or for those of a session: as long as anybody is, they go on."""
        if place is None:
            yield
            return
        self._there[place] += 1
        for leash in self._of(place):
            job = self._jobs.pop(leash.run_id, None)
            if job is not None:
                job.cancel()
        try:
            yield
        finally:
            self._leave(place)

    def ended(self, run_id: str) -> None:
        """Let a run go that has ended."""
        self._leashes.pop(run_id, None)

    def close(self) -> None:
        """Cancel nothing any more: the server ends, and another one goes on with the runs."""
        self._closed = True
        self._leashes.clear()
        for job in tuple(self._jobs.values()):
            job.cancel()

    def _of(self, place: str | Key) -> list[Leash]:
        if isinstance(place, Key):
            return [leash for leash in self._leashes.values() if leash.key == place]
        leash = self._leashes.get(place)
        return [] if leash is None else [leash]

    def _leave(self, place: str | Key) -> None:
        self._there[place] -= 1
        if not self._there[place]:
            del self._there[place]
        for leash in self._of(place):
            run_id = leash.run_id
            if not (self._closed or self._there[run_id] or self._there[leash.key] or run_id in self._jobs):
                job = self._jobs[run_id] = Job().start(self._cancel(leash))
                job.when_over(partial(self._forget, run_id, job))

    def _forget(self, run_id: str, job: Job) -> None:
        if self._jobs.get(run_id) is job:
            del self._jobs[run_id]

    async def _cancel(self, leash: Leash) -> None:
        """Wait for the client, or for the end of its run; then cancel that."""
        try:
            row = await self._office.ended(leash.key, leash.run_id, leash.grace) if leash.grace else None
            self.ended(leash.run_id)
            if row is not None or self._closed:
                return
            await self._office.cancel(
                leash.key,
                Stop.now(),
                run_id=leash.run_id,
                source="disconnect",
                reason="the client that started it went away",
                wait=0.0,
            )
        except SessionError as error:
            self.ended(leash.run_id)
            if error.kind not in {"missing", "conflict", "closed"}:  # it has ended, or the session is gone
                logger.warning("run %s goes on without its client: %s", leash.run_id, error)
