"""What a Cassandra can do to us: it stops, freezes, answers too late, refuses, or buries us in
what was deleted."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cassandra as cassandra_driver
import pytest
import pytest_asyncio
from cassandra import cluster, connection, protocol
from scripts.servers import Cassandra

from duetime.errors import SchemaTooNew, StoreError, StoreUnavailable
from duetime.model import CURSOR_MIN, INSTANT_MAX
from duetime.store import DueRead, ListQuery
from duetime.stores.cassandra import CassandraStore, driver, plan, schema
from duetime.stores.cassandra import store as store_module
from duetime.stores.cassandra.driver import Change
from duetime.stores.cassandra.errors import translated
from duetime.stores.cassandra.statements import CLAIM
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
from tests.stores.cassandra_database import CassandraDatabase
from tests.stores.proxy import Proxy

pytestmark = [pytest.mark.server, pytest.mark.slow]

LOST = StoreUnavailable("the answer was lost")


@pytest_asyncio.fixture
async def store(cassandra: CassandraDatabase) -> AsyncIterator[CassandraStore]:
    store = CassandraStore(cassandra.url)
    await store.open()
    yield store
    await store.close()


class _Changes:
    """What reaches the server of what the store sends, and what it hears of it."""

    def __init__(self, store: CassandraStore) -> None:
        self.sent: list[tuple[Change, ...]] = []
        self.lost_before = self.lost_after = 0
        """Of how many of the next the request, or the answer, is lost."""
        self.meanwhile: Callable[[], Any] | None = None
        """Happens after the next one that is lost."""
        self._change = store._driver.change

    async def __call__(self, *changes: Change) -> dict[str, Any]:
        self.sent.append(changes)
        if self.lost_before:
            self.lost_before -= 1
            await self._then()
            raise LOST
        row = await self._change(*changes)
        if self.lost_after:
            self.lost_after -= 1
            await self._then()
            raise LOST
        return row

    async def _then(self) -> None:
        then, self.meanwhile = self.meanwhile, None
        if then is not None:
            await then()


@contextmanager
def _changes(store: CassandraStore) -> Iterator[_Changes]:
    changes = _Changes(store)
    store._driver.change = changes  # type: ignore[method-assign]
    yield changes
    store._driver.change = changes._change  # type: ignore[method-assign]


# -- outages ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_under_load_is_an_outage_that_ends_by_itself(
    cassandra_server: Cassandra, store: CassandraStore, how: signal.Signals
) -> None:
    leases = await store.claim(range(4), owner="node-a", at=NOW)
    accepted: set[str] = set()
    refusals: list[str] = []
    refused = asyncio.Event()
    ends = False

    async def load(shard: int) -> None:
        number = 0
        while not ends:
            timer = a_timer(f"{shard}-{number}", shard=shard, at=NOW + number)
            try:
                assert not await store.apply([batch(leases[shard], puts=[timer])])
            except StoreUnavailable as error:
                refusals.append(str(error))
                refused.set()
                await asyncio.sleep(0.01)
            else:
                accepted.add(timer.id)
                number += 1

    tasks = [asyncio.create_task(load(shard)) for shard in range(4)]
    async with asyncio.timeout(90):
        while len(accepted) < 100:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(cassandra_server.stop, how)
        await refused.wait()
        await asyncio.to_thread(cassandra_server.start)
        before = len(accepted)
        while len(accepted) < before + 100:
            await asyncio.sleep(0.01)
    ends = True
    await asyncio.gather(*tasks)
    assert all(re.match(r"127\.0\.0\.1:\d+/test_cassandra_failures: \w", it) for it in refusals)
    found = [timer.id for shard in range(4) for timer in await everything(store, shard)]
    assert len(found) == len(set(found))
    assert accepted <= set(found)


async def test_a_server_that_answers_no_more_is_given_up_on(
    cassandra_server: Cassandra, cassandra: CassandraDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "ANSWER_S_MAX", 0.5)
    store = CassandraStore(cassandra.url)
    await store.open()
    await store.now()
    pid = cassandra_server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="it did not answer in time"):
            await store.now()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert await store.now() > 0
    await store.close()


# -- writes whose outcome is unknown ------------------------------------------------------


async def test_a_write_that_was_not_answered_is_looked_up_and_not_sent_again(
    store: CassandraStore,
) -> None:
    lease = await claimed(store)
    with _changes(store) as changes:
        changes.lost_after = 1
        await put(store, lease, a_timer())
        assert len(changes.sent) == 1
    assert await everything(store) == [a_timer()]


async def test_a_write_that_did_not_arrive_is_sent_again(store: CassandraStore) -> None:
    lease = await claimed(store)
    with _changes(store) as changes:
        changes.lost_before = 2
        await put(store, lease, a_timer())
        assert len(changes.sent) == 3
    assert await everything(store) == [a_timer()]


async def test_it_is_not_sent_for_ever(store: CassandraStore) -> None:
    lease = await claimed(store)
    with _changes(store) as changes:
        changes.lost_before = store_module.TRIES
        with pytest.raises(StoreUnavailable):
            await put(store, lease, a_timer())
        await put(store, lease, a_timer("next"))
    assert await everything(store) == [a_timer("next")]


async def test_a_write_that_arrives_late_changes_nothing_any_more(store: CassandraStore) -> None:
    lease = await claimed(store)
    with _changes(store) as changes:
        changes.lost_before = store_module.TRIES
        with pytest.raises(StoreUnavailable):
            await put(store, lease, a_timer())
        moved = a_timer(at=NOW + 500)
        await put(store, lease, moved)
        row = await changes._change(*changes.sent[0])
    assert not row["[applied]"]
    assert await everything(store) == [moved]
    assert await store.get([key(moved)]) == [moved]


async def test_a_claim_before_it_arrived_supersedes_it(store: CassandraStore) -> None:
    lease = await claimed(store)
    with _changes(store) as changes:
        changes.lost_before = 1
        changes.meanwhile = lambda: _claim_elsewhere(store)
        assert await store.apply([batch(lease, puts=[a_timer()])]) == {0}
    assert await everything(store) == []


async def test_a_claim_after_it_took_effect_does_not_hide_that(store: CassandraStore) -> None:
    lease = await claimed(store)
    with _changes(store) as changes:
        changes.lost_after = 1
        changes.meanwhile = lambda: _claim_elsewhere(store)
        await put(store, lease, a_timer())
    assert await everything(store) == [a_timer()]
    assert await store.apply([batch(lease)]) == {0}


async def test_what_another_has_written_over_stays_unknown(
    cassandra: CassandraDatabase, store: CassandraStore
) -> None:
    lease = await claimed(store)
    rival = CassandraStore(cassandra.url)
    await rival.open()

    async def claim_and_write() -> None:
        await put(rival, await claimed(rival, owner="node-b"), a_timer("other"))

    with _changes(store) as changes:
        changes.lost_after = 1
        changes.meanwhile = claim_and_write
        with pytest.raises(StoreUnavailable):
            await put(store, lease, a_timer())
    await rival.close()


async def test_a_claim_that_was_not_answered_is_made_again(store: CassandraStore) -> None:
    for number, (before, after) in enumerate([(1, 0), (0, 1)]):
        with _changes(store) as changes:
            changes.lost_before, changes.lost_after = before, after
            lease = await claimed(store, number)
        (row,) = [row for row in await store.shards() if row.shard == number]
        assert (row.version, row.owner) == (lease.version, "node-a")


async def test_a_document_that_was_not_answered_is_written_once(store: CassandraStore) -> None:
    with _changes(store) as changes:
        for version in (0, 1):
            changes.lost_after = 1
            assert await store.write_document("kind", "name", b"1", expected_version=version)
        changes.lost_after = 1
        assert not await store.write_document("kind", "other", b"1", expected_version=1)
    assert [document.version for document in await store.documents("kind")] == [2]


async def test_a_connection_that_loses_answers_leaves_each_timer_once(
    cassandra: CassandraDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "ANSWER_S_MAX", 1)
    async with Proxy(cassandra.url) as proxy:
        store = CassandraStore(proxy.url)
        await store.open()
        lease = await claimed(store)
        warm = batch(lease, puts=[a_timer("warm")], finished=[finished(a_timer("warm"))])
        await store.apply([warm])  # To prepare a statement takes an answer.
        proxy.swallows_answers = True
        change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
        with pytest.raises(StoreUnavailable):
            await store.apply([change])
        proxy.swallows_answers = False
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await store.apply([change]) == frozenset()
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
        assert {timer.id for timer in await everything(store)} == {"warm", "a"}
        assert await store.purge("default", before=INSTANT_MAX, limit=10) == 2
        await store.close()


async def _claim_elsewhere(store: CassandraStore) -> None:
    await store._driver.change(
        (CLAIM, (2, "node-b", NOW, 0, 1)),
    )


# -- what was deleted ---------------------------------------------------------------------


async def test_a_shard_is_read_from_its_first_timer_not_through_what_was_deleted(
    cassandra: CassandraDatabase, store: CassandraStore
) -> None:
    """The server of the tests refuses to read through 5,000 deleted rows."""
    lease = await claimed(store)
    rounds = [[a_timer(f"{r}-{n}", at=NOW + r * 1_000 + n) for n in range(500)] for r in range(12)]
    for timers in rounds:
        await put(store, lease, *timers)
        # All but one, by their keys, out of order; then that one, and the run is complete.
        for part in (timers[1:][::-1], timers[:1]):
            ended = [finished(timer, at=timer.execute_at + 50) for timer in part]
            change = batch(lease, removes=part, finished=ended)
            assert await store.apply([change]) == frozenset()
    last = a_timer("last", at=NOW + 60_000)
    await put(store, lease, last)
    assert await everything(store) == [last]
    (page,) = await store.due([DueRead(0, CURSOR_MIN, INSTANT_MAX, 10)])
    assert page.timers == [last]
    while await store.purge("default", before=INSTANT_MAX, limit=700):
        pass
    query = ListQuery(namespace="default", num_shards=1, total=True)
    assert await store.select(query) == ([last], 1)


async def test_a_timer_put_before_all_that_was_deleted_is_found_and_the_rest_passed_over(
    store: CassandraStore,
) -> None:
    lease = await claimed(store)
    for r in range(11):
        timers = [a_timer(f"{r}-{n}", at=NOW + r * 1_000 + n) for n in range(500)]
        await put(store, lease, *timers)
        assert await store.apply([batch(lease, removes=timers)]) == frozenset()
    early = a_timer("early", at=NOW - 1_000_000)
    late = a_timer("late", at=NOW + 60_000)
    await put(store, lease, early, late)
    assert await everything(store) == [early, late]
    assert await store.apply([batch(lease, removes=[early])]) == frozenset()
    assert await everything(store) == [late]


async def test_a_write_does_not_depend_on_a_read_past_canceled_timers(
    store: CassandraStore,
) -> None:
    lease = await claimed(store)
    timers = [a_timer("next"), a_timer("late", at=NOW + 7_200_000)]
    await put(store, lease, *timers)
    for r in range(11):
        canceled = [a_timer(f"{r}-{n}", at=NOW + 3_600_000 + r * 500 + n) for n in range(500)]
        await put(store, lease, *canceled)
        assert await store.apply([batch(lease, removes=canceled)]) == frozenset()
    assert await store.due([DueRead(0, CURSOR_MIN, NOW, 10)]) == [([timers[0]], False)]
    for timer in timers:
        assert await store.apply([batch(lease, removes=[timer])]) == frozenset()
    assert await store.get([key(timer) for timer in timers]) == [None, None]


async def test_a_run_that_leaves_spares_the_timers_put_among_it(store: CassandraStore) -> None:
    lease = await claimed(store)
    timers = [a_timer(f"t-{n}", at=NOW + n) for n in range(10)]
    await put(store, lease, *timers)
    again, new = a_timer("t-3", at=NOW + 5, attempts=1), a_timer("new", at=NOW + 2)
    gone = [timer for timer in timers if timer.id != "t-3"]
    change = batch(lease, puts=[again, new], removes=gone)
    assert await store.apply([change]) == frozenset()
    assert await everything(store) == [new, again]


# -- weight -------------------------------------------------------------------------------


async def test_what_is_too_heavy_for_one_write_is_several_each_whole_for_its_timers(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PART_BYTES_MAX", 2_500)
    lease = await claimed(store)
    payload = b'"' + b"x" * 998 + b'"'
    timers = [a_timer(f"t-{n}", at=NOW + n, payload=payload) for n in range(7)]
    with _changes(store) as changes:
        await put(store, lease, *timers)
        ended = [finished(timer) for timer in timers]
        assert await store.apply([batch(lease, removes=timers, finished=ended)]) == frozenset()
        assert len(changes.sent) == 2 * 4
    assert await everything(store) == []
    assert None not in await store.outcomes([key(timer) for timer in timers])


async def test_a_lease_lost_between_two_of_them_leaves_it_unknown(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PART_TIMERS_MAX", 1)
    lease = await claimed(store)
    with _changes(store) as changes:
        changes.lost_after = 1
        changes.meanwhile = lambda: _claim_elsewhere(store)
        with pytest.raises(StoreUnavailable, match="shard 0 was claimed"):
            await put(store, lease, a_timer("a"), a_timer("b"))
    assert await everything(store) == [a_timer("a")]


async def test_pages_of_heavy_timers_are_cut_short(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "PAGE_BYTES_MAX", 10_000)
    monkeypatch.setattr(store_module, "FIRST_ROWS", 4)
    lease = await claimed(store)
    payload = b'"' + b"x" * 998 + b'"'
    await put(store, lease, *[a_timer(f"t-{n}", at=NOW + n, payload=payload) for n in range(30)])
    (page,) = await store.due([DueRead(0, CURSOR_MIN, INSTANT_MAX, 100)])
    assert page.more
    assert 10 <= len(page.timers) <= 11
    assert [timer.id for timer in page.timers] == [f"t-{n}" for n in range(len(page.timers))]


# -- rights, schema, errors ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: url.replace("duetime:", "nobody:"), "it refuses this user or password"),
        (lambda url: url.replace("@", "x@"), "it refuses this user or password"),
        (lambda url: url.replace("/test_", "/no_"), "there is no such keyspace"),
        (lambda url: url.replace("127.0.0.1", "127.0.0.2"), "it cannot be reached"),
        (lambda url: url + "?datacenter=elsewhere", "it cannot be reached"),
    ],
)
async def test_why_it_cannot_be_opened_is_one_line_without_the_password(
    cassandra: CassandraDatabase, change: Callable[[str], str], reason: str
) -> None:
    store = CassandraStore(change(cassandra.url))
    password = cassandra.url.split(":")[2].split("@")[0]
    with pytest.raises(StoreUnavailable, match=reason) as caught:
        await store.open()
    assert password not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_quorum_of_one_datacenter_will_do_where_all_nodes_are_in_it(
    cassandra: CassandraDatabase,
) -> None:
    store = CassandraStore(cassandra.url + "?datacenter=datacenter1")
    await store.open()
    await put(store, await claimed(store), a_timer())
    assert await everything(store) == [a_timer()]
    await store.close()


async def test_a_newer_schema_is_refused_and_left_alone(cassandra: CassandraDatabase) -> None:
    cassandra.run("UPDATE duetime_schema SET version = 99 WHERE name = 'timers'")
    with pytest.raises(SchemaTooNew) as caught:
        await CassandraStore(cassandra.url).open()
    assert (caught.value.found, caught.value.known) == (99, len(schema.MIGRATIONS))
    cassandra.run("UPDATE duetime_schema SET version = 1 WHERE name = 'timers'")


async def test_an_old_server_is_refused(
    cassandra: CassandraDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "VERSION_MIN", (99, 0))
    with pytest.raises(StoreError, match=r"Cassandra 5\.0\.\d+ is too old: 99\.0 is needed"):
        await CassandraStore(cassandra.url).open()


async def test_a_role_that_may_only_read_and_write_rows_is_enough_once_migrated(
    cassandra: CassandraDatabase, store: CassandraStore
) -> None:
    keyspace = cassandra.url.rpartition("/")[2]
    cassandra.run(
        "CREATE ROLE worker WITH PASSWORD = 'hush' AND LOGIN = true",
        f"GRANT SELECT ON KEYSPACE {keyspace} TO worker",
        f"GRANT MODIFY ON KEYSPACE {keyspace} TO worker",
    )
    host = cassandra.url.partition("@")[2]
    worker = CassandraStore(f"cassandra://worker:hush@{host}")
    await worker.open()
    lease = await claimed(worker)
    await put(worker, lease, a_timer())
    assert len((await worker.select(ListQuery(namespace="default", num_shards=1))).entries) == 1
    cassandra.run(f"REVOKE MODIFY ON KEYSPACE {keyspace} FROM worker")
    with pytest.raises(StoreUnavailable, match="this user lacks a right"):
        await put(worker, lease, a_timer())
    await worker.close()
    cassandra.run("DROP ROLE worker")


async def test_nodes_that_start_together_all_find_the_schema(cassandra_server: Cassandra) -> None:
    url = await asyncio.to_thread(cassandra_server.new_url, "started_together")
    stores = [CassandraStore(url) for _ in range(4)]
    await asyncio.gather(*[store.open() for store in stores])
    claims = await asyncio.gather(*[claimed(store) for store in stores])
    await asyncio.gather(*[store.close() for store in stores])
    assert sorted(lease.version for lease in claims) == [1, 2, 3, 4]


async def test_rows_are_as_an_operator_expects_them(
    cassandra: CassandraDatabase, store: CassandraStore
) -> None:
    lease = await claimed(store, 7)
    await put(store, lease, a_timer(shard=7, payload=b'{"a": 1}', attempts=1))
    rows = cassandra.run(
        "SELECT row_type, timer_execute_at, timer_uuid, timer_payload FROM timers"
        " WHERE shard_id = 7"
    )
    assert [(row[0], str(row[1]), row[2].hex(), row[3]) for row in rows] == [
        (1, "1970-01-01 00:00:01", "0" * 32, None),
        (2, "2027-01-15 08:00:00", a_timer().uuid.hex(), '{"a": 1}'),
        (3, "1970-01-01 00:00:01", a_timer().uuid.hex(), None),
    ]


@pytest.mark.parametrize(
    ("error", "type_", "reason"),
    [
        (cassandra_driver.Unavailable("x"), StoreUnavailable, "too few replicas are alive"),
        (cassandra_driver.ReadTimeout("x"), StoreUnavailable, "too few replicas answered"),
        (cassandra_driver.OperationTimedOut(), StoreUnavailable, "it did not answer in time"),
        (cassandra_driver.ReadFailure("x"), StoreUnavailable, "a replica failed"),
        (connection.ConnectionShutdown("x"), StoreUnavailable, "the connection was lost"),
        (cluster.NoHostAvailable("x", {}), StoreUnavailable, "it cannot be reached"),
        (protocol.ServerError(0, "x", None), StoreUnavailable, "it failed"),
        (cassandra_driver.InvalidRequest("a hush"), StoreError, "(InvalidRequest)"),
    ],
)
def test_an_error_of_the_driver_becomes_the_stores(
    error: Exception, type_: type[StoreError], reason: str
) -> None:
    mine = translated(error, "db.example/timers")
    assert type(mine) is type_
    assert str(mine).startswith("db.example/timers: ")
    assert reason in str(mine)
    assert "hush" not in str(mine)
