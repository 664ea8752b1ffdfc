"""Whatever a server says or does: one answer for each request, and nothing else happens."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from duetime.delivery.guard import AddressGuard
from duetime.retry import Answer
from tests.delivery.asking import Asking
from tests.delivery.conftest import LOOPBACK
from tests.delivery.peers import OK, Connection, serving

PIECES = st.sampled_from(
    [
        OK,
        OK[:-1],
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.0 503 No\r\n",
        b"Content-Length: 3\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: keep-alive\r\n",
        b"\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"fffffffffffffffffff\r\n",
        b"x" * 5_000,
    ]
)
SENT = st.one_of(PIECES, st.binary(max_size=20))
# What a connection sends after each request, piece by piece; then it ends, softly or hard.
CONNECTION = st.tuples(st.lists(st.lists(SENT, max_size=6), max_size=3), st.booleans())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@given(connections=st.lists(CONNECTION, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_every_request_gets_one_answer_whatever_the_server_sends(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    connections: list[tuple[list[list[bytes]], bool]],
) -> None:
    escaped: list[dict[str, Any]] = []

    async def converse() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, c: escaped.append(c))

        async def script(connection: Connection) -> None:
            answers, hard = connections[connection.number % len(connections)]
            for pieces in answers:
                await connection.request()
                for piece in pieces:
                    await connection.send(piece)
                    await asyncio.sleep(0)
            if hard:
                connection.reset()

        guard = AddressGuard(LOOPBACK, False)
        async with serving(script) as peer, Asking(guard, response_bytes_max=4_000) as asking:
            for body in (b"", b"{}", b"x" * 200_000, b""):
                answer = await asking.ask(peer.url(), body, timeout_s=0.05)
                plausible(answer)
            assert peer.connections <= 8

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(converse())
    assert escaped == []


def plausible(answer: Answer) -> None:
    assert len(answer.body) <= 4_000
    if answer.status == 0:
        assert answer.error
        assert answer.error.isprintable()
    else:
        assert answer.status >= 200
