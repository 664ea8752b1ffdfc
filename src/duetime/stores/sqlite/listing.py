"""One page of a list that shows unfinished timers and history together.

Places are found in the indexes alone, both tables merged in one order by SQLite; the rows
themselves are read for the page only. A deep offset costs no more than counting to it.
"""

import sqlite3

import msgspec

from duetime.model import Finished, Timer
from duetime.store import Listing, ListQuery
from duetime.stores.sql.listing import (
    Arm,
    Condition,
    Dialect,
    arms_of,
    limit_offset,
    one_of,
    page_of,
    row_beyond,
)
from duetime.stores.sqlite import statements as sql
from duetime.stores.sqlite.rows import history_in, timers_in

_COLUMNS = {
    "timers": "0 AS at, shard_id, timer_execute_at AS row",
    "history": "finished_at AS at, NULL, entry",
}


def select(connection: sqlite3.Connection, query: ListQuery) -> Listing:
    """Within a transaction of the caller: places, rows and total are of one moment."""
    arms = arms_of(query, DIALECT)
    if not arms:
        return Listing([], 0 if query.total else None)
    total = None
    if query.total:
        counts = [connection.execute(*arm.count()).fetchone() for arm in arms]
        total = sum(count for (count,) in counts)
    places = connection.execute(*places_of(arms, query)).fetchall()
    entries = [_entry(connection, uuid, shard, row) for _, uuid, _, shard, row in places]
    return Listing(entries, total)


def places_of(arms: list[Arm], query: ListQuery) -> Condition:
    """The statement that finds where the page's rows stand, in order."""
    order = f"timer_{query.sort} AS place, timer_uuid AS uuid"
    selects = [arm.rows(f"{order}, {_COLUMNS[arm.table]}", query) for arm in arms]
    return page_of(selects, query, DIALECT)


def _entry(
    connection: sqlite3.Connection, uuid: bytes, shard: int | None, row: int
) -> Timer | Finished:
    if shard is None:
        (text,) = connection.execute(sql.READ_PLACED_ENTRY, (row,)).fetchone()
        return history_in(text)[0]
    (text,) = connection.execute(sql.READ_PLACED_TIMER, (shard, row, uuid)).fetchone()
    return timers_in(text)[0]


def _source(table: str, index: str) -> str:
    """Not left to SQLite, which has no statistics and might think the wrong one better."""
    return f"{table} INDEXED BY idx_{table.removesuffix('s')}_{index}"


def _in_shards(num_shards: int) -> Condition:
    shards = msgspec.json.encode(list(range(num_shards))).decode()
    return Condition("shard_id IN (SELECT value FROM json_each(?))", [shards])


DIALECT = Dialect(
    among=one_of, in_shards=_in_shards, source=_source, beyond=row_beyond, page=limit_offset
)
