"""Several nodes on one database: what a second one adds, and what it costs to lose one."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.json import decode

from bench.bench import (
    BATCH_CALLERS,
    BURST_FROM,
    CALLERS,
    FAR_FROM,
    SHARDS,
    SPREAD_FROM,
    Bench,
    Numbers,
    far,
    fired,
    numbers,
    until,
)
from bench.client import connections, post, send_all
from bench.processes import Server, fetch, usage
from bench.quota import held_to
from bench.score import Score, score
from bench.timers import Due
from duetime.routing import shard_of

CORE_SHARE = 0.2
"""Of each worker: two of them, their database, the receiver and the driver fit on two cores."""
WORKERS = (1, 2)

PER_S = 100
BEFORE_S = 3
AFTER_S = 12
"""How many timers come due a second, and for how long before and after a node goes."""
MOVED_S_MAX = 30
CLUSTER = "/api/v1/cluster"


async def workers(bench: Bench) -> Numbers:
    """One worker and two, each held to the same share of a core."""
    found: Numbers = {"core_share": CORE_SHARE}
    for count in WORKERS:
        found |= await _workers(bench, count)
    one, two = WORKERS
    for what in ("accept", "batches", "fire"):
        found[f"{what}_times"] = (
            found[f"{what}_per_s_with_{two}"] / found[f"{what}_per_s_with_{one}"]
        )
        # How much of it is work that a lone worker does not have: passing on to each other.
        found[f"{what}_cpu_times"] = (
            found[f"{what}_cpu_ms_with_{two}"] / found[f"{what}_cpu_ms_with_{one}"]
        )
    return found


async def _workers(bench: Bench, count: int) -> Numbers:
    scale = bench.scale
    async with bench.warm(workers=count) as running:
        server, make = running.server, bench.maker(running.server)
        nodes = server.workers()
        await _balanced(server, count)
        far_ms = far()
        found: Numbers = {}

        @asynccontextmanager
        async def measured(what: str, timers: int) -> AsyncIterator[None]:
            with held_to(CORE_SHARE, nodes):
                before_s, began = sum(usage(pid).cpu_s for pid in nodes), time.perf_counter()
                yield
                took_s = time.perf_counter() - began
                cpu_s = sum(usage(pid).cpu_s for pid in nodes) - before_s
            found[f"{what}_per_s_with_{count}"] = timers / took_s
            found[f"{what}_cpu_ms_with_{count}"] = cpu_s / timers * 1e3
            found[f"{what}_cores_with_{count}"] = cpu_s / took_s

        singles = {FAR_FROM + i: far_ms + i for i in range(scale.worker_accepts)}
        batched = {FAR_FROM * 2 + i: far_ms + i for i in range(scale.worker_accepts * 5)}
        for what, timers, build, callers in (
            ("accept", singles, make.singles, CALLERS),
            ("batches", batched, make.batches, BATCH_CALLERS),
        ):
            requests = list(build(timers))
            async with measured(what, len(timers)):
                await send_all(server.port, requests, callers=callers)
        due_ms = math.ceil(time.time() + scale.lead_s) * 1000
        timers = dict.fromkeys(numbers(BURST_FROM, scale.worker_fires), due_ms)
        await bench.load(server, timers)
        await until(due_ms / 1e3)
        async with measured("fire", len(timers)):
            await bench.receiver.wait(len(timers), step_s=0.02)
        result = score(await bench.receiver.arrivals(), timers)
        # From the due instant to the last arrival, as everywhere.
        found[f"fire_per_s_with_{count}"] = result.drain_per_s
        found[f"missing_with_{count}"] = result.missing
    return found


async def takeover(bench: Bench) -> Numbers:
    """kill -9 one of two nodes: when its timers go on firing, at the other one."""
    async with _pair(bench) as pair:
        steady = await _begin(bench, pair)
        await until(steady.from_s + BEFORE_S)
        await pair.goes.kill()
        killed_s = time.time()
        result = await _end(bench, steady)
        theirs = {
            number: due_ms
            for number, due_ms in steady.timers.items()
            # A callback that was under way arrives as well; it was not taken over.
            if due_ms / 1e3 > killed_s + 0.1 and shard_of(str(number), SHARDS) in pair.shards
        }
        first_ns = min(at for number, at in await bench.receiver.arrivals() if number in theirs)
    return {
        "shards": len(pair.shards),
        "first_overdue_s": first_ns / 1e9 - killed_s,
        **fired(result),
    }


async def drain(bench: Bench) -> Numbers:
    """Have one of two nodes hand its shards to the other one, under load."""
    async with _pair(bench) as pair:
        steady = await _begin(bench, pair)
        await until(steady.from_s + BEFORE_S)
        began_s = time.time()
        request = post(f"{CLUSTER}/drain", b'{"node":"goes"}', pair.stays.key)
        async with connections(pair.stays.port, 1) as (connection,):
            answer = await connection.request(request)
        if answer.status != 200:
            raise RuntimeError(f"drain answered {answer.status}: {answer.body[:500]!r}")
        while len((await _owned(pair.stays)).get("stays", ())) < SHARDS:
            if time.time() > began_s + MOVED_S_MAX:
                raise RuntimeError("the shards did not all move")
            await asyncio.sleep(0.01)
        drained_s = time.time() - began_s
        result = await _end(bench, steady)
    return {"shards": len(pair.shards), "drained_s": drained_s, **fired(result)}


class Pair(Struct, frozen=True):
    """Two nodes that share the shards."""

    stays: Server
    goes: Server
    shards: set[int]
    """Of the one that goes."""


class Steady(Struct, frozen=True):
    """Timers that come due in a steady stream."""

    timers: Due
    from_s: float


@asynccontextmanager
async def _pair(bench: Bench) -> AsyncIterator[Pair]:
    database = await bench.databases.new()
    stays = Server(database.url, home=bench.home(), settings={"NODE_NAME": "stays"})
    settings = {"NODE_NAME": "goes"}
    goes = Server(database.url, home=bench.home(), key=stays.key, settings=settings)
    async with stays, goes:
        shards = await _balanced(stays, len((stays, goes)))
        await bench.warm_up(stays)
        yield Pair(stays, goes, shards["goes"])


async def _begin(bench: Bench, pair: Pair) -> Steady:
    from_ms = math.ceil(time.time() + bench.scale.rest_s) * 1000
    step_ms = 1000 // PER_S
    count = (BEFORE_S + AFTER_S) * PER_S
    timers = {
        number: from_ms + index * step_ms
        for index, number in enumerate(numbers(SPREAD_FROM, count))
    }
    await bench.load(pair.stays, timers)
    return Steady(timers, from_ms / 1e3)


async def _end(bench: Bench, steady: Steady) -> Score:
    await until(steady.from_s + BEFORE_S + AFTER_S)
    await bench.receiver.wait(len(steady.timers))
    return score(await bench.receiver.arrivals(), steady.timers)


async def _balanced(server: Server, nodes: int) -> dict[str, set[int]]:
    """Wait until this many nodes own all shards, each some; who owns which."""
    async with asyncio.timeout(30):
        while True:
            owned = await _owned(server)
            if len(owned) == nodes and sum(map(len, owned.values())) == SHARDS:
                return owned
            await asyncio.sleep(0.05)


async def _owned(server: Server) -> dict[str, set[int]]:
    """The shards of each node that owns any, as the database has it."""
    answer = await fetch(server.port, CLUSTER, server.key)
    owned: dict[str, set[int]] = {}
    for shard in decode(answer.body, type=_Cluster).shards:
        if shard.owner is not None:
            owned.setdefault(shard.owner, set()).add(shard.number)
    return owned


class _Shard(Struct):
    number: int
    owner: str | None


class _Cluster(Struct):
    shards: list[_Shard]
