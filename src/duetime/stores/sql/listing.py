# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""Lists that show unfinished timers and history together, as conditions on the two tables.

A `?` stands for each value. How the rows are then found and read is the store's own.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from duetime.store import ListQuery
from duetime.stores.sql.rows import TIMER_COLUMNS


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
    source: Callable[[str, str], str]
    """A table, by the index of that name where the database takes advice."""
    beyond: Callable[[Sequence[str], Sequence[Any]], Condition]
    """Some columns, in the order of an index, come after the values."""
    page: Callable[[int, int], Condition]
    """What ends an ordered statement: at most so many rows, after an offset."""
    instant: Callable[[int], Any] = int
    """How the driver takes an instant."""
    name: Callable[[str], Any] = str
    """How the driver takes a namespace, an id, or the beginning of one."""
    no_instant: str = "0"
    """The first instant of all, in a column."""
    no_status: str = "NULL"
    """No status, in a column of them."""


class Arm:
    """What one table contributes: the rows that match the query.

    `place` are the columns that make up `ListCursor`.
    """

    def __init__(
        self, table: str, query: ListQuery, dialect: Dialect, *, place: Sequence[str]
    ) -> None:
        self.table = table
        index = "lookup" if query.id_prefix else query.sort.removesuffix("_at")
        self.source = dialect.source(table, index)
        self.where: list[str] = []
        self.values: list[Any] = []
        self._dialect = dialect
        self._place = place
        self.only("timer_namespace = ?", dialect.name(query.namespace))
        if query.execute_from is not None:
            self.only("timer_execute_at >= ?", dialect.instant(query.execute_from))
        if query.execute_before is not None:
            self.only("timer_execute_at < ?", dialect.instant(query.execute_before))
        if query.id_prefix:
            self.only("timer_id >= ?", dialect.name(query.id_prefix))
            beyond = after_prefix(query.id_prefix)
            if beyond is not None:
                self.only("timer_id < ?", dialect.name(beyond))

    def only(self, condition: str, *values: object) -> None:
        self.where.append(condition)
        self.values += values

    def count(self) -> Condition:
        """The statement that counts all that match."""
        return Condition(
            f"SELECT count(*) FROM {self.source} WHERE {' AND '.join(self.where)}", self.values
        )

    def rows(self, columns: str, query: ListQuery) -> Condition:
        """The statement that finds them, from the query's `after` on."""
        where, values = list(self.where), list(self.values)
        if query.after is not None:
            at, uuid, finished_at = query.after
            instant = self._dialect.instant
            after = [instant(at), uuid, instant(finished_at)][: len(self._place)]
            beyond = self._dialect.beyond(self._place, after)
            where.append(beyond.text)
            values += beyond.values
        return Condition(f"SELECT {columns} FROM {self.source} WHERE {' AND '.join(where)}", values)


def arms_of(query: ListQuery, dialect: Dialect) -> list[Arm]:
    """The tables that can hold what is asked for."""
    arms = []
    if query.pending:
        # Unfinished, a timer stands before the finished ones of its place.
        arm = Arm("timers", query, dialect, place=("timer_execute_at", "timer_uuid"))
        if query.id_prefix:
            shards = dialect.in_shards(query.num_shards)
            arm.only(f"{shards.text} AND row_type = 2", *shards.values)
        if query.without:
            without = dialect.among("timer_uuid", query.without)
            arm.only(f"NOT ({without.text})", *without.values)
        arms.append(arm)
    if query.finished:
        place = ("timer_execute_at", "timer_uuid", "finished_at")
        arm = Arm("history", query, dialect, place=place)
        arm.only("finished_at > ?", dialect.instant(query.finished_after))
        statuses = dialect.among("finished_status", query.finished)
        arm.only(statuses.text, *statuses.values)
        arms.append(arm)
    return arms


def rows_of(arms: list[Arm], query: ListQuery, dialect: Dialect) -> Condition:
    """The statement that finds the page's rows, in order: ENTRY_COLUMNS each."""
    finished = {
        "timers": f"{dialect.no_instant} AS at, {dialect.no_status} AS status",
        "history": "finished_at AS at, finished_status AS status",
    }
    places = f"timer_{query.sort} AS place, timer_uuid AS uuid"
    columns = ", ".join(TIMER_COLUMNS)
    selects = [arm.rows(f"{places}, {finished[arm.table]}, {columns}", query) for arm in arms]
    if len(selects) > 1:
        # In order here already: a union as a whole a database would read to its end and sort.
        # One alone is ordered by what follows; to order it twice is more than PostgreSQL takes.
        first = dialect.page(query.offset + query.limit, 0)
        # Each a table of its own: not all databases take an arm of a union that is ordered.
        order = f"ORDER BY {order_of(query)} {first.text}"
        selects = [
            Condition(f"SELECT * FROM ({text} {order}) page", [*values, *first.values])
            for text, values in selects
        ]
    return page_of(selects, query, dialect)


def page_of(selects: list[Condition], query: ListQuery, dialect: Dialect) -> Condition:
    """One page of what the arms' statements found; they name their columns as `order_of` does."""
    statement = " UNION ALL ".join(select.text for select in selects)
    page = dialect.page(query.limit, query.offset)
    values = [value for select in selects for value in select.values]
    return Condition(f"{statement} ORDER BY {order_of(query)} {page.text}", [*values, *page.values])


def order_of(query: ListQuery) -> str:
    """By what the query sorts by, by uuid, and by when it finished."""
    direction = "DESC" if query.descending else "ASC"
    return f"place {direction}, uuid {direction}, at {direction}"


def one_of(column: str, values: Collection[object]) -> Condition:
    """`Dialect.among` where a list is not one value."""
    return Condition(f"{column} IN ({', '.join('?' * len(values))})", list(values))


def in_claimed_shards(num_shards: int) -> Condition:
    """`Dialect.in_shards` where a list may be too short: a timer's shard was claimed once."""
    return Condition("shard_id IN (SELECT shard_id FROM shards WHERE shard_id < ?)", [num_shards])


def row_beyond(columns: Sequence[str], values: Sequence[Any]) -> Condition:
    """`Dialect.beyond` where rows compare, and an index serves that."""
    return Condition(f"({', '.join(columns)}) > ({', '.join('?' * len(values))})", list(values))


def nested_beyond(columns: Sequence[str], values: Sequence[Any]) -> Condition:
    """`Dialect.beyond` where they do not, or no index would serve it."""
    (column, *columns), (value, *values) = columns, values
    if not columns:
        return Condition(f"{column} > ?", [value])
    rest = nested_beyond(columns, values)
    text = f"({column} > ? OR {column} = ? AND {rest.text})"
    return Condition(text, [value, value, *rest.values])


def limit_offset(limit: int, offset: int) -> Condition:
    """`Dialect.page` where there are these words."""
    return Condition("LIMIT ? OFFSET ?", [limit, offset])


def numbered(text: str, sign: str) -> str:
    """The statement with the sign and a number, from 1 on, in place of each `?`."""
    first, *rest = text.split("?")
    return first + "".join(f"{sign}{number}{part}" for number, part in enumerate(rest, 1))


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
