"""One page of a list that shows unfinished timers and history together.

Each table is walked by an index that has the list's order, all partitions side by side, to
the end of the page and no further.
"""

from collections.abc import Collection
from itertools import count
from typing import Any

from asyncpg import Connection

from duetime.model import Finished, Timer
from duetime.store import Listing, ListQuery
from duetime.stores.sql.listing import Arm, Condition, Dialect, arms_of, order_of, page_of
from duetime.stores.sql.rows import TIMER_COLUMNS, history_from, timer_from

_COLUMNS = {
    "timers": "timestamp '1970-01-01' AS at, NULL AS status",
    "history": "finished_at AS at, finished_status AS status",
}


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
            total += await connection.fetchval(*numbered(arm.count(arm.table)))
        return Listing(await _page(connection, arms, query), total)


def rows_of(arms: list[Arm], query: ListQuery) -> Condition:
    """The statement that finds the page's rows, in order."""
    places = f"timer_{query.sort} AS place, timer_uuid AS uuid"
    columns = ", ".join(TIMER_COLUMNS)
    selects = []
    for arm in arms:
        text, values = arm.rows(f"{places}, {_COLUMNS[arm.table]}, {columns}", arm.table, query)
        if len(arms) > 1:
            # In order here already: a union as a whole PostgreSQL would read to its end and sort.
            text = f"({text} ORDER BY {order_of(query)} LIMIT ?)"
            values = [*values, query.offset + query.limit]
        selects.append(Condition(text, values))
    return page_of(selects, query)


def numbered(statement: Condition) -> tuple[Any, ...]:
    """The statement with `$1`, `$2`, ... in place of each `?`, and its values."""
    numbers = count(1)
    first, *rest = statement.text.split("?")
    text = first + "".join(f"${next(numbers)}{part}" for part in rest)
    return (text, *statement.values)


async def _page(
    connection: Connection, arms: list[Arm], query: ListQuery
) -> list[Timer | Finished]:
    rows = await connection.fetch(*numbered(rows_of(arms, query)))
    return [_entry(row) for row in rows]


def _entry(row: Any) -> Timer | Finished:
    _, _, at, status, *columns = row
    timer = timer_from(*columns)
    return timer if status is None else history_from(timer, at, status)


def _among(column: str, values: Collection[object]) -> Condition:
    return Condition(f"{column} = ANY (?)", [list(values)])


def _in_shards(num_shards: int) -> Condition:
    return Condition("shard_id = ANY (?)", [list(range(num_shards))])


DIALECT = Dialect(among=_among, in_shards=_in_shards)
