"""One server, one receiver, and the ledger of their clients: what every fault is done to."""

import asyncio
import json
import random
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
from tests.acceptance.processes import KEY, Duetime, serving, starting

from chaos import stepped
from chaos.account import ATTEMPTS_MAX, Verdict, account
from chaos.ledger import Arrival, Firing, Found, Kill, Record
from chaos.receiver import ROOT, ReceiverProcess
from duetime.clock import SystemClock

NAMESPACES: dict[str, dict[str, object]] = {
    "default": {"minDelaySeconds": 0},
    "billing": {
        "numShards": 4,
        "minDelaySeconds": 0,
        "retryPolicy": {"maxAttempts": ATTEMPTS_MAX, "initialInterval": "100ms"},
    },
    "forgetful": {"numShards": 2, "minDelaySeconds": 0, "historyRetentionSeconds": 0},
}
FORGETFUL = frozenset({"forgetful"})
SETTLE_S_MAX = 90.0
POLL_S = 0.25
READY_POLL_S = 0.02
READY_S_MAX = 30.0
LIST_PAGE = 200
_UNFINISHED = """
    SELECT timer_payload, timer_attempts, timer_execute_at, timer_details
    FROM timers WHERE row_type = 2
"""

_clock = SystemClock()


def now() -> int:
    """Real time: the receiver's and the harness's, whatever the server believes."""
    return _clock.now()


