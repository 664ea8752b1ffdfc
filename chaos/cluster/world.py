"""Several nodes on one PostgreSQL, the ways between them, and the ledger of their clients."""

import asyncio
import random
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
from scripts.servers import Postgresql
from scripts.servers.base import free_port, shared_folder
from tests.acceptance.processes import Duetime, instant_passed, starting
from tests.stores.proxy import Proxy

from chaos.account import TRAVEL_MS, Verdict, account, lateness_ms
from chaos.ledger import Arrival, Kill, Record
from chaos.receiver import ReceiverProcess
from chaos.served import FORGETFUL, NAMESPACES, create_namespaces, now, settled
from chaos.world import firing_of
from duetime.cluster.ownership import Rendezvous
from duetime.routing import shard_of

NODES = ("a", "b", "c")
NUM_SHARDS = 16  # Of the namespace `default`; the others have fewer.
# A shard that changes hands waits for its callbacks; what is measured is not how long they take.
SLOW_MS_MAX = 1_000
LOOK_UP_AFTER_MS = 3_000
WHOLE_S_MAX = 30.0
POLL_S = 0.02
SUSPECTED = 0.1
"""How often a client still turns to a node that a load balancer would know to be away."""
_UNFINISHED = """
    SELECT timer_payload, timer_attempts,
        round(extract(epoch FROM timer_execute_at) * 1000)::bigint, timer_details
    FROM timers WHERE row_type = 2 AND shard_id = ANY ($1)
"""
_OWNERS = "SELECT shard_id, shard_owner_id FROM timers WHERE row_type = 1"


class Death(Kill, frozen=True):
    """Of one node: only what it owned may be repeated by others."""

    shards: frozenset[int] = frozenset()


class Node:
    """One `duetime serve` of one address: it starts, stops and dies. With `workers` it is
    several nodes, which name themselves and reach each other as they will."""

    def __init__(
        self, name: str, directory: Path, database: Proxy, peers: Proxy, *, workers: int
    ) -> None:
        self.name = name
        self.database = database
        self.peers = peers
        self.suspected = False
        self.process: Duetime | None = None
        self._port = free_port()
        self._directory = directory
        self._workers = workers
        self._settings = {"DATABASE_URL": database.url, "PORT": str(self._port)}
        if not workers:
            self._settings |= {
                "NODE_NAME": name,
                "CLUSTER_PORT": str(peers.target),
                "CLUSTER_ADVERTISE": f"127.0.0.1:{peers.port}",
            }
        self._life = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def names(self) -> set[str]:
        """Those that own shards here, when all is well."""
        return set(self.workers().values()) if self._workers else {self.name}

    def workers(self) -> dict[int, str]:
        """The name of each worker's newest life."""
        assert self.process is not None
        started = [line for line in self.process.log if line["event"] == "node started"]
        return {line["worker"]: line["node"] for line in started}

    async def start(self) -> None:
        options = ("--workers", str(self._workers)) if self._workers else ()
        self.process = await self._life.enter_async_context(
            starting(self._directory, *options, **self._settings)
        )
        await self.process.counted("listening", self._workers or 1)
        self.suspected = False

    async def kill(self) -> None:
        self.suspected = True
        await self._gone()

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.signal(signal.SIGTERM)
        code = await self.process.exit()
        await self._gone()
        return code

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.signal(number)

    async def _gone(self) -> None:
        await self._life.aclose()
        self.process = None


