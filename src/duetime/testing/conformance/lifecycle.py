"""Opening, closing, and what outlives them."""

import asyncio

import pytest

from duetime.errors import StoreUnavailable
from duetime.model import CURSOR_MIN
from duetime.store import DueRead, Key, ListQuery, Store
from duetime.testing.conformance.database import Base, Database
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


class Lifecycle(Base):
    async def test_closing_twice_is_fine(self, store: Store) -> None:
        await store.close()
        await store.close()

    async def test_a_store_that_was_never_opened_can_be_closed(self, database: Database) -> None:
        await database.handle().close()

    async def test_every_call_on_a_closed_store_says_that_it_is_unavailable(
        self, store: Store
    ) -> None:
        lease = await claimed(store)
        await store.close()
        query = ListQuery(namespace="default", num_shards=1)
        calls = [
            store.now(),
            store.claim([0], owner="node-a", at=NOW),
            store.release([lease]),
            store.shards(),
            store.apply([batch(lease)]),
            store.due([DueRead(0, CURSOR_MIN, NOW, 1)]),
            store.get([Key(0, "default", "a")]),
            store.outcomes([Key(0, "default", "a")]),
            store.select(query),
            store.purge("default", before=NOW, limit=1),
            store.documents("kind"),
            store.write_document("kind", "name", b"{}", expected_version=0),
            store.delete_document("kind", "name", expected_version=1),
        ]
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, StoreUnavailable)

    async def test_the_clock_of_the_database_does_not_stand_in_another_age(
        self, store: Store
    ) -> None:
        first = await store.now()
        assert first > 1_700_000_000_000
        assert await store.now() >= first

    async def test_calls_of_no_shards_and_no_keys_are_answered(self, store: Store) -> None:
        assert await store.claim([], owner="node-a", at=NOW) == []
        assert await store.apply([]) == frozenset()
        assert await store.due([]) == []
        assert await store.get([]) == []
        assert await store.outcomes([]) == []
        await store.release([])

    async def test_a_caller_that_gives_up_leaves_the_store_in_order(self, store: Store) -> None:
        lease = await claimed(store)
        given_up = [
            asyncio.create_task(store.apply([batch(lease, puts=[a_timer(f"gone-{n}")])]))
            for n in range(20)
        ]
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        await put(store, lease, a_timer("here"))
        assert "here" in [timer.id for timer in await everything(store)]

    async def test_what_was_written_is_there_after_opening_again(
        self, database: Database, store: Store
    ) -> None:
        if not store.traits.durable:
            pytest.skip("the store keeps nothing")
        lease = await claimed(store)
        kept, ended = a_timer("kept", payload=b'{"n": 1}'), finished(a_timer("ended"))
        assert not await store.apply([batch(lease, puts=[kept], finished=[ended])])
        assert await store.write_document("kind", "name", b"{}", expected_version=0)
        before = await store.shards()
        await store.close()

        again = database.handle()
        await again.open()
        try:
            assert await again.shards() == before
            assert await everything(again) == [kept]
            assert await again.outcomes([key(ended.timer)]) == [as_kept(ended)]
            assert [document.name for document in await again.documents("kind")] == ["name"]
            assert await again.apply([batch(lease, removes=[kept])]) == frozenset()
        finally:
            await again.close()
