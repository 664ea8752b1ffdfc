"""Copies between stores: whole, interrupted, contested."""

import asyncio
from contextlib import suppress

import msgspec
import pytest

from duetime import copying
from duetime.copying import Copied, NotCopied, copy
from duetime.errors import StoreUnavailable
from duetime.model import CURSOR_MIN, INSTANT_MAX, Finished, Namespace, Timer
from duetime.namespaces import KIND
from duetime.routing import shard_of
from duetime.store import Batch, Document, DueRead, ListQuery, Store
from duetime.stores.memory import MemoryStore
from duetime.testing.clock import FakeClock
from duetime.testing.conformance.timers import a_timer, as_kept, finished
from duetime.testing.store import Fault, FaultyStore

SHARDS = {"default": 4, "orders": 16}


async def a_service(*, timers: int = 40, since: int = 1) -> MemoryStore:
    """A store that was served: two namespaces, so many timers in each, and half as many ends."""
    store = MemoryStore()
    await store.open()
    for name, num_shards in SHARDS.items():
        namespace = Namespace(
            name=name,
            num_shards=num_shards,
            history_retention_s=60,
            min_delay_s=1,
            retry_policy=None,
            created_at=since,
            updated_at=since,
        )
        body = msgspec.json.encode(namespace)
        await store.write_document(KIND, name, body, expected_version=0)
    leases = await store.claim(range(16), owner="node-a", at=1)
    for name, num_shards in SHARDS.items():
        for number in range(timers):
            shard = shard_of(f"t{number}", num_shards)
            timer = a_timer(f"t{number}", namespace=name, shard=shard)
            ends = [finished(timer, at=n) for n in range(1, 3) if number % 2]
            await store.apply([Batch(leases[timer.shard], [timer], [], ends)])
    await store.release(leases)
    return store


async def an_empty_store() -> MemoryStore:
    store = MemoryStore()
    await store.open()
    return store


async def contents(store: Store) -> tuple[list[object], list[Timer], list[object]]:
    timers = []
    for shard in range(16):
        (page,) = await store.due([DueRead(shard, CURSOR_MIN, INSTANT_MAX, 1_000)])
        timers += page.timers
    ends: list[object] = []
    for name, num_shards in SHARDS.items():
        query = ListQuery(namespace=name, num_shards=num_shards, pending=False, limit=1_000)
        ends += [
            as_kept(end) for end in (await store.select(query)).entries if isinstance(end, Finished)
        ]
    documents = [(document.name, document.body) for document in await store.documents(KIND)]
    return list(documents), timers, ends


def unheard(copied: int, total: int) -> None:
    pass


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PAGE_TIMERS", 3)
    monkeypatch.setattr(copying, "SHARDS_AT_ONCE", 2)
    monkeypatch.setattr(copying, "SAVE_S", 0.0)
    monkeypatch.setattr(copying, "LISTEN_S", 0.01)


async def test_a_copy_holds_all_and_says_how_much() -> None:
    source, destination = await a_service(), await an_empty_store()
    told: list[tuple[int, int]] = []
    copied = await copy(
        source, destination, clock=FakeClock(), tell=lambda *progress: told.append(progress)
    )
    assert copied == Copied(2, 80, 80)
    assert await contents(destination) == await contents(source)
    assert told[0] == (0, 160)
    assert told[-1] == (160, 160)
    assert sorted(told) == told
    assert await destination.documents("copy") == []
    assert all(row.owner is None for row in await destination.shards())


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_an_interrupted_copy_goes_on_where_it_was(fault: Fault) -> None:
    source, destination = await a_service(), FaultyStore(await an_empty_store())
    writes = 0
    for pages in range(1, 7):
        await _some_pages(source, destination, pages)
        destination.faults.append(fault)
        with pytest.raises(StoreUnavailable):
            await copy(source, destination, clock=FakeClock(), tell=unheard)
        assert await destination.documents(KIND) == []  # There is nothing yet to be served.
        writes = destination.applied
    assert await copy(source, destination, clock=FakeClock(), tell=unheard) == Copied(2, 80, 80)
    at_once = FaultyStore(await an_empty_store())
    await copy(await a_service(), at_once, clock=FakeClock(), tell=unheard)
    assert destination.applied - writes < at_once.applied - 10
    assert await contents(destination) == await contents(source)


