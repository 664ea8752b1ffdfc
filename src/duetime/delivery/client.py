"""A small HTTP/1.1 client: one request at a time on each connection, and no more than that.

It does only what a callback needs, on asyncio's transports with httptools as the parser, and
without a task or a future for a request that finds a connection waiting: that makes it five
times as fast as a general client (decision 0003).

    send -> idle connection -> answer -> idle again
         \\> guard, connect, TLS -/

Every exchange ends in exactly one call of its `done`: with the answer, or with the error that
took its place. Whatever is odd about a connection (an answer that came before the request was
out, bytes that nobody asked for, a deadline) ends the connection with the exchange: no request
ever starts behind the remains of another.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from duetime.callback import Target
from duetime.delivery.causes import describe
from duetime.delivery.deadlines import Deadlines
from duetime.delivery.guard import AddressGuard
from duetime.retry import Answer

HEADERS_BYTES_MAX = 32_768
"""Of one answer, interim answers included."""
INTERIM_ANSWERS_MAX = 16
FRAMING_FACTOR_MAX = 8
"""How much longer than its content a body may be on the wire: chunks of one byte need six."""
WRITE_BYTES_MAX = 65_536
"""Of one write: what the transport holds of a large request stays about this small."""
IDLE_CONNECTIONS_MAX = 1_000
IDLE_S = 15.0
"""A connection is closed when it was idle for this long, and up to half as long again."""

Done = Callable[[Answer], None]


class _Exchange:
    """One request, and whoever is at work on it: a task that connects, or a connection."""

    __slots__ = ("done", "holder", "request", "resendable", "target", "tick", "timeout_s")

    def __init__(self, target: Target, request: bytes, timeout_s: float, done: Done) -> None:
        self.target = target
        self.request = request
        self.timeout_s = timeout_s
        self.done = done
        self.tick = 0
        self.resendable = False
        self.holder: _Connection | asyncio.Task[None] | None = None


class HttpClient:
    """Made and used on one event loop. Bounds on what is in flight are the caller's."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        ssl_context: ssl.SSLContext,
        response_bytes_max: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._ssl_context = ssl_context
        self.response_bytes_max = response_bytes_max
        self._deadlines: Deadlines[_Exchange] = Deadlines(self._loop, self._expire)
        self._idle: dict[str, deque[_Connection]] = {}
        self._idle_count = 0
        self._round = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._connections: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self.closed = False

    def send(self, target: Target, request: bytes, timeout_s: float, done: Done) -> None:
        """Send the request's bytes as they are; `done` gets the answer, never from in here.

        A status with an error beside it is an answer that is not the whole of its body, or
        not a 2xx one. All of it, from name to last byte, has `timeout_s`.
        """
        if self.closed:
            return
        exchange = _Exchange(target, request, timeout_s, done)
        exchange.tick = self._deadlines.add(exchange, timeout_s)
        waiting = self._idle.get(target.origin)
        if waiting:
            self._idle_count -= 1
            exchange.resendable = True
            waiting.pop().begin(exchange)
        else:
            self._connect(exchange)

    async def close(self) -> None:
        """Drop everything; no `done` is called any more."""
        self.closed = True
        self._deadlines.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._idle.clear()
        for connection in tuple(self._connections):
            connection.drop()
        connecting = tuple(self._connecting)
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        # The transports close their sockets in the loop's next round.
        await asyncio.sleep(0)

    # What connections tell.

    def opened(self, connection: "_Connection") -> None:
        self._connections.add(connection)

    def lost(self, connection: "_Connection") -> None:
        self._connections.discard(connection)
        waiting = self._idle.get(connection.origin)
        if waiting and connection in waiting:
            waiting.remove(connection)
            self._idle_count -= 1

    def idle(self, connection: "_Connection") -> None:
        """Keep the connection for the next request to the same origin, newest first."""
        if self._idle_count >= IDLE_CONNECTIONS_MAX or self.closed:
            connection.drop()
            return
        connection.idle_since = self._round
        waiting = self._idle.get(connection.origin)
        if waiting is None:
            waiting = self._idle[connection.origin] = deque()
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(IDLE_S / 2, self._sweep)
        waiting.append(connection)
        self._idle_count += 1

    def finish(self, exchange: _Exchange, answer: Answer) -> None:
        self._deadlines.discard(exchange, exchange.tick)
        exchange.holder = None
        if not self.closed:
            exchange.done(answer)

    def fail(self, exchange: _Exchange, error: str) -> None:
        self.finish(exchange, Answer(0, b"", error))

    def resend(self, exchange: _Exchange) -> None:
        """Once, on a fresh connection: the server had closed the reused one, unread."""
        exchange.resendable = False
        self._connect(exchange)

    # Connecting.

    def _connect(self, exchange: _Exchange) -> None:
        if self.closed:
            return
        task = self._loop.create_task(self._open(exchange))
        exchange.holder = task
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _open(self, exchange: _Exchange) -> None:
        """Connect to the first checked address that answers; the connection begins by itself."""
        target = exchange.target
        peer = f"{target.host}:{target.port}"
        try:
            addresses = await self._guard.resolve(target.host)
            for tried, address in enumerate(addresses, 1):
                peer = (
                    f"[{address}]:{target.port}" if ":" in address else f"{address}:{target.port}"
                )
                try:
                    # A dead address may not use up the time of the others.
                    async with asyncio.timeout(exchange.timeout_s / (len(addresses) - tried + 1)):
                        await self._create_connection(exchange, address, peer)
                except OSError as error:
                    if tried == len(addresses) or isinstance(error, ssl.SSLError):
                        raise
                else:
                    return
        except Exception as error:  # Whatever it is: the exchange must hear of it.
            self.fail(exchange, describe(error, peer))

    async def _create_connection(self, exchange: _Exchange, address: str, peer: str) -> None:
        target = exchange.target
        await self._loop.create_connection(
            lambda: _Connection(self, exchange, peer),
            address,
            target.port,
            ssl=self._ssl_context if target.tls else None,
            # A name's final dot is for resolvers; no certificate has it.
            server_hostname=target.host.rstrip(".") if target.tls else None,
            ssl_handshake_timeout=exchange.timeout_s if target.tls else None,
        )

    # Time.

    def _expire(self, exchange: _Exchange) -> None:
        holder = exchange.holder
        if isinstance(holder, _Connection):
            holder.drop()
        elif holder is not None:
            holder.cancel()
        self.fail(exchange, f"timed out after {exchange.timeout_s:g} s")

    def _sweep(self) -> None:
        self._round += 1
        for origin, waiting in tuple(self._idle.items()):
            while waiting and waiting[0].idle_since <= self._round - 3:
                waiting[0].drop()
            if not waiting:
                del self._idle[origin]
        self._sweeper = self._loop.call_later(IDLE_S / 2, self._sweep) if self._idle else None