class World:
    """`up` is set while the server is thought to listen; clients wait for it."""

    def __init__(self, directory: Path, own: Path, *, seed: int) -> None:
        self.directory = directory
        self.receiver = ReceiverProcess(own / "arrivals.log")
        self.chance = random.Random(seed)
        self.server: Duetime | None = None
        self.up = asyncio.Event()
        self.settings: dict[str, str] = {}
        self.module = "duetime"
        self.records: list[Record] = []
        self.arrivals: list[Arrival] = []
        self.kills: list[Kill] = []
        self.steps: list[tuple[int, int]] = [(0, 0)]
        """When the server's wall clock was set how far from real time."""
        self.refused_503 = 0
        self.problems: list[str] = []
        self.offset = stepped.Offset(own / "wall-clock")
        self._life = AsyncExitStack()

    @property
    def database(self) -> Path:
        return self.directory / "duetime.db"

    # -- the server's life --------------------------------------------------------------

    async def start(self) -> None:
        """A server on the same file as ever, listening."""
        self.server = await self._life.enter_async_context(
            serving(self.directory, module=self.module, **self.settings)
        )
        self.up.set()

    async def start_and_kill(self, after_s: float) -> None:
        """A server that may not get as far as listening."""
        async with starting(self.directory, module=self.module, **self.settings):
            await asyncio.sleep(after_s)
        self._remember_death()

    async def kill(self) -> None:
        """kill -9, and a look at what the database then knew."""
        self.up.clear()
        await self._life.aclose()
        self._remember_death()

    async def stop(self) -> None:
        self.up.clear()
        await self._life.aclose()

    def _remember_death(self) -> None:
        self.kills.append(Kill(now(), self._unfinished()))

    def _unfinished(self) -> frozenset[Firing]:
        """What is on disk, read from a copy: the original is the next server's to recover."""
        if not self.database.exists():
            return frozenset()
        with tempfile.TemporaryDirectory() as copies:
            copy = Path(copies) / self.database.name
            for suffix in ("", "-wal"):
                original = self.database.with_name(self.database.name + suffix)
                if original.exists():
                    shutil.copyfile(original, copy.with_name(copy.name + suffix))
            with closing(sqlite3.connect(copy)) as connection:
                return frozenset(_firing(*row) for row in connection.execute(_UNFINISHED))

    # -- what clients and faults ask ----------------------------------------------------

    @asynccontextmanager
    async def client(self) -> AsyncIterator[aiohttp.ClientSession]:
        async with aiohttp.ClientSession(
            headers={"X-API-Key": KEY},
            connector=aiohttp.TCPConnector(limit=64),
            timeout=aiohttp.ClientTimeout(total=15),
        ) as session:
            yield session

    def url(self, path: str) -> str:
        assert self.server is not None
        return self.server.url + path

    def forbid_writes(self, forbidden: bool) -> None:
        """Every write of the server to any file fails: what needs no rights that we may lack."""
        assert self.server is not None
        pid = self.server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if forbidden else hard, hard))

    def wall(self) -> int:
        """What the server's clock shows."""
        return now() + self.steps[-1][1]

    def set_wall(self, offset_ms: int) -> None:
        """Somebody sets the server's clock this far from real time (if it is `chaos.stepped`)."""
        self.steps.append((now(), offset_ms))
        self.offset.write(offset_ms)

    def wall_max(self, at: int) -> int:
        """The latest that the server's clock can have shown when it sent what arrived at `at`."""
        travel_ms = 2_000
        offsets = [
            offset
            for (since, offset), until in zip(
                self.steps, [*(step[0] for step in self.steps[1:]), at + 1], strict=True
            )
            if until > at - travel_ms and since <= at
        ]
        return at + max(offsets)

    async def ready(self) -> None:
        """Wait until a timer can be created, and canceled again."""
        key = {"namespace": "default"}
        probe = {
            "id": "probe",
            "executeAt": "2099-01-01T00:00:00Z",
            "callbackUrl": self.receiver.url,
            "payload": {"key": "probe", "revision": 0},
        }
        async with asyncio.timeout(READY_S_MAX), self.client() as session:
            for path, body in (("create", key | probe), ("delete", key | {"timerId": "probe"})):
                while not await self._done(session, path, body):
                    await asyncio.sleep(READY_POLL_S)

    async def _done(self, session: aiohttp.ClientSession, path: str, body: object) -> bool:
        async with session.post(self.url(f"/timers/{path}"), json=body) as response:
            return response.status != 503

    async def create_namespaces(self) -> None:
        async with self.client() as session:
            for name, fields in NAMESPACES.items():
                path = self.url(f"/namespaces/{'update' if name == 'default' else 'create'}")
                async with session.post(path, json={"name": name, **fields}) as response:
                    assert response.status == 200, await response.text()

    # -- the end --------------------------------------------------------------------------

    async def settled(self) -> dict[str, Found]:
        """Wait until nothing is pending or executing; what became of every timer in history."""
        async with asyncio.timeout(SETTLE_S_MAX), self.client() as session:
            for name in NAMESPACES:
                for status in ("pending", "executing"):
                    while await self._list(session, name, status=status, limit=1):
                        await asyncio.sleep(POLL_S)
            found: dict[str, Found] = {}
            for name in NAMESPACES:
                for timer in await self._list(session, name):
                    marks = timer["payload"]
                    before = found.get(marks["key"])
                    # Of a timer that was created again history has several entries.
                    if before is None or before.revision <= marks["revision"]:
                        found[marks["key"]] = Found(
                            marks["revision"], timer["status"], timer["lastError"]
                        )
            return found

    async def _list(
        self, session: aiohttp.ClientSession, namespace: str, **asked: object
    ) -> list[dict[str, Any]]:
        timers: list[dict[str, Any]] = []
        cursor = None
        while True:
            body = {"namespace": namespace, "limit": LIST_PAGE, "cursor": cursor} | asked
            async with session.post(self.url("/timers/list"), json=body) as response:
                assert response.status == 200, await response.text()
                page = await response.json()
            timers += page["timers"]
            cursor = page["nextCursor"]
            if cursor is None or "limit" in asked:
                return timers

    async def verdict(self) -> Verdict:
        """Everything has ended: account for each timer."""
        found = await self.settled()
        self.arrivals = list(self.receiver.log.read())
        verdict = account(
            self.records,
            self.arrivals,
            self.kills,
            found,
            forgetful=FORGETFUL,
            wall=self.wall_max,
        )
        verdict.problems += self.problems
        return verdict


@asynccontextmanager
async def world(
    name: str, *, seed: int, directory: Path | None = None, module: str = "duetime"
) -> AsyncIterator[World]:
    """A running world with its namespaces. `directory` is where the database must lie, `module`
    what serves in place of `duetime`."""
    with tempfile.TemporaryDirectory(prefix=f"duetime-chaos-{name}-") as own:
        made = World(directory or Path(own), Path(own), seed=seed)
        made.module = module
        made.settings |= {"PYTHONPATH": str(ROOT), stepped.SETTING: str(made.offset.path)}
        try:
            await made.receiver.start()
            await made.start()
            await made.create_namespaces()
            yield made
        finally:
            await made.stop()
            await made.receiver.kill()


def _firing(payload: str, attempts: int, execute_at: int, details: str | None) -> Firing:
    marks = json.loads(payload)
    scheduled_at = json.loads(details).get("scheduled_at") if details else None
    return Firing(
        marks["key"],
        marks["revision"],
        attempts + 1,
        execute_at if scheduled_at is None else scheduled_at,
    )
