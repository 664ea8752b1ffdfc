"""One page of a list that shows unfinished timers and history together.

Each table is walked by an index that has the list's order, all partitions side by side, to
the end of the page and no further.
"""

from collections.abc import Collection
from typing import Any

from asyncpg import Connection

from duetime.model import Finished, Timer
from duetime.store import Listing, ListQuery
from duetime.stores.sql.listing import (
    Arm,
    Condition,
    Dialect,
    arms_of,
    limit_offset,
    numbered,
    row_beyond,
    rows_of,
)
from duetime.stores.sql.rows import history_from, timer_from


async def select(connection: Connection, query: ListQuery) -> Listing:
    """The page, and where it is wanted the total of the same moment."""
    arms = arms_of(query, DIALECT)
    if not arms:
        return Listing([], 0 if query.total else None)
    if not query.total:
        return Listing(await _page(connection, arms, query), None)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        total = 0
        for arm in arms:
            total += await connection.fetchval(*bound(arm.count()))
        return Listing(await _page(connection, arms, query), total)


async def _page(
    connection: Connection, arms: list[Arm], query: ListQuery
) -> list[Timer | Finished]:
    rows = await connection.fetch(*bound(rows_of(arms, query, DIALECT)))
    return [_entry(row) for row in rows]


def bound(statement: Condition) -> tuple[Any, ...]:
    """As the driver takes it."""
    return (numbered(statement.text, "$"), *statement.values)


def _entry(row: Any) -> Timer | Finished:
    _, _, at, status, *columns = row
    timer = timer_from(*columns)
    return timer if status is None else history_from(timer, at, status)


def _among(column: str, values: Collection[object]) -> Condition:
    return Condition(f"{column} = ANY (?)", [list(values)])


def _in_shards(num_shards: int) -> Condition:
    return Condition("shard_id = ANY (?)", [list(range(num_shards))])


DIALECT = Dialect(
    among=_among,
    in_shards=_in_shards,
    source=lambda table, index: table,
    beyond=row_beyond,
    page=limit_offset,
    no_instant="timestamp '1970-01-01'",
)