async def _some_pages(source: Store, destination: Store, pages: int) -> None:
    """Copy so many pages, then be interrupted; or to the end, if there are fewer."""

    class Interrupted(Exception):
        pass

    left = pages

    def tell(copied: int, total: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Interrupted

    with suppress(Interrupted):
        await copy(source, destination, clock=FakeClock(), tell=tell)


async def test_a_source_that_was_served_meanwhile_is_copied_anew() -> None:
    source, destination = await a_service(), await an_empty_store()
    await _some_pages(source, destination, 9)
    leases = await source.claim(range(16), owner="node-a", at=5)
    canceled = a_timer("t1", namespace="default", shard=shard_of("t1", 4))
    await source.apply([Batch(leases[canceled.shard], [], [canceled], [])])
    await source.purge("orders", before=1, limit=100)
    copied = await copy(source, destination, clock=FakeClock(), tell=unheard)
    assert copied == Copied(2, 79, 60)
    assert await contents(destination) == await contents(source)


async def test_a_source_that_is_claimed_while_it_is_copied_stops_the_copy() -> None:
    source, destination = await a_service(), await an_empty_store()

    def tell(copied: int, total: int) -> None:
        if copied == 6:
            with suppress(StopIteration):  # This store never waits.
                source.claim([3], owner="node-a", at=9).send(None)

    with pytest.raises(NotCopied, match="the source is in use"):
        await copy(source, destination, clock=FakeClock(), tell=tell)
    assert await destination.documents(KIND) == []


async def test_two_copies_into_one_destination_do_not_mix() -> None:
    source, destination = await a_service(), await an_empty_store()
    ended = await asyncio.gather(
        *(copy(source, destination, clock=FakeClock(), tell=unheard) for _ in range(2)),
        return_exceptions=True,
    )
    assert sum(isinstance(end, Copied) for end in ended) <= 1
    assert sum(isinstance(end, NotCopied) for end in ended) >= 1
    if not await destination.documents(KIND):
        await copy(source, destination, clock=FakeClock(), tell=unheard)
    assert await contents(destination) == await contents(source)


async def test_a_destination_with_data_of_its_own_is_refused() -> None:
    source, destination = await a_service(), await a_service(timers=1)
    with pytest.raises(NotCopied, match="the destination is not empty"):
        await copy(source, destination, clock=FakeClock(), tell=unheard)


async def test_an_unfinished_copy_of_something_else_is_refused() -> None:
    destination = await an_empty_store()
    await _some_pages(await a_service(), destination, 2)
    with pytest.raises(NotCopied, match="unfinished copy of another source"):
        await copy(await a_service(since=2), destination, clock=FakeClock(), tell=unheard)


async def test_a_source_without_namespaces_has_nothing_to_copy() -> None:
    with pytest.raises(NotCopied, match="there is nothing to copy"):
        await copy(await an_empty_store(), await an_empty_store(), clock=FakeClock(), tell=unheard)


async def test_a_store_where_a_node_is_alive_is_refused_by_its_name() -> None:
    class Served(FaultyStore):
        async def documents(self, kind: str) -> list[Document]:
            found = await super().documents(kind)
            for document in found:
                if document.name == "node-a":
                    await self.write_document(
                        kind, "node-a", b"{}", expected_version=document.version
                    )
            return found

    source, destination = Served(await a_service()), await an_empty_store()
    for name in ("node-dead", "node-a"):
        await source.write_document("node", name, b"{}", expected_version=0)
    with pytest.raises(NotCopied, match="the source is in use: stop node-a first"):
        await copy(source, destination, clock=FakeClock(), tell=unheard)


async def test_a_copy_that_lost_something_is_not_called_one() -> None:
    source, destination = await a_service(), await an_empty_store()

    def tell(copied: int, total: int) -> None:
        if copied == total:
            destination._history.clear()

    with pytest.raises(NotCopied, match="namespace 'default' has Count"):
        await copy(source, destination, clock=FakeClock(), tell=tell)
