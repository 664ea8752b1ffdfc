"""The driver's side of HTTP: prebuilt bytes in, answers out, as little as possible between.

The driver shares the machine with what it measures, so it must cost next to nothing:
requests are built before the clock starts and answers are only looked at, never decoded.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

import httptools


class Response(NamedTuple):
    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """One keep-alive connection to loopback with one request under way at a time."""

    def __init__(self) -> None:
        self._body: list[bytes] = []
        self._waiter: asyncio.Future[Response] | None = None
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, chunk: bytes) -> None:
        self._body.append(chunk)

    def on_message_complete(self) -> None:
        waiter, self._waiter = self._waiter, None
        body, self._body = b"".join(self._body), []
        if waiter is not None and not waiter.done():
            waiter.set_result(Response(self._parser.get_status_code(), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc or ConnectionResetError("closed by the server"))

    def request(self, data: bytes) -> "asyncio.Future[Response]":
        assert self._waiter is None, "one request at a time"
        waiter = asyncio.get_running_loop().create_future()
        if self._lost:
            waiter.set_exception(ConnectionResetError("closed by the server"))
            return waiter
        self._waiter = waiter
        self._transport.write(data)
        return waiter

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    loop = asyncio.get_running_loop()
    opened: list[Connection] = []
    try:
        for _ in range(count):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            connection.close()


async def send_all(port: int, requests: Iterable[bytes], *, callers: int) -> float:
    """Send every request over `callers` connections; the seconds it took.

    Raises at the first answer that is not 2xx or whose batch holds a refused item.
    """
    queue = iter(requests)

    async def call(connection: Connection) -> None:
        for request in queue:
            status, body = await connection.request(request)
            if not 200 <= status < 300 or b'"error":' in body:
                raise RuntimeError(f"answered {status}: {body[:500]!r}")

    async with connections(port, callers) as opened:
        started = time.perf_counter()  # uvloop's own clock moves in whole milliseconds.
        async with asyncio.TaskGroup() as group:
            for connection in opened:
                group.create_task(call(connection))
        return time.perf_counter() - started


def post(path: str, body: bytes, key: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str, key: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {key}\r\n\r\n".encode()
