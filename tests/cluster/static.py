"""Several nodes in one process over one store in memory, with real sockets between them.

Who owns what is a table that the test keeps: membership is tested elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from duetime.cluster.alone import Alone
from duetime.cluster.membership import Member
from duetime.cluster.peers import Peers
from duetime.cluster.tcp import TcpPeers
from duetime.config import Config
from duetime.model import View
from duetime.node import Node
from duetime.requests import NewTimer
from duetime.service import Service
from duetime.store import Traits
from duetime.stores.memory import MemoryStore
from tests.unit.test_node import HeldCarrier, config

SECRET = b"a secret of the cluster, long enough"
SHARDS = 16
FAR_MS = 3_600_000


class SharedStore(MemoryStore):
    """One that a node which stops leaves open for the others."""

    @property
    def traits(self) -> Traits:
        return Traits(name="shared memory", shared=True)

    async def close(self) -> None:
        pass


class Table:
    """Who is to own which shard, and the nodes that are there."""

    def __init__(self) -> None:
        self.nodes: dict[str, StaticNode] = {}
        self.owners: dict[int, str] = {}
        self.reads = 0


class Ownership(Alone):
    """A node owns what the table says."""

    def __init__(self, node: "StaticNode") -> None:
        super().__init__(node)
        self.node = node
        self.table = node.table
        self.drained: list[bool] = []

    async def complete(self) -> None:
        mine = [shard for shard, name in self.table.owners.items() if name == self.node.me.name]
        self.node.own(await self._claim([n for n in mine if n not in self.node.shards]))

    def upkeep(self) -> None:
        pass

    def owner(self, shard: int) -> Member | None:
        node = self.table.nodes.get(self.table.owners.get(shard, ""))
        return None if node is None else node.me

    def members(self) -> list[Member]:
        return [node.me for node in self.table.nodes.values()]

    async def refresh(self) -> None:
        self.table.reads += 1

    def give_way(self, undo: bool) -> None:
        self.drained.append(undo)


class StaticNode(Node):
    """A node whose shards are those that the table says."""

    def __init__(self, table: Table, config: Config, store: MemoryStore, peers: Peers) -> None:
        super().__init__(config, store, HeldCarrier(), peers=peers)
        self.table = table
        self.ownership = Ownership(self)
        self._ownership = self.ownership

    @property
    def carrier(self) -> HeldCarrier:
        assert isinstance(self._carrier, HeldCarrier)
        return self._carrier

    async def give_up(self, shard: int) -> None:
        """Own it no more, by a planned handover."""
        self.handover.begin([self.shards[shard]])
        assert await self.handover.over()


class Cluster:
    """Nodes `a`, `b`, …; of the shards each owns every so-many-th."""

    def __init__(self, names: str, peers: Callable[[], Peers]) -> None:
        self.table = Table()
        self.store = SharedStore()
        self.table.owners = {shard: names[shard % len(names)] for shard in range(SHARDS)}
        for name in names:
            settings = config(node_name=name, drain_timeout_s=0)
            self.table.nodes[name] = StaticNode(self.table, settings, self.store, peers())

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
            await self[name].ownership.complete()

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
