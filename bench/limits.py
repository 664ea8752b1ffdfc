"""What the machine itself can do, measured in the same run: the ceilings to compare with."""

import asyncio
import os
import sqlite3
import ssl
import time
from contextlib import closing
from pathlib import Path

from bench.client import post
from bench.processes import Receiver
from bench.score import percentile
from bench.timers import PAYLOAD
from duetime.callback import parse_url
from duetime.delivery.client import HttpClient
from duetime.delivery.guard import AddressGuard
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
    """Duetime's own HTTP client and nothing else, `IN_FLIGHT` requests at a time."""
    client = HttpClient(
        AddressGuard(("127.0.0.0/8",), allow_local=False),
        ssl_context=ssl.create_default_context(),
        response_bytes_max=65_536,
    )
    relay = _Relay(client, port)
    try:
        for _ in range(IN_FLIGHT):
            relay.send()
        await asyncio.sleep(seconds / 4)  # Until every connection is open and all code warm.
        answered, started = relay.answered, time.perf_counter()
        await asyncio.wait([relay.failed], timeout=seconds)
        if relay.failed.done():
            raise RuntimeError(f"the client alone failed: {relay.failed.result()}")
        return (relay.answered - answered) / (time.perf_counter() - started)
    finally:
        await client.close()


class _Relay:
    """Posts without end: each one answered sends the next."""

    def __init__(self, client: HttpClient, port: int) -> None:
        self._client = client
        self._target = parse_url(f"http://127.0.0.1:{port}/f/1")
        self._request = post("/f/1", PAYLOAD.encode(), key="")
        self.answered = 0
        self.failed: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def send(self) -> None:
        self._client.send(self._target, self._request, 30.0, self._done, stands=_always)

    def _done(self, answer: Answer) -> None:
        if answer.status == 200:
            self.answered += 1
            self.send()
        elif not self.failed.done():
            self.failed.set_result(answer)


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


def _always() -> bool:
    return True
