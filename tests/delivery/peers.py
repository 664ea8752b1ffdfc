"""Servers that answer exactly what a test says, well-behaved or not."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Request(NamedTuple):
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


class Connection:
    """A server's end of one connection."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.number = number
        self._reader = reader
        self._writer = writer

    async def request(self) -> Request:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("ascii")
        first, *lines = head[:-4].split("\r\n")
        method, path, version = first.split(" ")
        assert version == "HTTP/1.1"
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        length = next(value for name, value in headers if name.lower() == "content-length")
        return Request(method, path, headers, await self._reader.readexactly(int(length)))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def until_closed(self) -> None:
        """Read on until the client has gone."""
        while await self._reader.read(65_536):
            pass

    async def rest(self) -> bytes:
        """All that is still to come, however it ends."""
        received = bytearray()
        with suppress(OSError):
            while data := await self._reader.read(65_536):
                received += data
        return bytes(received)

    def say_no_more(self) -> None:
        """Send the end of this side's stream, and leave the other's open."""
        self._writer.write_eof()

    def reset(self) -> None:
        self._writer.transport.abort()


Script = Callable[[Connection], Awaitable[None]]


class Peer:
    """A listening server that runs `script` for each connection, then closes it."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.connections = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/", *, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._script(Connection(self.connections, reader, writer))
        except asyncio.CancelledError:
            pass  # The test is over.
        finally:
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def serving(
    script: Script,
    *,
    host: str = "127.0.0.1",
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[Peer]:
    peer = Peer(script)
    server = await asyncio.start_server(peer.accept, host, 0, ssl=ssl_context, backlog=1_024)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        await peer.stop()


def answering(*answers: bytes) -> Script:
    """Each request on a connection gets the next of the answers, then the connection ends."""

    async def script(connection: Connection) -> None:
        for answer in answers:
            await connection.request()
            await connection.send(answer)

    return script


async def answering_ok(connection: Connection) -> None:
    """200 to everything, for as long as the client stays."""
    while True:
        await connection.request()
        await connection.send(OK)


async def silent(connection: Connection) -> None:
    await connection.until_closed()
