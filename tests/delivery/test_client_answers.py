"""What the client makes of answers, good ones and bad ones."""

import asyncio

import pytest

from duetime.delivery.connection import HEADERS_BYTES_MAX, INTERIM_ANSWERS_MAX
from duetime.delivery.guard import AddressGuard
from duetime.retry import Answer
from tests.delivery.asking import Asking
from tests.delivery.conftest import LOOPBACK
from tests.delivery.peers import OK, Connection, Script, answering, answering_ok, serving, silent

CUT_OFF = "connection closed before the answer was complete"


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (OK, 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
         200, b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nT: 1\r\n\r\n",
         200, b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\n\r\nend",
         200, b"end"),
        (b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nok",
         200, b"ok"),
    ],
)  # fmt: skip
async def test_an_answer_is_read_whole(
    asking: Asking, raw: bytes, status: int, body: bytes
) -> None:
    async with serving(answering(raw)) as peer:
        assert await asking.ask(peer.url()) == Answer(status, body)


async def test_an_answer_may_come_byte_by_byte(asking: Asking) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":
            await connection.send(bytes([byte]))
            await asyncio.sleep(0)

    async with serving(script) as peer:
        assert await asking.ask(peer.url()) == Answer(200, b"ok")


@pytest.mark.parametrize("status", [301, 304, 400, 404, 408, 429, 500, 503, 999])
async def test_an_error_status_is_named_with_its_url_but_not_its_query(
    asking: Asking, status: int
) -> None:
    raw = b"HTTP/1.1 %d No\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n" % status
    async with serving(answering(raw)) as peer:
        answer = await asking.ask(peer.url("/hook?token=secret"))
        assert answer == Answer(status, b"", f"HTTP {status} from {peer.url('/hook')}")
        assert peer.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"H",
    ],
)
async def test_a_connection_that_ends_in_the_middle_of_an_answer_is_an_error(
    asking: Asking, raw: bytes
) -> None:
    async with serving(answering(raw)) as peer:
        assert await asking.error(peer.url()) == CUT_OFF
        assert peer.connections == 1


async def test_a_connection_reset_in_the_middle_of_an_answer_is_an_error(asking: Asking) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\nok")
        connection.reset()

    async with serving(script) as peer:
        answer = await asking.ask(peer.url())
        # A reset that looks like an end: without a length nobody can tell.
        assert answer in (Answer(200, b"ok"), Answer(0, b"", CUT_OFF))


async def test_a_fresh_connection_that_ends_without_an_answer_is_not_tried_again(
    asking: Asking,
) -> None:
    async with serving(answering(b"")) as peer:
        error = await asking.error(peer.url())
        assert error == f"connection closed by 127.0.0.1:{peer.port} without an answer"
        assert peer.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA\x00: b\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    ],
)
async def test_what_is_not_http_is_an_error_that_says_so(asking: Asking, raw: bytes) -> None:
    async with serving(answering(raw)) as peer:
        assert (await asking.error(peer.url())).startswith("malformed HTTP answer: ")


async def test_an_upgrade_that_nobody_asked_for_is_an_error(asking: Asking) -> None:
    raw = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nwhatever"
    async with serving(answering(raw)) as peer:
        assert await asking.error(peer.url("/a")) == f"HTTP 101 from {peer.url('/a')}"


def endlessly(start: bytes, again: bytes) -> Script:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(start)
        while True:
            await connection.send(again)

    return script


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4_000),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 4_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n" * 400),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;", b"x" * 4_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: x\r\n" * 99),
    ],
    ids=["no length", "false length", "chunks", "chunk extension", "trailers"],
)
async def test_an_endless_body_is_cut_off_and_the_bound_is_named(
    asking: Asking, start: bytes, again: bytes
) -> None:
    async with serving(endlessly(start, again)) as peer:
        answer = await asking.ask(peer.url())
        assert answer.body == b""
        assert answer.error == "response body above 65536 bytes"


