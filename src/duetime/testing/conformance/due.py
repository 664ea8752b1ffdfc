"""Pages of timers in the order in which they fire."""

import pytest

from duetime.model import CURSOR_MAX, CURSOR_MIN, INSTANT_MAX, Cursor, Timer
from duetime.store import DueRead, Store
from duetime.testing.conformance.database import Base
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    an_id,
    batch,
    claimed,
    everything,
    put,
)


class DueReads(Base):
    async def test_timers_come_by_instant_then_by_unsigned_uuid(self, store: Store) -> None:
        lease = await claimed(store)
        bytes_in_order = [0x00, 0x01, 0x7F, 0x80, 0x81, 0xFF]
        equal = [a_timer(an_id(first)) for first in bytes_in_order]
        assert [timer.uuid[0] for timer in equal] == bytes_in_order
        earlier, later = a_timer("earlier", at=NOW - 1), a_timer("later", at=NOW + 1)
        await put(store, lease, later, *reversed(equal), earlier)
        assert await everything(store) == [earlier, *equal, later]

    @pytest.mark.parametrize("limit", [1, 2, 99, 100, 101, 1_000])
    async def test_pages_follow_one_another_without_gap_or_repetition(
        self, store: Store, limit: int
    ) -> None:
        lease = await claimed(store)
        timers = sorted(
            (a_timer(f"t-{number}", at=NOW + number // 7) for number in range(230)),
            key=lambda timer: timer.cursor,
        )
        await put(store, lease, *timers)
        seen: list[Timer] = []
        more = True
        while more:
            after = seen[-1].cursor if seen else CURSOR_MIN
            (page,) = await store.due([DueRead(0, after, INSTANT_MAX, limit)])
            assert len(page.timers) <= limit
            assert page.timers or not page.more
            seen += page.timers
            more = page.more
        assert seen == timers

    async def test_a_short_page_that_says_so_is_the_last(self, store: Store) -> None:
        lease = await claimed(store)
        await put(store, lease, a_timer("a"), a_timer("b"), a_timer("c", at=NOW + 5))
        (page,) = await store.due([DueRead(0, CURSOR_MIN, NOW, 10)])
        assert (len(page.timers), page.more) == (2, False)
        (page,) = await store.due([DueRead(0, CURSOR_MIN, NOW + 5, 2)])
        assert (len(page.timers), page.more) == (2, True)

    async def test_after_is_exclusive_and_until_inclusive(self, store: Store) -> None:
        lease = await claimed(store)
        timers = [a_timer(f"t-{n}", at=NOW + n) for n in range(-1, 3)]
        before, first, second, beyond = timers
        await put(store, lease, *timers)
        (page,) = await store.due([DueRead(0, before.cursor, second.execute_at, 10)])
        assert page.timers == [first, second]
        just_before = Cursor(first.execute_at, bytes(16))
        (page,) = await store.due([DueRead(0, just_before, first.execute_at, 10)])
        assert page.timers == [first]
        behind = Cursor(first.execute_at, b"\xff" * 16)
        (page,) = await store.due([DueRead(0, behind, beyond.execute_at, 10)])
        assert page.timers == [second, beyond]

    async def test_after_cuts_between_timers_of_one_instant(self, store: Store) -> None:
        lease = await claimed(store)
        timers = sorted((a_timer(f"t-{n}") for n in range(20)), key=lambda timer: timer.cursor)
        await put(store, lease, *timers)
        for position, timer in enumerate(timers):
            (page,) = await store.due([DueRead(0, timer.cursor, NOW, 100)])
            assert page.timers == timers[position + 1 :]

    async def test_the_first_and_the_last_instant_are_instants_like_others(
        self, store: Store
    ) -> None:
        lease = await claimed(store)
        first, last = a_timer("first", at=0), a_timer("last", at=INSTANT_MAX)
        await put(store, lease, last, first)
        (page,) = await store.due([DueRead(0, CURSOR_MIN, INSTANT_MAX, 10)])
        assert page.timers == [first, last]
        (page,) = await store.due([DueRead(0, CURSOR_MIN, INSTANT_MAX - 1, 10)])
        assert page.timers == [first]
        (page,) = await store.due([DueRead(0, CURSOR_MAX, INSTANT_MAX, 10)])
        assert (page.timers, page.more) == ([], False)

    async def test_a_claimed_shard_without_timers_has_an_empty_page(self, store: Store) -> None:
        await claimed(store)
        (page,) = await store.due([DueRead(0, CURSOR_MIN, INSTANT_MAX, 10)])
        assert (page.timers, page.more) == ([], False)

    async def test_each_read_is_answered_in_its_place(self, store: Store) -> None:
        leases = await store.claim([0, 1, 2], owner="node-a", at=NOW)
        zero = [a_timer(f"zero-{n}", at=NOW + n) for n in range(3)]
        two = [a_timer(f"two-{n}", shard=2, at=NOW + n) for n in range(3)]
        await store.apply([batch(leases[0], puts=zero), batch(leases[2], puts=two)])
        reads = [
            DueRead(2, CURSOR_MIN, NOW + 1, 10),
            DueRead(1, CURSOR_MIN, NOW + 9, 10),
            DueRead(0, zero[0].cursor, NOW + 9, 1),
            DueRead(0, CURSOR_MIN, NOW, 10),
        ]
        pages = await store.due(reads)
        assert [page.timers for page in pages] == [two[:2], [], [zero[1]], [zero[0]]]
        assert not pages[0].more
        assert not pages[1].more
        assert not pages[3].more

    async def test_heavy_timers_come_too_in_as_many_pages_as_it_takes(self, store: Store) -> None:
        lease = await claimed(store)
        heavy = b'"' + b"x" * 102_398 + b'"'
        timers = [a_timer(f"t-{n:03}", at=NOW + n, payload=heavy) for n in range(230)]
        for start in range(0, len(timers), 50):
            await put(store, lease, *timers[start : start + 50])
        assert await everything(store) == timers
