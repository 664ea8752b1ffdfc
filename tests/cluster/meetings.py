"""The two memberships, each as several nodes in one process have it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from scripts.servers import Etcd

from duetime.clock import SystemClock
from duetime.cluster.heartbeat import Heartbeats
from duetime.cluster.meeting import membership_from_url
from duetime.cluster.membership import Member, Membership
from duetime.store import Store
from duetime.stores.memory import MemoryStore
from duetime.stores.sqlite import SqliteStore
from duetime.testing.store import FaultyStore
from tests.stores.proxy import Proxy

CLOCK = SystemClock()
HEARTBEAT_S, HEARTBEATS_DEAD_S = 0.1, 0.5
TTL_S = 3


class Way(Protocol):
    """One node's way to where all meet."""

    membership: Membership

    def cut(self) -> None: ...
    def mend(self) -> None: ...


class Meeting(Protocol):
    """Where nodes meet."""

    dead_s: float
    """After which who is silent is dead."""

    async def way(self) -> Way: ...


class StoreWay:
    def __init__(self, store: Store) -> None:
        self._store = FaultyStore(store)
        self.membership: Membership = Heartbeats(
            self._store, interval_s=HEARTBEAT_S, timeout_s=HEARTBEATS_DEAD_S, clock=CLOCK
        )

    def cut(self) -> None:
        self._store.down = True

    def mend(self) -> None:
        self._store.down = False


class StoreMeeting:
    dead_s = HEARTBEATS_DEAD_S

    def __init__(self, store: Store) -> None:
        self._store = store

    async def way(self) -> Way:
        return StoreWay(self._store)


class EtcdWay:
    def __init__(self, proxy: Proxy, cluster: str) -> None:
        self._proxy = proxy
        self.membership: Membership = membership_from_url(proxy.url, cluster=cluster, clock=CLOCK)

    def cut(self) -> None:
        self._proxy.refuses = True
        self._proxy.cut()

    def mend(self) -> None:
        self._proxy.refuses = False


_clusters = count(1)


class EtcdMeeting:
    dead_s = float(TTL_S)

    def __init__(self, server: Etcd, stack: AsyncExitStack) -> None:
        self._url = f"{server.url}/?ttl={TTL_S}s"
        self._stack = stack
        self._cluster = f"cluster {next(_clusters)}"

    async def way(self) -> Way:
        proxy = await self._stack.enter_async_context(Proxy(self._url))
        return EtcdWay(proxy, self._cluster)


@asynccontextmanager
async def meeting(kind: str, etcd: Callable[[], Etcd], folder: Path) -> AsyncIterator[Meeting]:
    """Of the named kind: `memory`, `sqlite` or `etcd`."""
    async with AsyncExitStack() as stack:
        if kind == "etcd":
            yield EtcdMeeting(etcd(), stack)
            return
        store: Store = MemoryStore() if kind == "memory" else SqliteStore(str(folder / "x.db"))
        await store.open()
        try:
            yield StoreMeeting(store)
        finally:
            await store.close()


def member(name: str, boot: str = "0", **fields: object) -> Member:
    values: dict[str, object] = {
        "name": name,
        "boot": boot,
        "address": f"{name}.example:1",
        "started_at": 0,
        "version": "1",
    }
    return Member(**{**values, **fields})  # type: ignore[arg-type]
