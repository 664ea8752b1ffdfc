"""What a node costs that owns thousands of shards in which nothing happens."""

import asyncio
import time

from bench.bench import Bench, Numbers
from bench.processes import Server


async def idle_shards(bench: Bench) -> Numbers:
    """Start on a new database, stop, start again, and do nothing."""
    database = await bench.databases.new()
    count = bench.scale.idle_shards
    server = Server(database.url, home=bench.home(), settings={"DEFAULT_NUM_SHARDS": str(count)})
    began = time.monotonic()
    async with server:
        new_s = time.monotonic() - began
        await server.stop()
        began = time.monotonic()
        await server.start()
        again_s = time.monotonic() - began
        await asyncio.sleep(bench.scale.rest_s)
        before = server.usage()
        await asyncio.sleep(bench.scale.idle_s)
        after = server.usage()
    return {
        "shards": count,
        "start_s": again_s,
        "start_on_new_database_s": new_s,
        "idle_cpu_percent": (after.cpu_s - before.cpu_s) / bench.scale.idle_s * 100,
        "rss_mb": after.rss_bytes / 1e6,
    }
