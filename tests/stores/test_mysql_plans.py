"""That every statement seeks by the one index meant for it, in tables that are new, just filled
or known well, and looks only at the partitions of its shards."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from duetime.model import INSTANT_MAX
from duetime.store import ListCursor, ListQuery, Store
from duetime.stores import store_from_url
from duetime.stores.sql import statements as sql
from duetime.stores.sql.listing import arms_of, rows_of
from duetime.stores.sql.store import SqlStore
from duetime.testing.conformance.timers import NOW, a_timer, batch, finished
from tests.stores.mysql_database import MysqlDatabase, with_connection

pytestmark = pytest.mark.server

SHARDS = 8
ROWS = 300  # Of each shard.
KEY, LOOKUP = ("PRIMARY", "29"), ("idx_timer_lookup", "2052")  # And how much of it.

State = Callable[[SqlStore, MysqlDatabase], Awaitable[None]]


class Look(NamedTuple):
    """How a statement looks at a table."""

    table: str
    partitions: frozenset[str]
    kind: str
    by: str | None
    key_bytes: str | None
    extra: str


@pytest_asyncio.fixture
async def store(mysql: MysqlDatabase) -> AsyncIterator[SqlStore]:
    store: Store = store_from_url(mysql.url)
    assert isinstance(store, SqlStore)
    await store.open()
    yield store
    await store.close()


async def new(store: SqlStore, mysql: MysqlDatabase) -> None:
    await store.claim(range(SHARDS), owner="node-a", at=NOW)


async def just_filled(store: SqlStore, mysql: MysqlDatabase) -> None:
    leases = await store.claim(range(SHARDS), owner="node-a", at=NOW)
    for lease in leases:
        timers = [
            a_timer(f"{lease.shard}-{n}", shard=lease.shard, at=NOW + n // 10, created_at=NOW - n)
            for n in range(ROWS)
        ]
        ended = [finished(timer) for timer in timers]
        await store.apply([batch(lease, puts=timers, finished=ended)])


async def known(store: SqlStore, mysql: MysqlDatabase) -> None:
    await just_filled(store, mysql)

    async def analyze(connection: Any) -> None:
        async with connection.cursor() as cursor:
            await cursor.execute("ANALYZE TABLE timers, history")
            await cursor.fetchall()

    await with_connection(mysql.url, analyze)


async def _looks(store: SqlStore, statement: str, values: Sequence[object]) -> list[Look]:
    """What the store's own connection means to do; of the tables, not of what is derived."""
    explain = "EXPLAIN FORMAT=TRADITIONAL" if store.traits.name == "mysql" else "EXPLAIN PARTITIONS"
    found = []

    async def work(session: Any) -> None:
        async with session._connection._native.cursor() as cursor:
            await cursor.execute(f"{explain} {statement.replace('?', '%s')}", values)
            names = [column[0] for column in cursor.description]
            for row in await cursor.fetchall():
                it = dict(zip(names, row, strict=True))
                if it["table"] is not None and not it["table"].startswith("<") and it["type"]:
                    partitions = frozenset((it["partitions"] or "").split(",")) - {""}
                    key = (it["key"], it["key_len"])
                    found.append(Look(it["table"], partitions, it["type"], *key, it["Extra"] or ""))

    await store._connections.do(work)
    return [look for look in found if look.table not in ("gone", "page", "weighed", "newest")]


def _key(store: SqlStore, shard: int, n: int) -> tuple[object, ...]:
    at = store._dialect.lists.instant(NOW + n)
    return (shard, sql.TIMER, at, a_timer(f"{shard}-{n}").uuid)


@pytest.mark.parametrize("state", [new, just_filled, known])
@pytest.mark.parametrize("rows", [1, 2, 16, 64, 256])
async def test_many_rows_are_as_many_seeks(
    mysql: MysqlDatabase, store: SqlStore, state: State, rows: int
) -> None:
    await state(store, mysql)
    dialect, numbers = store._dialect, range(rows)
    shard_keys = [store._shard_key(n) for n in numbers]
    for statement, of_each, expected in (
        (sql.lock_shards(dialect, rows), shard_keys, KEY),
        (sql.release(dialect, rows), [(*key, 1) for key in shard_keys], KEY),
        (sql.remove(dialect, rows), [_key(store, 3, n) for n in numbers], KEY),
        (sql.remove(dialect, rows), [_key(store, n % SHARDS, n) for n in numbers], KEY),
        (
            sql.read_timers(dialect, rows),
            [(n % SHARDS, sql.TIMER, "default", f"{n % SHARDS}-{n}") for n in numbers],
            LOOKUP,
        ),
    ):
        values = [value for one in of_each for value in one]
        looks = await _looks(store, statement, values)
        assert looks or state is new  # Where nothing is there, there may be nothing to look at.
        assert {(look.by, look.key_bytes) for look in looks} <= {expected}, looks
        assert {look.kind for look in looks} <= {"const", "eq_ref", "range"}, looks


