"""One connection, the request that is out on it, and the bounds of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct, field

from duetime.callback import Target
from duetime.delivery.causes import describe
from duetime.retry import NOT_SENT, Answer

if TYPE_CHECKING:
    from duetime.delivery.client import HttpClient

HEADERS_BYTES_MAX = 32_768
"""Of one answer, interim answers included."""
INTERIM_ANSWERS_MAX = 16
FRAMING_FACTOR_MAX = 8
"""How much longer than its content a body may be on the wire: chunks of one byte need six."""
WRITE_BYTES_MAX = 65_536
"""Of one write: what the transport holds of a large request stays about this small."""

Done = Callable[[Answer], None]


class Exchange(Struct, eq=False):
    """One request, and whoever is at work on it: a task that connects, or a connection."""

    target: Target
    request: bytes
    timeout_s: float
    done: Done
    stands: Callable[[], bool]
    resend_until: float = 0.0
    """Until when, in the loop's time, a connection lost without a byte is no answer."""
    holder: Connection | asyncio.Task[None] | None = None
    watch: set[Exchange] = field(default_factory=set)
    """Where its deadline is kept; what is taken out of there never expires."""


class Connection(asyncio.Protocol):
    """One connection to a checked address, and the exchange under way on it."""

    def __init__(self, client: HttpClient, exchange: Exchange, peer: str) -> None:
        self._client = client
        self._exchange: Exchange | None = exchange
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._unsent = memoryview(b"")
        self._paused = False
        self.origin = exchange.target.origin
        self.idle_since = 0

    def begin(self, exchange: Exchange) -> None:
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
        self._is_out = False
        self._client.send_soon(self)

    def send_now(self) -> None:
        """Write the request of the exchange that was begun, if that still stands."""
        exchange = self._exchange
        if exchange is None:
            return
        if not exchange.stands():
            self._exchange = None
            self._client.idle(self)
            self._client.finish(exchange, NOT_SENT)
            return
        self._is_out = True
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

    def _settle(self, exchange: Exchange) -> None:
        """The status is known, and as much of the body as may be."""
        status, body, error = self._status, b"", None
        if self._room >= 0:
            body = b"".join(self._body)
        else:
            error = self._excess()
        if not 200 <= status <= 299:
            error = f"HTTP {status} from {exchange.target.shown}"
        self._exchange = None
        if self._keep and self._is_sent():
            self._client.idle(self)
        else:
            self.drop()
        self._client.finish(exchange, Answer(status, body, error))

    def _is_sent(self) -> bool:
        assert self._transport is not None
        return self._is_out and not self._unsent and self._transport.get_write_buffer_size() == 0

    def _fail(self, exchange: Exchange, error: str) -> None:
        self.drop()
        self._client.fail(exchange, error)

    def _ended(self, error: Exception | None) -> None:
        exchange = self._exchange
        self.drop()
        if exchange is None:
            return
        if not self._received and self._client.may_resend(exchange):
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
