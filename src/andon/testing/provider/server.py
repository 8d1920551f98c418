"""The fake provider itself: a thread of its own, a port, a script and a log."""

import asyncio
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakSet

from andon.testing.provider.connection import Connection
from andon.testing.provider.desk import Desk, Script
from andon.testing.provider.log import Exchange, Log, Waitable
from andon.testing.provider.script import Part, Reply, Usage

_Found = TypeVar("_Found")
_BACKLOG = 512


class FakeProvider:
    """OpenAI (Chat Completions, Responses) and Anthropic (Messages) on a local port, as a test wants them.

    ```python
    with FakeProvider() as provider:                       # or `async with`
        provider.reply(Text("Let me "), Stall(), Text("look."), ToolCall("search", {"query": "cord"}))
        ...                                                # point a client to provider.openai_url
        provider.stalled(1).wait()                         # or `await provider.stalled(1)`
        provider.release()
        assert provider.closed(1).wait().finished
    ```

    It observes from outside: a thread and a loop of its own, so that what it saw is true even if the loop
    under test hangs. What a client has received is in the log already, unless it reads so slowly that
    it is waited for.

    Requests are answered by the queued replies, first in, first out; then by the script given to `respond`;
    then by an echo. What it refuses, as the real providers do (a missing key, bad JSON, and if `strict` a
    conversation that is not valid), is logged but takes no reply from the queue.

    Waits fail with `TimeoutError` after `patience` real seconds, whatever clock the test runs on, and say
    what was seen instead.
    """

    def __init__(self, *, strict: bool = True, patience: float = 10.0) -> None:
        self._log = Log()
        self._desk = Desk(self._log, strict=strict)
        self._patience = patience
        self._port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: WeakSet[Connection] = WeakSet()
        self._numbers = count(1)
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._ended: Future[None] = Future()
        # Running, so that a task that is cancelled while it leaves the block does not cancel it.
        self._ended.set_running_or_notify_cancel()

    def __repr__(self) -> str:
        exchanges = f"{len(self.exchanges)} exchanges, {self.open_connections} open"
        return f"<FakeProvider {self.url} [{exchanges}, {len(self._desk.replies)} replies queued]>"

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for Anthropic's clients."""
        return self.url

    @property
    def environment(self) -> dict[str, str]:
        """The variables that point the providers' clients here."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": "sk-fake",
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": "sk-ant-fake",
        }

    def reply(
        self, *parts: Part, headers: Mapping[str, str] | None = None, usage: tuple[int, int] = (10, 5)
    ) -> None:
        """Queue a reply for the next request that has none yet; `usage` is input and output tokens."""
        self._desk.replies.append(Reply(parts, headers or {}, Usage(*usage)))

    def respond(self, script: Script) -> None:
        """Answer every request without a queued reply by a function, called on the provider's thread."""
        self._desk.script = script

    def release(self, n: int | None = None) -> None:
        """End the stall of exchange `n`, or all stalls that stand now."""
        self._running().call_soon_threadsafe(self._release, n)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Everything that was asked, in order, as far as it has come."""
        return self._log.exchanges

    @property
    def open_connections(self) -> int:
        """How many TCP connections are open with an unfinished exchange."""
        return sum(exchange.closed_at is None for exchange in self.exchanges)

    def requested(self, n: int = 1) -> Waitable[Exchange]:
        """Wait until request `n`, counted from 1, has come."""
        return self._exchange(n, lambda _: True)

    def stalled(self, n: int = 1, times: int = 1) -> Waitable[Exchange]:
        """Wait until exchange `n` has stalled for the first time, or so many times."""
        return self._exchange(n, lambda exchange: exchange.stalls >= times)

    def sent(self, n: int = 1, chunks: int = 1) -> Waitable[Exchange]:
        """Wait until exchange `n` has had so many chunks."""
        return self._exchange(n, lambda exchange: exchange.chunks_sent >= chunks)

    def closed(self, n: int = 1) -> Waitable[Exchange]:
        """Wait until exchange `n` is over: finished, closed by the client, or dropped."""
        return self._exchange(n, lambda exchange: exchange.closed_at is not None)

    def until(self, condition: Callable[[tuple[Exchange, ...]], bool]) -> Waitable[tuple[Exchange, ...]]:
        """Wait until the exchanges are as the condition wants them; it is asked again at every change."""
        return self._wait(lambda exchanges: exchanges if condition(exchanges) else None)

    def __enter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._port = int(listening.getsockname()[1])
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name="fake-provider", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._ended.result()
        self._finish(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        try:
            await asyncio.wrap_future(self._ended)
            # The thread is past its last line, but nothing tells of its very end, and to join it may block.
            while self._thread is not None and self._thread.is_alive():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop, no delay
        finally:
            self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        """Let nothing outlive the block: no thread, and no error of a script that nobody has seen."""
        if self._thread is not None:
            self._thread.join()
        self._loop = None
        self._log.close()
        if error is None and self._desk.errors:
            raise self._desk.errors[0]

    def _stop(self) -> None:
        # Refused only by a loop that has ended by itself; the error that ended it is raised next.
        with suppress(RuntimeError):
            self._running().call_soon_threadsafe(self._stopping.set)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(
                "the fake provider is not running: use it inside `with FakeProvider() as provider:`"
            )
        return self._loop

    def _run(self, listening: socket.socket) -> None:
        try:
            with asyncio.Runner(loop_factory=self._running) as runner:
                runner.run(self._serve(listening))
        except BaseException as error:  # noqa: BLE001 - the end of a thread: whoever leaves the block gets the error
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self, listening: socket.socket) -> None:
        async with asyncio.TaskGroup() as tasks:
            server = await self._running().create_server(lambda: self._accept(tasks), sock=listening)
            await self._stopping.wait()
            server.close()
            for connection in tuple(self._connections):
                connection.shut()
        await server.wait_closed()

    def _accept(self, tasks: asyncio.TaskGroup) -> Connection:
        connection = Connection(next(self._numbers), self._desk, tasks)
        self._connections.add(connection)
        return connection

    def _release(self, n: int | None) -> None:
        for connection in tuple(self._connections):
            connection.release(n)

    def _exchange(self, n: int, condition: Callable[[Exchange], bool]) -> Waitable[Exchange]:
        def probe(exchanges: tuple[Exchange, ...]) -> Exchange | None:
            return exchanges[n - 1] if len(exchanges) >= n and condition(exchanges[n - 1]) else None

        return self._wait(probe)

    def _wait(self, probe: Callable[[tuple[Exchange, ...]], _Found | None]) -> Waitable[_Found]:
        future = self._log.when(probe)
        if not future.done():
            self._arm(future)
        return Waitable(future)

    def _arm(self, future: Future[_Found]) -> None:
        """Bound the wait by our own loop's clock: the test's may be virtual."""
        loop = self._running()
        why = f"{self._patience:g} s have passed"
        loop.call_soon_threadsafe(loop.call_later, self._patience, self._log.give_up, future, why)
