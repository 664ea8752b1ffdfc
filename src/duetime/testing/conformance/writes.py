"""What a batch changes."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duetime.model import INSTANT_MAX, RetryPolicy, Timer
from duetime.store import Key, Store
from duetime.testing.conformance.database import Base
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    batch,
    claimed,
    everything,
    finished,
    key,
    put,
)

# No NUL: not every database has text that can hold it.
_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
_TEXT = st.text(_CHARACTERS, min_size=1, max_size=255)
_INSTANTS = st.one_of(
    st.sampled_from([0, 1, 999, 1_000, 1_001, NOW, INSTANT_MAX]), st.integers(0, INSTANT_MAX)
)
_JSON = st.one_of(
    st.sampled_from(
        [
            b"null",
            b"{}",
            b'""',
            b" [1, 2] \n",
            b'{"a": 1, "a": 2}',
            b"1e999",
            b"0.1000000000000000000001",
            b'"\\ud800"',
            b'"\\u0000"',
            '"\U0001f600 \u2028"'.encode(),
            b"[" * 100 + b"]" * 100,
            b'"' + b"x" * 102_398 + b'"',
        ]
    ),
    _TEXT.map(lambda text: b'"' + text.encode("unicode_escape").replace(b'"', b"") + b'"'),
)
_POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.none() | st.integers(0, 1_000_000),
    max_attempts_duration=st.none() | st.just("24h"),
    initial_interval=st.none() | st.just("500ms"),
    backoff_multiplier=st.none() | st.floats(1, 1e6),
    max_interval=st.none() | st.just("5m"),
)
_TIMERS: st.SearchStrategy[Timer] = st.builds(
    a_timer,
    id=_TEXT,
    namespace=_TEXT,
    at=_INSTANTS,
    callback_url=st.text(_CHARACTERS, min_size=1, max_size=2_048),
    created_at=_INSTANTS,
    updated_at=_INSTANTS,
    scheduled_at=_INSTANTS,
    timeout_s=st.integers(1, 86_400),
    reply=st.sampled_from(["v1", "rest"]),
    method=st.sampled_from(["POST", "PUT", "PATCH"]),
    headers=st.none() | st.dictionaries(_TEXT, _TEXT, max_size=3),
    payload=st.none() | _JSON,
    metadata=st.none() | _JSON,
    retry=st.none() | _POLICIES,
    attempts=st.integers(0, 2**31 - 1),
    first_attempt_at=st.none() | _INSTANTS,
    last_error=st.none() | _TEXT,
)


class Writes(Base):
    async def test_what_is_put_is_found(self, store: Store) -> None:
        lease = await claimed(store)
        timer = a_timer()
        await put(store, lease, timer)
        assert await store.get([key(timer)]) == [timer]
        assert await everything(store) == [timer]

    async def test_timers_are_got_in_the_order_of_their_keys(self, store: Store) -> None:
        lease = await claimed(store)
        one, two = a_timer("one"), a_timer("two")
        await put(store, lease, one, two)
        missing = Key(0, "default", "three")
        elsewhere = [Key(1, "default", "one"), Key(0, "other", "one")]
        asked = [key(two), missing, key(one), key(two), *elsewhere]
        assert await store.get(asked) == [two, None, one, two, None, None]

    async def test_many_keys_are_looked_up_in_one_call(self, store: Store) -> None:
        lease = await claimed(store)
        timers = [a_timer(f"t-{number}") for number in range(1_111)]
        await put(store, lease, *timers[::2])
        found = await store.get([key(timer) for timer in timers])
        assert found == [timer if number % 2 == 0 else None for number, timer in enumerate(timers)]

    async def test_a_put_replaces_the_row_of_the_same_time(self, store: Store) -> None:
        lease = await claimed(store)
        await put(store, lease, a_timer(payload=b"1", headers={"a": "b"}, attempts=3))
        replacement = a_timer(callback_url="http://receiver.example/new")
        await put(store, lease, replacement)
        assert await everything(store) == [replacement]

    async def test_a_put_replaces_the_row_of_another_time(self, store: Store) -> None:
        lease = await claimed(store)
        for at in (NOW, NOW - 500, NOW + 500):
            moved = a_timer(at=at)
            await put(store, lease, moved)
            assert await everything(store) == [moved]
            assert await store.get([key(moved)]) == [moved]

    async def test_one_id_in_two_namespaces_is_two_timers(self, store: Store) -> None:
        lease = await claimed(store)
        here, there = a_timer(namespace="here"), a_timer(namespace="there", at=NOW + 1)
        await put(store, lease, here, there)
        await store.apply([batch(lease, removes=[here])])
        assert await store.get([key(here), key(there)]) == [None, there]

    async def test_ids_that_differ_only_in_case_or_composition_are_two_timers(
        self, store: Store
    ) -> None:
        lease = await claimed(store)
        ids = ["a", "A", "a ", "\u00e9", "e\u0301", "\u00df", "ss"]
        timers = [a_timer(name, at=NOW + number) for number, name in enumerate(ids)]
        await put(store, lease, *timers)
        assert await store.get([key(timer) for timer in timers]) == timers
        assert await everything(store) == timers

    async def test_thousands_of_rows_over_many_shards_go_in_one_call(self, store: Store) -> None:
        leases = await store.claim(range(16), owner="node-a", at=NOW)
        timers = [
            [a_timer(f"{shard}-{number:03}", shard=shard, at=NOW + number) for number in range(250)]
            for shard in range(16)
        ]
        batches = [batch(lease, puts=mine) for lease, mine in zip(leases, timers, strict=True)]
        assert await store.apply(batches) == frozenset()
        assert [await everything(store, shard) for shard in range(16)] == timers
        batches = [
            batch(lease, removes=mine, finished=[finished(timer) for timer in mine])
            for lease, mine in zip(leases, timers, strict=True)
        ]
        assert await store.apply(batches) == frozenset()
        assert [await everything(store, shard) for shard in range(16)] == [[]] * 16
        outcomes = await store.outcomes([key(timer) for mine in timers for timer in mine])
        assert None not in outcomes

    async def test_removing_what_is_gone_is_no_error(self, store: Store) -> None:
        lease = await claimed(store)
        kept = a_timer("kept")
        await put(store, lease, kept)
        for _ in range(2):
            attempt = batch(lease, removes=[a_timer("never-there"), a_timer("gone")])
            assert await store.apply([attempt]) == frozenset()
        assert await everything(store) == [kept]

    async def test_removing_by_an_old_cursor_leaves_the_row_that_has_moved(
        self, store: Store
    ) -> None:
        lease = await claimed(store)
        old = a_timer()
        moved = a_timer(at=NOW + 1_000)
        await put(store, lease, old)
        await put(store, lease, moved)
        await store.apply([batch(lease, removes=[old])])
        assert await everything(store) == [moved]

    async def test_a_batch_puts_removes_and_finishes_at_once(self, store: Store) -> None:
        lease = await claimed(store)
        done, canceled, retried = a_timer("done"), a_timer("canceled"), a_timer("retried")
        await put(store, lease, done, canceled, retried)
        again = a_timer("retried", at=NOW + 9, scheduled_at=NOW, attempts=1, last_error="HTTP 503")
        new = a_timer("new")
        change = batch(
            lease,
            puts=[again, new],
            removes=[done, canceled],
            finished=[finished(done), finished(canceled, "canceled", attempts=0)],
        )
        assert await store.apply([change]) == frozenset()
        assert await everything(store) == [new, again]
        outcomes = await store.outcomes([key(done), key(canceled), key(retried)])
        assert [outcome and outcome.status for outcome in outcomes] == [
            "completed",
            "canceled",
            None,
        ]

    async def test_a_batch_sent_again_changes_nothing_more(self, store: Store) -> None:
        """As after `StoreUnavailable`, when nobody knows whether it took effect."""
        lease = await claimed(store)
        done = a_timer("done")
        await put(store, lease, done)
        change = batch(lease, puts=[a_timer("new")], removes=[done], finished=[finished(done)])
        await store.apply([change])
        before = (await everything(store), await store.outcomes([key(done)]))
        assert await store.apply([change]) == frozenset()
        assert (await everything(store), await store.outcomes([key(done)])) == before
        assert await store.purge("default", before=INSTANT_MAX, limit=10) == 1

    @settings(
        max_examples=100,
        deadline=None,
        suppress_health_check=[
            HealthCheck.differing_executors,  # One for each store.
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
        ],
    )
    @given(timer=_TIMERS, status=st.sampled_from(["completed", "failed", "canceled"]))
    async def test_every_field_comes_back_as_it_was(
        self, store: Store, timer: Timer, status: Any
    ) -> None:
        lease = await claimed(store)
        await put(store, lease, timer)
        assert await store.get([key(timer)]) == [timer]
        assert await everything(store) == [timer]
        ended = finished(
            timer, status, at=timer.updated_at, attempts=timer.attempts, last_error=timer.last_error
        )
        await store.apply([batch(lease, removes=[timer], finished=[ended])])
        assert await store.outcomes([key(timer)]) == [ended]
        assert await everything(store) == []
        await store.purge(timer.namespace, before=INSTANT_MAX, limit=10)
