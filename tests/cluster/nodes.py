"""Several nodes in one process over one store in memory, each with a connection of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from duetime.clock import Clock, SystemClock
from duetime.cluster.heartbeat import Heartbeats
from duetime.cluster.membership import Membership
from duetime.config import Config
from duetime.errors import StoreUnavailable
from duetime.model import Lease
from duetime.node import Node
from duetime.requests import NewTimer
from duetime.retry import Answer
from duetime.store import Store, Traits
from duetime.stores.memory import MemoryStore
from duetime.testing.store import FaultyStore
from duetime.writes import Attempt

OK = Answer(200, b'{"ok":true}')
BEAT_S, DEAD_S = 0.1, 0.5  # Ten times as quick as people have it.


class Connection(FaultyStore):
    """One node's way to the store that all share. `down`: it is cut off."""

    calls = 0
    claim_fails_after = False

    @property
    def traits(self) -> Traits:
        return Traits(name="shared memory", shared=True)

    async def close(self) -> None:
        pass

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        leases = await super().claim(shards, owner=owner, at=at)
        if self.claim_fails_after:
            self.claim_fails_after = False
            raise StoreUnavailable("made to fail after the claim")
        return leases

    def _check(self) -> None:
        self.calls += 1
        super()._check()


class OffsetClock(SystemClock):
    """The machine's clock, set wrong."""

    ahead_ms = 0

    def now(self) -> int:
        return super().now() + self.ahead_ms

    def until(self, at: int) -> float:
        return super().until(at - self.ahead_ms)


class RecordingCarrier:
    """Answers at once unless told to hold on."""

    def __init__(self, sent: list[tuple[str, Attempt]], node: str) -> None:
        self._sent = sent
        self._node = node
        self.holds = False
        self.held: list[Attempt] = []

    def destination(self, url: str) -> str:
        return url

    def send(self, attempt: Attempt) -> None:
        self._sent.append((self._node, attempt))
        if self.holds:
            self.held.append(attempt)
        else:
            asyncio.get_running_loop().call_soon(attempt.answered, OK)

    async def close(self) -> None:
        pass


Meet = Callable[[Store, Clock], Membership]


def in_the_store(store: Store, clock: Clock) -> Membership:
    return Heartbeats(store, interval_s=BEAT_S, timeout_s=DEAD_S, clock=clock)


class Cluster:
    """Starts, kills and cuts off nodes."""

    def __init__(self, meet: Meet = in_the_store, **settings: object) -> None:
        self.memory = MemoryStore()
        self.meet = meet
        self.settings = settings
        self.nodes: list[Node] = []
        self.sent: list[tuple[str, Attempt]] = []
        self.clocks: dict[str, OffsetClock] = {}

    def node(self, name: str, **settings: object) -> Node:
        values = {
            "database_url": "memory:",
            "api_key": "k" * 32,
            "min_delay_s": 0,
            "node_name": name,
            **self.settings,
            **settings,
        }
        clock = self.clocks[name] = OffsetClock()
        store = Connection(self.memory)
        node = Node(
            Config(**values),  # type: ignore[arg-type]
            store,
            RecordingCarrier(self.sent, name),
            membership=self.meet(store, clock),
            clock=clock,
        )
        self.nodes.append(node)
        return node

    async def start(self, name: str, **settings: object) -> Node:
        node = self.node(name, **settings)
        await node.start()
        return node

    def kill(self, node: Node) -> None:
        """What `kill -9` leaves behind: the store as it is, and no more of this node."""
        self.nodes.remove(node)
        for task in list(node._tasks):
            task.cancel()
        if node._alarm is not None:
            node._alarm.cancel()
        node.firing.stop()
        connection(node).down = True

    async def stop(self) -> None:
        for node in self.nodes:
            connection(node).down = False
            await node.stop()


@asynccontextmanager
async def cluster(meet: Meet = in_the_store, **settings: object) -> AsyncIterator[Cluster]:
    them = Cluster(meet, **settings)
    await them.memory.open()
    try:
        yield them
    finally:
        await them.stop()


def connection(node: Node) -> Connection:
    assert isinstance(node.store, Connection)
    return node.store


def carrier(node: Node) -> RecordingCarrier:
    assert isinstance(node._carrier, RecordingCarrier)
    return node._carrier


async def until(done: Callable[[], bool], *, seconds: float = 12.0) -> None:
    """Wait until this is so."""
    async with asyncio.timeout(seconds):
        while not done():
            await asyncio.sleep(0.005)


def share_all(nodes: list[Node], shards: int = 16) -> Callable[[], bool]:
    """Whether these nodes own every shard between them, none twice."""

    def done() -> bool:
        owned = sorted(number for node in nodes for number in node.shards)
        return owned == list(range(shards)) and not any(
            shard.leaving for node in nodes for shard in node.shards.values()
        )

    return done


def new(node: Node, id: str, *, in_ms: int = 0) -> NewTimer:
    return NewTimer(
        namespace="default",
        id=id,
        execute_at=node.clock.now() + in_ms + 1,
        callback_url="http://receiver.example/hook",
        reply="v1",
    )