class _Connection(asyncio.Protocol):
    """One connection to a checked address, and the exchange under way on it."""

    def __init__(self, client: HttpClient, exchange: _Exchange, peer: str) -> None:
        self._client = client
        self._exchange: _Exchange | None = exchange
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._unsent = memoryview(b"")
        self._paused = False
        self.origin = exchange.target.origin
        self.idle_since = 0

    def begin(self, exchange: _Exchange) -> None:
        """Send the exchange's request; what comes back is its answer."""
        exchange.holder = self
        self._exchange = exchange
        self._status = 0
        self._interim = 0
        self._framed = False
        self._answered = False
        self._keep = False
        self._body: list[bytes] = []
        self._room = self._client.response_bytes_max
        self._received = 0
        self._received_max = HEADERS_BYTES_MAX
        request = exchange.request
        assert self._transport is not None
        if len(request) <= WRITE_BYTES_MAX:
            self._transport.write(request)
        else:
            self._unsent = memoryview(request)
            self._write_on()

    def drop(self) -> None:
        """End the connection at once. Its exchange is for the caller to finish."""
        self._exchange = None
        self._parser = None  # It refers back to us: only the collector would free the two.
        self._unsent = memoryview(b"")
        self._client.lost(self)
        if self._transport is not None:
            self._transport.abort()

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        exchange = self._exchange
        if self._client.closed or exchange is None or exchange.holder is None:
            self.drop()  # Its time was up while we connected.
            return
        self._client.opened(self)
        self.begin(exchange)

    def data_received(self, data: bytes) -> None:
        exchange, parser = self._exchange, self._parser
        if exchange is None or parser is None:
            self.drop()  # Nobody asked.
            return
        self._received += len(data)
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail(exchange, f"HTTP 101 from {exchange.target.shown}")
            return
        except HttpParserError as error:
            self._keep = False
            if not self._answered:
                self._fail(exchange, f"malformed HTTP answer: {error}")
                return
        if self._answered or self._room < 0:
            self._settle(exchange)
        elif self._interim > INTERIM_ANSWERS_MAX:
            self._fail(exchange, f"more than {INTERIM_ANSWERS_MAX} interim answers")
        elif self._received > self._received_max:
            self._fail(exchange, self._excess())

    def eof_received(self) -> None:
        # Not left to the transport: it would first try to send what is still unsent.
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write_on()

    # From the parser.

    def on_message_begin(self) -> None:
        if self._answered:
            raise HttpParserError("bytes after the answer")

    def on_header(self, name: bytes, _value: bytes) -> None:
        if len(name) in (14, 17) and name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            self._interim += 1
            self._framed = False
        else:
            self._status = status
            self._received_max += FRAMING_FACTOR_MAX * self._room

    def on_body(self, body: bytes) -> None:
        self._room -= len(body)
        if self._room >= 0:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._status:
            assert self._parser is not None
            self._answered = True
            self._keep = self._parser.should_keep_alive()

    # What follows from it.

    def _write_on(self) -> None:
        while self._unsent and not self._paused:
            piece = self._unsent[:WRITE_BYTES_MAX]
            self._unsent = self._unsent[WRITE_BYTES_MAX:]
            assert self._transport is not None
            self._transport.write(piece)

    def _settle(self, exchange: _Exchange) -> None:
        """The status is known, and as much of the body as may be."""
        status, body, error = self._status, b"", None
        if self._room >= 0:
            body = b"".join(self._body)
        else:
            error = self._excess()
        if not 200 <= status <= 299:
            error = f"HTTP {status} from {exchange.target.shown}"
        self._exchange = None
        if self._keep and self._room >= 0 and self._is_sent():
            self._client.idle(self)
        else:
            self.drop()
        self._client.finish(exchange, Answer(status, body, error))

    def _is_sent(self) -> bool:
        assert self._transport is not None
        return not self._unsent and self._transport.get_write_buffer_size() == 0

    def _fail(self, exchange: _Exchange, error: str) -> None:
        self.drop()
        self._client.fail(exchange, error)

    def _ended(self, error: Exception | None) -> None:
        exchange = self._exchange
        self.drop()
        if exchange is None:
            return
        if not self._received and exchange.resendable:
            self._client.resend(exchange)
        elif not self._received:
            self._client.fail(
                exchange,
                f"connection closed by {self._peer} without an answer"
                if error is None
                else describe(error, self._peer),
            )
        elif self._status and not self._framed and error is None:
            self._settle(exchange)  # A body without a length ends where the connection does.
        else:
            self._client.fail(exchange, "connection closed before the answer was complete")

    def _excess(self) -> str:
        if not self._status:
            return f"response headers above {HEADERS_BYTES_MAX} bytes"
        return f"response body above {self._client.response_bytes_max} bytes"
