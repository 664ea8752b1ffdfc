"""A crowd at the door: thousands that say nothing, hundreds that say it slowly, some that never
stop. Timers fire on time meanwhile, and memory does not grow with the noise."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from chaos.receiver import ReceiverProcess
from tests.acceptance.processes import Duetime, serving

from duetime.clock import SystemClock
from duetime.instants import format_instant
from fuzz.report import Report

IDLE = 10_000
SLOW = 200
SLOW_BYTE_S = 1.0
HALF_CLOSED = 200
FLOODS = 2
FLOOD = b"GET / HTTP/1.1\r\n\r\n" * 5_000
SECONDS = 30
TIMERS_PER_S = 50
LATE_P99_MS_MAX = 250
GROWTH_MIB_MAX = 200
AGAIN_MIB_MAX = 20
HEALTH_S_MAX = 5.0
# What the server keeps for itself, by its own arithmetic, and what we need here.
SERVER_FILES = 3_256
OWN_FILES = 1_000

_clock = SystemClock()


async def run(directory: Path, seed: int) -> Report:
    report = Report()
    receiver = ReceiverProcess(directory / "arrivals.log")
    await receiver.start()
    try:
        async with serving(directory) as duetime:
            await _run(duetime, receiver, report)
            report.problems += [str(it) for it in duetime.log if it.get("level") != "info"]
    finally:
        await receiver.kill()
    return report


async def _run(duetime: Duetime, receiver: ReceiverProcess, report: Report) -> None:
    dues = await _create_timers(duetime, receiver)
    before = _memory_mib(duetime)
    idle = _idle_possible()
    port = int(duetime.url.rpartition(":")[2])
    slowest_health_s = 0.0
    async with _silent(port, idle), _noise(port):
        while _clock.now() < max(dues.values()):
            asked = _clock.monotonic()
            async with asyncio.timeout(HEALTH_S_MAX):
                status, _ = await duetime.call("GET", "/health")
            assert status == 200
            slowest_health_s = max(slowest_health_s, _clock.monotonic() - asked)
            await asyncio.sleep(0.5)
        most = _memory_mib(duetime)
    async with _silent(port, idle):
        again = _memory_mib(duetime)

    late = sorted(arrival.at - dues[arrival.firing.key] for arrival in receiver.log.read())
    p99 = late[len(late) * 99 // 100]
    for name, value, value_max in (
        ("timers that did not arrive", len(dues) - len(late), 0),
        ("ms early", -late[0], 0),
        ("ms late at the 99th percentile", p99, LATE_P99_MS_MAX),
        ("MiB grown meanwhile", most - before, GROWTH_MIB_MAX),
        ("MiB grown by a second crowd", again - most, AGAIN_MIB_MAX),
    ):
        if value > value_max:
            report.problems.append(f"{value} {name}, at most {value_max} are allowed")
    report.add("idle connections", idle)
    report.add("slow connections", SLOW)
    report.add("timers on time meanwhile", len(late))
    report.add("late at the 99th percentile", p99, " ms")
    report.add("slowest /health", int(slowest_health_s * 1000), " ms")
    report.add("of memory", before, f" MiB, {most} with the crowd, {again} with a second one")


async def _create_timers(duetime: Duetime, receiver: ReceiverProcess) -> dict[str, int]:
    """One every so often, from when the crowd will have gathered until it leaves."""
    start = _clock.now() + 3_000
    dues = {str(n): start + n * 1_000 // TIMERS_PER_S for n in range(SECONDS * TIMERS_PER_S)}
    timers = [
        {
            "namespace": "default",
            "id": key,
            "executeAt": format_instant(due),
            "callbackUrl": f"{receiver.url}/ok",
            "payload": {"key": key, "revision": 1},
        }
        for key, due in dues.items()
    ]
    for first in range(0, len(timers), 500):
        batch = {"timers": timers[first : first + 500]}
        status, answer = await duetime.call("POST", "/timers/batch", batch)
        assert status == 200
        assert all("timer" in result for result in answer["results"])
    return dues


def _idle_possible() -> int:
    """How many idle connections the limits of open files let both sides have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    of_server = max(hard // 4, hard - SERVER_FILES) - SLOW - HALF_CLOSED - FLOODS - 100
    return max(0, min(IDLE, hard - OWN_FILES, of_server))


@asynccontextmanager
async def _silent(port: int, number: int) -> AsyncIterator[None]:
    """So many connections that say nothing."""
    loop = asyncio.get_running_loop()
    sockets = []
    try:
        for _ in range(number):
            connection = socket.socket()
            sockets.append(connection)
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port))
        yield
    finally:
        for connection in sockets:
            connection.close()


@asynccontextmanager
async def _noise(port: int) -> AsyncIterator[None]:
    """Slow ones, half-closed ones, and ones that send ahead without end, until the block ends."""
    async with asyncio.TaskGroup() as tasks:
        noise = [
            *(tasks.create_task(_again(_slow, port)) for _ in range(SLOW)),
            *(tasks.create_task(_again(_half_closed, port)) for _ in range(HALF_CLOSED)),
            *(tasks.create_task(_again(_flood, port)) for _ in range(FLOODS)),
        ]
        try:
            yield
        finally:
            for task in noise:
                task.cancel()


async def _again(
    behave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], port: int
) -> None:
    """Whoever is thrown out comes back."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await behave(reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.1)


async def _slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A head without end, a byte at a time."""
    writer.write(b"GET /timers HTTP/1.1\r\nX-Slow: ")
    ended = asyncio.ensure_future(reader.read())
    try:
        while not ended.done():
            writer.write(b"x")
            await asyncio.wait((ended,), timeout=SLOW_BYTE_S)
    finally:
        ended.cancel()


async def _half_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Half a request, and then nothing more to say, but all the time to listen."""
    writer.write(b"POST /timers HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    writer.write_eof()
    await reader.read()
    await asyncio.sleep(1)


async def _flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests sent ahead, the answers read, garbage after a while."""

    async def listen() -> None:
        while await reader.read(65_536):
            pass

    listening = asyncio.ensure_future(listen())
    try:
        for _ in range(20):
            writer.write(FLOOD)
            await writer.drain()
        writer.write(b"\0\r\n\r\n")
        await listening
    finally:
        listening.cancel()


def _memory_mib(duetime: Duetime) -> int:
    pages = Path(f"/proc/{duetime.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize() >> 20
