"""What a great many timers leave behind in PostgreSQL once they have passed through."""

import asyncio
import itertools
import time

import asyncpg

from bench.bench import BATCH_CALLERS, FAR_FROM, SHARDS, Bench, Numbers
from bench.client import Connection, connections
from bench.databases import Database
from bench.processes import Server
from bench.score import percentile
from bench.timers import BATCH
from duetime.model import CURSOR_MIN
from duetime.store import DueRead

OUTSTANDING_MAX = 40_000
"""Created and not yet fired: the driver waits for the server there."""
POLL_S = 0.05
DUE_MS = 1_000
READS = 200
VACUUMED_S = 75
"""Autovacuum looks at a database once a minute."""
SIZES = """
    SELECT sum(pg_total_relation_size(relid)), sum(pg_relation_size(relid)), sum(n_dead_tup),
        sum(n_live_tup), sum(autovacuum_count)
    FROM pg_stat_user_tables WHERE relname LIKE 'timers\\_%'
"""


async def wear(bench: Bench) -> Numbers:
    """Each is created, fires a second later, and is gone."""
    count = bench.scale.wear_timers
    async with bench.warm() as running:
        new = await _due_read_ms(running.database)
        began_s = time.time()
        passing = asyncio.create_task(_pass(bench, running.server, count))
        busy: list[float] = []
        while not passing.done():
            busy.append(await _due_read_ms(running.database, reads=1))
            await asyncio.wait([passing], timeout=1)
        await passing
        await bench.receiver.wait(count)
        took_s = time.time() - began_s
        missing = count - len({number for number, _ in await bench.receiver.arrivals()})
        await asyncio.sleep(bench.scale.rest_s)
        after = await _due_read_ms(running.database)
        total, heap, dead, live, vacuums = await _sizes(running.database)
        await asyncio.sleep(VACUUMED_S if bench.scale.idle_s > 1 else 0)
        rested = await _due_read_ms(running.database)
        _, _, rested_dead, _, _ = await _sizes(running.database)
    busy.sort()
    return {
        "timers": count,
        "passed_per_s": count / took_s,
        "missing": missing,
        "hot_table_mb": total / 1e6,
        "hot_table_without_indexes_mb": heap / 1e6,
        "live_rows": live,
        "dead_rows": dead,
        "dead_rows_rested": rested_dead,
        "vacuums": vacuums,
        "due_read_new_ms": new,
        "due_read_busy_p50_ms": percentile(busy, 0.5),
        "due_read_busy_p99_ms": percentile(busy, 0.99),
        "due_read_after_ms": after,
        "due_read_rested_ms": rested,
    }


async def _pass(bench: Bench, server: Server, count: int) -> None:
    sent = arrived = 0
    numbers = itertools.count(FAR_FROM, BATCH)

    async def call(connection: Connection) -> None:
        nonlocal sent
        while sent < count:
            if sent - arrived > OUTSTANDING_MAX:
                await asyncio.sleep(POLL_S)
                continue
            first = next(numbers)
            size = min(BATCH, count - sent)
            sent += size
            due_ms = round(time.time() * 1e3) + DUE_MS
            timers = dict.fromkeys(range(first, first + size), due_ms)
            (request,) = maker.batches(timers)
            status, body = await connection.request(request)
            if status != 200 or b'"error":' in body:
                raise RuntimeError(f"answered {status}: {body[:500]!r}")

    async def watch() -> None:
        nonlocal arrived
        while True:
            arrived = await bench.receiver.count()
            await asyncio.sleep(POLL_S)

    maker = bench.maker(server)
    async with connections(server.port, BATCH_CALLERS) as opened, asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        await asyncio.gather(*map(call, opened))
        watching.cancel()


async def _due_read_ms(database: Database, *, reads: int = READS) -> float:
    """The first timer of every shard, as a node looks that has just taken them over: what lies
    dead before it is walked over. The median."""
    store = database.store()
    await store.open()
    try:
        until = round(time.time() * 1e3) + 300_000
        wanted = [DueRead(shard, CURSOR_MIN, until, 1) for shard in range(SHARDS)]
        await store.due(wanted)
        taken_ms = []
        for _ in range(reads):
            began = time.perf_counter()
            await store.due(wanted)
            taken_ms.append((time.perf_counter() - began) * 1e3)
        return percentile(sorted(taken_ms), 0.5)
    finally:
        await store.close()


async def _sizes(database: Database) -> tuple[int, int, int, int, int]:
    connection = await asyncpg.connect(database.url)
    try:
        row = await connection.fetchrow(SIZES)
        total, heap, dead, live, vacuums = map(int, row)
        return total, heap, dead, live, vacuums
    finally:
        await connection.close()
