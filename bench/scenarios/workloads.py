"""The workloads that published job queues were measured with, under the same definitions:
lateness is arrival minus due, and a drain is counted from the due instant to the last arrival.

Each starts a fresh server on a fresh database, drives it, and says what it saw.
"""

import asyncio
import itertools
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

from bench.bench import (
    BATCH_CALLERS,
    BURST_FROM,
    CALLERS,
    FAR_FROM,
    SHARDS,
    SPREAD_FROM,
    WARM,
    Bench,
    Numbers,
    Running,
    far,
    fired,
    numbers,
    per_timer,
    until,
)
from bench.client import Connection, connections, send_all
from bench.processes import Server
from bench.records import recorded
from bench.score import percentile, score
from bench.timers import BATCH, Due

Build = Callable[[Due], Iterator[bytes]]


async def burst(bench: Bench) -> Numbers:
    """All timers due at one instant."""
    return await _burst(bench, callers=0)


async def burst_loaded(bench: Bench) -> Numbers:
    """The same, while one connection creates far timers one by one as fast as it can."""
    return await _burst(bench, callers=1)


async def _burst(bench: Bench, *, callers: int) -> Numbers:
    async with bench.warm() as running:
        server = running.server
        due_ms = math.ceil(time.time() + bench.scale.lead_s) * 1000
        timers = dict.fromkeys(numbers(BURST_FROM, bench.scale.burst_timers), due_ms)
        loaded_s = await bench.load(server, timers)
        spare_s = await until(due_ms / 1e3 - 1.0) + 1.0
        async with _creating(bench, server, callers) as created:
            await until(due_ms / 1e3)
            cpu_s = running.cpu_s()
            arrived = await bench.receiver.wait(len(timers))
        durable_s = await bench.settled(server, WARM + arrived) - due_ms / 1e3
        used = per_timer(cpu_s, running.cpu_s(), len(timers))
        result = score(await bench.receiver.arrivals(), timers)
    found = {
        "timers": len(timers),
        "load_per_s": len(timers) / loaded_s,
        "spare_s": spare_s,
        **fired(result),
        "drain_per_s": result.drain_per_s,
        "first_to_last_per_s": result.span_per_s,
        "durable_per_s": arrived / durable_s,
        **used,
    }
    if callers:
        due_s = due_ms / 1e3
        before = [end - begin for begin, end in created if end < due_s]
        drained_s = due_s + result.drain_s
        during = [end - begin for begin, end in created if end > due_s and begin < drained_s]
        found |= {
            "create_before_per_s": len(before),
            "create_per_s": len(during) / result.drain_s,
            "create_p50_ms": percentile(sorted(during), 0.5) * 1e3,
            "create_max_ms": max(during) * 1e3,
        }
    return found


@asynccontextmanager
async def _creating(
    bench: Bench, server: Server, callers: int
) -> AsyncIterator[list[tuple[float, float]]]:
    """Create far timers all the while; yields the list of when each was sent and accepted."""
    far_ms = far()
    maker = bench.maker(server)
    created: list[tuple[float, float]] = []

    async def create(connection: Connection) -> None:
        for number in itertools.count(FAR_FROM):
            (request,) = maker.singles({number: far_ms})
            begin = time.time()
            status, body = await connection.request(request)
            if status != 200:
                raise RuntimeError(f"create answered {status}: {body[:500]!r}")
            created.append((begin, time.time()))

    async with connections(server.port, callers) as opened, asyncio.TaskGroup() as group:
        tasks = [group.create_task(create(connection)) for connection in opened]
        yield created
        for task in tasks:
            task.cancel()


async def spread(bench: Bench) -> Numbers:
    """Timers at random milliseconds."""
    async with bench.warm() as running:
        return await spread_of(bench, running, bench.scale.spread_s)


async def spread_of(bench: Bench, running: Running, seconds: int) -> Numbers:
    """On a server that may have other timers."""
    from_ms = math.ceil(time.time() + bench.scale.lead_s) * 1000
    chance = random.Random(7)
    count = bench.scale.spread_per_s * seconds
    timers = {
        number: from_ms + chance.randrange(seconds * 1000) for number in numbers(SPREAD_FROM, count)
    }
    loaded_s = await bench.load_one_by_one(running.server, timers)
    spare_s = await until(from_ms / 1e3)
    cpu_s = running.cpu_s()
    await until(from_ms / 1e3 + seconds)
    await bench.receiver.wait(count)
    used = per_timer(cpu_s, running.cpu_s(), count)
    result = score(await bench.receiver.arrivals(), timers)
    return {
        "timers": count,
        "load_one_by_one_per_s": count / loaded_s,
        "spare_s": spare_s,
        **fired(result),
        **used,
    }


