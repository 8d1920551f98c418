"""Worker: claims sessions that have something to do, and works on many of them beside each other."""

import os
from collections.abc import Mapping

import anyio
from anyio.abc import TaskGroup

from andon.core.stop import check_seconds
from andon.errors import SessionError, UserError
from andon.ports import Claim, Substrate
from andon.runtime.agent import Agent
from andon.runtime.bell import Bell
from andon.runtime.config import check_count
from andon.runtime.isolate import nap
from andon.runtime.record import logger
from andon.runtime.tenure import Tenure, left_by

BACK_OFF_MOST = 60.0
CLAIM_AGAIN = 1.0
NOT_MINE = 1.0  # seconds for which a session of an app that is not known here is left to other workers
LEAVE_WITHIN = (
    120.0  # seconds, after the grace, that the shutdown waits for tools that must finish, and storage
)
RETURN_WITHIN = 1.0


class Worker:
    """Runs the agents of apps, for as long as `run` is awaited.

    Args:
        agents: Who answers in the sessions of an app, by the app's name.
        substrate: Where the sessions are kept; entered already.
        name: What this worker is called there; made up by default.
        concurrency: How many sessions it works on at a time.
        beat: Seconds between two signs of life for a session; well below the substrate's lease.
        deaths: How many workers in a row may die on one step before a session is put into quarantine.
        drain_grace: Seconds that live runs have to come to a safe point when the worker shuts down.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        substrate: Substrate,
        name: str | None = None,
        concurrency: int = 100,
        beat: float = 5.0,
        deaths: int = 5,
        drain_grace: float = 10.0,
    ) -> None:
        if not agents:
            raise UserError("a worker needs at least one agent: give them by the names of their apps")
        check_count("concurrency", concurrency, 1)
        check_count("deaths", deaths, 1)
        check_seconds("beat", beat)
        check_seconds("drain_grace", drain_grace)
        self.agents = dict(agents)
        self.name = name or f"worker-{os.urandom(4).hex()}"
        self._substrate = substrate
        self._places = anyio.CapacityLimiter(concurrency)
        self._beat = beat
        self._deaths = deaths
        self._drain_grace = drain_grace
        self._tenures: set[Tenure] = set()
        self._draining = False
        self._bell = Bell()

    @property
    def busy(self) -> int:
        """How many sessions it works on now."""
        return len(self._tenures)

    @property
    def draining(self) -> bool:
        """Whether it shuts down, and claims nothing more."""
        return self._draining

    async def run(self) -> None:
        """Work until `drain` is called; returns when every session was left to other workers.

        If it is cancelled instead, its runs are cut, unwritten from there on, and the next workers go on with
        them as if this one had died, but at once.
        """
        async with anyio.create_task_group() as group:
            claiming = anyio.CancelScope()
            group.start_soon(self._claim_all, group, claiming)
            while not self._draining:
                await self._bell.wait(lambda: self._draining)
            claiming.cancel()
            group.cancel_scope.deadline = anyio.current_time() + self._drain_grace + LEAVE_WITHIN
            for tenure in tuple(self._tenures):
                tenure.drain(self._drain_grace)

    def drain(self) -> None:
        """Claim nothing more, bring the live runs to a safe point, and hand their sessions over."""
        self._draining = True
        self._bell.ring()

    async def _claim_all(self, group: TaskGroup, claiming: anyio.CancelScope) -> None:
        with claiming:
            while not self._draining:
                await self._claim_one(group)

    async def _claim_one(self, group: TaskGroup) -> None:
        """Take a session, once there is a place for it."""
        await self._places.acquire_on_behalf_of(place := object())
        claim = None
        try:
            claim = await self._claim()
        finally:
            if claim is None:
                self._places.release_on_behalf_of(place)
        if claim is not None:
            group.start_soon(self._work, claim, place)

    async def _claim(self) -> Claim | None:
        """Wait for a session; None if that did not work, and is to be tried again."""
        try:
            return await self._substrate.claim(self.name)
        except SessionError as error:
            logger.warning("%s cannot claim sessions now: %s", self.name, error)
            if error.kind == "closed":  # it never will again
                self.drain()
                return None
        except Exception:  # noqa: BLE001 — the process edge: what a substrate raises must not end the worker
            logger.exception("%s cannot claim sessions now", self.name)
        await nap(CLAIM_AGAIN)
        return None

    async def _work(self, claim: Claim, place: object) -> None:
        try:
            agent = self.agents.get(claim.key.app)
            if agent is None or self._draining:
                await self._give_back(claim, NOT_MINE if agent is None else 0.0)
                return
            tenure = Tenure(claim, agent, self._substrate, beat=self._beat, deaths=self._deaths)
            await self._hold(tenure, claim)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(RETURN_WITHIN, shield=True):
                await self._give_back(claim, 0.0)
            raise
        finally:
            self._places.release_on_behalf_of(place)

    async def _hold(self, tenure: Tenure, claim: Claim) -> None:
        self._tenures.add(tenure)
        try:
            await tenure.work()
        except SessionError as error:
            logger.warning("session %s is left alone for now: %s", claim.key, error)
            await self._give_back(claim, left_by(error))
        except Exception:  # noqa: BLE001 — the process edge: one session must not end the others
            logger.exception("session %s failed: a bug of Andon, please report it", claim.key)
            await self._give_back(claim, min(BACK_OFF_MOST, 2.0**claim.deliveries))
        finally:
            self._tenures.discard(tenure)

    async def _give_back(self, claim: Claim, delay: float) -> None:
        try:
            await claim.give_back(delay)
        except SessionError as error:
            logger.warning("session %s is given to another worker once its claim ends: %s", claim.key, error)
        except Exception:  # noqa: BLE001 — the process edge: what a substrate raises must not end the worker
            logger.exception("session %s is given to another worker once its claim ends", claim.key)
