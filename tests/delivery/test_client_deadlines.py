"""One deadline over everything, from the name's lookup to the last byte, honoured to 50 ms."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from duetime.delivery.deadlines import Deadlines
from duetime.delivery.guard import AddressGuard
from tests.delivery.asking import Asking
from tests.delivery.conftest import LOOPBACK
from tests.delivery.peers import OK, Connection, answering_ok, serving, silent

TIMEOUTS_S = [0.3, pytest.param(5.2, marks=pytest.mark.slow)]


@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
async def test_a_server_that_says_nothing(asking: Asking, timeout_s: float) -> None:
    async with serving(silent) as peer:
        await asking.expires(peer.url(), timeout_s)


@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["headers", "body", "chunks"],
)
async def test_a_server_that_trickles(
    asking: Asking, start: bytes, again: bytes, timeout_s: float
) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(start)
        while True:
            await connection.send(again)
            await asyncio.sleep(0.02)

    async with serving(script) as peer:
        await asking.expires(peer.url(), timeout_s)


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port whose backlog is full: the kernel leaves a further connect unanswered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        while True:
            one = socket.socket()
            waiting.append(one)
            one.settimeout(0.2)
            try:
                one.connect(listener.getsockname())
            except TimeoutError:
                break
        yield listener.getsockname()[1]
        for one in waiting:
            one.close()


@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
async def test_a_server_that_does_not_accept(
    asking: Asking, full_port: int, timeout_s: float
) -> None:
    await asking.expires(f"http://127.0.0.1:{full_port}/", timeout_s)


async def test_a_dead_address_leaves_time_for_the_next_one(full_port: int) -> None:
    guard = AddressGuard(LOOPBACK, False, lookup=lambda _: ["127.0.0.1", "127.0.0.2"])
    async with Asking(guard) as asking:
        error = await asking.error(f"http://two.test:{full_port}/", timeout_s=0.6)
        assert error == f"connection refused by 127.0.0.2:{full_port}"


@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
async def test_a_server_that_begins_no_tls(asking: Asking, timeout_s: float) -> None:
    async with serving(silent) as peer:
        await asking.expires(peer.url(scheme="https"), timeout_s)


async def test_a_name_server_that_does_not_answer() -> None:
    over = threading.Event()

    def lookup(_: str) -> list[str]:
        over.wait(10)
        return []

    async with Asking(AddressGuard(LOOPBACK, False, lookup=lookup)) as asking:
        await asking.expires("http://slow.test/", 0.3)
    over.set()


async def test_a_server_that_reads_nothing(asking: Asking) -> None:
    """And the half-written request is the end of its connection."""
    read_on = asyncio.Event()
    rests: list[bytes] = []

    async def script(connection: Connection) -> None:
        if connection.number == 1:
            await read_on.wait()
            rests.append(await connection.rest())
            return
        await answering_ok(connection)

    async with serving(script) as peer:
        await asking.expires(peer.url("/first"), 0.3, b"x" * 12_000_000)
        assert (await asking.ask(peer.url("/second"))).status == 200
        assert peer.connections == 2
        read_on.set()
        async with asyncio.timeout(5):
            while not rests:
                await asyncio.sleep(0.01)
        assert rests[0].startswith(b"POST /first HTTP/1.1\r\n")
        assert b"/second" not in rests[0]


async def test_the_deadline_goes_on_when_a_request_is_sent_again(asking: Asking) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        if connection.number == 1:
            await connection.send(OK)
            await connection.request()
            await asyncio.sleep(0.2)
        else:
            await connection.until_closed()

    async with serving(script) as peer:
        assert (await asking.ask(peer.url())).status == 200
        await asking.expires(peer.url(), 0.4)
        assert peer.connections == 2


async def test_an_answer_after_its_deadline_is_nobody_elses(asking: Asking) -> None:
    late = asyncio.Event()

    async def script(connection: Connection) -> None:
        request = await connection.request()
        if request.path == "/late":
            await late.wait()
        await connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%5s" % request.path.encode()
        )
        await connection.until_closed()

    async with serving(script) as peer:
        await asking.expires(peer.url("/late"), 0.3)
        late.set()
        assert (await asking.ask(peer.url("/next"))).body == b"/next"


async def test_deadlines_of_all_lengths_expire_in_their_order() -> None:
    expired: list[float] = []
    all_expired = asyncio.Event()

    def expire(item: float) -> None:
        expired.append(item)
        if len(expired) == 3:
            all_expired.set()

    deadlines = Deadlines(asyncio.get_running_loop(), expire)
    for timeout_s in (0.3, 0.1, 60, 0.2):
        watch = deadlines.add(timeout_s, timeout_s)
    deadlines.add(0.15, 0.15).discard(0.15)
    async with asyncio.timeout(5):
        await all_expired.wait()
    assert expired == [0.1, 0.2, 0.3]
    watch.discard(0.2)
    deadlines.close()


async def test_when_all_is_quiet_nothing_is_waited_for() -> None:
    expired = asyncio.Event()
    deadlines: Deadlines[str] = Deadlines(asyncio.get_running_loop(), lambda _: expired.set())
    for timeout_s in (10, 20, 30):
        deadlines.add("done in time", timeout_s).discard("done in time")
    deadlines.add("too late", 0.01)
    async with asyncio.timeout(5):
        await expired.wait()
    assert deadlines.watched == 0


async def test_one_that_fails_when_it_expires_does_not_keep_the_others() -> None:
    loop = asyncio.get_running_loop()
    escaped: list[object] = []
    loop.set_exception_handler(lambda _, context: escaped.append(context["exception"]))
    expired: list[int] = []
    done = asyncio.Event()

    def expire(item: int) -> None:
        expired.append(item)
        if len(expired) == 3:
            done.set()
        raise ValueError(item)

    deadlines = Deadlines(loop, expire)
    for item in range(3):
        deadlines.add(item, 0.05)
    async with asyncio.timeout(5):
        await done.wait()
    assert sorted(expired) == [0, 1, 2]
    await asyncio.sleep(0)
    assert len(escaped) == 3


async def test_tls_that_stalls_halfway_keeps_to_the_deadline_too(
    trusting: ssl.SSLContext,
) -> None:
    async def script(connection: Connection) -> None:
        await connection.send(b"\x16\x03\x03\x00\x7a\x02")
        await connection.until_closed()

    guard = AddressGuard(LOOPBACK, False)
    async with Asking(guard, ssl_context=trusting) as asking, serving(script) as peer:
        await asking.expires(peer.url(scheme="https"), 0.3)
