# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""Lists that show unfinished timers and history together, as conditions on the two tables.

A `?` stands for each value. How the rows are then found and read is the store's own.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from duetime.store import ListQuery


class Condition(NamedTuple):
    """A part of a WHERE clause, and what stands for its `?`."""

    text: str
    values: list[Any]


class Dialect(NamedTuple):
    """What databases say differently."""

    among: Callable[[str, Collection[object]], Condition]
    """A column has one of the values."""
    in_shards: Callable[[int], Condition]
    """`shard_id` is below a number; each shard is to be one seek."""


class Arm:
    """What one table contributes: the rows that match the query.

    `place` are the columns that make up `ListCursor`, `index` says which of the table's serves.
    """

    def __init__(self, table: str, query: ListQuery, *, place: str) -> None:
        self.table = table
        self.index = "lookup" if query.id_prefix else query.sort.removesuffix("_at")
        self.where: list[str] = []
        self.values: list[Any] = []
        self._place = place
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
        self.where.append(condition)
        self.values += values

    def count(self, source: str) -> Condition:
        """The statement that counts all that match."""
        return Condition(
            f"SELECT count(*) FROM {source} WHERE {' AND '.join(self.where)}", self.values
        )

    def rows(self, columns: str, source: str, query: ListQuery) -> Condition:
        """The statement that finds them, from the query's `after` on."""
        where, values = list(self.where), list(self.values)
        if query.after is not None:
            after = query.after[: self._place.count(",") + 1]
            where.append(f"({self._place}) > ({', '.join('?' * len(after))})")
            values += after
        return Condition(f"SELECT {columns} FROM {source} WHERE {' AND '.join(where)}", values)


def arms_of(query: ListQuery, dialect: Dialect) -> list[Arm]:
    """The tables that can hold what is asked for."""
    arms = []
    if query.pending:
        # Unfinished, a timer stands before the finished ones of its place.
        arm = Arm("timers", query, place="timer_execute_at, timer_uuid")
        if query.id_prefix:
            shards = dialect.in_shards(query.num_shards)
            arm.only(f"{shards.text} AND row_type = 2", *shards.values)
        if query.without:
            without = dialect.among("timer_uuid", query.without)
            arm.only(f"NOT ({without.text})", *without.values)
        arms.append(arm)
    if query.finished:
        arm = Arm("history", query, place="timer_execute_at, timer_uuid, finished_at")
        arm.only("finished_at > ?", query.finished_after)
        statuses = dialect.among("finished_status", query.finished)
        arm.only(statuses.text, *statuses.values)
        arms.append(arm)
    return arms


def page_of(selects: list[Condition], query: ListQuery) -> Condition:
    """One page of what the arms' statements found; they name their columns as `order_of` does."""
    statement = " UNION ALL ".join(select.text for select in selects)
    statement += f" ORDER BY {order_of(query)} LIMIT ? OFFSET ?"
    values = [value for select in selects for value in select.values]
    return Condition(statement, [*values, query.limit, query.offset])


def order_of(query: ListQuery) -> str:
    """By what the query sorts by, by uuid, and by when it finished."""
    direction = "DESC" if query.descending else "ASC"
    return f"place {direction}, uuid {direction}, at {direction}"


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
