"""What one commit for many requests saves, and what its fence costs."""

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator, Sequence

from bench.bench import (
    CALLERS,
    FAR_FROM,
    SHARDS,
    Bench,
    Numbers,
    Running,
    far,
    per_timer,
)
from bench.client import send_all
from bench.processes import ROOT
from bench.score import percentile
from duetime.model import DEFAULT_NAMESPACE, Lease, Timer
from duetime.routing import shard_of, timer_uuid
from duetime.store import Batch, Store
from duetime.stores import store_from_url

OWNER = "bench"
PAYLOAD = b'{"data":"' + b"x" * 189 + b'"}'
FENCED = (16, 1_024)
ALONE = (sys.executable, "-m", "bench.alone", "serve")
# As at most one write for each shard is under way, far more shards than callers.
ONE_EACH = {
    "WRITE_BATCH_TIMERS_MAX": "1",
    "DEFAULT_NUM_SHARDS": "1024",
    "PYTHONPATH": str(ROOT),
}
ROOM = "?pool_size=80"
"""A connection for each caller; three quarters of the pool are for writes."""
ROWS = 1_024


async def group_commit(bench: Bench) -> Numbers:
    """From 50 connections: requests that share commits, and requests of a commit each."""
    count = bench.scale.commit_requests
    async with bench.warm() as running:
        together, together_ms = await _accept(bench, running, count)
    async with bench.warm(options=ROOM, command=ALONE, settings=ONE_EACH) as running:
        alone, alone_ms = await _accept(bench, running, count // 4)
    database = await bench.databases.new()
    store = store_from_url(database.url + ROOM)
    await store.open()
    try:
        direct = await _apply_each(store, count // 4)
    finally:
        await store.close()
    return {
        "grouped_per_s": together,
        "one_per_commit_per_s": alone,
        "one_per_commit_without_http_per_s": direct,
        "times": together / alone,
        "times_without_http": together / direct,
        "grouped_cpu_ms": together_ms,
        "one_per_commit_cpu_ms": alone_ms,
        "cpu_times": alone_ms / together_ms,
    }


async def _accept(bench: Bench, running: Running, count: int) -> tuple[float, float]:
    """How many a second, and what each costs server and database together."""
    far_ms = far()
    timers = {FAR_FROM + i: far_ms + i for i in range(count)}
    requests = list(bench.maker(running.server).singles(timers))
    before = running.cpu_s()
    taken_s = await send_all(running.server.port, requests, callers=CALLERS)
    return count / taken_s, sum(per_timer(before, running.cpu_s(), count).values())


async def _apply_each(store: Store, count: int) -> float:
    """The store alone, by as many callers, each waiting for an `apply` of its own: the same
    statement with one row in it."""
    leases = await store.claim(range(SHARDS), owner=OWNER, at=0)
    await _apply_all(store, _timers(0, CALLERS * 4), leases)  # Until it is connected and warm.
    timers = _timers(CALLERS * 4, count)
    started = time.perf_counter()
    await _apply_all(store, timers, leases)
    return count / (time.perf_counter() - started)


async def _apply_all(store: Store, timers: Iterator[Timer], leases: Sequence[Lease]) -> None:
    async def call() -> None:
        for timer in timers:
            assert not await store.apply([Batch(leases[timer.shard], [timer], [], [])])

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(call())


async def fence(bench: Bench) -> Numbers:
    """The share of a commit of 1,024 rows that goes into fencing 16 shards, and 1,024."""
    database = await bench.databases.new()
    store = database.store()
    await store.open()
    try:
        leases = await store.claim(range(max(FENCED)), owner=OWNER, at=0)
        found: Numbers = {}
        for shards in FENCED:
            found |= await _fence_of(store, leases[:shards], bench.scale.fence_calls)
        return found
    finally:
        await store.close()


async def _fence_of(store: Store, leases: list[Lease], calls: int) -> Numbers:
    full_ms, empty_ms, least_ms = [], [], []
    shards = len(leases)
    numbers = itertools.count(shards * 10_000_000, ROWS)
    # In turn, so that whatever else the machine does meets all three alike.
    for _ in range(calls):
        batches = [Batch(lease, [], [], []) for lease in leases]
        empty_ms.append(await _apply_ms(store, batches))
        least_ms.append(await _apply_ms(store, batches[:1]))
        for number, timer in enumerate(_timers(next(numbers), ROWS, shards)):
            batches[number % shards].puts.append(timer)
        full_ms.append(await _apply_ms(store, batches))
    full, empty, least = (percentile(sorted(ms), 0.5) for ms in (full_ms, empty_ms, least_ms))
    return {
        f"commit_of_{shards}_ms": full,
        f"fence_of_{shards}_ms": empty - least,
        f"fence_share_of_{shards}_percent": (empty - least) / full * 100,
    }


async def _apply_ms(store: Store, batches: list[Batch]) -> float:
    started = time.perf_counter()
    assert not await store.apply(batches)
    return (time.perf_counter() - started) * 1e3


def _timers(start: int, count: int, shards: int = 0) -> Iterator[Timer]:
    """Like those of requests; with `shards`, dealt out to so many in turn."""
    at = far()
    for number in range(start, start + count):
        name = str(number)
        yield Timer(
            namespace=DEFAULT_NAMESPACE,
            id=name,
            uuid=timer_uuid(DEFAULT_NAMESPACE, name),
            shard=number % shards if shards else shard_of(name, SHARDS),
            execute_at=at,
            callback_url=f"http://127.0.0.1:1/f/{number}",
            created_at=at,
            updated_at=at,
            scheduled_at=at,
            timeout_s=30,
            reply="v1",
            payload=PAYLOAD,
        )
