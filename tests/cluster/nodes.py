"""Several nodes in one process over one store in memory, with real sockets between them.

Who owns what is a table that the test keeps: membership is tested elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from duetime.cluster.membership import Member
from duetime.cluster.peers import Peers
from duetime.cluster.tcp import TcpPeers
from duetime.config import Config
from duetime.model import Lease, View
from duetime.node import Node
from duetime.requests import NewTimer
from duetime.service import Service
from duetime.stores.memory import MemoryStore
from tests.unit.test_node import HeldCarrier, config

SECRET = b"a secret of the cluster, long enough"
SHARDS = 16
FAR_MS = 3_600_000


class SharedStore(MemoryStore):
    """One that a node which stops leaves open for the others."""

    async def close(self) -> None:
        pass


class Table:
    """Who is to own which shard, and the nodes that are there."""

    def __init__(self) -> None:
        self.nodes: dict[str, StaticNode] = {}
        self.owners: dict[int, str] = {}
        self.reads = 0


class StaticNode(Node):
    """A node that owns what the table says."""

    def __init__(
        self, name: str, table: Table, config: Config, store: MemoryStore, peers: Peers
    ) -> None:
        super().__init__(config, store, HeldCarrier(), peers=peers)
        self.name = name
        self.table = table
        self.drained: list[bool] = []

    @property
    def carrier(self) -> HeldCarrier:
        assert isinstance(self._carrier, HeldCarrier)
        return self._carrier

    async def own_shards(self) -> None:
        mine = [shard for shard, name in self.table.owners.items() if name == self.name]
        missing = [shard for shard in mine if shard not in self.shards]
        for lease in await self.store.claim(missing, owner=self.name, at=self.clock.now()):
            self._own(lease)

    def owner(self, shard: int) -> Member | None:
        node = self.table.nodes.get(self.table.owners.get(shard, ""))
        return None if node is None else node.me

    def members(self) -> list[Member]:
        return [node.me for node in self.table.nodes.values()]

    async def refresh_owners(self) -> None:
        self.table.reads += 1

    async def drain_shards(self, undo: bool) -> None:
        self.drained.append(undo)

    async def give_up(self, shard: int) -> Lease:
        """Own it no more, as at the end of a planned handover."""
        mine = self.shards.pop(shard)
        mine.closed = True
        await self._writer.drained()
        await self.store.release([mine.lease])
        return mine.lease


class Cluster:
    """Nodes `a`, `b`, …; of the shards each owns every so-many-th."""

    def __init__(self, names: str, peers: Callable[[], Peers]) -> None:
        self.table = Table()
        self.store = SharedStore()
        self.table.owners = {shard: names[shard % len(names)] for shard in range(SHARDS)}
        for name in names:
            self.table.nodes[name] = StaticNode(
                name, self.table, config(drain_timeout_s=0), self.store, peers()
            )

    def __getitem__(self, name: str) -> StaticNode:
        return self.table.nodes[name]

    async def start(self) -> None:
        for node in self.table.nodes.values():
            await node.start()

    async def stop(self) -> None:
        for node in self.table.nodes.values():
            await node.stop()

    async def move(self, shard: int, name: str | None) -> None:
        """A planned handover; None leaves it without an owner."""
        node = self.table.nodes.get(self.table.owners.pop(shard, ""))
        if node is not None:
            await node.give_up(shard)
        if name is not None:
            self.table.owners[shard] = name
            await self[name].own_shards()

    def new(self, id: str, *, in_ms: int = FAR_MS, **fields: object) -> NewTimer:
        values: dict[str, object] = {
            "namespace": "default",
            "id": id,
            "execute_at": self["a"].clock.now() + in_ms + 1,
            "callback_url": "http://receiver.example/hook",
            "reply": "v1",
        }
        return NewTimer(**{**values, **fields})  # type: ignore[arg-type]


def tcp(secret: bytes = SECRET) -> TcpPeers:
    return TcpPeers(host="127.0.0.1", port=0, secret=secret)


@asynccontextmanager
async def cluster(names: str = "ab", peers: Callable[[], Peers] = tcp) -> AsyncIterator[Cluster]:
    nodes = Cluster(names, peers)
    try:
        await nodes.start()
        yield nodes
    finally:
        await nodes.stop()


async def shown(service: Service, id: str, status: str) -> View:
    """The timer, once it has the status."""
    async with asyncio.timeout(10):
        while (view := await service.get("default", id)).status != status:
            await asyncio.sleep(0.001)
    return view
