"""Desk: what all routes share: the office, the agents, the settings, and who asks."""

from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends
from fastapi.requests import HTTPConnection

from andon.core.command import Key
from andon.core.row import Row
from andon.runtime.agent import Agent
from andon.runtime.office import Office
from andon.runtime.worker import Worker
from andon.serve.auth import Anybody, Authority, Scope, Who
from andon.serve.presence import Presence
from andon.serve.problem import Problem, missing, unprocessable
from andon.serve.settings import Settings
from andon.serve.shape import OnDisconnect


class Desk:
    """One for each app of a server, and reached by `InDesk` in a route."""

    def __init__(
        self,
        office: Office,
        agents: Mapping[str, Agent],
        *,
        settings: Settings,
        authority: Authority | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.office = office
        self.agents = agents
        self.settings = settings
        self.authority: Authority = authority or Anybody()
        self.worker = worker
        self.streams: Counter[str] = Counter()
        self.presence = Presence(office)

    @contextmanager
    def streaming(self, who: Who) -> Generator[None]:
        """Count a stream, for as long as it is open; too many of one user are refused."""
        most = self.settings.streams_per_user
        if self.streams[who.name] >= most:
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{who.name} has {most} streams open, which is the most: close one, then try again",
            )
        self.streams[who.name] += 1
        try:
            yield
        finally:
            self.streams[who.name] -= 1
            if not self.streams[who.name]:
                del self.streams[who.name]

    def key(self, who: Who, app: str, user: str, session: str) -> Key:
        """Name a session; somebody else's is not there."""
        try:
            key = Key(app, user, session)
        except ValueError as error:
            raise unprocessable(str(error)) from error
        if not who.reaches(user):
            raise missing(f"there is no session {key}: create it first")
        return key

    def check_user(self, who: Who, app: str, user: str) -> None:
        """Refuse a user whom somebody does not reach: nobody is told who there is."""
        if not who.reaches(user):
            raise missing(f"there is no user {user} of app {app} here")

    def check_app(self, app: str) -> None:
        """Refuse an app that nobody here answers for."""
        if app not in self.agents:
            known = ", ".join(sorted(self.agents))
            raise missing(f"there is no app {app!r} here: this server has {known}")

    def grace(self, on_disconnect: OnDisconnect, grace: float | None) -> float | None:
        """Give the seconds for which a run goes on without its client; None is to its end."""
        if on_disconnect == "continue":
            return None
        return self.settings.disconnect_grace if grace is None else grace

    async def row(self, who: Who, run_id: str) -> Row:
        """Tell of a run; somebody else's is not there."""
        row = await self.office.run(run_id)
        if not who.reaches(row.user):
            raise missing(f"there is no run {run_id!r}")
        return row


async def desk_of(connection: HTTPConnection) -> Desk:  # a function that is not async would run in a thread
    """Give the desk of the app that a request came to."""
    return connection.app.state.desk


InDesk = Annotated[Desk, Depends(desk_of)]


async def _anyone(connection: HTTPConnection, desk: InDesk) -> Who:
    return await desk.authority.who(connection)


Anyone = Annotated[Who, Depends(_anyone)]


class May:
    """A dependency: whoever asks has this scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Scope = scope

    async def __call__(self, who: Anyone) -> Who:
        """Let them pass, or refuse them."""
        who.check(self.scope)
        return who


Runner = Annotated[Who, Depends(May("run"))]
Canceller = Annotated[Who, Depends(May("cancel"))]
Reader = Annotated[Who, Depends(May("read"))]
Admin = Annotated[Who, Depends(May("admin"))]


async def _open(who: Anyone, desk: InDesk) -> AsyncGenerator[None]:
    with desk.streaming(who):
        yield


Open = Annotated[None, Depends(_open)]
