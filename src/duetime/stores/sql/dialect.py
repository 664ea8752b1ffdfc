# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""What databases say differently, as one value for each.

A dialect is words and small functions that put words together; `SqlStore` knows no database
by its name. A `?` stands for each value; the driver writes its own sign in its place.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from duetime.stores.sql import listing
from duetime.stores.sql.rows import Row

KEY = ("shard_id", "row_type", "timer_execute_at", "timer_uuid")
LOOKUP = ("shard_id", "row_type", "timer_namespace", "timer_id")
PURGE = """
    DELETE FROM history WHERE entry IN (
        SELECT entry FROM history WHERE timer_namespace = ? AND finished_at <= ?
        ORDER BY finished_at {page}
    )
"""
"""`Dialect.purge` where a deletion knows no limit, with the words for a page as a format."""


class Upsert(NamedTuple):
    """Rows to insert; where one stands that has the same key, what becomes of that."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    """Columns that take the new row's value. With none, and none counted, nothing happens."""
    counted: tuple[str, ...] = ()
    """Columns that go up by one, from what stood there."""


class Step(NamedTuple):
    """One of the statements that an upsert is made of."""

    statement: str
    """Where it has `?` for fewer rows than it is given, it is done for each in turn."""
    values: Callable[[Row], Iterable[Any]] = tuple
    """What it takes of a row's values, in the order of its `?`."""


def any_of(columns: Sequence[str], rows: int) -> str:
    """The condition that finds so many rows, each by its values of all these columns.

    One seek for each on all databases, where `(...) IN (VALUES ...)` is a scan on some and
    unknown to others.
    """
    one = " AND ".join(f"{column} = ?" for column in columns)
    return " OR ".join([f"({one})"] * rows)


def by_keys(rows: int) -> str:
    return f"DELETE FROM timers WHERE {any_of(KEY, rows)}"


class Dialect(Struct, frozen=True, kw_only=True, eq=False):
    """How one database is spoken to."""

    name: str
    """Of the store, as its traits say it."""
    types: Mapping[str, str]
    """The words for `schema.TABLES`: see there."""
    upsert: Callable[[Upsert, int], Sequence[Step]]
    """What does it with so many rows."""
    lists: listing.Dialect
    read_now: str
    """The database's clock, as an instant of its own kind."""
    purge: str
    """Of (namespace, instant, limit): deletes history by `idx_history_purge`."""
    lock_hint: str = ""
    """Behind a table's name: read its rows to keep them, where the end of a statement cannot
    say so."""
    lock: str = "FOR UPDATE"
    """At the end of a statement: keep the rows that it read until the commit."""
    octets: str = "octet_length({})"
    """How much a text weighs, as a format: never more than its bytes in UTF-8."""
    remove: Callable[[int], str] = by_keys
    """Deletes so many timers by their whole keys (shard, row type, instant, uuid)."""
    from_instant: Callable[[Any], int] = int
    """An instant as the driver hands it over, in milliseconds since 1970."""
    from_name: Callable[[Any], str] = str
    """A name as the driver hands it over."""
    rows_max: int = 256
    """How many rows a statement writes, or keys it names, at most."""
    reads_max: int = 32
    """How many reads of a page one statement does, at most."""
