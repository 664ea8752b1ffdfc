"""What a stranger may cost us on a connection, and what a careless client still gets."""

import asyncio
import json
import logging

import pytest

from duetime.http import protocol
from tests.http.server import KEY, Reply, Server, new_timer, read_reply

HEAD = f"Host: x\r\nX-API-Key: {KEY}\r\nContent-Type: application/json\r\n".encode()
V1 = b"POST /timers/create HTTP/1.1\r\n" + HEAD
LIST = b"GET /timers HTTP/1.1\r\n" + HEAD + b"\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


def create(id: str = "a", more: bytes = b"") -> bytes:
    body = json.dumps(new_timer(id=id)).encode()
    return V1 + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def reply(reader: asyncio.StreamReader) -> Reply:
    return await asyncio.wait_for(read_reply(reader), 10)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server has said all it will."""
    return await asyncio.wait_for(reader.read(), 10) == b""


async def test_a_head_above_the_bound_is_refused_in_the_shape_of_its_surface(
    server: Server,
) -> None:
    large = b"X-Large: %s\r\n\r\n" % (b"x" * protocol.HEAD_BYTES_MAX)
    for start, told in ((V1, "INVALID_INPUT"), (b"GET /timers HTTP/1.1\r\n", '"code":2')):
        reader, writer = await server.connect()
        writer.write(start + large)
        refused = await reply(reader)
        assert (refused.status, refused.headers["connection"]) == (431, "close")
        assert told in refused.body.decode()
        assert await ended(reader)
        writer.close()


@pytest.mark.parametrize("part", [b"x", b"X: y\r\n"])
async def test_a_head_without_end_is_refused_long_before_it_ends(
    server: Server, part: bytes
) -> None:
    reader, writer = await server.connect()
    writer.write(b"GET /timers HTTP/1.1\r\nX: ")
    sent = 0
    answering = asyncio.ensure_future(reply(reader))
    while not answering.done():
        assert sent < 8 * protocol.HEAD_BYTES_MAX
        writer.write(part * 1_000)
        sent += len(part) * 1_000
        await asyncio.sleep(0.001)
    assert (await answering).status == 431
    writer.close()


async def test_a_target_above_the_bound_is_refused(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(b"GET /%s HTTP/1.1\r\n\r\n" % (b"x" * protocol.HEAD_BYTES_MAX))
    assert (await reply(reader)).status == 431
    writer.close()


async def test_a_head_that_does_not_come_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S_MAX", 0.1)
    reader, writer = await server.connect()
    writer.write(b"POST /timers/create HTTP/1.1\r\nHost:")
    refused = await reply(reader)
    assert (refused.status, refused.json["error"]) == (408, "INVALID_INPUT")
    assert await ended(reader)
    writer.close()


async def test_bytes_that_trickle_in_do_not_keep_a_head_alive(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S_MAX", 0.2)
    reader, writer = await server.connect()
    writer.write(LIST)
    assert (await reply(reader)).status == 200
    answering = asyncio.ensure_future(reply(reader))
    writer.write(b"GET /timers HTTP/1.1\r\nX: ")
    while not answering.done():
        writer.write(b"x")
        await asyncio.sleep(0.01)
    assert (await answering).status == 408
    writer.close()


@pytest.mark.parametrize("trickle", [b"{", b"\r\n"])
async def test_nor_does_the_body_of_what_was_refused_or_a_blank_line(
    server: Server, monkeypatch: pytest.MonkeyPatch, trickle: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S_MAX", 0.2)
    reader, writer = await server.connect()
    if trickle == b"{":
        writer.write(b"POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n")
        assert (await reply(reader)).status == 401
    at_end = asyncio.ensure_future(reader.read())
    async with asyncio.timeout(10):
        while not at_end.done():
            writer.write(trickle)
            await asyncio.sleep(0.01)
    writer.close()


async def test_a_connection_that_never_says_a_word_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.listening.config, "timeout_keep_alive", 0.1)
    reader, writer = await server.connect()
    assert await ended(reader)
    writer.close()


async def test_of_requests_sent_ahead_few_are_held_in_memory(server: Server) -> None:
    reader, writer = await server.connect()
    smallest = b"GET / HTTP/1.1\r\n\r\n"
    count = 20_000
    writer.write(smallest * count)
    held = 0
    for _ in range(count):
        assert (await reply(reader)).status == 401
        (connection,) = server.listening.server_state.connections
        held = max(held, len(connection.pipeline))  # type: ignore[union-attr]
    assert 0 < held <= protocol.PARSED_BYTES // len(smallest) + 1  # One may have begun before.
    writer.close()


async def test_garbage_is_answered_after_the_requests_before_it(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(create("a") + LIST + b"\0garbage\r\n\r\n")
    assert [(await reply(reader)).status for _ in range(2)] == [200, 200]
    refused = await reply(reader)
    assert (refused.status, refused.headers["content-type"]) == (400, "application/json")
    assert await ended(reader)
    writer.close()


@pytest.mark.parametrize("start", ["CONNECT a:1", "GET http://x", "GET http://[", "GET x"])
async def test_a_target_that_is_none_is_a_bad_request(server: Server, start: str) -> None:
    reader, writer = await server.connect()
    writer.write(f"{start} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    refused = await reply(reader)
    assert (refused.status, refused.json["code"]) == (400, 2)
    assert await ended(reader)
    writer.close()


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_a_body_that_turns_out_broken_is_answered_in_its_turn(
    server: Server, before: int
) -> None:
    reader, writer = await server.connect()
    writer.write(LIST * before + V1 + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n")
    for _ in range(before):
        assert (await reply(reader)).status == 200
    refused = await reply(reader)
    assert (refused.status, refused.json["error"]) == (400, "INVALID_INPUT")
    assert await ended(reader)
    assert await server.timers() == []
    writer.close()


async def test_a_broken_body_of_what_was_answered_adds_nothing_to_the_answer(
    server: Server,
) -> None:
    reader, writer = await server.connect()
    writer.write(b"POST /timers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert (await reply(reader)).status == 401
    writer.write(b"nonsense\r\n")
    assert await ended(reader)
    writer.close()


async def test_who_has_said_all_still_gets_the_answers(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(create("a") + create("b"))
    writer.write_eof()
    assert [(await reply(reader)).status for _ in range(2)] == [200, 200]
    assert await ended(reader)
    writer.close()


async def test_who_stops_in_the_middle_is_not_waited_for(server: Server) -> None:
    for cut in (10, len(V1), len(create()) - 1):
        reader, writer = await server.connect()
        writer.write(create()[:cut])
        writer.write_eof()
        assert await ended(reader)
        writer.close()
    assert await server.timers() == []


async def test_an_upgrade_is_ignored_body_and_all(server: Server) -> None:
    for body_with_the_head in (True, False):
        reader, writer = await server.connect()
        for name in ("a", "b"):
            request = create(name, UPGRADE)
            head, _, body = request.partition(b"\r\n\r\n")
            writer.write(request if body_with_the_head else head + b"\r\n\r\n")
            if not body_with_the_head:
                await server.timers()  # By now the head is parsed.
                writer.write(body)
            created = await reply(reader)
            assert (created.status, created.json["id"]) == (200, name)
        writer.close()


async def test_an_upgrade_without_a_body_and_one_in_chunks(server: Server) -> None:
    reader, writer = await server.connect()
    body = json.dumps(new_timer()).encode()
    chunked = V1 + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n"
    writer.write(LIST[:-2] + UPGRADE + b"\r\n")
    writer.write(chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) + LIST)
    assert [(await reply(reader)).status for _ in range(3)] == [200, 200, 200]
    assert await server.timers() == ["a"]
    writer.close()


async def test_a_key_in_a_trailer_comes_too_late(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(
        b"POST /timers/get HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\nX-API-Key: %b\r\n\r\n" % KEY.encode()
    )
    assert (await reply(reader)).status == 401
    writer.close()


async def test_trailers_have_the_bounds_of_headers(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(V1 + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
    answering = asyncio.ensure_future(reply(reader))
    async with asyncio.timeout(10):
        while not answering.done():
            writer.write(b"X: y\r\n" * 1_000)
            await asyncio.sleep(0.001)
    assert (await answering).status in (400, 431)  # An empty body is wrong by itself.
    writer.close()


async def test_above_their_number_connections_are_told_so_and_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.listening.config, "limit_concurrency", 2)
    first = await server.connect()
    second = await server.connect()
    for _ in range(2):
        reader, writer = await server.connect()
        refused = await reply(reader)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.json == {
            "code": 1,
            "message": "there are too many connections",
            "data": None,
        }
        assert await ended(reader)
        writer.close()
    for reader, writer in (first, second):
        writer.write(LIST)
        assert (await reply(reader)).status == 200
        writer.close()


async def test_an_answer_that_nobody_reads_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "UNREAD_S_MAX", 0.1)
    for name in range(100):
        await server.created(str(name), payload={"x": "x" * 100_000})
    body = b'{"namespace":"default","limit":200}'
    head = V1.replace(b"create", b"list") + b"Content-Length: %d\r\n\r\n" % len(body)
    reader, writer = await server.connect()
    writer.write((head + body) * 3)  # Far more than the sockets' buffers hold.
    async with asyncio.timeout(10):
        while server.listening.server_state.connections:
            await asyncio.sleep(0.01)
    writer.transport.abort()
    assert reader is not None


async def test_hostile_input_leaves_no_trace_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for data in (b"\0\r\n\r\n", LIST[:-2] + UPGRADE + b"\r\n", b"GET / HTTP/1.1\r\n" * 2 + b"\r\n"):
        reader, writer = await server.connect()
        writer.write(data)
        writer.write_eof()
        assert (await reply(reader)).status in (200, 400)
        writer.close()
    assert [record.message for record in caplog.records] == []


async def test_a_server_that_is_about_to_stop_ends_each_connection_with_its_next_answer(
    server: Server,
) -> None:
    reader, writer = await server.connect()
    writer.write(create("before"))
    before = await reply(reader)
    assert "connection" not in before.headers
    server.stops.set()
    writer.write(create("after"))
    after = await reply(reader)
    assert (after.status, after.headers["connection"]) == (200, "close")
    assert await ended(reader)
    writer.close()
