# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""The statements of the shared SQL store: few forms, each for a number of rows."""

from collections.abc import Sequence
from functools import cache

from duetime.model import CURSOR_MIN
from duetime.stores.sql.dialect import KEY, LOOKUP, Dialect, Step, Upsert, any_of
from duetime.stores.sql.rows import HISTORY_COLUMNS, TIMER_COLUMNS

SHARD, TIMER = 1, 2
ZERO_KEY = (SHARD, 1_000, CURSOR_MIN.uuid)
"""Of a shard's own row, behind its number: 1970-01-01T00:00:01Z and the zero uuid."""

_TIMER = ", ".join(TIMER_COLUMNS)
_HISTORY = ", ".join(HISTORY_COLUMNS)
_HEAVY = ("timer_payload", "timer_metadata")

PUT = Upsert(
    "timers",
    (*TIMER_COLUMNS, "row_type"),
    LOOKUP,
    replaced=tuple(name for name in TIMER_COLUMNS if name not in LOOKUP),
)
RECORD = Upsert("history", HISTORY_COLUMNS, ("timer_namespace", "timer_id", "finished_at"))
NUMBER = Upsert("shards", ("shard_id",), ("shard_id",))
CLAIM = Upsert(
    "timers",
    (*KEY, "shard_version", "shard_owner_id", "shard_claimed_at"),
    KEY,
    replaced=("shard_owner_id", "shard_claimed_at"),
    counted=("shard_version",),
)

READ_DOCUMENTS = "SELECT name, version, body FROM documents WHERE kind = ? ORDER BY name"
INSERT_DOCUMENT = "INSERT INTO documents (kind, name, version, body) VALUES (?, ?, 1, ?)"
UPDATE_DOCUMENT = """
    UPDATE documents SET version = version + 1, body = ?
    WHERE kind = ? AND name = ? AND version = ?
"""
DELETE_DOCUMENT = "DELETE FROM documents WHERE kind = ? AND name = ? AND version = ?"
READ_SHARDS = """
    SELECT timers.shard_id, shard_version, shard_owner_id, shard_claimed_at
    FROM shards JOIN timers ON timers.shard_id = shards.shard_id
    WHERE row_type = ? AND timer_execute_at = ? AND timer_uuid = ?
    ORDER BY timers.shard_id
"""


@cache
def upsert(dialect: Dialect, what: Upsert, rows: int) -> Sequence[Step]:
    return dialect.upsert(what, rows)


@cache
def lock_shards(dialect: Dialect, rows: int) -> str:
    """The versions of shards, kept as they are until the commit. Of (shard, *ZERO_KEY) each.

    The fence, and what a claim ends with: whoever comes second waits for the first to end,
    and then reads what that has written.
    """
    source = dialect.lists.source("timers", "key")
    return (
        f"SELECT shard_id, shard_version FROM {source} {dialect.lock_hint}"
        f" WHERE {any_of(KEY, rows)} {dialect.lock}"
    )


@cache
def release(dialect: Dialect, rows: int) -> str:
    source = dialect.lists.source("timers", "key")
    return (
        f"UPDATE {source} SET shard_owner_id = NULL WHERE {any_of((*KEY, 'shard_version'), rows)}"
    )


@cache
def remove(dialect: Dialect, rows: int) -> str:
    return dialect.remove(rows)


@cache
def read_timers(dialect: Dialect, rows: int) -> str:
    source = dialect.lists.source("timers", "lookup")
    return f"SELECT {_TIMER} FROM {source} WHERE {any_of(LOOKUP, rows)}"


@cache
def read_due(dialect: Dialect, reads: int) -> str:
    """Of (position, shard, until, at, at, uuid, limit, bytes) each. Rows begin with the position.

    The weight of a row is known without reading what it weighs. `LIMIT` first, so that no more
    rows are weighed than asked for.
    """
    source = dialect.lists.source("timers", "key")
    beyond = dialect.lists.beyond(("timer_execute_at", "timer_uuid"), (0, b""))
    first = dialect.lists.page(1, 0)
    weight = " + ".join(f"coalesce({dialect.octets.format(name)}, 0)" for name in _HEAVY)
    return " UNION ALL ".join(
        [
            f"""
            SELECT ?, {_TIMER} FROM (
                SELECT {_TIMER}, sum(weight) OVER (
                    ORDER BY timer_execute_at, timer_uuid
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS heaped
                FROM (
                    SELECT {_TIMER}, {weight} AS weight FROM {source}
                    WHERE shard_id = ? AND row_type = {TIMER}
                      AND timer_execute_at <= ? AND {beyond.text}
                    ORDER BY timer_execute_at, timer_uuid {first.text}
                ) page
            ) weighed WHERE coalesce(heaped, 0) < ?
            """
        ]
        * reads
    )


@cache
def read_outcomes(dialect: Dialect, keys: int) -> str:
    """Of (namespace, id, limit) each."""
    source = dialect.lists.source("history", "lookup")
    first = dialect.lists.page(1, 0)
    return " UNION ALL ".join(
        [
            f"""
            SELECT {_HISTORY} FROM (
                SELECT {_HISTORY} FROM {source}
                WHERE timer_namespace = ? AND timer_id = ?
                ORDER BY finished_at DESC {first.text}
            ) newest
            """
        ]
        * keys
    )
