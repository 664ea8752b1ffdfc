"""One connection between two nodes, from its handshake to its end. Both sides use this.

What is queued in one turn of the loop goes out together, and so does whatever gathers while
the transport still holds what was written before. Each second a connection that has heard
nothing asks for a sign of life; after three such seconds it is given up: a machine that went
away without a word says nothing for ever. Seconds are counted, not measured: a process that
was frozen itself must not take the others for dead.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from msgspec import Struct

from duetime.cluster import wire
from duetime.cluster.handshake import GREETING_BYTES_MAX, Caller, Listener, Refused, refusal
from duetime.cluster.hints import Hint
from duetime.cluster.peers import Operation, PeerFailed, PeerLost
from duetime.errors import Unavailable

TICK_S = 1.0
SILENT_TICKS_MAX = 3
GREETING_TICKS_MAX = 3
CALL_TICKS_MAX = 30
"""An owner that is alive is waited for this long: its database may be slow."""
CALLS_MAX = 10_000
"""Calls of one connection that wait for their answer; at the bound, further ones are refused
by the caller, and the listener reads no further."""
QUEUED_BYTES_MAX = wire.FRAME_BYTES_MAX
"""What waits to be written; at the bound, further calls are refused."""
WRITE_BYTES = 65_536
"""What the transport holds before we keep the rest to send it together."""


class Host(Protocol):
    """Whose connection it is."""

    def opened(self, connection: "Connection") -> None:
        """The handshake has succeeded."""

    def called(self, connection: "Connection", call: wire.Call) -> None:
        """The other side wants this done; `connection.answer` it."""

    def told(self, hint: Hint) -> None:
        """The other side says this."""

    def closed(self, connection: "Connection", reason: str) -> None:
        """It is over. Comes once, and last."""


class Pending(Struct, eq=False):
    """A call that waits for its answer."""

    number: int
    future: asyncio.Future[Any]
    read: Callable[[bytes], Any]
    expires: int
    """The tick at which nobody waits any longer."""


class Connection(asyncio.Protocol):
    """Calls may be made from the beginning: they go out when the handshake is done."""

    def __init__(self, host: Host, greeting: Caller | Listener, *, name: str) -> None:
        self.name = name  # Of the node at the other end; as a listener, once it has proven it.
        self.address = ""  # Where that is, for the log.
        self.open = False
        self.over = False
        self._host = host
        self._greeting = greeting
        self._frames = wire.FrameReader(GREETING_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        self._flush_is_due = False
        self._paused = False  # The transport holds enough.
        self._deaf = False  # We read nothing until some calls are answered.
        self._numbers = 0
        self._sent_number = 0  # The newest call that was handed to the transport.
        self._pending: dict[int, Pending] = {}
        self._serving = 0
        self._ticks = 0
        self._heard_at = 0
        self._ticking = self._loop.call_later(TICK_S, self._tick)

    # -- calls ------------------------------------------------------------------------

    async def call(self, operation: Operation) -> Any:
        """Have the other side do it. `PeerLost`, `PeerFailed`, `Unavailable`, and its errors."""
        if self.over:
            raise PeerLost(self.name, "the connection is closed", sent=False)
        message = wire.encode(wire.Call(self._numbers + 1, operation))
        if len(self._pending) >= CALLS_MAX or (
            self._queue and self._queued_bytes + len(message) > QUEUED_BYTES_MAX
        ):
            raise Unavailable(f"too many operations wait for node {self.name!r}")
        if len(message) > wire.FRAME_BYTES_MAX - 16:
            raise Unavailable("this is too large to be passed on to the node that owns the shard")
        self._numbers += 1
        number = self._numbers
        pending = self._pending[number] = Pending(
            number,
            self._loop.create_future(),
            wire.reader_of(operation),
            self._ticks + CALL_TICKS_MAX,
        )
        self._send(message)
        return await pending.future

    def tell(self, hint: Hint) -> None:
        """Send it if there is room for it."""
        message = wire.encode(wire.Told(hint))
        if not self.over and self._queued_bytes + len(message) <= QUEUED_BYTES_MAX:
            self._send(message)

    def answer(self, message: bytes) -> None:
        """This answers one of the calls that the host was given."""
        self._serving -= 1
        if not self.over:
            self._send(message)
            self._listen()

    def close(self, reason: str) -> None:
        """End it now. What waits for an answer is lost."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def finish(self, reason: str) -> None:
        """End it when what is queued has been written. What waits for an answer is lost."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self.over:
            return
        self.over = True
        self._ticking.cancel()
        self._queue.clear()
        self._queued_bytes = 0
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if not call.future.done():
                call.future.set_exception(self._lost(call, reason))
        self._host.closed(self, reason)

    def _lost(self, call: Pending, reason: str) -> PeerLost:
        return PeerLost(self.name, reason, sent=call.number <= self._sent_number)

    # -- from the transport -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.over:  # Given up while it was being made.
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        peer = self._transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        if isinstance(self._greeting, Caller):
            self._transport.write(wire.frame(self._greeting.begin()))

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._ticks
        try:
            for body in self._frames.feed(data):
                if self.over:
                    return
                if self.open:
                    for message in wire.messages_of(body):
                        self._take(message)
                else:
                    self._greet(body)
        except wire.BadFrame as error:
            self.close(f"it sent what is no frame: {str(error)[:200]}")

    def eof_received(self) -> None:
        self.close("it closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self.close("the connection was lost" if exc is None else f"connection lost: {exc}")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    # -- what follows from it -------------------------------------------------------------

    def _greet(self, body: bytes) -> None:
        assert self._transport is not None
        try:
            answer = self._greeting.take(body)
        except Refused as refused:
            if isinstance(self._greeting, Listener):
                self._transport.write(wire.frame(refusal(refused)))
            self.finish(str(refused))
            return
        if answer is not None:
            self._transport.write(wire.frame(answer))
        if self._greeting.done:
            if isinstance(self._greeting, Listener):
                self.name = self._greeting.caller
            self._frames.bytes_max = wire.FRAME_BYTES_MAX
            self.open = True
            self._host.opened(self)
            self._flush()

    def _take(self, message: wire.Message) -> None:
        match message:
            case wire.Call():
                self._serving += 1
                self._host.called(self, message)
                self._listen()
            case wire.Answer(number, value):
                pending = self._pending.pop(number, None)
                if pending is not None and not pending.future.done():
                    try:
                        pending.future.set_result(pending.read(value))
                    except ValueError:  # msgspec's: it is not of the type that was asked for.
                        pending.future.set_exception(PeerFailed())
            case wire.Failed(number, failure):
                pending = self._pending.pop(number, None)
                if pending is not None and not pending.future.done():
                    pending.future.set_exception(wire.error_of(failure))
            case wire.Told(hint):
                self._host.told(hint)
            case wire.Ping():
                self._send(_PONG)
            case wire.Pong():
                pass

    def _send(self, message: bytes) -> None:
        self._queue.append(message)
        self._queued_bytes += len(message)
        if not self._flush_is_due and not self._paused and self.open:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if not self.open or self.over:
            return
        assert self._transport is not None
        queue, at = self._queue, 0
        while at < len(queue) and not self._paused:
            end, size = at + 1, len(queue[at])
            while (
                end < len(queue)
                and size + len(queue[end]) <= wire.FRAME_BYTES
                and end - at < wire.FRAME_MESSAGES_MAX
            ):
                size += len(queue[end])
                end += 1
            self._sent_number = self._numbers  # About: some of these may be in a later frame.
            self._transport.write(wire.frame_of(queue[at:end]))
            self._queued_bytes -= size
            at = end
        del queue[:at]

    def _listen(self) -> None:
        """Read no further while too much is asked of us, or nobody reads what we answer."""
        assert self._transport is not None
        deaf = self._serving >= CALLS_MAX or self._queued_bytes >= QUEUED_BYTES_MAX
        if deaf and not self._deaf:
            self._transport.pause_reading()
        elif self._deaf and not deaf:
            self._transport.resume_reading()
        self._deaf = deaf

    def _tick(self) -> None:
        self._ticks += 1
        self._ticking = self._loop.call_later(TICK_S, self._tick)
        if not self.open:
            if self._ticks >= GREETING_TICKS_MAX:
                self.close("the handshake took too long")
            return
        if not self._deaf:
            silent = self._ticks - self._heard_at
            if silent > SILENT_TICKS_MAX:
                self.close(f"not heard of for {SILENT_TICKS_MAX} s")
                return
            if silent > 1:
                self._send(_PING)
        while self._pending:
            call = next(iter(self._pending.values()))
            if call.expires > self._ticks:
                break
            del self._pending[call.number]
            if not call.future.done():
                reason = f"it has not answered within {CALL_TICKS_MAX} s"
                call.future.set_exception(self._lost(call, reason))


_PING = wire.encode(wire.Ping())
_PONG = wire.encode(wire.Pong())
