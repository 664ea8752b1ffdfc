"""Told to stop: the drain, its bound, and the second signal."""

import asyncio
import contextlib
import signal
import sqlite3
from pathlib import Path

import pytest

from duetime.testing.receiver import Receiver, Request, Response
from tests.acceptance.processes import (
    Duetime,
    database_url,
    eventually,
    instant_in,
    run,
    serving,
    starting,
)


class Gate:
    """A script that answers only once it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, _: Request) -> Response:
        await self.open.wait()
        return Response()


async def with_a_callback_under_way(duetime: Duetime, receiver: Receiver) -> None:
    await duetime.v1("timers/create", id="slow", executeAt=instant_in(1), callbackUrl=receiver.url)
    await receiver.until(lambda: len(receiver.requests) == 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_callback_under_way_finishes_and_is_recorded(
    tmp_path: Path, number: signal.Signals
) -> None:
    gate = Gate()
    async with Receiver(gate) as receiver:
        async with serving(tmp_path, DRAIN_TIMEOUT="60s") as duetime:
            await with_a_callback_under_way(duetime, receiver)
            duetime.signal(number)
            assert (await duetime.logged("draining"))["signal"] == number.name
            gate.open.set()
            assert await duetime.exit() == 0
            assert duetime.log[-1]["event"] == "stopped"
        async with serving(tmp_path) as again:
            timer = await again.v1("timers/get", timerId="slow")
            assert (timer["status"], timer["attempts"]) == ("completed", 1)
        assert len(receiver.requests) == 1


async def test_the_drain_is_bounded_and_what_it_cuts_off_fires_again(tmp_path: Path) -> None:
    gate = Gate()
    async with Receiver(gate) as receiver:
        async with serving(tmp_path, DRAIN_TIMEOUT="1s") as duetime:
            await with_a_callback_under_way(duetime, receiver)
            duetime.signal(signal.SIGTERM)
            assert await duetime.exit() == 0
        gate.open.set()
        async with serving(tmp_path) as again:
            await again.until_status("slow", "completed")
        assert len(receiver.requests) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once_and_nothing_is_lost(
    tmp_path: Path, number: signal.Signals
) -> None:
    gate = Gate()
    async with Receiver(gate) as receiver:
        async with serving(tmp_path, DRAIN_TIMEOUT="60s") as duetime:
            await with_a_callback_under_way(duetime, receiver)
            duetime.signal(number)
            await duetime.logged("draining")
            duetime.signal(number)
            assert await duetime.exit() == 128 + number
        gate.open.set()
        async with serving(tmp_path) as again:
            await again.until_status("slow", "completed")
        assert len(receiver.requests) == 2


async def test_requests_under_way_are_answered_before_it_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as duetime:
        host, port = duetime.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = b'{"namespace": "default", "timerId": "absent"}'
        head = (
            f"POST /timers/get HTTP/1.1\r\nHost: x\r\nX-API-Key: {duetime.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body[:10])
        await duetime.call("GET", "/health")  # By its answer the other one's head is read too.
        duetime.signal(signal.SIGTERM)
        await duetime.logged("draining")
        writer.write(body[10:])
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 404 ")
            writer.close()
            assert await duetime.exit() == 0


@pytest.mark.slow
async def test_told_to_stop_while_it_starts_it_never_listens(tmp_path: Path) -> None:
    assert (await run(tmp_path, "migrate", DATABASE_URL=database_url(tmp_path))).code == 0
    lock = tmp_path / "duetime.db.lock"
    lock.unlink()
    database = sqlite3.connect(tmp_path / "duetime.db", isolation_level=None)
    with contextlib.closing(database):
        database.execute("BEGIN EXCLUSIVE")
        async with starting(tmp_path) as duetime:
            await eventually(lambda: lock.exists() and lock.read_text() != "")
            duetime.signal(signal.SIGTERM)
            assert await duetime.exit() == 0
            assert [line["event"] for line in duetime.log] == ["draining"]


async def test_an_idle_connection_does_not_hold_it_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as duetime:
        host, port = duetime.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        await duetime.call("GET", "/health")
        duetime.signal(signal.SIGTERM)
        async with asyncio.timeout(3):
            assert await duetime.exit() == 0
        writer.close()
