"""Nodes that share a store and meet through a real etcd: they come, go, die and are cut off."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest
from scripts.servers import Etcd

from duetime.clock import Clock
from duetime.cluster.etcd import EtcdMembership
from duetime.cluster.membership import Membership
from duetime.node import Node
from duetime.routing import shard_of
from duetime.store import Store
from tests.cluster.meetings import CLOCK
from tests.cluster.nodes import Cluster, cluster, connection, new, share_all, until
from tests.etcds import etcd_of, three
from tests.servers import Servers

pytestmark = [pytest.mark.server, pytest.mark.slow]

_clusters = count(1)


@pytest.fixture
def server(servers: Servers) -> Etcd:
    return etcd_of(servers)


@asynccontextmanager
async def meeting(hosts: str, ttl_s: int = 2) -> AsyncIterator[Cluster]:
    """A cluster whose nodes meet there."""
    memberships: list[EtcdMembership] = []
    name = f"nodes {next(_clusters)}"

    def meet(_: Store, clock: Clock) -> Membership:
        url = f"etcd://{hosts}/?ttl={ttl_s}s"
        memberships.append(EtcdMembership(url, cluster=name, clock=clock))
        return memberships[-1]

    try:
        async with cluster(meet) as them:
            yield them
    finally:
        for membership in memberships:
            await membership.close()


def hosts(*servers: Etcd) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in servers)


async def start(them: Cluster, names: str) -> list[Node]:
    """These nodes, when they have shared the shards."""
    nodes = [await them.start(name) for name in names]
    await until(share_all(nodes), seconds=30)
    return nodes


async def versions(them: Cluster) -> dict[int, int]:
    return {row.shard: row.version for row in await them.memory.shards()}


async def test_a_killed_nodes_timers_fire_on_another_and_nothing_fires_twice(
    server: Etcd,
) -> None:
    async with meeting(hosts(server)) as them:
        a, b = await start(them, "ab")
        for i in range(100):
            owner = a if shard_of(f"t{i}", 16) in a.shards else b
            await owner.service.create(new(owner, f"t{i}", in_ms=500))
        them.kill(b)
        await until(lambda: len(them.sent) == 100, seconds=30)
        await until(share_all([a]))
        assert len({attempt.timer.id for _, attempt in them.sent}) == 100


async def test_a_node_that_stops_is_replaced_before_anybody_beats(
    server: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with meeting(hosts(server), ttl_s=600) as them:
        a, b = await start(them, "ab")
        # From now on only what is heard of makes `a` look.
        monkeypatch.setattr(a._ownership._membership, "interval_s", 600.0)  # type: ignore[union-attr]
        a._ownership._beat_now.set()  # type: ignore[union-attr]
        them.nodes.remove(b)
        await b.stop()
        await until(share_all([a]))
        await until(lambda: [member.name for member in a.members()] == ["a"])


async def test_after_the_database_was_away_everybody_goes_on_where_they_were(
    server: Etcd,
) -> None:
    async with meeting(hosts(server)) as them:
        nodes = await start(them, "abc")
        await asyncio.sleep(1)  # Until all have seen the last move.
        owned, before = [set(node.shards) for node in nodes], await versions(them)
        for node in nodes:
            connection(node).down = True
        await until(lambda: not any(node.ready for node in nodes), seconds=30)
        await asyncio.sleep(3)  # All leases run out.
        for node in nodes:
            connection(node).down = False
        await until(lambda: all(node.ready for node in nodes), seconds=30)
        await asyncio.sleep(3)
        assert [set(node.shards) for node in nodes] == owned
        assert await versions(them) == before


async def test_a_restart_of_etcd_moves_no_shard(server: Etcd) -> None:
    async with meeting(hosts(server)) as them:
        nodes = await start(them, "ab")
        await asyncio.sleep(1)
        owned, before = [set(node.shards) for node in nodes], await versions(them)
        server.stop(signal.SIGKILL)
        await until(lambda: not any(node.ready for node in nodes), seconds=30)
        server.start()
        await until(lambda: all(node.ready for node in nodes), seconds=30)
        await asyncio.sleep(3)
        assert [set(node.shards) for node in nodes] == owned
        assert await versions(them) == before


async def test_without_a_majority_all_stop_in_time_none_takes_over_and_all_heals(
    servers: Servers,
) -> None:
    with three(servers) as etcds:
        async with meeting(hosts(*etcds), ttl_s=3) as them:
            nodes = await start(them, "abc")
            await asyncio.sleep(1)
            before = await versions(them)
            for etcd in etcds[:2]:
                etcd.stop(signal.SIGKILL)
            trust_s = nodes[0]._ownership._membership.trust_s  # type: ignore[union-attr]
            stopped_at = CLOCK.monotonic()
            for node in nodes:
                assert node.firing._trusted_until <= stopped_at + trust_s
            await until(lambda: not any(node.ready for node in nodes), seconds=30)
            owner = next(node for node in nodes if shard_of("waits", 16) in node.shards)
            await owner.service.create(new(owner, "waits"))
            await asyncio.sleep(5)  # Much longer than a lease.
            assert await versions(them) == before
            assert them.sent == []
            etcds[0].start()
            await until(lambda: all(node.ready for node in nodes), seconds=30)
            await until(lambda: len(them.sent) == 1)
            await until(share_all(nodes), seconds=30)
            await asyncio.sleep(1)
            assert len(them.sent) == 1
