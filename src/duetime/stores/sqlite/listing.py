# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""One page of a list that shows unfinished timers and history together.

Places are found in the indexes alone, both tables merged in one order by SQLite; the rows
themselves are read for the page only. A deep offset costs no more than counting to it.
"""

import sqlite3
from typing import Any

import msgspec

from duetime.model import Finished, Timer
from duetime.store import Listing, ListQuery
from duetime.stores.sqlite import statements as sql
from duetime.stores.sqlite.rows import history_from, timers_from


class Arm:
    """What one table contributes: the rows that match the query."""

    def __init__(self, table: str, query: ListQuery, *, columns: str, place: str) -> None:
        self._columns = f"timer_{query.sort} AS place, timer_uuid AS uuid, {columns}"
        self._place = place
        # Not left to SQLite, which has no statistics and might think the wrong one better.
        index = "lookup" if query.id_prefix else query.sort.removesuffix("_at")
        self._source = f"{table} INDEXED BY idx_{table.removesuffix('s')}_{index}"
        self._where: list[str] = []
        self._values: list[Any] = []
        self.only("timer_namespace = ?", query.namespace)
        if query.execute_from is not None:
            self.only("timer_execute_at >= ?", query.execute_from)
        if query.execute_before is not None:
            self.only("timer_execute_at < ?", query.execute_before)
        if query.id_prefix:
            self.only("timer_id >= ?", query.id_prefix)
            beyond = after_prefix(query.id_prefix)
            if beyond is not None:
                self.only("timer_id < ?", beyond)

    def only(self, condition: str, *values: object) -> None:
        self._where.append(condition)
        self._values += values

    def count(self) -> tuple[str, list[Any]]:
        """The statement that counts all that match."""
        where = " AND ".join(self._where)
        return f"SELECT count(*) FROM {self._source} WHERE {where}", self._values

    def places(self, query: ListQuery) -> tuple[str, list[Any]]:
        """The statement that finds where they stand, from the query's `after` on."""
        where, values = list(self._where), list(self._values)
        if query.after is not None:
            after = query.after[: self._place.count(",") + 1]
            where.append(f"({self._place}) > ({', '.join('?' * len(after))})")
            values += after
        return (
            f"SELECT {self._columns} FROM {self._source} WHERE {' AND '.join(where)}",
            values,
        )


def select(connection: sqlite3.Connection, query: ListQuery) -> Listing:
    """Within a transaction of the caller: places, rows and total are of one moment."""
    arms = arms_of(query)
    if not arms:
        return Listing([], 0 if query.total else None)
    total = None
    if query.total:
        counts = [connection.execute(*arm.count()).fetchone() for arm in arms]
        total = sum(count for (count,) in counts)
    places = connection.execute(*page_of(arms, query)).fetchall()
    entries = [_entry(connection, uuid, shard, row) for _, uuid, _, shard, row in places]
    return Listing(entries, total)


def arms_of(query: ListQuery) -> list[Arm]:
    """The tables that can hold what is asked for."""
    arms = []
    if query.pending:
        arm = Arm(
            "timers",
            query,
            columns="0 AS at, shard_id, timer_execute_at AS row",
            place="timer_execute_at, timer_uuid",  # Unfinished, it stands before the finished.
        )
        if query.id_prefix:
            shards = msgspec.json.encode(list(range(query.num_shards))).decode()
            arm.only("shard_id IN (SELECT value FROM json_each(?)) AND row_type = 2", shards)
        if query.without:
            listed = ", ".join("?" * len(query.without))
            arm.only(f"timer_uuid NOT IN ({listed})", *query.without)
        arms.append(arm)
    if query.finished:
        arm = Arm(
            "history",
            query,
            columns="finished_at AS at, NULL, entry",
            place="timer_execute_at, timer_uuid, finished_at",
        )
        arm.only("finished_at > ?", query.finished_after)
        listed = ", ".join("?" * len(query.finished))
        arm.only(f"finished_status IN ({listed})", *query.finished)
        arms.append(arm)
    return arms


def page_of(arms: list[Arm], query: ListQuery) -> tuple[str, list[Any]]:
    """The statement that finds the page's places, in order."""
    direction = "DESC" if query.descending else "ASC"
    selects = [arm.places(query) for arm in arms]
    statement = " UNION ALL ".join(text for text, _ in selects)
    statement += f" ORDER BY place {direction}, uuid {direction}, at {direction} LIMIT ? OFFSET ?"
    return statement, [it for _, values in selects for it in values] + [query.limit, query.offset]


def _entry(
    connection: sqlite3.Connection, uuid: bytes, shard: int | None, row: int
) -> Timer | Finished:
    if shard is None:
        (text,) = connection.execute(sql.READ_PLACED_ENTRY, (row,)).fetchone()
        return history_from(text)[0]
    (text,) = connection.execute(sql.READ_PLACED_TIMER, (shard, row, uuid)).fetchone()
    return timers_from(text)[0]


def after_prefix(prefix: str) -> str | None:
    """The least text above every text that begins so; None if there is none.

    A range, not LIKE: `%` and `_` are ordinary characters in an id, and the index serves it.
    """
    while prefix and prefix[-1] == "\U0010ffff":
        prefix = prefix[:-1]
    if not prefix:
        return None
    above = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if above == 0xD800 else above)  # Surrogates are no text.
