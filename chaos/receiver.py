"""The receiver of the load's callbacks: a process of its own, with a log that outlives it.

The path says how to answer, so that it answers the same after a restart:
`/ok`, `/slow/MS`, `/fail/N` (503 to the first N attempts), `/refuse` (400),
`/again/DUE` (asks to be called again, once, when scheduled at DUE).
Run as `python -m chaos.receiver PORT LOG`; it prints its port.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct
from msgspec.json import Decoder, decode, encode

from chaos.ledger import Arrival, Firing
from duetime.instants import format_instant, parse_instant
from duetime.testing.receiver import Receiver, Request, Response

ROOT = Path(__file__).resolve().parents[1]
AGAIN_AFTER_MS = 400
START_S_MAX = 30


class _Marks(Struct):
    """What every payload of the load holds."""

    key: str
    revision: int


class _V1Body(Struct):
    payload: _Marks


_v1 = Decoder(_V1Body).decode
_rest = Decoder(_Marks).decode


def arrival_of(request: Request) -> Arrival:
    marks = _rest(request.body) if request.path.startswith("/rest/") else _v1(request.body).payload
    return Arrival(
        request.at,
        Firing(
            marks.key,
            marks.revision,
            int(request.headers["x-timer-attempt"]),
            parse_instant(request.headers["x-timer-scheduled-at"]),
        ),
    )


async def answer(script: str, firing: Firing) -> Response:
    kind, _, value = script.partition("/")
    if kind == "slow":
        await asyncio.sleep(int(value) / 1000)
    elif kind == "fail" and firing.attempt <= int(value):
        return Response(503, b"not now")
    elif kind == "refuse":
        return Response(400, b"never")
    elif kind == "again" and firing.scheduled_at == int(value):
        next_at = format_instant(firing.scheduled_at + AGAIN_AFTER_MS)
        return Response(200, encode({"ok": False, "nextExecuteAt": next_at}))
    return Response()


class Log:
    """Arrivals, one a line, each written before it is answered: a killed receiver forgets none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def read(self) -> Iterator[Arrival]:
        for line in self._path.read_bytes().splitlines():
            yield decode(line, type=Arrival)


class ReceiverProcess:
    """The receiver as the harness holds it: it can be killed and come back on its port."""

    def __init__(self, log: Path) -> None:
        self.log = Log(log)
        self.url = ""
        self._path = log
        self._port = 0
        self._process: Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "chaos.receiver",
            str(self._port),
            str(self._path),
            cwd=ROOT,
            stdout=PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S_MAX):
            self._port = int(await self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self._port}"

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def _serve(port: int, log: Log) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    file = log.open()

    def script(request: Request) -> asyncio.Task[Response]:
        arrival = arrival_of(request)
        os.write(file, encode(arrival) + b"\n")
        path = request.path.removeprefix("/rest")[1:]
        return asyncio.ensure_future(answer(path, arrival.firing))

    async with Receiver(script, port=port) as receiver:
        click.echo(receiver.url.rpartition(":")[2])
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Log(Path(sys.argv[2]))))
