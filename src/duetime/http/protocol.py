"""HTTP/1.1 on one connection: uvicorn's protocol, with bounds on what a stranger may cost us.

uvicorn bounds neither the head of a request, nor how slowly it may come, nor how many requests
are sent ahead, and answers what is not HTTP in a shape of its own, before the requests that
came first. So here:

- a head has HEAD_BYTES_MAX and HEADERS_MAX, and HEAD_S_MAX from its first byte to its last;
- a connection that says nothing, be it from its first moment, is closed after the keep-alive;
- of requests sent ahead only a few kilobytes are parsed at a time, the rest waits unread;
- an answer that nobody reads is given up after UNREAD_S_MAX;
- what is refused here is answered in its surface's shape, after all that came before it;
- a client that has said all it wanted (half-closed) still gets its answers;
- a server that is about to stop says so with its answers, so that the next request goes elsewhere;
- `Upgrade` is ignored, body and all: Java's client and `curl --http2` send it unasked;
- trailers are ignored: after the body it is too late for a key.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from duetime.errors import RequestError, Unavailable
from duetime.http.cork import Cork
from duetime.http.problems import HeadTooLarge, HeadTooSlow, Refusal

if TYPE_CHECKING:
    from duetime.http.app import App

HEAD_BYTES_MAX = 65_536
HEADERS_MAX = 128
HEAD_S_MAX = 20.0
UNREAD_S_MAX = 120.0
# Two hundred of the smallest requests fit into this. Each costs a hundred times its size, and
# whatever is parsed at once is answered at once, before the loop turns to a timer.
PARSED_BYTES = 4_096
# To close with bytes unread is to reset the connection, and the answer may be lost with it.
LINGER_S = 2.0


class _Flow(FlowControl):
    """Reading goes on only when nothing that was read still waits."""

    def __init__(self, protocol: "Protocol", transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        if not self._protocol.pipeline and not self._protocol.unparsed:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection. `limit_concurrency` of its configuration bounds their number."""

    def __init__(
        self, *args: Any, stops: Callable[[], bool] = lambda: False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._stops = stops
        # uvicorn would count requests too, and answer in a shape of its own.
        self._connections_max, self.limit_concurrency = self.limit_concurrency, None
        self.unparsed = b""
        self._in_message = False
        self._in_head = False
        self._head_bytes = 0  # What the lines so far hold, for the bound on whole heads.
        self._head_bytes_read = 0  # What was read for it, for the bound on unfinished lines.
        self._replaying = False
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._refused: RequestError | None = None
        self._half_closed = False
        self._slow: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # -- the connection -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._cork = Cork(transport, self.loop)
        super().connection_made(self._cork)
        self.flow = _Flow(self, self._cork)
        if self._connections_max is not None and len(self.connections) > self._connections_max:
            self._write_problem(Unavailable("there are too many connections"))
            self.transport.close()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget_requests()
        self._unset_keepalive_if_required()
        self.unparsed = b""
        for timer in (self._slow, self._unread):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._refused is not None:
            return  # Read and forgotten, so that the sender gets to see why.
        if self.unparsed:
            self.unparsed += data
        else:
            self._parse_by_parts(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep our half open: while there is something to answer on it."""
        self._half_closed = True
        self._drop_unfinished()
        self._cork.flush()  # If we do not keep it open, the loop closes it without asking.
        return bool(self._unanswered)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    # -- parsing ------------------------------------------------------------------------

    def _parse_by_parts(self, data: bytes) -> None:
        for at in range(0, len(data), PARSED_BYTES):
            if self.pipeline:
                self.unparsed = data[at:]
                self.flow.pause_reading()
                break
            self._parse(data[at : at + PARSED_BYTES])
            if self._refused is not None or self.transport.is_closing():
                break
        if self._half_closed:
            self._drop_unfinished()
        self._watch()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay_with_http_1_1(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause
                if isinstance(cause, HeadTooLarge)
                else Refusal("the request is not valid HTTP/1.1")
            )
        if self._in_head:
            self._head_bytes_read += len(data)
            if self._head_bytes_read > HEAD_BYTES_MAX + PARSED_BYTES:
                self._refuse(HeadTooLarge())

    def _stay_with_http_1_1(self, rest: bytes) -> None:
        """The parser has taken leave at an Upgrade: a new one reads the body and what follows."""
        framing = [
            b"%b: %b\r\n" % header
            for header in self.headers
            if header[0] in (b"content-length", b"transfer-encoding")
        ]
        self.parser = httptools.HttpRequestParser(self)
        self._replaying = True
        self.parser.feed_data(b"".join([b"POST / HTTP/1.1\r\n", *framing, b"\r\n"]))
        self._replaying = False
        if rest:
            self._parse(rest)

    def on_message_begin(self) -> None:
        if not self._replaying:
            super().on_message_begin()
            self._in_message = self._in_head = True
            self._head_bytes = self._head_bytes_read = 0

    def on_url(self, url: bytes) -> None:
        if not self._replaying:
            self._count(url, b"")
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._replaying:
            self._count(name, value)
            if self._in_head:
                super().on_header(name, value)

    def _count(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > HEAD_BYTES_MAX or len(self.headers) >= HEADERS_MAX:
            raise HeadTooLarge

    def on_headers_complete(self) -> None:
        if not self._replaying:
            super().on_headers_complete()
            self._in_head = False
            self._unanswered.append(self.cycle)
            if self._stops():
                self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():  # Else its body is still to come.
            self._in_message = False
            super().on_message_complete()

    # -- answering ----------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.unparsed and not self.pipeline:
            rest, self.unparsed = self.unparsed, b""
            self._parse_by_parts(rest)
            self.flow.resume_reading()
        if not self._unanswered:
            if self._refused is not None:
                self._answer_refused(self._refused)
            elif self._half_closed:
                self.transport.close()
            elif self._in_message:
                self._watch()

    def _refuse(self, error: RequestError) -> None:
        """Answer this, after all requests before it, and close."""
        if self._refused is not None:
            return
        self._refused = error
        self.unparsed = b""
        self._unset_keepalive_if_required()
        if self._in_message and not self._in_head:
            if self.cycle.response_started:  # Nothing can be added to that answer.
                self.transport.close()
                return
            self._drop_unfinished()
        if not self._unanswered:
            self._answer_refused(error)

    def _drop_unfinished(self) -> None:
        """The newest request will never be whole: it was handed on, but gets no answer there."""
        handed_on = self._in_message and not self._in_head
        if handed_on and not self.unparsed and self.cycle in self._unanswered:
            _forget(self._unanswered.pop())
            if self.pipeline:
                self.pipeline.popleft()

    def _forget_requests(self) -> None:
        """Nobody is left to be answered. uvicorn tells this to the newest request only."""
        for cycle in self._unanswered:
            _forget(cycle)

    def _answer_refused(self, error: RequestError) -> None:
        self._write_problem(error)
        if self._half_closed:
            self.transport.close()
        else:
            self.transport.write_eof()
            self._slow = self.loop.call_later(LINGER_S, self.transport.abort)

    def _write_problem(self, error: RequestError) -> None:
        path = self.url.partition(b"?")[0].decode("latin-1") if self._in_message else ""
        answer = cast("App", self.app).problem(path, error)
        headers = [
            *self.server_state.default_headers,
            *answer.headers,
            (b"content-type", answer.content_type),
            (b"content-length", b"%d" % len(answer.body)),
            (b"connection", b"close"),
        ]
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[answer.status], *lines, b"\r\n", answer.body]))

    # -- time ---------------------------------------------------------------------------

    def _watch(self) -> None:
        """After something was read: the rest of a request that has begun has its time."""
        if self._refused is not None:
            return
        if self._unanswered:
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None
        elif self._slow is None:
            self._slow = self.loop.call_later(HEAD_S_MAX, self._too_slow)

    def _too_slow(self) -> None:
        if self._unanswered or self.transport.is_closing():
            return
        if self._in_head:
            self._refuse(HeadTooSlow())
        else:  # The body of a request that was refused before it, or blank lines.
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()


def _forget(cycle: RequestResponseCycle) -> None:
    cycle.disconnected = True
    cycle.message_event.set()
