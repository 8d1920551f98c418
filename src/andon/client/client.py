"""Client: asks a server for what may be asked of sessions and runs, by the same verbs as everywhere."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Self

from andon.client.events import Events
from andon.client.shape import (
    Input,
    News,
    Page,
    Session,
    Taken,
    Told,
    given,
    input_body,
    limits_body,
    stop_body,
)
from andon.client.wire import Wire
from andon.core.command import Key, OnBusy, check_id
from andon.core.limits import Limits
from andon.core.row import Row, RunState
from andon.core.steer import When
from andon.core.stop import Stop, StopReport, check_seconds

URL = "http://127.0.0.1:8484"
WAIT = 10.0
PATIENCE = 60.0
AT_ONCE = 1_000

Where = Key | str  # a session, or a run by its id


class Client:
    """One server; use it as `async with Client() as client:`, or `close` it.

    What goes wrong is told in the server's own words: `SessionError` and `UserError`, as the runtime would
    raise them, and `ServerError` if the server cannot be reached or fails.

    Args:
        url: Where the server is.
        token: What it asks for to let somebody in.
        timeout: Seconds until a server that does not answer is given up, besides what it is asked to wait.
    """

    def __init__(self, url: str = URL, *, token: str | None = None, timeout: float = 30.0) -> None:
        check_seconds("timeout", timeout)
        self._wire = Wire(url, token, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._wire.url

    # Sessions

    async def create(
        self, app: str, user: str, session: str | None = None, *, state: Mapping[str, object] | None = None
    ) -> Session:
        """Begin a session, of an id that is made up unless it is given."""
        body = given(session_id=session, state=state)
        return await self._wire.ask("POST", _sessions(app, user), Session, body=body)

    async def session(self, key: Key) -> Session:
        """Tell of one session."""
        return await self._wire.ask("GET", _path(key), Session)

    async def sessions(self, app: str, user: str) -> Sequence[Session]:
        """List the sessions of a user with an app."""
        return await self._wire.ask("GET", _sessions(app, user), list[Session])

    async def delete(self, key: Key) -> None:
        """Cancel what is live in a session, and forget all of it."""
        await self._wire.send("DELETE", _path(key), wait=WAIT)

    # Verbs

    async def push(
        self,
        key: Key,
        prompt: Input,
        *,
        on_busy: OnBusy = "enqueue",
        limits: Limits | None = None,
        idempotency_key: str | None = None,
        wait: float = 0.0,
    ) -> Told:
        """Say something to a session, which becomes a run, and wait so long for its end.

        The same `idempotency_key` twice is one run.
        """
        body = given(
            input=input_body(prompt),
            on_busy=on_busy,
            limits=limits_body(limits),
            idempotency_key=idempotency_key,
            wait=wait,
        )
        return await self._wire.ask("POST", f"{_path(key)}/runs", Told, body=body, wait=wait)

    async def cancel(
        self,
        where: Where,
        stop: Stop | None = None,
        *,
        run_id: str | None = None,
        queued: bool = False,
        reason: str | None = None,
        wait: float = WAIT,
    ) -> StopReport | None:
        """Cancel a run, or what is live in a session; None if it has not ended within `wait`.

        In a session, `run_id` keeps a late stop from the next run, and `queued` cancels what waits as well.
        """
        fields = given(run_id=run_id, queued=queued or None, reason=reason, wait=wait)
        return await self._stopped(where, "cancel", stop_body(stop) | fields, wait)

    async def stop(
        self, key: Key, stop: Stop | None = None, *, reason: str | None = None, wait: float = WAIT
    ) -> StopReport | None:
        """Stop a session until it is resumed; the live run goes on unless it is said how to stop it, too."""
        fields = given(now=True if stop is not None and stop.immediate else None, reason=reason, wait=wait)
        return await self._stopped(key, "stop", stop_body(stop) | fields, wait)

    async def pause(
        self, key: Key, *, grace: float | None = None, reason: str | None = None, wait: float = WAIT
    ) -> StopReport | None:
        """Stop the live run so that it can go on, and hold the session until it is resumed."""
        return await self._stopped(key, "pause", given(grace=grace, reason=reason, wait=wait), wait)

    async def resume(self, key: Key) -> str | None:
        """Let a session go on; gives the id of the run that goes on from where one was stopped, if any."""
        return (await self._take(key, "resume", {})).run_id

    async def answer(self, key: Key, answers: Mapping[str, object]) -> str | None:
        """Answer questions by their ids; gives the id of the run that goes on."""
        return (await self._take(key, "answer", {"answers": answers})).run_id

    async def steer(
        self,
        where: Where,
        prompt: Input,
        *,
        when: When = "next",
        run_id: str | None = None,
        steer_id: str | None = None,
    ) -> str | None:
        """Say something to a run, or to what is live in a session; gives the run's id."""
        body = given(input=input_body(prompt), when=when, run_id=run_id, steer_id=steer_id)
        return (await self._take(where, "steer", body)).run_id

    async def release(self, key: Key) -> None:
        """Let a session be worked on again that was put into quarantine."""
        await self._take(key, "release", {})

    # Runs

    async def run(self, run_id: str) -> Row:
        """Tell of one run."""
        return await self._wire.ask("GET", _path(run_id), Row)

    async def runs(
        self, *, state: Sequence[RunState] = (), app: str | None = None, user: str | None = None
    ) -> list[Row]:
        """Tell of the runs that one may see, the newest first."""
        params = given(state=list(state) or None, app=app, user=user, limit=AT_ONCE)
        rows: list[Row] = []
        while True:
            page = await self._wire.ask("GET", "/runs", Page, params=params)
            rows += page.runs
            if page.next is None:
                return rows
            params["cursor"] = page.next

    def events(self, where: Where, *, after: int = 0, patience: float = PATIENCE) -> AsyncGenerator[News]:
        """Give what a run or a session tells behind item `after`, each item once, across broken connections.

        Of a run it ends with the run. A `Partial` takes the place of the words of the model call in flight,
        and after `patience` seconds without a server `ServerError` is raised.
        """

        async def is_over() -> bool:
            return not isinstance(where, Key) and not (await self.run(where)).is_live

        path = f"{_path(where)}/events"
        return Events(self._wire, path, after=after, patience=patience, is_over=is_over).read()

    # Inside

    async def _take(self, where: Where, verb: str, body: Mapping[str, object]) -> Taken:
        return await self._wire.ask("POST", f"{_path(where)}:{verb}", Taken, body=body)

    async def _stopped(
        self, where: Where, verb: str, body: Mapping[str, object], wait: float
    ) -> StopReport | None:
        response = await self._wire.send("POST", f"{_path(where)}:{verb}", body=body, wait=wait)
        return None if response.status_code == HTTPStatus.ACCEPTED else self._wire.read(response, StopReport)


def _sessions(app: str, user: str) -> str:
    check_id("app", app)
    check_id("user", user)
    return f"/apps/{app}/users/{user}/sessions"


def _path(where: Where) -> str:
    if isinstance(where, Key):
        return f"{_sessions(where.app, where.user)}/{where.session}"
    check_id("run", where)
    return f"/runs/{where}"