class ClusterWorld:
    """See `Served` for what clients use of it."""

    def __init__(self, own: Path, url: str, *, seed: int) -> None:
        self.receiver = ReceiverProcess(own / "arrivals.log")
        self.chance = random.Random(seed)
        self.up = asyncio.Event()
        self.up.set()
        self.slow_ms_max = SLOW_MS_MAX
        self.look_up_after_ms = LOOK_UP_AFTER_MS
        self.records: list[Record] = []
        self.arrivals: list[Arrival] = []
        self.deaths: list[Death] = []
        self.refused_503 = 0
        self.failed = 0
        self.problems: list[str] = []
        self.nodes: list[Node] = []
        self._url = url

    # -- what clients ask -----------------------------------------------------------------

    def places(self) -> list[str]:
        """Two nodes, by chance; of one behind several workers, it twice."""
        weights = [SUSPECTED if node.suspected else 1.0 for node in self.nodes]
        first = self.chance.choices(self.nodes, weights)[0]
        others = [node for node in self.nodes if node is not first and not node.suspected]
        return [first.url, (self.chance.choice(others) if others else first).url]

    def wall(self) -> int:
        return now()

    # -- what faults ask ------------------------------------------------------------------

    async def pause(self, seconds: float) -> None:
        await instant_passed(now() + int(seconds * 1000))

    def any_node(self) -> Node:
        return self.chance.choice(self.nodes)

    async def remember(self, name: str, *, trusted_ms: int | None = None) -> None:
        """This node is not heard of from now on, but goes on firing for so long at most."""
        at = now()
        until = None if trusted_ms is None else at + trusted_ms
        shards = frozenset(n for n, owner in (await self.owners()).items() if owner == name)
        rows = await self._ask(_UNFINISHED, list(shards))
        unfinished = frozenset(firing_of(*row) for row in rows)
        self.deaths.append(Death(at, unfinished, until, shards))

    async def owners(self) -> dict[int, str | None]:
        """The name of each shard's owner, as the database has it."""
        rows = await self._ask(_OWNERS)
        return {shard: owner and owner.rpartition("/")[0] for shard, owner in rows}

    async def whole(self) -> None:
        """Wait until all nodes are ready, and each owns the shards that are meant for it."""
        async with asyncio.timeout(WHOLE_S_MAX):
            while not await self._is_whole():
                await asyncio.sleep(POLL_S)

    async def _is_whole(self) -> bool:
        names = set().union(*(node.names() for node in self.nodes))
        meant = dict(enumerate(Rendezvous().assign(names, NUM_SHARDS)))
        return await self.owners() == meant and await self._ready()

    async def _ready(self) -> bool:
        async with aiohttp.ClientSession() as session:
            for node in self.nodes:
                async with session.get(f"{node.url}/ready") as response:
                    if response.status != 200:
                        return False
        return True

    async def _ask(self, statement: str, *values: object) -> list[Any]:
        connection = await asyncpg.connect(self._url)
        try:
            rows: list[Any] = await connection.fetch(statement, *values)
            return rows
        finally:
            await connection.close()

    # -- the end --------------------------------------------------------------------------

    async def verdict(self) -> Verdict:
        """Everything has ended: account for each timer."""
        found = await settled(self)
        self.arrivals = list(self.receiver.log.read())
        verdict = account(self.records, self.arrivals, self.deaths, found, forgetful=FORGETFUL)
        verdict.problems += self.problems
        return verdict

    def late_ms(self) -> int:
        return lateness_ms(self.records, self.arrivals)

    def takeovers_ms(self) -> list[int]:
        """For each death, how long until the first callback that it had delayed."""
        shards = {record.key: _shard(record) for record in self.records if record.id}
        took = []
        for death in self.deaths:
            firsts = [
                arrival.at
                for arrival in self.arrivals
                if death.at < arrival.firing.scheduled_at < arrival.at - TRAVEL_MS
                and arrival.firing.attempt == 1
                and shards.get(arrival.firing.key) in death.shards
            ]
            if firsts:
                took.append(min(firsts) - death.at)
        return took


def _shard(record: Record) -> int:
    num_shards = NAMESPACES[record.namespace].get("numShards", NUM_SHARDS)
    assert isinstance(num_shards, int)
    return shard_of(record.id, num_shards)


@asynccontextmanager
async def cluster(
    server: Postgresql, *, seed: int, workers: int = 0
) -> AsyncIterator[ClusterWorld]:
    """Nodes that are whole, on a new database; one of several workers, if there are any."""
    database = f"chaos_{secrets.token_hex(4)}"
    url = await asyncio.to_thread(server.new_url, database)
    async with AsyncExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duetime-chaos-")))
        made = ClusterWorld(own, url, seed=seed)
        stack.push_async_callback(made.receiver.kill)
        await made.receiver.start()
        for name in NODES[:1] if workers else NODES:
            to_database = await stack.enter_async_context(Proxy(url))
            to_peers = await stack.enter_async_context(Proxy(f"tcp://127.0.0.1:{free_port()}/"))
            node = Node(name, own, to_database, to_peers, workers=workers)
            made.nodes.append(node)
            stack.push_async_callback(node.kill)
            await node.start()
        await made.whole()
        await create_namespaces(made)
        yield made


@contextmanager
def postgresql() -> Iterator[Postgresql]:
    """A server of our own. It is killed, but its machine never loses power."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-postgresql-", dir=shared_folder()))
    server = Postgresql(folder, Postgresql.hasty_settings)
    try:
        server.fetch()
        server.start()
        yield server
    finally:
        server.delete()
