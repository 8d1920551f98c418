"""Client: says things to sessions at random, and remembers what was acknowledged."""

from collections.abc import Callable
from random import Random
from typing import Any

import anyio
import httpx
import msgspec

from andon.core.command import Key
from andon.serve.runs import run_of
from tests.chaos.program import LETTERS

APP = "/apps/trips/users/ann/sessions"
AGAIN = 0.02  # seconds until a request that met nobody is made again
MOST_OPEN = 4  # runs of one session that may wait at a time
WAYS: tuple[dict[str, object], ...] = (
    {},
    {"recursive": True},
    {"at": ["tools"], "grace": 0.2},
    {"at": ["model", "tools"], "recursive": True, "grace": 0.1},
    {"queued": True},
)


class Pushed(msgspec.Struct):
    """Something that was said, and acknowledged."""

    token: str
    run_id: str
    on_busy: str


class Told(msgspec.Struct):
    """What one session was told, as far as that was acknowledged, and what it told."""

    session: str
    pushed: list[Pushed] = []
    steered: list[tuple[str, str]] = []
    reports: list[tuple[str, str]] = []
    read: list[tuple[int, str]] = []
    wrong: list[str] = []


class Client:
    """Works on one session.

    Args:
        told: What it remembers.
        random: What it is led by.
        addresses: Where servers listen, if they live.
    """

    def __init__(self, told: Told, random: Random, addresses: list[str]) -> None:
        self.told = told
        self._random = random
        self._addresses = addresses
        self._http = httpx.AsyncClient(timeout=30)
        self._open: list[str] = []
        self._count = 0
        self.path = f"{APP}/{told.session}"
        self.over = False

    async def begin(self) -> None:
        """Begin the session."""
        await self.ask("POST", self.path, expect={200, 409})

    async def close(self) -> None:
        """Be done."""
        await self._http.aclose()

    async def work(self, until: Callable[[], bool]) -> None:
        """Say things until it is enough."""
        while not until():
            act = self._random.choices([self._push, self._steer, self._cancel, self._wait], [6, 2, 2, 1])[0]
            await act()
            await anyio.sleep(self._random.random() * 0.1)

    async def _push(self) -> None:
        if len(self._open) >= MOST_OPEN:
            await self._wait()
        self._count += 1
        token = f"{self.told.session}-{self._count}"
        plan = "".join(self._random.choices(LETTERS, k=self._random.randint(1, 4)))
        on_busy = self._random.choices(["enqueue", "preempt", "steer", "rollback"], [16, 1, 2, 1])[0]
        body = {"input": f"do {token} {plan}", "on_busy": on_busy, "idempotency_key": token}
        answer = await self.ask("POST", f"{self.path}/runs", body, expect={200, 202})
        run_id = answer.get("run_id")
        if run_id is None:  # which is noted
            return
        own = run_of(Key("trips", "ann", self.told.session), token)
        self.told.pushed.append(Pushed(token, own, on_busy))
        self._open.append(run_id)

    async def _steer(self) -> None:
        self._count += 1
        steer = f"{self.told.session}-s{self._count}"
        when = self._random.choice(["next", "next", "idle", "now"])
        body = {"input": f"hint {steer}", "when": when, "steer_id": steer}
        answer = await self.ask("POST", f"{self.path}:steer", body, expect={200, 409})
        if "run_id" in answer:
            self.told.steered.append((steer, answer["run_id"]))

    async def _cancel(self) -> None:
        body: dict[str, object] = {**self._random.choice(WAYS), "reason": "chaos", "wait": 20}
        if self._open and self._random.random() < 0.5:
            body["run_id"] = self._random.choice(self._open)
        answer = await self.ask("POST", f"{self.path}:cancel", body, expect={200, 202, 409}, tries=1)
        if answer.get("run_id") and answer.get("result") in {"STOPPED", "FINISHED_FIRST"}:
            self.told.reports.append((answer["run_id"], answer["result"]))

    async def _wait(self) -> None:
        """Wait until some run has ended."""
        while self._open:
            row = await self.ask("GET", f"/runs/{self._open[0]}", expect={200})
            if row["state"] not in {"queued", "running", "stopping", "quarantined"}:
                self._open.pop(0)
                return
            await self.release()
            await anyio.sleep(AGAIN)

    async def release(self) -> None:
        """Let the session go on if it is in quarantine; the verdict says whether it should be."""
        session = await self.ask("GET", self.path, expect={200})
        if session["quarantined"]:
            await self.ask("POST", f"{self.path}:release", expect={200, 409})

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        expect: set[int],
        tries: int = 1_000,
    ) -> dict[str, Any]:
        """Ask any server until one answers; what is not expected is noted."""
        for _ in range(tries):
            try:
                url = self._random.choice(self._addresses) + path
                answer = await self._http.request(method, url, json=body)
            except httpx.ReadTimeout:
                self.told.wrong.append(f"no answer to {method} {path} {body} within 30 s")
                continue
            except httpx.TransportError:
                await anyio.sleep(AGAIN)
                continue
            if answer.status_code in {429, 503}:
                await anyio.sleep(AGAIN)
                continue
            if answer.status_code not in expect:
                self.told.wrong.append(f"{answer.status_code} to {method} {path} {body}: {answer.text:.300}")
            return answer.json() or {}
        return {}

    async def follow(self) -> None:
        """Read all that the session tells, from wherever this had come to, until it is cancelled."""
        last = "0"
        while True:
            address = self._random.choice(self._addresses)
            try:
                async with self._http.stream(
                    "GET",
                    f"{address}{self.path}/events",
                    headers={"Last-Event-ID": last},
                    timeout=httpx.Timeout(30, read=None),
                ) as answer:
                    if answer.status_code == 200:
                        last = await self._read(answer, last)
            except httpx.TransportError:
                pass
            await anyio.sleep(AGAIN)

    async def _read(self, answer: httpx.Response, last: str) -> str:
        fields: dict[str, str] = {}
        try:
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                fields[name] = value
                if line:
                    continue
                if fields.get("id", ".").isdigit():
                    n = int(fields["id"])
                    if self.told.read and n <= self.told.read[-1][0]:
                        self.told.wrong.append(f"item {n} {fields['event']} was told again after id {last}")
                    self.told.read.append((n, fields["event"]))
                last = fields.get("id", last)
                fields = {}
        except httpx.TransportError:
            pass
        return last
