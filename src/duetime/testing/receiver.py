"""A receiver of callbacks on loopback: it answers as told and remembers what arrived.

    async with Receiver() as receiver:
        ...  # a timer whose callback goes to receiver.url
        await receiver.until(lambda: len(receiver.requests) == 1)

`python -m duetime.testing.receiver [PORT]` shows each request as it arrives.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import NamedTuple, Self

import click
import httptools

from duetime.clock import SystemClock
from duetime.instants import format_instant


class Request(NamedTuple):
    """One request, its header names in small letters. `at` is when its last byte was in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: int


class Response(NamedTuple):
    """What to answer."""

    status: int = 200
    body: bytes = b'{"ok":true}'


Script = Callable[[Request], Response | Awaitable[Response]]


def ok(_: Request) -> Response:
    """The script of a receiver that is content with everything."""
    return Response()


class Receiver:
    """An HTTP server on 127.0.0.1. `script` is asked for each answer, and may make it wait."""

    def __init__(self, script: Script = ok, *, port: int = 0) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.url = ""
        self._port = port
        self._clock = SystemClock()
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._arrival = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), "127.0.0.1", self._port, backlog=4_096
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.close()
        await self._server.wait_closed()

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
        """Wait until the condition holds, asking anew whenever a request has arrived."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._arrival.clear()
                    await self._arrival.wait()
        except TimeoutError:
            raise TimeoutError(
                f"not so within {timeout_s:g} s, {len(self.requests)} requests arrived"
            ) from None

    def _received(self, request: Request) -> Response | Awaitable[Response]:
        self.requests.append(request)
        self._arrival.set()
        return self.script(request)


class _Connection(asyncio.Protocol):
    """One client; requests are answered one after the other, as HTTP/1.1 has it."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._answering: asyncio.Task[None] | None = None
        self._path = ""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._receiver._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver._connections.discard(self)
        if self._answering is not None:
            self._answering.cancel()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = "", {}, []

    def on_url(self, url: bytes) -> None:
        self._path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        answer = self._receiver._received(
            Request(
                self._parser.get_method().decode(),
                self._path,
                self._headers,
                b"".join(self._body),
                self._receiver._clock.now(),
            )
        )
        keep_alive = self._parser.should_keep_alive()
        if isinstance(answer, Response):
            self._answer(answer, keep_alive)
        else:
            self._answering = asyncio.ensure_future(self._answer_later(answer, keep_alive))

    async def _answer_later(self, answer: Awaitable[Response], keep_alive: bool) -> None:
        self._answer(await answer, keep_alive)

    def _answer(self, response: Response, keep_alive: bool) -> None:
        assert self._transport is not None
        self._transport.write(
            b"HTTP/1.1 %d Answer\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (response.status, len(response.body), response.body)
        )
        if not keep_alive:
            self._transport.close()


def _show(request: Request) -> Response:
    own = {name: value for name, value in request.headers.items() if name.startswith("x-")}
    about = " ".join(f"{name}={value}" for name, value in own.items())
    click.echo(f"{format_instant(request.at)} {request.method} {request.path} {about}")
    click.echo(f"  {request.body.decode('utf-8', 'replace')}")
    return Response()


async def _show_all(port: int) -> None:
    async with Receiver(_show, port=port) as receiver:
        click.echo(f"receiving on {receiver.url}")
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_show_all(int(sys.argv[1]) if len(sys.argv) > 1 else 4000))
    except KeyboardInterrupt:
        sys.exit(0)
