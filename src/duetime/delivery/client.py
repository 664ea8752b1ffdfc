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

from duetime.callback import Target
from duetime.delivery.causes import describe
from duetime.delivery.connection import Connection, Done, Exchange
from duetime.delivery.deadlines import Deadlines
from duetime.delivery.guard import AddressGuard
from duetime.retry import Answer

IDLE_CONNECTIONS_MAX = 1_000
IDLE_S = 15.0
"""A connection is closed when it was idle for this long, and up to half as long again."""
RESEND_S = 1.0
"""A server's close of an idle connection that crosses our request is seen within a round trip.
What closes later had the request, and may have acted on it: sent again, it would be a duplicate."""


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
        self._deadlines: Deadlines[Exchange] = Deadlines(self._loop, self._expire)
        self._idle: dict[str, deque[Connection]] = {}
        self._idle_count = 0
        self._outbox: list[Connection] = []
        self._round = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._connections: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self.closed = False

    def send(
        self,
        target: Target,
        request: bytes,
        timeout_s: float,
        done: Done,
        *,
        stands: Callable[[], bool],
    ) -> None:
        """Send the request's bytes as they are; `done` gets the answer, never from in here.

        A status with an error beside it is an answer that is not the whole of its body, or
        not a 2xx one. All of it, from name to last byte, has `timeout_s`. If it does not stand
        any more when the first byte is to go out, none does: then the answer is `NOT_SENT`.
        """
        if self.closed:
            return
        exchange = Exchange(target, request, timeout_s, done, stands)
        exchange.watch = self._deadlines.add(exchange, timeout_s)
        waiting = self._idle.get(target.origin)
        if waiting:
            self._idle_count -= 1
            exchange.resend_until = self._loop.time() + RESEND_S
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

    def opened(self, connection: "Connection") -> None:
        self._connections.add(connection)

    def send_soon(self, connection: "Connection") -> None:
        """Have the connection send at the end of this turn of the loop, with all others.

        One by one, each request would wake a receiver that has just gone to sleep again;
        sent together, they cost both sides a third less.
        """
        if not self._outbox:
            self._loop.call_soon(self._send_all)
        self._outbox.append(connection)

    def _send_all(self) -> None:
        outbox, self._outbox = self._outbox, []
        for connection in outbox:
            connection.send_now()

    def lost(self, connection: "Connection") -> None:
        self._connections.discard(connection)
        waiting = self._idle.get(connection.origin)
        if waiting and connection in waiting:
            waiting.remove(connection)
            self._idle_count -= 1

    def idle(self, connection: "Connection") -> None:
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

    def finish(self, exchange: Exchange, answer: Answer) -> None:
        exchange.watch.discard(exchange)
        exchange.holder = None
        exchange.done(answer)

    def fail(self, exchange: Exchange, error: str) -> None:
        self.finish(exchange, Answer(0, b"", error))

    def may_resend(self, exchange: Exchange) -> bool:
        return self._loop.time() < exchange.resend_until

    def resend(self, exchange: Exchange) -> None:
        """Once, on a fresh connection: the server had closed the reused one, unread."""
        exchange.resend_until = 0.0
        self._connect(exchange)

    # Connecting.

    def _connect(self, exchange: Exchange) -> None:
        task = self._loop.create_task(self._open(exchange))
        exchange.holder = task
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _open(self, exchange: Exchange) -> None:
        """Connect to the first checked address that answers; the connection begins by itself."""
        target = exchange.target
        peer = f"{target.host}:{target.port}"
        try:
            addresses = await self._guard.resolve(target.host)
            for tried, address in enumerate(addresses, 1):
                peer = (
                    f"[{address}]:{target.port}" if ":" in address else f"{address}:{target.port}"
                )
                left = len(addresses) - tried
                # A dead address may not use up the time of the others; the last has it all.
                share_s = exchange.timeout_s / (left + 1) if left else None
                try:
                    async with asyncio.timeout(share_s):
                        await self._create_connection(exchange, address, peer)
                except OSError as error:
                    if not left or isinstance(error, ssl.SSLError):
                        raise
                else:
                    return
        except Exception as error:  # Whatever it is: the exchange must hear of it.
            self.fail(exchange, describe(error, peer))

    async def _create_connection(self, exchange: Exchange, address: str, peer: str) -> None:
        target = exchange.target
        await self._loop.create_connection(
            lambda: Connection(self, exchange, peer),
            address,
            target.port,
            ssl=self._ssl_context if target.tls else None,
            # A name's final dot is for resolvers; no certificate has it.
            server_hostname=target.host.rstrip(".") if target.tls else None,
            # Never before the deadline, which says it better.
            ssl_handshake_timeout=exchange.timeout_s + 1 if target.tls else None,
        )

    # Time.

    def _expire(self, exchange: Exchange) -> None:
        holder = exchange.holder
        if isinstance(holder, Connection):
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
