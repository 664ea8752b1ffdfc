# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""`Dialect.upsert` where no single statement does it well, out of those that every database has.

A row is deleted by its key and inserted anew; where something is counted, it is updated, or
inserted if it is not there. Neither is atomic by itself. The fence before it keeps other writers
of the shard away; of two first claims at once the second runs into the first one's row, and the
database's error for that is a conflict: all of it is done again.

MERGE would be one statement. Oracle takes no text above 4,000 bytes in it; SQL Server's needs
HOLDLOCK to be safe at all, which locks ranges, and with them the neighbours in other shards.
"""

from collections.abc import Callable, Sequence
from typing import Any

from duetime.stores.sql.dialect import Step, Upsert, any_of
from duetime.stores.sql.rows import Row


def stepwise(*, rows_max: int, nothing: str = "") -> Callable[[Upsert, int], Sequence[Step]]:
    """`rows_max` is how many rows one statement is for; `nothing` what is selected from where
    there is no table."""

    def upsert(what: Upsert, rows: int) -> Sequence[Step]:
        if what.counted:
            return (_count(what), _insert_if_absent(what, nothing))
        if what.columns == what.key:  # To write it anew would only be in the way of others.
            return (_insert_if_absent(what, nothing),)
        many = min(rows, rows_max)
        delete = f"DELETE FROM {what.table} WHERE {any_of(what.key, many)}"
        return (Step(delete, _of(what, what.key)), _insert(what, many))

    return upsert


def _insert(what: Upsert, rows: int) -> Step:
    row = f"({', '.join('?' * len(what.columns))})"
    columns = ", ".join(what.columns)
    return Step(f"INSERT INTO {what.table} ({columns}) VALUES {', '.join([row] * rows)}")


def _count(what: Upsert) -> Step:
    changes = [f"{name} = {name} + 1" for name in what.counted]
    changes += [f"{name} = ?" for name in what.replaced]
    statement = f"UPDATE {what.table} SET {', '.join(changes)} WHERE {any_of(what.key, 1)}"
    return Step(statement, _of(what, (*what.replaced, *what.key)))


def _insert_if_absent(what: Upsert, nothing: str) -> Step:
    statement = (
        f"INSERT INTO {what.table} ({', '.join(what.columns)})"
        f" SELECT {', '.join('?' * len(what.columns))} {nothing}"
        f" WHERE NOT EXISTS (SELECT 1 FROM {what.table} WHERE {any_of(what.key, 1)})"
    )
    return Step(statement, _of(what, (*what.columns, *what.key)))


def _of(what: Upsert, columns: Sequence[str]) -> Callable[[Row], Sequence[Any]]:
    positions = [what.columns.index(name) for name in columns]
    return lambda row: [row[position] for position in positions]
