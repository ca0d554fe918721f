"""Run a TCP proxy on the loopback interface, which can delay traffic and reset connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import Self

from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.ports import HOST

CHUNK_BYTES = 65_536
CALL_TIMEOUT_S = 30
# With this linger option, closing a socket sends RST instead of FIN.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """TCP proxy that forwards connections to a local port during a `with` block."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay_s = 0.0
        self.port = 0
        """Port on which the proxy listens."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(CALL_TIMEOUT_S)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(CALL_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()

    def reset_connections(self) -> None:
        """Reset both ends of every connection. Raises WaitTimeoutError if none is open within CALL_TIMEOUT_S."""

        def poll() -> Observation[int]:
            count = asyncio.run_coroutine_threadsafe(self._abort_all(), self._loop).result(CALL_TIMEOUT_S)
            return Observation(count or None, "no connection is open")

        wait_for("a connection to reset", poll, seconds=CALL_TIMEOUT_S, interval=0.1)

    def set_delay(self, seconds: float) -> None:
        """Delay each chunk (at most 64 KiB) in both directions by this time. 0 ends the delay."""
        self._delay_s = seconds

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._start, HOST, 0)

    def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._accept(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        self._server.close()
        await self._abort_all()
        await asyncio.gather(*self._tasks)

    async def _abort_all(self) -> int:
        """Abort both ends of every connection, and return the number of connections."""
        writers = list(self._writers)
        for writer in writers:
            connection: socket.socket = writer.get_extra_info("socket")
            with suppress(OSError):  # the peer may have closed the connection
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()
        return len(writers) // 2

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, target_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._copy(reader, target_writer), self._copy(target_reader, writer))
        finally:
            self._writers -= pair
            for end in pair:
                end.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                writer.write(chunk)
                await writer.drain()
        writer.close()
