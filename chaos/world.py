"""One server, one receiver, and the ledger of their clients: what a fault is done to."""

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

import aiohttp
from tests.acceptance.processes import Duetime, serving, starting

from chaos import stepped
from chaos.account import Verdict, account
from chaos.ledger import Arrival, Firing, Kill, Record
from chaos.receiver import ROOT, ReceiverProcess
from chaos.served import FORGETFUL, client, create_namespaces, now, settled

READY_POLL_S = 0.02
READY_S_MAX = 30.0
_UNFINISHED = """
    SELECT timer_payload, timer_attempts, timer_execute_at, timer_details
    FROM timers WHERE row_type = 2
"""


class World:
    """See `Served` for what clients use of it."""

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
        self.slow_ms_max = 1_500
        self.look_up_after_ms = 0
        self.refused_503 = 0
        self.failed = 0
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
                return frozenset(firing_of(*row) for row in connection.execute(_UNFINISHED))

    # -- what clients and faults ask ----------------------------------------------------

    def places(self) -> list[str]:
        assert self.server is not None
        return [self.server.url]

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
        async with asyncio.timeout(READY_S_MAX), client() as session:
            for path, body in (("create", key | probe), ("delete", key | {"timerId": "probe"})):
                while not await self._done(session, path, body):
                    await asyncio.sleep(READY_POLL_S)

    async def _done(self, session: aiohttp.ClientSession, path: str, body: object) -> bool:
        async with session.post(f"{self.places()[0]}/timers/{path}", json=body) as response:
            return response.status != 503

    # -- the end --------------------------------------------------------------------------

    async def verdict(self) -> Verdict:
        """Everything has ended: account for each timer."""
        found = await settled(self)
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
            await create_namespaces(made)
            yield made
        finally:
            await made.stop()
            await made.receiver.kill()


def firing_of(payload: str, attempts: int, execute_at: int, details: str | None) -> Firing:
    marks = json.loads(payload)
    scheduled_at = json.loads(details).get("scheduled_at") if details else None
    return Firing(
        marks["key"],
        marks["revision"],
        attempts + 1,
        execute_at if scheduled_at is None else scheduled_at,
    )
