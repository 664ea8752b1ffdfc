"""The workloads. Each starts a fresh server on a fresh file, drives it, and says what it saw.

The bursts, the spread, the backlog and the kill are those that published job queues were
measured with, under the same definitions: lateness is arrival minus due, and a drain is
counted from the due instant to the last arrival.
"""

import asyncio
import itertools
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from bench.client import Connection, connections, send_all
from bench.limits import limits
from bench.processes import Receiver, Server
from bench.records import recorded
from bench.score import Score, score
from bench.timers import BATCH, Due, Maker

Numbers = dict[str, float]
Build = Callable[[Due], Iterator[bytes]]

BATCH_CALLERS = 4
CALLERS = 50
WARM = 200

# Each scenario has a fresh database, so these never meet; apart, they are easy to tell in it.
BURST_FROM, SPREAD_FROM, FAR_FROM = 1_000_000, 2_000_000, 10_000_000


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    burst_timers: int = 20_000
    spread_per_s: int = 200
    spread_s: int = 60
    backlog_timers: int = 1_000_000
    backlog_spread_s: int = 20
    idle_s: int = 60
    accept_timers: int = 40_000
    accept_batches: int = 200
    lead_s: int = 8
    """From the start of loading to the first due instant."""
    rest_s: int = 5
    """Between loading the backlog and looking at it: as long as the peers were given."""
    limits_s: float = 3.0


FULL = Scale()
QUICK = Scale(
    burst_timers=1_000,
    spread_per_s=50,
    spread_s=2,
    backlog_timers=5_000,
    backlog_spread_s=2,
    idle_s=1,
    accept_timers=1_000,
    accept_batches=4,
    lead_s=2,
    rest_s=1,
    limits_s=0.2,
)


