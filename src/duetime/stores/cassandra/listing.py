# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""One page of a list that shows unfinished timers and history together.

There is no index over all shards: each of the namespace's partitions is walked, a few side by
side, and no more is kept of what was found than the page needs. A list by `execute_at` without
a total reads no more than a page of each partition. Any other one reads all of it, but of each
row only what it is sorted and counted by; what has moved on before the page's rows are then
read whole is left out of it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from duetime.model import INSTANT_MAX, Cursor, Finished, Timer
from duetime.store import Listing, ListQuery
from duetime.stores.cassandra import statements as cql
from duetime.stores.cassandra.driver import Driver, all_of
from duetime.stores.cassandra.plan import Layout
from duetime.stores.sql.listing import after_prefix
from duetime.stores.sql.rows import HISTORY_COLUMNS, history_from, timer_from

WHOLE_ROWS, SLIM_ROWS = 100, 5_000  # In one answer.

_SLIM = (
    "shard_id, toUnixTimestamp(timer_execute_at), timer_uuid,"
    " toUnixTimestamp(timer_created_at), toUnixTimestamp(finished_at), finished_status"
)
_SLIM_CREATED, _CREATED = 3, HISTORY_COLUMNS.index("timer_created_at")


class _Row(NamedTuple):
    """Sorts as the list does."""

    sort: int
    uuid: bytes
    finished_at: int
    kind: int
    columns: Any


async def select(
    driver: Driver,
    query: ListQuery,
    layout_of: Callable[[int], Awaitable[Layout]],
    room: asyncio.Semaphore,
) -> Listing:
    """The page. `room` bounds how many partitions are walked side by side, by all lists."""
    search = _Search(query)

    async def walk(shard: int) -> None:
        async with room:
            layout = await layout_of(shard)
            if query.pending:
                await search.walk(driver, shard, cql.TIMER, layout)
            kind = layout.namespaces.get(query.namespace)
            if query.finished and kind is not None:
                await search.walk(driver, shard, kind, layout)

    await all_of(walk(shard) for shard in range(query.num_shards))
    rows = search.page()
    if not search.whole:
        rows = await _made_whole(driver, rows)
    return Listing([entry_of(row.columns) for row in rows], search.count if query.total else None)


def entry_of(columns: Any) -> Timer | Finished:
    """What a row of HISTORY_ROW stands for."""
    shard, execute_at, uuid, *others, at, status = columns
    timer = timer_from(shard, execute_at, uuid[:16], *others)
    return timer if status is None else history_from(timer, at, status)


class _Search:
    """What was found so far: how many match, and the first of them in the list's order."""

    def __init__(self, query: ListQuery) -> None:
        self.count = 0
        self.whole = query.sort == "execute_at" and not query.total
        self._query = query
        self._wanted = query.offset + query.limit
        self._first: list[_Row] = []

    def page(self) -> list[_Row]:
        self._trim()
        return self._first[self._query.offset :]

    async def walk(self, driver: Driver, shard: int, kind: int, layout: Layout) -> None:
        query = self._query
        low = max(layout.floor(kind), Cursor(query.execute_from or 0, b""))
        if self.whole and query.after is not None:
            low = max(low, Cursor(query.after.execute_at, query.after.uuid))
        high = INSTANT_MAX + 1 if query.execute_before is None else query.execute_before
        values = [shard, kind, *low, high, b"", query.namespace]
        text = (
            f"SELECT {cql.HISTORY_ROW if self.whole else _SLIM} FROM $keyspace.timers {cql.RANGE}"
        )
        text += " AND timer_namespace = ?"
        if query.id_prefix:
            text += " AND timer_id >= ?"
            values.append(query.id_prefix)
            beyond = after_prefix(query.id_prefix)
            if beyond is not None:
                text += " AND timer_id < ?"
                values.append(beyond)
        if query.descending:
            text += " ORDER BY row_type DESC, timer_execute_at DESC, timer_uuid DESC"
        text += " ALLOW FILTERING"
        found = 0
        page_rows = WHOLE_ROWS if self.whole else SLIM_ROWS
        async for page in driver.pages(text, *values, page_rows=page_rows):
            found += self._take(kind, page)
            if self.whole and found >= self._wanted:
                break  # What comes after these has no place in the page.

    def _take(self, kind: int, page: list[Any]) -> int:
        query = self._query
        created = _CREATED if self.whole else _SLIM_CREATED
        found = 0
        for columns in page:
            _, execute_at, uuid, *_, at, status = columns
            uuid = uuid[:16]
            if status is None:
                if uuid in query.without:
                    continue
            elif status not in query.finished or at <= query.finished_after:
                continue
            self.count += 1
            if query.after is None or (execute_at, uuid, at or 0) > query.after:
                found += 1
                sort = execute_at if query.sort == "execute_at" else columns[created]
                self._first.append(_Row(sort, uuid, at or 0, kind, columns))
        if len(self._first) > 2 * self._wanted + SLIM_ROWS:
            self._trim()
        return found

    def _trim(self) -> None:
        self._first.sort(key=lambda row: row[:3], reverse=self._query.descending)
        del self._first[self._wanted :]


async def _made_whole(driver: Driver, rows: list[_Row]) -> list[_Row]:
    places = defaultdict(list)
    for row in rows:
        shard, execute_at, uuid, *_ = row.columns
        places[shard].append((row.kind, execute_at, uuid))
    whole = {
        columns[:3]: columns
        for shard, wanted in places.items()
        for columns in await driver.rows_in(cql.READ_ROWS, shard, wanted)
    }
    found = [(row, whole.get(row.columns[:3])) for row in rows]
    return [row._replace(columns=columns) for row, columns in found if columns is not None]