@pytest.mark.parametrize("status", [200, 404])
async def test_the_status_of_an_answer_with_too_long_a_body_still_counts(status: int) -> None:
    async with Asking(AddressGuard(LOOPBACK, False), response_bytes_max=10) as asking:
        fits = b"HTTP/1.1 %d X\r\nContent-Length: 10\r\n\r\n0123456789" % status
        too_long = b"HTTP/1.1 %d X\r\nContent-Length: 11\r\n\r\n0123456789a" % status
        async with serving(answering(fits, too_long)) as peer:
            first, second = await asking.ask(peer.url()), await asking.ask(peer.url())
            assert (first.status, first.body) == (status, b"0123456789")
            named = f"HTTP 404 from {peer.url()}"
            assert first.error == (None if status == 200 else named)
            error = "response body above 10 bytes" if status == 200 else named
            assert second == Answer(status, b"", error)
            assert peer.connections == 1


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: more\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 4_000),
        (b"HTTP/1.1 200 ", b"x" * 4_000),
    ],
    ids=["many headers", "one header", "reason"],
)
async def test_endless_headers_are_cut_off_and_the_bound_is_named(
    asking: Asking, start: bytes, again: bytes
) -> None:
    async with serving(endlessly(start, again)) as peer:
        error = await asking.error(peer.url())
        assert error == f"response headers above {HEADERS_BYTES_MAX} bytes"


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nA: b\r\n\r\n"]
)
async def test_endless_interim_answers_are_cut_off(asking: Asking, interim: bytes) -> None:
    async with serving(endlessly(b"", interim)) as peer:
        error = await asking.error(peer.url())
        assert error == f"more than {INTERIM_ANSWERS_MAX} interim answers"


async def test_a_refused_connection_is_named_as_such(asking: Asking) -> None:
    async with serving(silent) as peer:
        port = peer.port
    error = await asking.error(f"http://127.0.0.1:{port}/")
    assert error == f"connection refused by 127.0.0.1:{port}"


async def test_an_ipv6_address_can_be_called(asking: Asking) -> None:
    async with serving(answering_ok, host="::1") as peer:
        assert await asking.ask(peer.url(host="[::1]")) == Answer(200, b"ok")
    assert await asking.error(peer.url(host="[::1]")) == f"connection refused by [::1]:{peer.port}"


async def test_an_address_that_refuses_gives_way_to_the_next_one() -> None:
    guard = AddressGuard(LOOPBACK, False, lookup=lambda _: ["127.0.0.9", "127.0.0.1"])
    async with Asking(guard) as asking, serving(answering_ok) as peer:
        assert await asking.ask(peer.url(host="two.test")) == Answer(200, b"ok")


async def test_the_guard_has_its_word_before_anything_is_connected() -> None:
    async with Asking(AddressGuard((), False)) as asking, serving(answering_ok) as peer:
        for host in ("127.0.0.1", "127.1", "0x7f.1", "2130706433", "localhost"):
            error = await asking.error(peer.url(host=host))
            assert "is refused: loopback; allow it with CALLBACK_ALLOW_NETWORKS=" in error
        assert peer.connections == 0


async def test_a_name_without_an_address_is_named() -> None:
    def no_such_name(_: str) -> list[str]:
        raise OSError

    async with Asking(AddressGuard((), False, lookup=no_such_name)) as asking:
        assert await asking.error("http://nowhere.test/") == "name not resolved: nowhere.test"


async def test_what_the_request_says_arrives_byte_for_byte(asking: Asking) -> None:
    body = bytes(range(256)) * 8_192
    seen: list[bytes] = []

    async def script(connection: Connection) -> None:
        while True:
            seen.append((await connection.request()).body)
            await connection.send(OK)

    async with serving(script) as peer:
        for sent in (body, b"", body, b"{}"):
            assert await asking.ask(peer.url(), sent) == Answer(200, b"ok")
        assert seen == [body, b"", body, b"{}"]
        assert peer.connections == 1
