"""That every statement finds its rows by an index, and by the one meant for it."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from duetime.store import ListCursor, ListQuery
from duetime.stores.sql.listing import arms_of
from duetime.stores.sqlite import listing, schema
from duetime.stores.sqlite import statements as sql

KEY = "timers USING PRIMARY KEY (shard_id=? AND row_type=? AND timer_execute_at=? AND timer_uuid=?)"
LOOKUP = "USING INDEX idx_timer_lookup (shard_id=? AND row_type=? AND timer_namespace=? AND timer_i"
DUE = "timers USING PRIMARY KEY (shard_id=? AND row_type=? AND (timer_execute_at,timer_uuid)>(?,?)"


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection)
    yield connection
    connection.close()


def plan_of(
    connection: sqlite3.Connection, statement: str, values: Sequence[Any] | None = None
) -> str:
    if values is None:
        values = (0,) * statement.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
    plan = "\n".join(detail for _, _, _, detail in rows)
    assert not re.search(r"SCAN (timers|history|documents)", plan), plan
    return plan


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (sql.RELEASE, KEY),
        (sql.FENCE, KEY),
        (sql.READ_SHARDS, KEY),
        (sql.READ_DUE, DUE),
        (sql.READ_PLACED_TIMER, KEY),
        (sql.READ_PLACED_ENTRY, "history USING INTEGER PRIMARY KEY"),
        (sql.PURGE, "idx_history_purge (timer_namespace=? AND finished_at<?)"),
        (sql.READ_DOCUMENTS, "documents USING PRIMARY KEY (kind=?)"),
        (sql.UPDATE_DOCUMENT, "documents USING PRIMARY KEY (kind=? AND name=?)"),
        (sql.DELETE_DOCUMENT, "documents USING PRIMARY KEY (kind=? AND name=?)"),
        (sql.remove(1), KEY),
        (sql.remove(256), KEY),
        (sql.read_timers(64), LOOKUP),
        (
            sql.read_outcomes(64),
            "idx_history_lookup (timer_namespace=? AND timer_id=? AND finished_at=?)",
        ),
    ],
)
def test_a_statement_seeks_by_the_index_meant_for_it(
    connection: sqlite3.Connection, statement: str, expected: str
) -> None:
    assert expected in plan_of(connection, statement)


def test_each_removed_row_is_one_seek_by_its_whole_key(connection: sqlite3.Connection) -> None:
    assert plan_of(connection, sql.remove(64)).count(KEY) == 64


@pytest.mark.parametrize(
    ("fields", "timers", "history"),
    [
        ({}, "COVERING INDEX idx_timer_execute", "COVERING INDEX idx_history_execute"),
        (
            {"sort": "created_at", "descending": True},
            "COVERING INDEX idx_timer_created",
            "COVERING INDEX idx_history_created",
        ),
        (
            {"execute_from": 1, "execute_before": 2},
            "timer_execute_at>? AND timer_execute_at<?",
            "timer_execute_at>? AND timer_execute_at<?",
        ),
        (
            {"after": ListCursor(1, bytes(16), 0)},
            "(timer_execute_at,timer_uuid)>(?,?)",
            "(timer_execute_at,timer_uuid,finished_at)>(?,?,?)",
        ),
        (
            {"id_prefix": "a"},
            "idx_timer_lookup (shard_id=? AND row_type=? AND timer_namespace=? AND timer_id>?",
            "idx_history_lookup (timer_namespace=? AND timer_id>? AND timer_id<?)",
        ),
    ],
)
def test_a_list_walks_one_index_of_each_table(
    connection: sqlite3.Connection, fields: dict[str, Any], timers: str, history: str
) -> None:
    query = ListQuery(namespace="default", num_shards=16, **fields)
    arms = arms_of(query, listing.DIALECT)
    for arm in arms:
        plan_of(connection, *arm.count())
    plan = plan_of(connection, *listing.places_of(arms, query))
    assert timers in plan
    assert history in plan
    if not query.id_prefix:  # Whose matches, few as a rule, are sorted.
        assert "USE TEMP B-TREE FOR ORDER BY" not in plan
