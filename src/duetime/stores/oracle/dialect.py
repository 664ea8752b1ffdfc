# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""What Oracle says differently.

Its '' is NULL. No text of ours is ever empty: the rules of names, JSON's grammar and `rows`,
which keeps details that say nothing as NULL, see to that.
"""

from collections.abc import Collection

from duetime.stores.sql.dialect import KEY, PURGE, Dialect, any_of
from duetime.stores.sql.instants import as_datetime, from_datetime
from duetime.stores.sql.listing import (
    Condition,
    in_claimed_shards,
    nested_beyond,
    one_of,
)
from duetime.stores.sql.listing import Dialect as Lists
from duetime.stores.sql.upserts import stepwise

LIST_MAX = 1_000  # Values in one list.
_JSON = "CHECK (timer_retry_policy IS JSON), CHECK (timer_details IS JSON)"


def _among(column: str, values: Collection[object]) -> Condition:
    them = list(values)
    lists = [one_of(column, them[at : at + LIST_MAX]) for at in range(0, len(them), LIST_MAX)]
    return Condition(f"({' OR '.join(part.text for part in lists)})", them)


def _page(limit: int, offset: int) -> Condition:
    if offset == 0:
        return Condition("FETCH FIRST ? ROWS ONLY", [limit])
    return Condition("OFFSET ? ROWS FETCH NEXT ? ROWS ONLY", [offset, limit])


def _by_key(rows: int) -> str:
    """For any number of them, which are bound as arrays."""
    return f"DELETE FROM timers WHERE {any_of(KEY, 1)}"


ORACLE = Dialect(
    name="oracle",
    types={
        "integer": "NUMBER(10)",
        "small": "NUMBER(5)",
        "big": "NUMBER(19)",
        # Without a zone, so that the session's cannot move it.
        "instant": "TIMESTAMP(3)",
        "uuid": "RAW(16)",
        # Of characters, not of bytes, as it would be by default.
        "name": "VARCHAR2(255 CHAR)",
        "document": "VARCHAR2(255 CHAR)",
        # A VARCHAR2 ends at 4,000 bytes, which 2,048 characters may exceed.
        "url": "CLOB",
        "status": "VARCHAR2(16 CHAR)",
        "text": "CLOB",
        "json": "CLOB",
        "timers_key": (f"{_JSON}, PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid)"),
        "history_key": f"entry NUMBER(19) GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {_JSON}",
        # A row that is large for its block flows over.
        "timers": "ORGANIZATION INDEX OVERFLOW PARTITION BY HASH (shard_id) PARTITIONS 32",
        "table": "",
        "index": "",
    },
    upsert=stepwise(rows_max=1, nothing="FROM dual"),
    lists=Lists(
        among=_among,
        in_shards=in_claimed_shards,
        source=lambda table, index: table,
        beyond=nested_beyond,
        page=_page,
        instant=as_datetime,
        no_instant="TIMESTAMP '1970-01-01 00:00:00'",
        no_status="CAST(NULL AS VARCHAR2(16 CHAR))",
    ),
    read_now="SELECT CAST(SYSTIMESTAMP AT TIME ZONE 'UTC' AS TIMESTAMP(3)) FROM dual",
    purge=PURGE.format(page=_page(1, 0).text),
    # There is no shared lock of rows. It restarts a statement that had to wait, and so reads
    # what it waited for.
    lock="FOR UPDATE WAIT 10",
    octets="length({})",  # Of a CLOB it counts characters only.
    remove=_by_key,
    from_instant=from_datetime,
)
