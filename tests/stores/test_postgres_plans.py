"""That every statement finds its rows by the one index meant for it: in tables that are new,
empty, just filled or known well. A plan lives as long as its connection."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from duetime.model import Lease
from duetime.store import Batch, ListCursor, ListQuery
from duetime.stores.postgres import PostgresStore, listing
from duetime.stores.postgres import statements as sql
from duetime.stores.sql.listing import arms_of, rows_of
from duetime.testing.conformance.timers import NOW, a_timer, batch, claimed, finished
from tests.stores.postgres_database import PostgresDatabase

pytestmark = pytest.mark.server

SHARDS = 8
ROWS = 300  # Of each shard.
KEY = "timers_N_pkey"
LOOKUP = "timers_N_shard_id_row_type_timer_namespace_timer_id_idx"
SHARD = "timers_N_shard_id_idx"

State = Callable[[PostgresStore], Awaitable[None]]


@pytest_asyncio.fixture
async def store(postgres: PostgresDatabase) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres.url)
    await store.open()
    yield store
    await store.close()


async def new(store: PostgresStore) -> None:
    pass


async def emptied(store: PostgresStore) -> None:
    await _ask(store, "TRUNCATE timers, history")
    await _ask(store, "VACUUM ANALYZE")


async def just_filled(store: PostgresStore) -> None:
    """Far beyond what its statistics say."""
    await emptied(store)
    leases = await store.claim(range(SHARDS), owner="node-a", at=NOW)
    await store.apply([_filling(lease) for lease in leases])


async def known(store: PostgresStore) -> None:
    await just_filled(store)
    await _ask(store, "VACUUM ANALYZE")


def _filling(lease: Lease) -> Batch:
    timers = [
        a_timer(f"{lease.shard}-{n}", shard=lease.shard, at=NOW + n // 10, created_at=NOW - n)
        for n in range(ROWS)
    ]
    return batch(lease, puts=timers, finished=[finished(timer) for timer in timers])


async def _ask(store: PostgresStore, statement: str) -> str:
    async def work(connection: Any) -> str:
        return "\n".join(row[0] for row in await connection.fetch(statement) if row)

    return await store._connections.do(work)


A_SHARD = "'{3}'"
A_DAY = "'{2027-01-15 08:00}'"  # NOW
A_UUID = f"'{{{a_timer('3-0').uuid.hex()}}}'"
A_NEW_UUID = f"'{{{a_timer('new').uuid.hex()}}}'"
NOTHING = "'{null}'"
A_TIMER = (
    *(A_SHARD, A_DAY, A_NEW_UUID, "'{default}'", "'{new}'", "'{http://receiver.example}'"),
    *(NOTHING, NOTHING, "'{30}'", A_DAY, "'{0}'", NOTHING, NOTHING),
)
AN_ENTRY = (*A_TIMER, A_DAY, "'{completed}'")
STATEMENTS: list[tuple[str, tuple[str, ...], set[str]]] = [
    (
        sql.write(removes=True, puts=True, finished=True),
        (A_SHARD, "'{1}'", A_SHARD, A_DAY, A_UUID, *A_TIMER, *AN_ENTRY),
        {SHARD, KEY},
    ),
    (sql.READ_DUE, (A_SHARD, "'{1970-01-01}'", A_UUID, "'{infinity}'", "'{5}'", "9"), {KEY}),
    (sql.READ_TIMERS, (A_SHARD, "'{default}'", "'{3-7}'"), {LOOKUP}),
    (sql.READ_OUTCOMES, ("'{default}'", "'{3-7}'"), {"idx_history_lookup"}),
    (sql.CLAIM, (A_SHARD, "'node-a'", "'2027-01-15'"), set()),
    (sql.RELEASE, (A_SHARD, "'{1}'"), {SHARD}),
    (sql.READ_SHARDS, (), {SHARD}),
    (sql.PURGE, ("'default'", "'2027-01-15'", "100"), {"idx_history_purge"}),
    (sql.READ_DOCUMENTS, ("'kind'",), {"documents_pkey"}),
    (sql.UPDATE_DOCUMENT, ("'kind'", "'name'", "'body'", "1"), {"documents_pkey"}),
    (sql.DELETE_DOCUMENT, ("'kind'", "'name'", "1"), {"documents_pkey"}),
]


@pytest.mark.parametrize("state", [new, emptied, just_filled, known])
async def test_a_statement_seeks_by_the_index_meant_for_it(
    store: PostgresStore, state: State
) -> None:
    await state(store)
    for statement, values, indexes in STATEMENTS:
        plan = await _generic_plan(store, statement, values)
        assert _indexes(plan) == indexes, plan
        assert "Seq Scan" not in plan, plan
        assert plan.count("Tid Scan") in (0, 1, 32), plan


async def test_of_the_partitions_only_the_shards_own_is_looked_at(
    store: PostgresStore,
) -> None:
    await known(store)
    for statement, values, indexes in STATEMENTS:
        if indexes & {KEY, LOOKUP}:
            plan = await _generic_plan(store, statement, values, options="ANALYZE, TIMING OFF,")
            scans = re.findall(r"(?:Index|Tid) Scan .*on timers_.*", plan)
            looked_at = [scan for scan in scans if "never executed" not in scan]
            assert len(scans) % 32 == 0
            # Of a write: the fence's, what finds the row to be removed, and what removes it.
            assert len(looked_at) == len(scans) // 32, plan


@pytest.mark.parametrize(
    ("fields", "timers", "history"),
    [
        ({}, "timers_N_timer_namespace_timer_execute_at_timer_uuid_idx", "idx_history_execute"),
        (
            {"sort": "created_at", "descending": True},
            "timers_N_timer_namespace_timer_created_at_timer_uuid_idx",
            "idx_history_created",
        ),
        (
            {"after": ListCursor(NOW, bytes(16), 0)},
            "timers_N_timer_namespace_timer_execute_at_timer_uuid_idx",
            "idx_history_execute",
        ),
        ({"id_prefix": "3-29"}, LOOKUP, "idx_history_lookup"),
    ],
)
async def test_a_list_walks_one_index_of_each_table(
    store: PostgresStore, fields: dict[str, Any], timers: str, history: str
) -> None:
    await known(store)
    query = ListQuery(namespace="default", num_shards=SHARDS, limit=20, **fields)
    arms = arms_of(query, listing.DIALECT)

    async def explained(connection: Any) -> tuple[str, str]:
        text, *values = listing.bound(rows_of(arms, query, listing.DIALECT))
        rows = await connection.fetch(f"EXPLAIN (COSTS OFF) {text}", *values)
        counts = []
        for arm in arms:
            text, *values = listing.bound(arm.count())
            counts += await connection.fetch(f"EXPLAIN (COSTS OFF) {text}", *values)
        return "\n".join(row[0] for row in rows), "\n".join(row[0] for row in counts)

    page, counts = await store._lister.do(explained)
    assert "Seq Scan" not in page + counts
    assert _indexes(page) == {timers, history}, page
    sorts = re.findall(r"^ *(?:->  )?Sort$", page, re.MULTILINE)
    assert bool(sorts) == bool(query.id_prefix), page  # Whose matches are few, as a rule.


async def test_the_plan_is_made_for_any_values(store: PostgresStore) -> None:
    await claimed(store)
    plan = await _generic_plan(store, sql.READ_DOCUMENTS, ("'kind'",))
    assert "kind = $1" in plan


async def _generic_plan(
    store: PostgresStore, statement: str, values: tuple[str, ...], *, options: str = ""
) -> str:
    """The plan that the store's own connections make."""

    async def work(connection: Any) -> str:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute(f"PREPARE statement AS {statement}")
            arguments = f"({', '.join(values)})" if values else ""
            rows = await connection.fetch(
                f"EXPLAIN ({options} COSTS OFF) EXECUTE statement{arguments}"
            )
            await connection.execute("DEALLOCATE statement")
        finally:
            await transaction.rollback()
        return "\n".join(row[0] for row in rows)

    return await store._connections.do(work)


def _indexes(plan: str) -> set[str]:
    used = re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\S+) on", plan)
    used += re.findall(r"Bitmap Index Scan on (\S+)", plan)
    return {re.sub(r"^timers_\d+_", "timers_N_", name) for name in used}
