"""A write against a newer claim, however the two are interleaved."""

import asyncio
from contextlib import nullcontext

from duetime.model import Lease, Timer
from duetime.store import Store
from duetime.testing.conformance.database import Base, Database
from duetime.testing.conformance.timers import (
    a_timer,
    batch,
    claimed,
    everything,
    finished,
    key,
    put,
)

ROUNDS = 60
BLOCKED_S = 0.2  # How long a claim that must wait is given to show that it does not.


class Fence(Base):
    async def test_a_superseded_lease_changes_nothing(self, store: Store) -> None:
        old = await claimed(store, owner="node-a")
        kept, moved = a_timer("kept"), a_timer("moved")
        await put(store, old, kept, moved)
        await claimed(store, owner="node-b")
        attempt = batch(
            old,
            puts=[a_timer("new"), a_timer("moved", at=moved.execute_at + 1)],
            removes=[kept],
            finished=[finished(kept)],
        )
        assert await store.apply([attempt]) == {0}
        assert await everything(store) == sorted([kept, moved], key=lambda it: it.cursor)
        assert await store.outcomes([key(kept)]) == [None]

    async def test_a_large_batch_under_a_superseded_lease_changes_nothing(
        self, store: Store
    ) -> None:
        old = await claimed(store, owner="node-a")
        kept = [a_timer(f"kept-{number:03}") for number in range(300)]
        await put(store, old, *kept)
        await claimed(store, owner="node-b")
        attempt = batch(
            old,
            puts=[a_timer(f"new-{number:03}") for number in range(300)],
            removes=kept,
            finished=[finished(timer) for timer in kept],
        )
        assert await store.apply([attempt]) == {0}
        assert await everything(store) == sorted(kept, key=lambda it: it.cursor)
        assert await store.outcomes([key(timer) for timer in kept]) == [None] * 300

    async def test_a_lease_from_the_future_or_of_a_shard_never_claimed_is_no_lease(
        self, store: Store
    ) -> None:
        lease = await claimed(store)
        ahead = Lease(0, lease.version + 1, lease.owner)
        unclaimed = Lease(5, 0, "node-a")
        attempts = [
            batch(ahead, puts=[a_timer("a")]),
            batch(unclaimed, puts=[a_timer("b", shard=5)]),
        ]
        assert await store.apply(attempts) == {0, 5}
        assert await everything(store, 0) == await everything(store, 5) == []

    async def test_of_several_shards_only_the_lost_ones_are_left_out(self, store: Store) -> None:
        leases = await store.claim(range(4), owner="node-a", at=1)
        await store.claim([1, 3], owner="node-b", at=2)
        timers = [a_timer(f"in-{shard}", shard=shard) for shard in range(4)]
        ended = [finished(a_timer(f"ended-{shard}", shard=shard)) for shard in range(4)]
        batches = [
            batch(lease, puts=[timer], finished=[entry])
            for lease, timer, entry in zip(leases, timers, ended, strict=True)
        ]
        assert await store.apply(batches) == {1, 3}
        assert [await everything(store, shard) for shard in range(4)] == [
            [timers[0]],
            [],
            [timers[2]],
            [],
        ]
        outcomes = await store.outcomes([key(entry.timer) for entry in ended])
        assert [outcome is not None for outcome in outcomes] == [True, False, True, False]

    async def test_an_empty_batch_tells_whether_the_lease_holds(self, store: Store) -> None:
        old = await claimed(store)
        assert await store.apply([batch(old)]) == frozenset()
        await claimed(store)
        assert await store.apply([batch(old)]) == {0}

    async def test_a_claim_between_fence_and_write_waits_or_wins(
        self, database: Database, store: Store, rival: Store
    ) -> None:
        """With a fence that only reads, the rival would claim, see nothing, and then the old
        owner's timer would appear in a shard that the rival believes it knows."""
        lease = await claimed(store, owner="node-a")
        timer = a_timer("contested")
        hold = database.hold(store)
        with nullcontext() if hold is None else hold as held:
            writing = asyncio.create_task(store.apply([batch(lease, puts=[timer])]))
            if held is not None:
                await held.reached()
            claiming = asyncio.create_task(_claim_and_look(rival))
            await asyncio.wait([claiming], timeout=BLOCKED_S)
            if held is not None:
                held.release()
            await _check(store, timer, writing, claiming)

    async def test_a_write_and_a_claim_that_race_never_both_have_their_way(
        self, store: Store, rival: Store
    ) -> None:
        lease = await claimed(store)
        for number in range(ROUNDS):
            timer = a_timer(f"round-{number}")
            write = store.apply([batch(lease, puts=[timer])])
            claim = _claim_and_look(rival)
            if number % 2:
                claiming, writing = asyncio.create_task(claim), asyncio.create_task(write)
            else:
                writing, claiming = asyncio.create_task(write), asyncio.create_task(claim)
            await _check(store, timer, writing, claiming)
            lease = await claimed(store)


async def _claim_and_look(rival: Store) -> list[Timer]:
    await claimed(rival, owner="node-b")
    return await everything(rival)


async def _check(
    store: Store,
    timer: Timer,
    writing: "asyncio.Task[frozenset[int]]",
    claiming: "asyncio.Task[list[Timer]]",
) -> None:
    """What the new owner saw right after its claim is all that the old one ever wrote."""
    lost = await writing
    seen = await claiming
    assert await everything(store) == seen
    assert (timer in seen) == (lost == frozenset())
