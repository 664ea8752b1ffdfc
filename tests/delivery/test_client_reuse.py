"""Connections are used again, and nothing that is odd about one outlives its exchange."""

import asyncio
from unittest.mock import create_autospec

import pytest

import duetime.delivery.client as client_module
from duetime.callback import parse_url
from duetime.delivery.connection import Connection as ClientConnection
from duetime.delivery.connection import Exchange
from duetime.retry import NOT_SENT, Answer
from tests.delivery.asking import Asking, Call
from tests.delivery.peers import OK, Connection, answering, answering_ok, serving


async def test_a_connection_serves_one_request_after_the_other(asking: Asking) -> None:
    async with serving(answering_ok) as peer:
        for _ in range(5):
            assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert peer.connections == 1


async def test_requests_side_by_side_have_a_connection_each(asking: Asking) -> None:
    async with serving(answering_ok) as peer:
        answers = await asyncio.gather(*(asking.ask(peer.url()) for _ in range(20)))
        assert answers == [Answer(200, b"ok")] * 20
        assert peer.connections == 20
        await asyncio.gather(*(asking.ask(peer.url()) for _ in range(20)))
        assert peer.connections == 20


async def test_origins_do_not_share_connections(asking: Asking) -> None:
    async with serving(answering_ok) as peer:
        await asking.ask(peer.url(host="127.0.0.1"))
        await asking.ask(peer.url(host="localhost"))
        assert peer.connections == 2


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + OK,
        OK + b"H",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nokok",
    ],
    ids=["close", "1.0", "second answer", "a byte more", "more after close"],
)
async def test_a_connection_that_is_not_clean_is_not_used_again(asking: Asking, raw: bytes) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(raw)
        await connection.until_closed()

    async with serving(script) as peer:
        for connections in (1, 2, 3):
            assert await asking.ask(peer.url()) == Answer(200, b"ok")
            assert peer.connections == connections


async def test_http_1_0_with_keep_alive_is_used_again(asking: Asking) -> None:
    raw = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
    async with serving(answering(raw, raw)) as peer:
        for _ in range(2):
            assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert peer.connections == 1


async def test_bytes_on_an_idle_connection_close_it(asking: Asking) -> None:
    closed = asyncio.Event()

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK)
        if connection.number == 1:
            answered.set()
            await asked_on.wait()
            await connection.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            await connection.until_closed()
            closed.set()

    answered, asked_on = asyncio.Event(), asyncio.Event()
    async with serving(script) as peer:
        await asking.ask(peer.url())
        await answered.wait()
        asked_on.set()
        async with asyncio.timeout(5):
            await closed.wait()
        assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert peer.connections == 2


async def test_a_reused_connection_dropped_without_a_byte_is_resent_once(asking: Asking) -> None:
    paths: list[tuple[int, str]] = []

    async def script(connection: Connection) -> None:
        for _ in range(2):
            paths.append((connection.number, (await connection.request()).path))
            if connection.number == 1 and len(paths) == 2:
                return
            await connection.send(OK)

    async with serving(script) as peer:
        assert await asking.ask(peer.url("/a")) == Answer(200, b"ok")
        assert await asking.ask(peer.url("/b")) == Answer(200, b"ok")
        assert paths == [(1, "/a"), (1, "/b"), (2, "/b")]


async def test_a_reused_connection_reset_without_a_byte_is_resent_once(asking: Asking) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        if connection.number == 1:
            await connection.send(OK)
            await connection.request()
            connection.reset()
        else:
            await connection.send(OK)

    async with serving(script) as peer:
        assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert await asking.ask(peer.url(), b"x" * 100_000) == Answer(200, b"ok")
        assert peer.connections == 2


async def test_a_reused_connection_dropped_after_a_while_is_not_resent(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "RESEND_S", 0.0)

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()

    async with serving(script) as peer:
        assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert "without an answer" in await asking.error(peer.url())
        assert peer.connections == 1


async def test_what_was_resent_is_not_resent_again(asking: Asking) -> None:
    requests = 0

    async def script(connection: Connection) -> None:
        nonlocal requests
        await connection.request()
        requests += 1
        if connection.number <= 2:
            await connection.send(OK)
            await both.wait()
            await connection.request()
            requests += 1

    both = asyncio.Event()
    async with serving(script) as peer:
        # Two idle connections: the resend must take neither of them but a fresh one.
        await asyncio.gather(asking.ask(peer.url()), asking.ask(peer.url()))
        both.set()
        assert "without an answer" in await asking.error(peer.url())
        assert (peer.connections, requests) == (3, 4)


