"""What became of timers, and for how long it is remembered."""

from typing import Any

import pytest

from duetime.store import ListQuery, Store
from duetime.testing.conformance.database import Base
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    as_kept,
    batch,
    claimed,
    everything,
    finished,
    key,
    put,
)


class History(Base):
    @pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
    async def test_a_finished_timer_moves_to_history(self, store: Store, status: Any) -> None:
        lease = await claimed(store)
        timer = a_timer(payload=b'{"n": 1}', metadata=b"[]", headers={"a": "b"})
        await put(store, lease, timer)
        ended = finished(timer, status, attempts=4, last_error="HTTP 503 from receiver.example")
        assert await store.apply([batch(lease, removes=[timer], finished=[ended])]) == frozenset()
        assert await store.get([key(timer)]) == [None]
        assert await everything(store) == []
        assert await store.outcomes([key(timer)]) == [as_kept(ended)]

    async def test_an_outcomes_attempts_and_error_replace_the_timers(self, store: Store) -> None:
        lease = await claimed(store)
        timer = a_timer(attempts=1, last_error="HTTP 503")
        await store.apply([batch(lease, finished=[finished(timer, attempts=2)])])
        (outcome,) = await store.outcomes([key(timer)])
        assert outcome is not None
        assert (outcome.attempts, outcome.last_error) == (2, None)
        assert (outcome.timer.attempts, outcome.timer.last_error) == (2, None)

    async def test_a_timer_is_recorded_once_for_each_instant_it_finished(
        self, store: Store
    ) -> None:
        lease = await claimed(store)
        timer = a_timer()
        for at in (NOW, NOW, NOW + 1):
            await store.apply([batch(lease, finished=[finished(timer, at=at)])])
        listing = await store.select(ListQuery(namespace="default", num_shards=1, total=True))
        assert listing.total == 2

    async def test_the_newest_outcome_is_the_one_that_counts(self, store: Store) -> None:
        lease = await claimed(store)
        runs = [finished(a_timer(at=NOW + n), at=NOW + n, attempts=n + 1) for n in range(3)]
        for position in (1, 2, 0):
            await store.apply([batch(lease, finished=[runs[position]])])
        assert await store.outcomes([key(a_timer())]) == [as_kept(runs[2])]

    async def test_a_finished_timer_may_be_put_again_beside_its_history(self, store: Store) -> None:
        lease = await claimed(store)
        first = finished(a_timer())
        await store.apply([batch(lease, finished=[first])])
        again = a_timer(at=NOW + 7_000)
        await put(store, lease, again)
        assert await store.get([key(again)]) == [again]
        assert await store.outcomes([key(again)]) == [as_kept(first)]

    async def test_outcomes_come_in_the_order_of_their_keys(self, store: Store) -> None:
        lease = await claimed(store)
        one, two = finished(a_timer("one")), finished(a_timer("two"), "failed")
        other = finished(a_timer("one", namespace="other"), "canceled")
        await store.apply([batch(lease, finished=[one, two, other])])
        asked = [two, one, two, other]
        keys = [key(entry.timer) for entry in asked]
        missing = key(a_timer("three"))
        assert await store.outcomes([*keys, missing]) == [*map(as_kept, asked), None]

    async def test_a_purge_forgets_up_to_and_including_its_instant(self, store: Store) -> None:
        lease = await claimed(store)
        entries = [finished(a_timer(f"t-{n}"), at=NOW + n) for n in range(3)]
        await store.apply([batch(lease, finished=entries)])
        assert await store.purge("default", before=NOW + 1, limit=10) == 2
        assert await store.outcomes([key(entry.timer) for entry in entries]) == [
            None,
            None,
            as_kept(entries[2]),
        ]
        assert await store.purge("default", before=NOW + 1, limit=10) == 0

    async def test_a_purge_stops_at_its_limit_and_goes_on_from_there(self, store: Store) -> None:
        lease = await claimed(store)
        entries = [finished(a_timer(f"t-{n}"), at=NOW + n) for n in range(5)]
        await store.apply([batch(lease, finished=entries)])
        counts = [await store.purge("default", before=NOW + 9, limit=2) for _ in range(4)]
        assert counts == [2, 2, 1, 0]

    async def test_a_purge_keeps_to_its_namespace_and_to_history(self, store: Store) -> None:
        lease = await claimed(store)
        pending = a_timer("pending")
        other = finished(a_timer(namespace="other"))
        await store.apply([batch(lease, puts=[pending], finished=[other])])
        assert await store.purge("default", before=NOW + 9_000, limit=10) == 0
        assert await store.outcomes([key(other.timer)]) == [as_kept(other)]
        assert await everything(store) == [pending]
