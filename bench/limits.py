"""What the machine itself can do, measured in the same run: the ceilings to compare with."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from duetime.delivery.http import HttpCarrier

from bench.processes import Receiver
from bench.score import percentile
from bench.timers import PAYLOAD
from duetime.delivery.guard import AddressGuard
from duetime.firing import Carrier
from duetime.model import Timer
from duetime.retry import Answer

ROW = "x" * 300
ROWS_PER_COMMIT = 4_000
IN_FLIGHT = 200


async def limits(receiver: Receiver, work: Path, *, seconds: float) -> dict[str, float]:
    await receiver.reset()
    return {
        "client_posts_per_s": await client_posts_per_s(receiver.port, seconds),
        **await asyncio.to_thread(_disk, work, seconds),
    }


async def client_posts_per_s(port: int, seconds: float) -> float:
    """Our own HTTP client alone: as many posts as it makes, `IN_FLIGHT` at a time."""
    carrier = HttpCarrier(
        guard=AddressGuard(("127.0.0.0/8",), allow_local=False),
        tls_verify=True,
        ca_file=None,
        response_bytes_max=65_536,
    )
    race = _Race(carrier, asyncio.get_running_loop().create_future())
    try:
        for number in range(IN_FLIGHT):
            race.send(number, port)
        await asyncio.sleep(seconds / 4)  # Until every connection is open and all code warm.
        answered, started = race.answered, time.perf_counter()
        with suppress(TimeoutError):
            await asyncio.wait_for(race.failed, seconds)
        return (race.answered - answered) / (time.perf_counter() - started)
    finally:
        race.over = True
        await carrier.close()


class _Race:
    """Posts without end: each one answered sends the next."""

    def __init__(self, carrier: Carrier, failed: "asyncio.Future[None]") -> None:
        self.carrier = carrier
        self.failed = failed
        self.answered = 0
        self.over = False

    def send(self, number: int, port: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        timer = Timer(
            namespace="default",
            id=str(number),
            uuid=number.to_bytes(16),
            shard=0,
            execute_at=now_ms,
            callback_url=f"http://127.0.0.1:{port}/f/{number}",
            created_at=now_ms,
            updated_at=now_ms,
            scheduled_at=now_ms,
            timeout_s=30,
            reply="v1",
            payload=PAYLOAD.encode(),
        )
        self.carrier.send(_Post(timer, self))


class _Post:
    number = 1

    def __init__(self, timer: Timer, race: _Race) -> None:
        self.timer = timer
        self._race = race

    def answered(self, answer: Answer) -> None:
        race = self._race
        if race.over or race.failed.done():
            return
        if answer.status != 200:
            race.failed.set_exception(RuntimeError(f"the client failed: {answer}"))
            return
        race.answered += 1
        race.carrier.send(self)


def _disk(work: Path, seconds: float) -> dict[str, float]:
    return {
        "sqlite_commits_per_s": _sqlite(work / "commits.db", rows_per_commit=1, seconds=seconds),
        "sqlite_rows_per_s": _sqlite(
            work / "rows.db", rows_per_commit=ROWS_PER_COMMIT, seconds=seconds
        ),
        **_fsync(work / "fsync", seconds),
    }


def _sqlite(path: Path, *, rows_per_commit: int, seconds: float) -> float:
    """Rows a second into a table of the shape of a timer's row, durable at each commit."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute(
            "CREATE TABLE t (at INTEGER, id BLOB, row TEXT, PRIMARY KEY (at, id)) WITHOUT ROWID"
        )
        rows = 0
        started = time.perf_counter()
        while (taken_s := time.perf_counter() - started) < seconds:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO t VALUES (?, ?, ?)",
                ((n, os.urandom(16), ROW) for n in range(rows, rows + rows_per_commit)),
            )
            db.execute("COMMIT")
            rows += rows_per_commit
        return rows / taken_s


def _fsync(path: Path, seconds: float) -> dict[str, float]:
    """How long one 4 KiB page takes to the disk."""
    taken_ms: list[float] = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        deadline = time.perf_counter() + seconds
        while (began := time.perf_counter()) < deadline:
            os.pwrite(descriptor, bytes(4096), len(taken_ms) * 4096)
            os.fdatasync(descriptor)
            taken_ms.append((time.perf_counter() - began) * 1e3)
    finally:
        os.close(descriptor)
    taken_ms.sort()
    return {"fsync_p50_ms": percentile(taken_ms, 0.5), "fsync_p99_ms": percentile(taken_ms, 0.99)}
