# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""The statements of the SQLite store, and the rows of many timers in few of them."""

from functools import cache

from duetime.stores.sql.rows import HISTORY_COLUMNS, TIMER_COLUMNS
from duetime.stores.sqlite.rows import HISTORY_AS_JSON, TIMERS_AS_JSON

# Few sizes, so that the statements stay prepared; and every small one, because a commit of
# twenty rows is to be one statement: beside a busy loop each costs a tenth of a millisecond.
CHUNKS = (256, 64, *range(32, 0, -1))

READ_NOW = """
    SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000
         + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)
    FROM (SELECT count(*) FROM sqlite_schema)
"""
CLAIM = """
    INSERT INTO timers (
        shard_id, row_type, timer_execute_at, timer_uuid,
        shard_version, shard_owner_id, shard_claimed_at
    )
    VALUES (?, 1, 1000, zeroblob(16), 1, ?, ?)
    ON CONFLICT (shard_id, row_type, timer_execute_at, timer_uuid) DO UPDATE SET
        shard_version = shard_version + 1,
        shard_owner_id = excluded.shard_owner_id,
        shard_claimed_at = excluded.shard_claimed_at
    RETURNING shard_version
"""
_SHARD_ROW = """
    WHERE shard_id = ? AND row_type = 1 AND timer_execute_at = 1000 AND timer_uuid = zeroblob(16)
"""
RELEASE = f"UPDATE timers SET shard_owner_id = NULL {_SHARD_ROW} AND shard_version = ?"
READ_SHARDS = f"""
    WITH RECURSIVE shards (id) AS (
        SELECT min(shard_id) FROM timers
        UNION ALL
        SELECT (SELECT min(shard_id) FROM timers WHERE shard_id > shards.id)
        FROM shards WHERE shards.id IS NOT NULL
    )
    SELECT shard_id, shard_version, shard_owner_id, shard_claimed_at
    FROM shards CROSS JOIN timers {_SHARD_ROW.replace("?", "shards.id")}
"""
# One row back whatever the number of shards: each row fetched would take the GIL again.
FENCE = f"""
    SELECT json_group_array(json_extract(lease.value, '$[0]'))
    FROM json_each(?) AS lease
    WHERE json_extract(lease.value, '$[1]') IS NOT (
        SELECT shard_version FROM timers
        {_SHARD_ROW.replace("?", "json_extract(lease.value, '$[0]')")}
    )
"""
READ_DUE = f"""
    SELECT {TIMERS_AS_JSON} FROM (
        SELECT {", ".join(TIMER_COLUMNS)} FROM timers
        WHERE shard_id = ? AND row_type = 2
          AND (timer_execute_at, timer_uuid) > (?, ?) AND timer_execute_at <= ?
        ORDER BY timer_execute_at, timer_uuid LIMIT ?
    )
"""
READ_PLACED_TIMER = f"""
    SELECT {TIMERS_AS_JSON} FROM timers
    WHERE shard_id = ? AND row_type = 2 AND timer_execute_at = ? AND timer_uuid = ?
"""
READ_PLACED_ENTRY = f"SELECT {HISTORY_AS_JSON} FROM history WHERE entry = ?"
PURGE = """
    DELETE FROM history WHERE entry IN (
        SELECT entry FROM history INDEXED BY idx_history_purge
        WHERE timer_namespace = ? AND finished_at <= ? ORDER BY finished_at LIMIT ?
    )
"""
READ_DOCUMENTS = (
    "SELECT kind, name, version, CAST(body AS BLOB) FROM documents WHERE kind = ? ORDER BY name"
)
INSERT_DOCUMENT = "INSERT OR IGNORE INTO documents (kind, name, version, body) VALUES (?, ?, 1, ?)"
UPDATE_DOCUMENT = """
    UPDATE documents SET version = version + 1, body = ?
    WHERE kind = ? AND name = ? AND version = ?
"""
DELETE_DOCUMENT = "DELETE FROM documents WHERE kind = ? AND name = ? AND version = ?"

_PUT = f"INSERT OR REPLACE INTO timers ({', '.join(TIMER_COLUMNS)}, row_type) VALUES "
_PUT_ROW = f"({'?, ' * len(TIMER_COLUMNS)}2)"
_REMOVE_ROW = "(shard_id = ? AND row_type = 2 AND timer_execute_at = ? AND timer_uuid = ?)"
_RECORD = f"INSERT OR IGNORE INTO history ({', '.join(HISTORY_COLUMNS)}) VALUES "
_RECORD_ROW = f"({', '.join('?' * len(HISTORY_COLUMNS))})"


@cache
def put(rows: int) -> str:
    return _PUT + ", ".join([_PUT_ROW] * rows)


@cache
def remove(rows: int) -> str:
    # Not `(...) IN (VALUES ...)`: for that SQLite scans the table, or at best seeks to the
    # instant and walks all that share it. Each OR term is one seek by the whole key.
    return "DELETE FROM timers WHERE " + " OR ".join([_REMOVE_ROW] * rows)


@cache
def remove_of_instant(rows: int) -> str:
    return f"""
        DELETE FROM timers WHERE shard_id = ? AND row_type = 2 AND timer_execute_at = ?
        AND timer_uuid IN ({", ".join("?" * rows)})
    """


@cache
def record(rows: int) -> str:
    return _RECORD + ", ".join([_RECORD_ROW] * rows)


@cache
def read_timers(rows: int) -> str:
    return f"""
        WITH wanted (shard, namespace, id) AS (VALUES {", ".join(["(?, ?, ?)"] * rows)})
        SELECT {TIMERS_AS_JSON}
        FROM wanted CROSS JOIN timers INDEXED BY idx_timer_lookup
        ON shard_id = shard AND row_type = 2 AND timer_namespace = namespace AND timer_id = id
    """


@cache
def read_outcomes(rows: int) -> str:
    return f"""
        WITH wanted (namespace, id) AS (VALUES {", ".join(["(?, ?)"] * rows)})
        SELECT {HISTORY_AS_JSON}
        FROM wanted CROSS JOIN history INDEXED BY idx_history_lookup
        ON timer_namespace = namespace AND timer_id = id AND finished_at = (
            SELECT max(finished_at) FROM history
            WHERE timer_namespace = namespace AND timer_id = id
        )
    """
