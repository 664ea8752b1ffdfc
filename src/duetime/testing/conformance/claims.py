"""Who owns a shard."""

import asyncio

from duetime.model import CURSOR_MIN, INSTANT_MAX, Lease
from duetime.store import DueRead, Page, ShardRow, Store
from duetime.testing.conformance.database import Base
from duetime.testing.conformance.timers import NOW, a_timer, claimed, everything, put


class Claims(Base):
    async def test_the_first_claim_has_version_one(self, store: Store) -> None:
        assert await claimed(store, 3) == Lease(3, 1, "node-a")

    async def test_every_claim_adds_one_whoever_holds_the_shard(self, store: Store) -> None:
        first = await claimed(store, owner="node-a")
        second = await claimed(store, owner="node-b")
        third = await claimed(store, owner="node-b")
        assert [first.version, second.version, third.version] == [1, 2, 3]
        assert [second.owner, third.owner] == ["node-b", "node-b"]

    async def test_leases_come_in_the_order_asked(self, store: Store) -> None:
        await claimed(store, 2)
        leases = await store.claim([7, 2, 0], owner="node-b", at=NOW)
        assert leases == [Lease(7, 1, "node-b"), Lease(2, 2, "node-b"), Lease(0, 1, "node-b")]

    async def test_shards_are_listed_by_number_with_their_owner(self, store: Store) -> None:
        await store.claim([300, 2], owner="node-a", at=NOW)
        await store.claim([2], owner="node-b", at=NOW + 5)
        await store.claim([10], owner="node-ü", at=NOW + 6)
        assert await store.shards() == [
            ShardRow(2, 2, "node-b", NOW + 5),
            ShardRow(10, 1, "node-ü", NOW + 6),
            ShardRow(300, 1, "node-a", NOW),
        ]

    async def test_before_any_claim_there_are_no_shards(self, store: Store) -> None:
        assert await store.shards() == []

    async def test_a_release_clears_the_owner_and_keeps_the_version(self, store: Store) -> None:
        lease = await claimed(store)
        await store.release([lease])
        assert await store.shards() == [ShardRow(0, 1, None, NOW)]
        assert (await claimed(store)).version == 2

    async def test_a_superseded_release_changes_nothing(self, store: Store) -> None:
        old = await claimed(store, owner="node-a")
        await claimed(store, owner="node-b")
        await store.release([old])
        assert await store.shards() == [ShardRow(0, 2, "node-b", NOW)]

    async def test_claims_that_race_each_get_a_version_of_their_own(
        self, store: Store, rival: Store
    ) -> None:
        claims = [
            handle.claim([0, 1], owner=f"node-{number}", at=NOW)
            for number, handle in enumerate([store, rival] * 10)
        ]
        answers = await asyncio.gather(*claims)
        rows = await store.shards()
        for position in (0, 1):
            leases = sorted((leases[position] for leases in answers), key=lambda it: it.version)
            assert [lease.version for lease in leases] == list(range(1, 21))
            assert rows[position].owner == leases[-1].owner
            assert rows[position].version == 20

    async def test_claiming_and_releasing_leave_the_timers_alone(self, store: Store) -> None:
        lease = await claimed(store)
        timers = [a_timer("first", at=0), a_timer("zero-key", at=1_000), a_timer("later")]
        await put(store, lease, *timers)
        await store.release([await claimed(store)])
        assert await everything(store) == timers

    async def test_thousands_of_shards_are_claimed_and_read_in_one_call(self, store: Store) -> None:
        leases = await store.claim(range(4_096), owner="node-a", at=NOW)
        assert [lease.shard for lease in leases] == list(range(4_096))
        reads = [DueRead(shard, CURSOR_MIN, INSTANT_MAX, 1_000) for shard in range(4_096)]
        assert await store.due(reads) == [Page([], more=False)] * 4_096
        await store.release(leases)
        assert {row.owner for row in await store.shards()} == {None}