@pytest.mark.parametrize("state", [just_filled, known])
async def test_reads_seek_by_the_index_meant_for_them(
    mysql: MysqlDatabase, store: SqlStore, state: State
) -> None:
    await state(store, mysql)
    dialect = store._dialect
    at, end = map(dialect.lists.instant, (NOW + 5, INSTANT_MAX))
    due = (0, 3, end, at, at, a_timer("3-7").uuid, 100, 0, 1_000)
    (look,) = await _looks(store, sql.read_due(dialect, 1), due)
    assert look.partitions == {"p3"}
    assert look[2:5] == ("range", *KEY)
    looks = await _looks(store, sql.read_outcomes(dialect, 2), ("default", "3-7", 1, 0) * 2)
    assert {(look.kind, look.by) for look in looks} == {("ref", "idx_history_lookup")}
    (look,) = await _looks(store, dialect.purge, ("default", at, 100))
    assert (look.kind, look.by) == ("range", "idx_history_purge")
    numbers, rows = await _looks(store, sql.READ_SHARDS, store._shard_key(0)[1:])
    assert (numbers.table, rows.table) == ("shards", "timers")
    assert rows[2:5] == ("eq_ref", *KEY)
    for statement, values in (
        (sql.READ_DOCUMENTS, ("kind",)),
        (sql.UPDATE_DOCUMENT, ("{}", "kind", "name", 1)),
        (sql.DELETE_DOCUMENT, ("kind", "name", 1)),
    ):
        (look,) = await _looks(store, statement, values)
        assert look.by == "PRIMARY", look


async def test_of_the_partitions_only_the_shards_own_are_looked_at(
    mysql: MysqlDatabase, store: SqlStore
) -> None:
    await known(store, mysql)
    dialect = store._dialect
    keys = [*store._shard_key(3), *store._shard_key(5)]
    (look,) = await _looks(store, sql.lock_shards(dialect, 2), keys)
    assert look.partitions == {"p3", "p5"}
    wanted = (3, sql.TIMER, "default", "3-1", 5, sql.TIMER, "default", "5-1")
    (look,) = await _looks(store, sql.read_timers(dialect, 2), wanted)
    assert look.partitions == {"p3", "p5"}


@pytest.mark.parametrize(
    ("fields", "timers", "history"),
    [
        ({}, "idx_timer_execute", "idx_history_execute"),
        (
            {"sort": "created_at", "descending": True},
            "idx_timer_created",
            "idx_history_created",
        ),
        ({"after": ListCursor(NOW, bytes(16), 0)}, "idx_timer_execute", "idx_history_execute"),
        ({"id_prefix": "3-29"}, "idx_timer_lookup", "idx_history_lookup"),
    ],
)
async def test_a_list_walks_one_index_of_each_table(
    mysql: MysqlDatabase, store: SqlStore, fields: dict[str, Any], timers: str, history: str
) -> None:
    await known(store, mysql)
    query = ListQuery(namespace="default", num_shards=SHARDS, limit=20, **fields)
    arms = arms_of(query, store._dialect.lists)
    page = await _looks(store, *rows_of(arms, query, store._dialect.lists))
    counts = [look for arm in arms for look in await _looks(store, *arm.count())]
    for looks in (page, counts):
        assert [(look.table, look.by) for look in looks] == [
            ("timers", timers),
            ("history", history),
        ]
        assert {look.kind for look in looks} <= {"ref", "range"}
    # In the order of the index, unless the matches are few as a rule.
    assert ("filesort" in page[0].extra) == bool(query.id_prefix)
    if query.after is not None:
        assert {look.kind for look in page} == {"range"}
