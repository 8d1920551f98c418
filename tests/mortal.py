"""Mortal: a substrate as one worker sees it, which may die at any operation, and hangs from there on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import anyio
from typing_extensions import override

from andon.core.command import Key
from andon.ports import Claim
from andon.runtime.memory import MemorySubstrate
from andon.testing import Gate


class Mortal(MemorySubstrate):
    """Passes on to the real one; at its `dies_at`-th operation, before or after its effect, its worker dies.

    What is dead gets no answer any more, and has no effect.
    """

    def __init__(self, real: MemorySubstrate, *, dies_at: int = 0, after: bool = False) -> None:
        super().__init__()
        self.real = real
        self.dies_at = dies_at
        self.after = after
        self.done: list[str] = []
        self.dead = Gate("dead")
        self._never = Gate("never")
        self._claiming = anyio.CancelScope()

    @property
    def is_dead(self) -> bool:
        """Whether it has died."""
        return self.dead.opened

    def die(self) -> None:
        """Die now: what waits for a session waits no longer."""
        self.dead.open()
        self._claiming.cancel()

    async def before(self, what: str) -> None:
        """Count an operation, and perhaps die."""
        self.done.append(what)
        if len(self.done) == self.dies_at and not self.after:
            self.die()
        await self.live()

    async def then(self) -> None:
        """Die perhaps behind an operation that has had its effect."""
        if len(self.done) >= self.dies_at > 0 and self.after:
            self.die()
        await self.live()

    async def live(self) -> None:
        """Go on, unless dead."""
        if self.is_dead:
            await self._never

    @override
    async def append(
        self, key: Key, record: bytes, *, head: int, rows: Mapping[str, bytes] | None = None
    ) -> int:
        await self.before("append")
        done = await self.real.append(key, record, head=head, rows=rows)
        await self.then()
        return done

    @override
    async def head(self, key: Key) -> int:
        await self.before("head")
        return await self.real.head(key)

    @override
    async def read(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        await self.before("read")
        return await self.real.read(key, after=after)

    @override
    async def commands(self, key: Key, *, after: int = 0) -> Sequence[tuple[int, bytes]]:
        await self.before("commands")
        mail = await self.real.commands(key, after=after)
        await self.then()
        return mail

    @override
    async def claim(self, worker: str) -> Claim:
        await self.before("claim")
        claim: Claim | None = None
        with anyio.CancelScope() as self._claiming:
            claim = await self.real.claim(worker)
        await self.then()
        if claim is None:
            await self._never
        assert claim is not None
        return MortalClaim(self, claim)

    @override
    async def send(self, key: Key, command_id: str, command: bytes) -> int:
        return await self.real.send(key, command_id, command)

    @override
    async def ring(self, key: Key) -> bool:
        return await self.real.ring(key)

    @override
    def tell(self, key: Key, delta: bytes) -> None:
        if not self.is_dead:
            self.real.tell(key, delta)

    @override
    def watch(self, key: Key) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        return self.real.watch(key)


class MortalClaim:
    """A claim that dies with its worker."""

    def __init__(self, mortal: Mortal, claim: Claim) -> None:
        self._mortal = mortal
        self._claim = claim
        self.key = claim.key
        self.deliveries = claim.deliveries

    async def rung(self) -> None:
        """Wait for the bell."""
        await self._mortal.live()
        await self._claim.rung()
        await self._mortal.live()

    async def beat(self) -> bool:
        """Keep the session."""
        await self._mortal.live()
        return await self._claim.beat()

    async def release(self, cursor: int) -> bool:
        """Leave it."""
        await self._mortal.before("release")
        done = await self._claim.release(cursor)
        await self._mortal.then()
        return done

    async def give_back(self, delay: float = 0.0) -> None:
        """Leave it to the next."""
        await self._mortal.before("give_back")
        await self._claim.give_back(delay)
        await self._mortal.then()
