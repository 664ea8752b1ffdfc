"""What all scenarios share: how much to do, a warm server to do it to, timers to give it."""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from bench.client import send_all
from bench.databases import Database, Databases
from bench.processes import COMMAND, Receiver, Server, usage
from bench.score import Score
from bench.timers import Due, Maker

Numbers = dict[str, float]

BATCH_CALLERS = 4
CALLERS = 50
WARM = 200
SHARDS = 16
"""Of the default namespace, where nothing else is said."""

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
    commit_requests: int = 20_000
    fence_calls: int = 100
    worker_accepts: int = 6_000
    worker_fires: int = 8_000
    wear_timers: int = 2_000_000
    idle_shards: int = 4_096


FULL = Scale()
STORES = Scale(burst_timers=5_000, spread_s=10, lead_s=12)
"""A minute for each store; the lead is for those that take no more than 500 timers a second."""
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
    commit_requests=500,
    fence_calls=5,
    worker_accepts=400,
    worker_fires=400,
    wear_timers=20_000,
    idle_shards=256,
)


class Running(Struct, frozen=True):
    """A server and what it keeps its timers in."""

    server: Server
    database: Database

    def cpu_s(self) -> dict[str, float]:
        """What each of them has used so far; of a database that is none of its own, nothing."""
        used = {"server": self.server.usage().cpu_s}
        if self.database.pid is not None:
            used["database"] = usage(self.database.pid).cpu_s
        return used


def per_timer(before: Mapping[str, float], after: Mapping[str, float], timers: int) -> Numbers:
    """Milliseconds of CPU for each timer between two looks at `cpu_s`."""
    return {f"{who}_cpu_ms_per_timer": (after[who] - before[who]) / timers * 1e3 for who in after}


class Bench:
    """One run's receiver and databases of one store."""

    def __init__(self, receiver: Receiver, scale: Scale, work: Path, databases: Databases) -> None:
        self.receiver = receiver
        self.scale = scale
        self.work = work
        self.databases = databases
        self._homes = itertools.count(1)

    def home(self) -> Path:
        """A new folder for a server's own."""
        return self.work / f"server-{next(self._homes)}"

    @asynccontextmanager
    async def warm(
        self,
        *,
        options: str = "",
        workers: int | None = None,
        command: Sequence[str] = COMMAND,
        settings: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Running]:
        """A server on a new database, whose URL ends in `options`, with all of its code warm."""
        database = await self.databases.new()
        server = Server(
            database.url + options,
            home=self.home(),
            workers=workers,
            command=command,
            settings=settings,
        )
        async with server:
            await self.warm_up(server)
            yield Running(server, database)

    async def warm_up(self, server: Server) -> None:
        """Have it fire some timers, and leave no trace of them at the receiver."""
        await self.receiver.reset()
        due = math.ceil(time.time() + 2) * 1000
        await self.load(server, dict.fromkeys(range(WARM), due))
        if await self.receiver.wait(WARM) != WARM:
            raise RuntimeError("the warm-up timers did not all fire")
        await self.settled(server, WARM)
        await self.receiver.reset()

    def maker(self, server: Server) -> Maker:
        return Maker(key=server.key, receiver_port=self.receiver.port)

    async def load(self, server: Server, timers: Due) -> float:
        """Create them by batches; the seconds it took."""
        return await send_all(
            server.port, self.maker(server).batches(timers), callers=BATCH_CALLERS
        )

    async def load_one_by_one(self, server: Server, timers: Due) -> float:
        """The same, one request for each."""
        return await send_all(server.port, self.maker(server).singles(timers), callers=CALLERS)

    async def settled(self, server: Server, completed: int) -> float:
        """Wait until the database says that this many are completed; when it did."""
        async with asyncio.timeout(60):
            while await server.total("completed") < completed:
                await asyncio.sleep(0.01)
        return time.time()


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


def far() -> int:
    """An instant (in ms) that no run lives to see."""
    return round(time.time() + 3_600) * 1000


def numbers(start: int, count: int) -> Iterable[int]:
    return range(start, start + count)
