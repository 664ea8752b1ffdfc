"""On the wire: bodies too large, cut off or slow, pipelines, and what is not HTTP."""

import asyncio
import json
import logging

import pytest

from duetime.http import exchange
from tests.http.server import BODY_BYTES_MAX, KEY, Server, new_timer, read_reply

HEAD = f"Host: x\r\nX-API-Key: {KEY}\r\nContent-Type: application/json\r\n".encode()
V1 = b"POST /timers/create HTTP/1.1\r\n" + HEAD
REST = b"POST /timers HTTP/1.1\r\n" + HEAD
CHUNK = b"10000\r\n" + b" " * 0x10000 + b"\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize(("start", "told"), [(V1, "PAYLOAD_TOO_LARGE"), (REST, '"code":2')])
async def test_a_body_announced_above_the_bound_is_refused_unread(
    server: Server, start: bytes, told: str
) -> None:
    reader, writer = await server.connect()
    writer.write(start + b"Content-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1))
    reply = await asyncio.wait_for(read_reply(reader), 5)
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert told in reply.body.decode()
    writer.close()


@pytest.mark.parametrize(("start", "told"), [(V1, "PAYLOAD_TOO_LARGE"), (REST, '"code":2')])
async def test_a_body_in_chunks_is_cut_off_at_the_bound(
    server: Server, start: bytes, told: str
) -> None:
    reader, writer = await server.connect()
    writer.write(start + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(BODY_BYTES_MAX // 0x10000 + 1):
        writer.write(CHUNK)
        await writer.drain()
    reply = await asyncio.wait_for(read_reply(reader), 5)  # The body never ends.
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert told in reply.body.decode()
    writer.close()


@pytest.mark.parametrize("start", [V1, REST, b"POST /timers HTTP/1.1\r\nHost: x\r\n"])
async def test_a_client_that_sends_all_before_it_reads_gets_its_answer(
    server: Server, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "LINGER_S", 10)
    reader, writer = await server.connect()
    size = 32 * 0x100000
    writer.write(start + b"Content-Length: %d\r\n\r\n" % size)
    for _ in range(size // 0x10000):
        writer.write(b" " * 0x10000)
        await writer.drain()
    reply = await asyncio.wait_for(read_reply(reader), 5)
    assert reply.status == (413 if b"X-API-Key" in start else 401)
    writer.close()


async def test_whoever_keeps_sending_can_still_read_the_answer_and_is_then_cut_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "LINGER_S", 0.2)
    reader, writer = await server.connect()
    writer.write(V1 + b"Transfer-Encoding: chunked\r\n\r\n")

    async def keep_sending() -> None:
        while True:
            writer.write(CHUNK)
            await writer.drain()

    sending = asyncio.create_task(keep_sending())
    reply = await asyncio.wait_for(read_reply(reader), 5)
    assert reply.status == 413
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(sending, 5)
    writer.close()


async def test_a_large_body_sent_without_the_key_is_not_read_to_its_end(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(b"POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n{")
    reply = await asyncio.wait_for(read_reply(reader), 5)
    assert (reply.status, reply.headers["connection"]) == (401, "close")
    writer.close()


async def test_who_waits_to_be_told_to_continue_is_refused_first(server: Server) -> None:
    reader, writer = await server.connect()
    length = b"Content-Length: %d\r\n" % (BODY_BYTES_MAX + 1)
    writer.write(V1 + length + b"Expect: 100-continue\r\n\r\n")
    assert (await asyncio.wait_for(read_reply(reader), 5)).status == 413
    writer.close()


async def test_the_largest_body_is_taken(server: Server) -> None:
    body = json.dumps(new_timer()).encode().ljust(BODY_BYTES_MAX)
    assert (await server.ask("POST", "/timers/create", body)).status == 200
    assert (await server.ask("POST", "/timers/create", body + b" ")).status == 413


async def test_a_body_may_come_in_pieces(server: Server) -> None:
    body = json.dumps(new_timer()).encode()
    reader, writer = await server.connect()
    writer.write(V1 + b"Transfer-Encoding: chunked\r\n\r\n")
    for at in range(0, len(body), 10):
        writer.write(chunk(body[at : at + 10]))
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(b"0\r\n\r\n")
    assert (await asyncio.wait_for(read_reply(reader), 5)).status == 200
    writer.close()


async def test_a_body_that_does_not_come_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "BODY_TIMEOUT_S", 0.05)
    reader, writer = await server.connect()
    writer.write(V1 + b"Content-Length: 100\r\n\r\n{")
    reply = await asyncio.wait_for(read_reply(reader), 5)
    assert (reply.status, reply.headers["connection"]) == (400, "close")
    assert reply.json["message"].startswith("the body did not arrive")
    writer.close()


async def test_a_connection_serves_one_request_after_the_other(server: Server) -> None:
    reader, writer = await server.connect()
    for timer_id, status in (("a", 200), ("", 400), ("b", 200)):
        body = json.dumps(new_timer(id=timer_id)).encode()
        writer.write(V1 + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        reply = await asyncio.wait_for(read_reply(reader), 5)
        assert reply.status == status
        assert "connection" not in reply.headers
    writer.close()


async def test_requests_sent_ahead_are_answered_in_their_order(server: Server) -> None:
    bodies = [json.dumps(new_timer(id=name)).encode() for name in ("a", "", "b")]
    refused = b"POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    requests = [V1 + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies]
    reader, writer = await server.connect()
    writer.write(b"".join([requests[0], refused, requests[1], requests[2]]))
    replies = [await asyncio.wait_for(read_reply(reader), 5) for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 401, 400, 200]
    assert sorted(await server.timers()) == ["a", "b"]
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /timers HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /timers HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /timers HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /timers HTTP/1.1\r\nBad Header: x\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_a_bad_request_and_harms_nobody(
    server: Server, data: bytes
) -> None:
    assert (await server.raw(data)).startswith(b"HTTP/1.1 400 ")
    await server.created()


async def test_a_caller_that_goes_away_leaves_no_trace(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for start in (V1, REST):
        for rest in (b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"):
            _, writer = await server.connect()
            writer.write(start + rest)
            await writer.drain()
            await server.created()  # By now the request above is being read.
            writer.transport.abort()
            await server.created()
    assert [record.message for record in caplog.records if record.levelno > logging.INFO] == []
