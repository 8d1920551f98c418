"""One TCP connection: reads requests, performs their answers, and sees the client leave at once."""

import asyncio
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import assert_never, cast

from andon.testing.provider.desk import Desk
from andon.testing.provider.play import Head, Pause, Send, Step
from andon.testing.provider.script import Drop, Stall
from andon.testing.provider.wire import LAST_CHUNK, LIMIT, chunk, head, read_request

_TURN = 64
"""Chunks of a burst after which other connections get their turn."""


class Connection(asyncio.StreamReaderProtocol):
    """Streams on top of a protocol of ours.

    The protocol hears of a close as the loop does, also while the exchange stalls or waits for a slow
    reader; it writes it down there and then, and cancels the exchange.
    """

    def __init__(self, number: int, desk: Desk, tasks: asyncio.TaskGroup) -> None:
        self._number, self._desk, self._owner = number, desk, tasks
        self._exchange: int | None = None
        self._serving: asyncio.Task[None] | None = None
        self._wire: asyncio.WriteTransport | None = None
        self._ours = False
        self._released = asyncio.Event()
        self._chunked = False
        self._chunks = self._stalls = 0
        super().__init__(asyncio.StreamReader(limit=LIMIT), self._begin)

    def eof_received(self) -> bool | None:
        """See the client close; during an exchange nobody is left to answer."""
        if self._exchange is not None and self._wire is not None:
            self._wire.abort()
        self._gone()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """See the connection end, whoever ended it."""
        self._gone()
        super().connection_lost(exc)

    def release(self, n: int | None) -> None:
        """End the present stall, if it is that exchange's."""
        if n is None or n == self._exchange:
            self._released.set()

    def shut(self) -> None:
        """Close at once, from our side."""
        self._ours = True
        if self._wire is not None:
            self._wire.abort()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._wire = writer.transport
        # Sent means taken by the operating system: nothing waits in our own buffer.
        self._wire.set_write_buffer_limits(high=0)
        self._serving = self._owner.create_task(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A client that leaves has been written down already; here it only ends the loop.
            with suppress(ConnectionError):
                while (raw := await read_request(reader)) is not None:
                    answer = self._desk.receive(raw, self._number)
                    self._exchange = answer.n
                    await self._answer(answer.steps, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, steps: Iterator[Step], writer: asyncio.StreamWriter) -> None:
        self._chunks = self._stalls = 0
        for step in steps:
            match step:
                case Head(status, headers, length):
                    self._chunked = length is None
                    await self._put(writer, head(status, headers, length), {"status": status})
                case Send():
                    await self._send(step, writer)
                case Pause(seconds):
                    await self._pause(seconds)
                case Stall():
                    await self._stall()
                case Drop():
                    self._drop(writer)
                case _:
                    assert_never(step)

    async def _send(self, step: Send, writer: asyncio.StreamWriter) -> None:
        self._chunks += step.chunks
        data = chunk(step.data) if self._chunked else step.data
        changes: dict[str, object] = {"chunks_sent": self._chunks}
        if step.last:
            # In one write: a client may stop reading at the last event, and must not seem to have left early.
            data += LAST_CHUNK if self._chunked else b""
            changes |= {"finished": True, "closed_at": time.monotonic()}
        await self._put(writer, data, changes)
        if step.last:
            self._exchange = None
        elif step.chunks and self._chunks % _TURN == 0:
            await self._pause(0)

    async def _put(self, writer: asyncio.StreamWriter, data: bytes, changes: Mapping[str, object]) -> None:
        """Write and note it in one moment, so that what a client has received is in the log already."""
        with self._desk.log.moment():
            writer.write(data)
            taken = not (writer.transport.get_write_buffer_size() or writer.transport.is_closing())
            if taken:
                self._note(**changes)
        if not taken:
            await writer.drain()
            self._note(**changes)

    async def _stall(self) -> None:
        self._stalls += 1
        self._released.clear()
        self._note(stalls=self._stalls)
        await self._released.wait()

    async def _pause(self, seconds: float) -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, over.set)
        await over.wait()

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        """Reset: closing a socket that does not linger discards what is unsent and sends RST."""
        self._over(dropped=True)
        raw = cast("socket.socket", writer.get_extra_info("socket"))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        raise ConnectionResetError

    def _gone(self) -> None:
        if self._exchange is not None and self._serving is not None:
            self._over(closed_by_client=not self._ours)
            self._serving.cancel()

    def _over(self, **how: bool) -> None:
        self._note(closed_at=time.monotonic(), **how)
        self._exchange = None

    def _note(self, **changes: object) -> None:
        if self._exchange is not None:
            self._desk.log.update(self._exchange, **changes)