async def backlog(bench: Bench) -> Numbers:
    """A great many far timers: what they cost lying there, and what they do to a spread."""
    async with bench.warm() as running:
        server = running.server
        disk_bytes = running.database.disk_bytes
        before, disk_before = server.usage(), await asyncio.to_thread(disk_bytes)
        count = bench.scale.backlog_timers
        far_ms = far()
        loaded_s = await bench.load(server, {FAR_FROM + i: far_ms + i for i in range(count)})
        await asyncio.sleep(bench.scale.rest_s)
        after, disk_after = server.usage(), await asyncio.to_thread(disk_bytes)
        await asyncio.sleep(bench.scale.idle_s)
        idle = server.usage()
        result = await spread_of(bench, running, bench.scale.backlog_spread_s)
        grown = max(after.rss_bytes, server.usage().rss_bytes) - before.rss_bytes
    reads: Numbers = {}
    if running.database.pid is None:  # Else it is not threads of ours that read.
        wakeups = idle.store_wakeups - after.store_wakeups
        reads["idle_reads_per_min"] = wakeups / bench.scale.idle_s * 60
    return {
        "backlog": count,
        "load_per_s": count / loaded_s,
        "rss_before_mb": before.rss_bytes / 1e6,
        "rss_after_mb": after.rss_bytes / 1e6,
        "rss_growth_mb": grown / 1e6,
        "disk_bytes_per_timer": (disk_after - disk_before) / count,
        "idle_cpu_percent": (idle.cpu_s - after.cpu_s) / bench.scale.idle_s * 100,
        **reads,
        **{f"spread_{name}": value for name, value in result.items()},
    }


async def accept(bench: Bench) -> Numbers:
    """How fast far timers are accepted, durably: one by one, and by batches."""
    scale, far_ms = bench.scale, far()
    async with bench.warm() as running:
        server = running.server
        make, sent = bench.maker(server), 0

        async def rate(count: int, build: Build, *, callers: int) -> float:
            nonlocal sent
            timers = {FAR_FROM + sent + i: far_ms + i for i in range(count)}
            sent += count
            # Built before the clock starts: what is measured is the server.
            requests = list(build(timers))
            return count / await send_all(server.port, requests, callers=callers)

        batched = scale.accept_batches * BATCH
        one_by_one = await rate(scale.accept_timers, make.singles, callers=CALLERS)
        one_connection = await rate(batched // 4, make.batches, callers=1)
        batches = await rate(batched, make.batches, callers=BATCH_CALLERS)
        stored = await server.total("pending")
    return {
        "timers": sent,
        "one_by_one_per_s": one_by_one,
        "batches_per_s": batches,
        "batches_one_connection_per_s": one_connection,
        "missing": sent - stored,
    }


async def kill(bench: Bench) -> Numbers:
    """kill -9 in the middle of a burst, and again a server one second later."""
    async with bench.warm() as running:
        server = running.server
        due_ms = math.ceil(time.time() + bench.scale.lead_s) * 1000
        timers = dict.fromkeys(numbers(BURST_FROM, bench.scale.burst_timers), due_ms)
        await bench.load(server, timers)
        spare_s = await until(due_ms / 1e3)
        # Not at a round number: who works by batches must be killed within one.
        await bench.receiver.wait(math.ceil(len(timers) * 0.26), step_s=0.01)
        await server.kill()
        killed_s = time.time()
        await asyncio.sleep(1)
        at_kill = score(await bench.receiver.arrivals(), timers).arrived
        unrecorded = at_kill - (await recorded(running.database, num_shards=SHARDS) - WARM)
        restarted_s = await server.start()
        with suppress(TimeoutError):  # Then some are missing, which is what it shall say.
            await bench.settled(server, WARM + len(timers))
        arrivals = await bench.receiver.arrivals()
    after_s = [at_ns / 1e9 for _, at_ns in arrivals if at_ns / 1e9 > killed_s + 0.5]
    result = score(arrivals, timers)
    found: Numbers = {
        "timers": len(timers),
        "spare_s": spare_s,
        "at_kill": at_kill,
        "unrecorded_at_kill": unrecorded,
        "missing": result.missing,
        "early": result.early,
        "duplicates": result.duplicates,
    }
    if after_s:
        found["first_after_restart_s"] = min(after_s) - restarted_s
        found["last_after_restart_s"] = max(after_s) - restarted_s
    return found
