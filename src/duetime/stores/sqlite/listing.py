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

_SORTS = {"execute_at": "timer_execute_at", "created_at": "timer_created_at"}


class Arm:
    """What one table contributes: its rows that match."""

    def __init__(self, place: str, source: str, namespace: str) -> None:
        self.place = place
        self.source = source
        self.where = ["timer_namespace = ?"]
        self.values: list[Any] = [namespace]

    def only(self, condition: str, *values: object) -> None:
        self.where.append(condition)
        self.values += values

    def select(self, what: str) -> str:
        return f"SELECT {what} FROM {self.source} WHERE {' AND '.join(self.where)}"


def select(connection: sqlite3.Connection, query: ListQuery) -> Listing:
    """Within a transaction of the caller: places, rows and total are of one moment."""
    arms = arms_of(query)
    if not arms:
        return Listing([], 0 if query.total else None)
    total = _total(connection, arms) if query.total else None
    statement, values = page_statement(arms, query)
    places = connection.execute(statement, values).fetchall()
    entries = [_entry(connection, uuid, shard, row) for _, uuid, _, shard, row in places]
    return Listing(entries, total)


def arms_of(query: ListQuery) -> list[Arm]:
    """The tables that can hold what is asked for, with every filter but `after`."""
    sort = _SORTS[query.sort]
    index = "execute" if query.sort == "execute_at" else "created"
    arms = []
    if query.pending:
        source = "idx_timer_lookup" if query.id_prefix else f"idx_timer_{index}"
        place = f"{sort} AS place, timer_uuid AS uuid, 0 AS at, shard_id, timer_execute_at AS row"
        arm = Arm(place, f"timers INDEXED BY {source}", query.namespace)
        if query.id_prefix:
            shards = msgspec.json.encode(list(range(query.num_shards))).decode()
            arm.only("shard_id IN (SELECT value FROM json_each(?)) AND row_type = 2", shards)
        if query.without:
            listed = ", ".join("?" * len(query.without))
            arm.only(f"timer_uuid NOT IN ({listed})", *query.without)
        arms.append(arm)
    if query.finished:
        place = f"{sort} AS place, timer_uuid AS uuid, finished_at AS at, NULL, entry"
        arm = Arm(place, f"history INDEXED BY idx_history_{index}", query.namespace)
        arm.only("finished_at > ?", query.finished_after)
        listed = ", ".join("?" * len(query.finished))
        arm.only(f"finished_status IN ({listed})", *query.finished)
        arms.append(arm)
    for arm in arms:
        if query.execute_from is not None:
            arm.only("timer_execute_at >= ?", query.execute_from)
        if query.execute_before is not None:
            arm.only("timer_execute_at < ?", query.execute_before)
        if query.id_prefix:
            arm.only("timer_id >= ?", query.id_prefix)
            beyond = after_prefix(query.id_prefix)
            if beyond is not None:
                arm.only("timer_id < ?", beyond)
    return arms


def page_statement(arms: list[Arm], query: ListQuery) -> tuple[str, list[Any]]:
    """The places of the page, in order: sort value, uuid, finished_at, and a timer's key."""
    if query.after is not None:
        execute_at, uuid, at = query.after
        for arm in arms:
            finished_at = "0" if arm.source.startswith("timers") else "finished_at"
            arm.only(
                # The first term is implied by the second; it is what the index can seek to.
                "timer_execute_at >= ?"
                f" AND (timer_execute_at, timer_uuid, {finished_at}) > (?, ?, ?)",
                execute_at,
                execute_at,
                uuid,
                at,
            )
    direction = "DESC" if query.descending else "ASC"
    statement = (
        " UNION ALL ".join(arm.select(arm.place) for arm in arms)
        + f" ORDER BY place {direction}, uuid {direction}, at {direction} LIMIT ? OFFSET ?"
    )
    return statement, [value for arm in arms for value in arm.values] + [query.limit, query.offset]


def _total(connection: sqlite3.Connection, arms: list[Arm]) -> int:
    total = 0
    for arm in arms:
        (count,) = connection.execute(arm.select("count(*)"), arm.values).fetchone()
        total += count
    return total


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