class Bench:
    """What scenarios share: the receiver, how much to do, where to put files."""

    def __init__(self, receiver: Receiver, scale: Scale, work: Path) -> None:
        self.receiver = receiver
        self.scale = scale
        self.work = work
        self._homes = itertools.count()

    @asynccontextmanager
    async def warm_server(self) -> AsyncIterator[Server]:
        """A server on a new file that has fired some timers, so that all of its code is warm."""
        home = self.work / f"server-{next(self._homes)}"
        async with Server(home, log=self.work / "server.log") as server:
            await self.receiver.reset()
            due = math.ceil(time.time() + 2) * 1000
            await self.load(server, dict.fromkeys(range(WARM), due))
            if await self.receiver.wait(WARM) != WARM:
                raise RuntimeError("the warm-up timers did not all fire")
            await self._settled(server, WARM)
            await self.receiver.reset()
            yield server

    def maker(self, server: Server) -> Maker:
        return Maker(key=server.key, receiver_port=self.receiver.port)

    async def load(self, server: Server, timers: Due) -> float:
        """Create them by batches; the seconds it took."""
        return await send_all(
            server.port, self.maker(server).batches(timers), callers=BATCH_CALLERS
        )

    async def _settled(self, server: Server, completed: int) -> float:
        """Wait until the database says that this many are completed; when it did."""
        async with asyncio.timeout(30):
            while await server.total("completed") < completed:
                await asyncio.sleep(0.01)
        return time.time()

    async def burst(self) -> Numbers:
        """All timers due at one instant."""
        return await self._burst(callers=0)

    async def burst_loaded(self) -> Numbers:
        """The same, while one connection creates far timers one by one as fast as it can."""
        return await self._burst(callers=1)

    async def _burst(self, *, callers: int) -> Numbers:
        async with self.warm_server() as server:
            due_ms = math.ceil(time.time() + self.scale.lead_s) * 1000
            timers = dict.fromkeys(numbers(BURST_FROM, self.scale.burst_timers), due_ms)
            loaded_s = await self.load(server, timers)
            spare_s = await until(due_ms / 1e3 - 1.0) + 1.0
            async with self._creating(server, callers) as created_at:
                await until(due_ms / 1e3)
                cpu_s = server.usage().cpu_s
                arrived = await self.receiver.wait(len(timers))
            durable_s = await self._settled(server, WARM + arrived) - due_ms / 1e3
            cpu_s = server.usage().cpu_s - cpu_s
            result = score(await self.receiver.arrivals(), timers)
        found = {
            "timers": len(timers),
            "load_per_s": len(timers) / loaded_s,
            "spare_s": spare_s,
            **fired(result),
            "drain_per_s": result.drain_per_s,
            "first_to_last_per_s": result.span_per_s,
            "durable_per_s": arrived / durable_s,
            "server_cpu_s": cpu_s,
        }
        if callers:
            during = sum(0 <= at - due_ms / 1e3 <= result.drain_s for at in created_at)
            found["create_per_s"] = during / result.drain_s
            found["create_before_per_s"] = sum(at < due_ms / 1e3 for at in created_at)
        return found

    @asynccontextmanager
    async def _creating(self, server: Server, callers: int) -> AsyncIterator[list[float]]:
        """Create far timers all the while; yields the list of when each was accepted."""
        far_ms = round(time.time() + 3_600) * 1000
        maker = self.maker(server)
        accepted_at: list[float] = []

        async def create(connection: Connection) -> None:
            for number in itertools.count(FAR_FROM):
                (request,) = maker.singles({number: far_ms})
                status, body = await connection.request(request)
                if status != 200:
                    raise RuntimeError(f"create answered {status}: {body[:500]!r}")
                accepted_at.append(time.time())

        async with connections(server.port, callers) as opened, asyncio.TaskGroup() as group:
            tasks = [group.create_task(create(connection)) for connection in opened]
            yield accepted_at
            for task in tasks:
                task.cancel()

    async def spread(self) -> Numbers:
        """Timers at random milliseconds."""
        async with self.warm_server() as server:
            return await self._spread(server, self.scale.spread_s)

    async def _spread(self, server: Server, seconds: int) -> Numbers:
        from_ms = math.ceil(time.time() + self.scale.lead_s) * 1000
        chance = random.Random(7)
        count = self.scale.spread_per_s * seconds
        timers = {
            number: from_ms + chance.randrange(seconds * 1000)
            for number in numbers(SPREAD_FROM, count)
        }
        loaded_s = await send_all(server.port, self.maker(server).singles(timers), callers=CALLERS)
        spare_s = await until(from_ms / 1e3)
        cpu_s = server.usage().cpu_s
        await until(from_ms / 1e3 + seconds)
        await self.receiver.wait(count)
        cpu_s = server.usage().cpu_s - cpu_s
        result = score(await self.receiver.arrivals(), timers)
        return {
            "timers": count,
            "load_one_by_one_per_s": count / loaded_s,
            "spare_s": spare_s,
            **fired(result),
            "cpu_ms_per_timer": cpu_s / count * 1e3,
        }

    async def backlog(self) -> Numbers:
        """A great many far timers: what they cost lying there, and what they do to a spread."""
        async with self.warm_server() as server:
            before, disk_before = server.usage(), server.disk_bytes()
            count = self.scale.backlog_timers
            far_ms = round(time.time() + 3_600) * 1000
            loaded_s = await self.load(server, {FAR_FROM + i: far_ms + i for i in range(count)})
            await asyncio.sleep(self.scale.rest_s)
            after, disk_after = server.usage(), server.disk_bytes()
            await asyncio.sleep(self.scale.idle_s)
            idle = server.usage()
            result = await self._spread(server, self.scale.backlog_spread_s)
            grown = max(after.rss_bytes, server.usage().rss_bytes) - before.rss_bytes
        return {
            "backlog": count,
            "load_per_s": count / loaded_s,
            "rss_before_mb": before.rss_bytes / 1e6,
            "rss_after_mb": after.rss_bytes / 1e6,
            "rss_growth_mb": grown / 1e6,
            "disk_bytes_per_timer": (disk_after - disk_before) / count,
            "idle_cpu_percent": (idle.cpu_s - after.cpu_s) / self.scale.idle_s * 100,
            "idle_reads_per_min": (idle.store_wakeups - after.store_wakeups)
            / self.scale.idle_s
            * 60,
            **{f"spread_{name}": value for name, value in result.items()},
        }

    async def accept(self) -> Numbers:
        """How fast far timers are accepted, durably: one by one, and by batches."""
        scale = self.scale
        far_ms = round(time.time() + 3_600) * 1000
        async with self.warm_server() as server:
            make, sent = self.maker(server), 0

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

    async def kill(self) -> Numbers:
        """kill -9 in the middle of a burst, and again a server one second later."""
        async with self.warm_server() as server:
            due_ms = math.ceil(time.time() + self.scale.lead_s) * 1000
            timers = dict.fromkeys(numbers(BURST_FROM, self.scale.burst_timers), due_ms)
            await self.load(server, timers)
            spare_s = await until(due_ms / 1e3)
            # Not at a round number: who works by batches must be killed within one.
            await self.receiver.wait(math.ceil(len(timers) * 0.26), step_s=0.01)
            await server.kill()
            killed_s = time.time()
            await asyncio.sleep(1)
            at_kill = score(await self.receiver.arrivals(), timers).arrived
            unrecorded = at_kill - (await asyncio.to_thread(recorded, server.home) - WARM)
            restarted_s = await server.start()
            with suppress(TimeoutError):  # Then some are missing, which is what it shall say.
                await self._settled(server, WARM + len(timers))
            arrivals = await self.receiver.arrivals()
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


SCENARIOS: dict[str, Callable[[Bench], Awaitable[Numbers]]] = {
    "limits": lambda bench: limits(bench.receiver, bench.work, seconds=bench.scale.limits_s),
    "burst": Bench.burst,
    "burst-loaded": Bench.burst_loaded,
    "spread": Bench.spread,
    "backlog": Bench.backlog,
    "accept": Bench.accept,
    "kill": Bench.kill,
}


def fired(result: Score) -> Numbers:
    """What every scenario that fires says."""
    return {
        "missing": result.missing,
        "early": result.early,
        "duplicates": result.duplicates,
        "late_p50_ms": result.late_p50_ms,
        "late_p99_ms": result.late_p99_ms,
        "late_max_ms": result.late_max_ms,
    }


async def until(at_s: float) -> float:
    """Wait for an instant of the wall clock; the seconds there were to spare."""
    spare_s = at_s - time.time()
    if spare_s < 0:
        raise RuntimeError(f"loading took {-spare_s:.1f} s too long: timers were due before")
    await asyncio.sleep(spare_s)
    return spare_s


def numbers(start: int, count: int) -> Iterable[int]:
    return range(start, start + count)
