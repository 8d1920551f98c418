"""Server: listens, works on sessions, and leaves in order: nothing is lost, and nobody is cancelled."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from socket import AF_INET, AF_INET6, IPPROTO_TCP, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from types import FrameType

import anyio
import uvicorn
from anyio import to_thread

from andon.errors import UserError
from andon.ports import Substrate
from andon.runtime.agent import Agent
from andon.runtime.bell import Bell
from andon.runtime.office import Office
from andon.runtime.retention import Retention, keep_sweeping
from andon.runtime.worker import Worker
from andon.serve.app import create_app
from andon.serve.auth import check_bind
from andon.serve.presence import Presence
from andon.serve.settings import Settings
from andon.serve.tokens import authority_of

BACKLOG = 2_048
TICK = 1.0  # seconds between two looks at the clock, for the Date of answers
LEAVE_WITHIN = 5  # seconds that answers under way have once all streams were told to end


class Server(uvicorn.Server):
    """Uvicorn's, which lets the worker hand its sessions over before it stops to listen."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket,
        office: Office,
        worker: Worker,
        presence: Presence,
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._bell = Bell()
        self._signals = 0
        self._worked = False
        self.office = office
        self.worker = worker
        self.presence = presence
        self.ready = anyio.Event()
        self.gone = anyio.Event()

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        host, port = self._listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def listen(self) -> None:
        """Answer until it is told to leave."""
        try:
            await self.serve([self._listener])
        finally:
            self.gone.set()

    async def work(self) -> None:
        """Let the worker work."""
        try:
            await self.worker.run()
        finally:
            self._worked = True
            self._bell.ring()

    def leave(self) -> None:
        """Begin to leave; when told again, go at once."""
        self._signals += 1
        self.should_exit = True
        self.force_exit = self._signals > 1
        self._bell.ring()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Leave at a signal, which is no failure: uvicorn would raise it again afterwards."""
        _ = sig, frame
        self.leave()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait until it is told to leave; uvicorn's own looks ten times a second."""
        while not self.should_exit:
            await self.on_tick(0)
            with anyio.move_on_after(TICK):
                await self._bell.wait(lambda: self.should_exit)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Hand the sessions over, end the streams, and listen no more."""
        self.presence.close()
        self.worker.drain()
        while not (self._worked or self.force_exit):
            await self._bell.wait(lambda: self._worked or self.force_exit)
        self.office.close()
        await super().shutdown(sockets)


@asynccontextmanager
async def serving(
    agents: Mapping[str, Agent], substrate: Substrate, settings: Settings | None = None
) -> AsyncGenerator[Server]:
    """Serve agents by the names of their apps for as long as this is entered.

    The substrate is opened here, and closed when all is over.
    """
    settings = settings or Settings()
    check_bind(settings)
    retention = Retention(age=settings.keep_for, count=settings.keep_sessions)
    authority = await to_thread.run_sync(authority_of, settings)
    with listen(settings) as listener:
        async with substrate:
            office = Office(substrate)
            worker = Worker(
                agents,
                substrate=substrate,
                concurrency=settings.concurrency,
                drain_grace=settings.drain_grace,
            )
            app = create_app(office, agents, settings, worker=worker, authority=authority)
            server = Server(config_of(app, settings), listener, office, worker, app.state.desk.presence)
            async with _listening(server, retention):
                yield server


@asynccontextmanager
async def _listening(server: Server, retention: Retention) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(keep_sweeping, server.office, retention)
        group.start_soon(server.work)
        group.start_soon(server.listen)
        await server.ready.wait()
        try:
            yield
        finally:
            if not server.should_exit:
                server.leave()
            with anyio.CancelScope(shield=True):
                await server.gone.wait()
            group.cancel_scope.cancel()


async def serve(
    agents: Mapping[str, Agent],
    substrate: Substrate,
    settings: Settings | None = None,
    *,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve agents until a signal comes; `started` is told the URL where it listens."""
    async with serving(agents, substrate, settings) as server:
        if started is not None:
            started(server.address)
        await server.gone.wait()


def listen(settings: Settings) -> socket:
    """Listen where the settings say; port 0 is any that is free."""
    # The protocol is named: asyncio sends small answers at once only where it sees that it is TCP.
    listener = socket(AF_INET6 if ":" in settings.host else AF_INET, SOCK_STREAM, IPPROTO_TCP)
    try:
        listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        msg = f"it cannot listen on {settings.host}:{settings.port} ({error.strerror}): choose another port"
        raise UserError(msg) from error
    return listener


def config_of(app: object, settings: Settings) -> uvicorn.Config:
    """Make uvicorn's configuration; it logs no requests, as these name users."""
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        ws_max_size=settings.max_body,
        timeout_graceful_shutdown=LEAVE_WITHIN,
    )
