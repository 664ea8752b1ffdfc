"""The sink that callbacks reach: a process of its own, cheap enough never to be the bottleneck.

POST /f/<number> records (number, arrival) and answers the verdict that completes a timer.
GET /count -> how many were recorded, GET /dump -> int64 numbers, then int64 nanoseconds,
GET /reset forgets them. Run as `python -m bench.receiver`; it prints its port.
"""

import array
import asyncio
import os
import time
from typing import cast

import httptools
import uvloop

ANSWER = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'
)
CORE = 1


class Sink(asyncio.Protocol):
    """One connection. All share the two arrays of what arrived."""

    def __init__(self, numbers: "array.array[int]", arrivals_ns: "array.array[int]") -> None:
        self._numbers = numbers
        self._arrivals_ns = arrivals_ns
        self._url = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        self._url = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_message_complete(self) -> None:
        if self._url.startswith(b"/f/"):
            self._arrivals_ns.append(time.time_ns())
            self._numbers.append(int(self._url[3:]))
            self._transport.write(ANSWER)
        else:
            self._transport.write(self._control())
        if not self._parser.should_keep_alive():
            self._transport.close()

    def _control(self) -> bytes:
        if self._url == b"/dump":
            body = self._numbers.tobytes() + self._arrivals_ns.tobytes()
        else:
            body = b"%d" % len(self._numbers)
        if self._url == b"/reset":
            del self._numbers[:], self._arrivals_ns[:]
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def main() -> None:
    numbers, arrivals_ns = array.array("q"), array.array("q")
    server = await asyncio.get_running_loop().create_server(
        lambda: Sink(numbers, arrivals_ns), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity") and CORE in os.sched_getaffinity(0):
        os.sched_setaffinity(0, {CORE})
    uvloop.run(main())
