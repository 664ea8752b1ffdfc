"""Bytes on a connection, in whatever pieces: answers in order, then perhaps the end."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from duetime.http.protocol import Protocol
from tests.fuzz import fuzzed
from tests.fuzz.answers import statuses
from tests.fuzz.app import Application
from tests.http.server import KEY

HEAD = f"Host: x\r\nX-API-Key: {KEY}\r\nContent-Type: application/json\r\n".encode()
BODY = b'{"namespace":"default","timerId":"a"}'
GET = b"POST /timers/get HTTP/1.1\r\n" + HEAD
LENGTH = b"Content-Length: %d\r\n\r\n" % len(BODY)
WHOLE = st.sampled_from(
    [
        GET + LENGTH + BODY,
        GET + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + LENGTH + BODY,
        GET + b"Connection: close\r\n" + LENGTH + BODY,
        GET + b"Expect: 100-continue\r\n" + LENGTH + BODY,
        b"GET /timers HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"HEAD /health HTTP/1.0\r\n\r\n",
        b"POST /timers HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345",
        b"GET / HTTP/1.1\r\n\r\n",
    ]
)
PIECE = st.sampled_from(
    [
        b"POST /timers HTTP/1.1\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: upgrade\r\nUpgrade: x\r\n",
        b"X: " + b"y" * 70_000,
        b"X: y\r\n" * 200,
        b"\r\n",
        b"ffffffffffffffff\r\n",
        b"0\r\n\r\n",
        b"3;x=y\r\nabc\r\n",
        b"\0",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Requests that are right, cut, changed, and mixed with what are none."""
    data = bytearray(
        b"".join(draw(st.lists(st.one_of(WHOLE, PIECE, st.binary(max_size=9)), max_size=6)))
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=3))
    return bytes(data)


class Transport(asyncio.Transport):
    """What the protocol says, and whether it has hung up."""

    def __init__(self) -> None:
        super().__init__({})
        self.said = bytearray()
        self.closing = False
        self.paused = False

    def write(self, data: Any) -> None:
        assert not self.closing
        self.said += data

    def close(self) -> None:
        self.closing = True

    abort = close

    def write_eof(self) -> None:
        assert not self.closing

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    with asyncio.Runner() as runner:
        application = Application(runner)
        yield application
        application.close()


async def converse(application: Application, pieces: list[bytes], half_close: bool) -> list[int]:
    """What is answered to these bytes, once everything that was asked has been answered."""
    config = uvicorn.Config(
        application.app,
        interface="asgi3",
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        access_log=False,
    )
    state = ServerState()
    protocol = Protocol(config=config, server_state=state, app_state={})
    transport = Transport()
    protocol.connection_made(transport)
    for piece in pieces:
        for _ in range(1_000):
            if not transport.paused or transport.closing:
                break
            await asyncio.sleep(0)
        if transport.closing:
            break
        protocol.data_received(piece)
        await asyncio.sleep(0)
    if half_close and not transport.closing and not protocol.eof_received():
        transport.close()
    quiet = 0
    async with asyncio.timeout(10):
        while quiet < 5:  # Rounds of the loop in which nothing was said: then it waits for us.
            before = len(transport.said)
            await asyncio.sleep(0.0005 if state.tasks else 0)
            quiet = quiet + 1 if len(transport.said) == before else 0
    if half_close and not protocol._unanswered:
        assert transport.closing or protocol._refused
    transport.closing = True
    protocol.connection_lost(None)
    async with asyncio.timeout(10):
        while state.tasks:
            await asyncio.sleep(0)
    return statuses(bytes(transport.said))


@fuzzed
@given(streams(), st.lists(st.integers(0, 2_000), max_size=5), st.booleans())
def test_any_bytes_in_any_pieces_get_the_same_answers(
    application: Application, stream: bytes, cuts: list[int], half_close: bool
) -> None:
    caught: list[dict[str, Any]] = []

    async def compared() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context))
        at = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
        pieces = [stream[a:b] for a, b in pairwise(at) if a < b]
        whole = await converse(application, [stream] if stream else [], half_close)
        assert await converse(application, pieces, half_close) == whole

    application.runner.run(compared())
    assert caught == []