@pytest.mark.parametrize("start", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", OK[:-1]])
async def test_a_reused_connection_dropped_after_a_byte_is_not_resent(
    asking: Asking, start: bytes
) -> None:
    async with serving(answering(OK, start)) as peer:
        assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert await asking.error(peer.url()) == "connection closed before the answer was complete"
        assert peer.connections == 1


async def test_a_timed_out_request_is_not_resent(asking: Asking) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.until_closed()

    async with serving(script) as peer:
        await asking.ask(peer.url())
        await asking.expires(peer.url(), 0.3)
        assert peer.connections == 1


async def test_an_answer_before_the_request_was_out_counts_and_ends_the_connection(
    asking: Asking,
) -> None:
    async def script(connection: Connection) -> None:
        if connection.number == 1:
            # Nothing of the body is read: megabytes of it are still with the client.
            await connection.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await gone.wait()
            return
        await answering_ok(connection)

    gone = asyncio.Event()
    async with serving(script) as peer:
        answer = await asking.ask(peer.url(), b"x" * 20_000_000)
        assert answer.status == 413
        assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert peer.connections == 2
        gone.set()


async def test_a_server_that_stops_talking_before_it_has_read_is_not_written_to_any_more(
    asking: Asking,
) -> None:
    gone = asyncio.Event()

    async def script(connection: Connection) -> None:
        connection.say_no_more()
        await gone.wait()

    async with serving(script) as peer:
        error = await asking.error(peer.url(), b"x" * 12_000_000, timeout_s=5)
        assert error == f"connection closed by 127.0.0.1:{peer.port} without an answer"
        gone.set()


async def test_a_connection_made_in_the_moment_its_time_was_up_is_dropped(
    asking: Asking,
) -> None:
    exchange = Exchange(parse_url("http://h/"), b"", 1, Call(), lambda: True)
    connection = ClientConnection(asking.client, exchange, "h:80")
    transport = create_autospec(asyncio.Transport, instance=True)
    connection.connection_made(transport)
    transport.abort.assert_called_once_with()
    transport.write.assert_not_called()


async def test_a_connection_made_in_the_moment_of_closing_is_dropped(asking: Asking) -> None:
    exchange = Exchange(parse_url("http://h/"), b"", 1, Call(), lambda: True)
    exchange.holder = asyncio.ensure_future(asyncio.sleep(0))
    connection = ClientConnection(asking.client, exchange, "h:80")
    transport = create_autospec(asyncio.Transport, instance=True)
    await asking.client.close()
    connection.connection_made(transport)
    transport.abort.assert_called_once_with()
    transport.write.assert_not_called()


async def test_nothing_is_written_to_a_connection_that_was_dropped(asking: Asking) -> None:
    exchange = Exchange(parse_url("http://h/"), b"x" * 1_000_000, 1, Call(), lambda: True)
    exchange.holder = asyncio.ensure_future(asyncio.sleep(0))
    connection = ClientConnection(asking.client, exchange, "h:80")
    transport = create_autospec(asyncio.Transport, instance=True)
    transport.write.side_effect = lambda _: connection.pause_writing()
    connection.connection_made(transport)
    await asyncio.sleep(0)
    assert transport.write.call_count == 1
    connection.resume_writing()
    assert transport.write.call_count == 2
    connection.drop()
    connection.resume_writing()
    assert transport.write.call_count == 2


async def test_idle_connections_are_bounded(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "IDLE_CONNECTIONS_MAX", 3)
    async with serving(answering_ok) as peer:
        await asyncio.gather(*(asking.ask(peer.url()) for _ in range(10)))
        await asyncio.gather(*(asking.ask(peer.url()) for _ in range(10)))
        assert peer.connections == 17
        for _ in range(10):
            await asking.ask(peer.url())
        assert peer.connections == 17


async def test_idle_connections_are_closed_after_a_while(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "IDLE_S", 0.1)
    closed = asyncio.Event()

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.until_closed()
        closed.set()

    loop = asyncio.get_running_loop()
    async with serving(script) as peer:
        await asking.ask(peer.url())
        began = loop.time()
        async with asyncio.timeout(5):
            await closed.wait()
        assert loop.time() - began >= 0.09
        assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert peer.connections == 2


async def test_what_stands_no_more_is_not_sent_on_a_new_connection_nor_on_a_used_one(
    asking: Asking,
) -> None:
    async with serving(answering_ok) as peer:
        for _ in range(2):
            unsent = asking.send(peer.url(), stands=lambda: False)
            assert await asking.answer(unsent) is NOT_SENT
        assert await asking.ask(peer.url()) == Answer(200, b"ok")
        assert peer.connections == 1
