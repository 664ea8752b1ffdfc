# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""The statements of the PostgreSQL store. Arrays go in, one for each column."""

from collections.abc import Sequence
from functools import cache
from itertools import count

from duetime.stores.sql.rows import HISTORY_COLUMNS, TIMER_COLUMNS

_TYPES = {
    "shard_id": "integer",
    "timer_execute_at": "timestamp",
    "timer_uuid": "uuid",
    "timer_namespace": "text",
    "timer_id": "text",
    "timer_callback_url": "text",
    "timer_payload": "text",
    "timer_retry_policy": "json",
    "timer_callback_timeout_seconds": "integer",
    "timer_created_at": "timestamp",
    "timer_attempts": "integer",
    "timer_metadata": "text",
    "timer_details": "json",
    "finished_at": "timestamp",
    "finished_status": "text",
    "shard_version": "bigint",
}
_TIMER = ", ".join(TIMER_COLUMNS)
_HISTORY = ", ".join(HISTORY_COLUMNS)
_ZERO_KEY = """
    row_type = 1 AND timer_execute_at = timestamp '1970-01-01 00:00:01'
    AND timer_uuid = uuid '00000000-0000-0000-0000-000000000000'
"""

READ_NOW = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

# Shards in order, here and wherever shard rows are locked: two calls never wait for each other.
CLAIM = """
    INSERT INTO timers (
        shard_id, row_type, timer_execute_at, timer_uuid,
        shard_version, shard_owner_id, shard_claimed_at
    )
    SELECT
        shard, 1, timestamp '1970-01-01 00:00:01', uuid '00000000-0000-0000-0000-000000000000',
        1, $2::text, $3::timestamp
    FROM unnest($1::integer[]) AS shard ORDER BY shard
    ON CONFLICT (shard_id, row_type, timer_execute_at, timer_uuid) DO UPDATE SET
        shard_version = timers.shard_version + 1,
        shard_owner_id = excluded.shard_owner_id,
        shard_claimed_at = excluded.shard_claimed_at
    RETURNING shard_id, shard_version
"""
RELEASE = f"""
    INSERT INTO timers (shard_id, row_type, timer_execute_at, timer_uuid, shard_version)
    SELECT row.*, version
    FROM unnest($1::integer[], $2::bigint[]) AS lease (shard, version)
    CROSS JOIN LATERAL (
        SELECT shard_id, row_type, timer_execute_at, timer_uuid FROM timers
        WHERE shard_id = shard AND {_ZERO_KEY} OFFSET 0
    ) AS row
    ORDER BY shard
    ON CONFLICT (shard_id, row_type, timer_execute_at, timer_uuid)
    DO UPDATE SET shard_owner_id = NULL WHERE timers.shard_version = excluded.shard_version
"""
READ_SHARDS = """
    SELECT shard_id, shard_version, shard_owner_id, shard_claimed_at
    FROM timers WHERE row_type = 1 ORDER BY shard_id
"""
# The weight of a row is known without reading what it weighs. `LIMIT` first, so that no more
# rows are weighed than asked for.
READ_DUE = f"""
    SELECT number, {_TIMER}
    FROM unnest($1::integer[], $2::timestamp[], $3::uuid[], $4::timestamp[], $5::integer[])
        WITH ORDINALITY AS read (shard, after_at, after_uuid, until, wanted, number)
    CROSS JOIN LATERAL (
        SELECT *, sum(weight) OVER (
            ORDER BY timer_execute_at, timer_uuid
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
        FROM (
            SELECT {_TIMER},
                coalesce(octet_length(timer_payload), 0)
                + coalesce(octet_length(timer_metadata), 0) AS weight
            FROM timers
            WHERE shard_id = shard AND row_type = 2
              AND (timer_execute_at, timer_uuid) > (after_at, after_uuid)
              AND timer_execute_at <= until
            ORDER BY timer_execute_at, timer_uuid LIMIT wanted
        ) AS page
    ) AS page
    WHERE coalesce(before, 0) < $6
    ORDER BY number, timer_execute_at, timer_uuid
"""
READ_TIMERS = f"""
    SELECT row.*
    FROM unnest($1::integer[], $2::text[], $3::text[]) AS wanted (shard, namespace, id)
    CROSS JOIN LATERAL (
        SELECT {_TIMER} FROM timers
        WHERE shard_id = shard AND row_type = 2
          AND timer_namespace = namespace AND timer_id >= id
        ORDER BY timer_id LIMIT 1
    ) AS row
    WHERE timer_id = id
"""
READ_OUTCOMES = f"""
    SELECT row.* FROM unnest($1::text[], $2::text[]) AS wanted (namespace, id)
    CROSS JOIN LATERAL (
        SELECT {_HISTORY} FROM history
        WHERE timer_namespace = namespace AND (timer_id, finished_at) <= (id, 'infinity')
        ORDER BY timer_id DESC, finished_at DESC LIMIT 1
    ) AS row
    WHERE timer_id = id
"""
PURGE = """
    DELETE FROM history WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM history
        WHERE timer_namespace = $1 AND finished_at <= $2 ORDER BY finished_at LIMIT $3
    ))
    RETURNING 1
"""
READ_DOCUMENTS = "SELECT kind, name, version, body FROM documents WHERE kind = $1 ORDER BY name"
INSERT_DOCUMENT = """
    INSERT INTO documents (kind, name, version, body) VALUES ($1, $2, 1, $3)
    ON CONFLICT DO NOTHING RETURNING 1
"""
UPDATE_DOCUMENT = """
    UPDATE documents SET version = version + 1, body = $3
    WHERE kind = $1 AND name = $2 AND version = $4 RETURNING 1
"""
DELETE_DOCUMENT = "DELETE FROM documents WHERE kind = $1 AND name = $2 AND version = $3 RETURNING 1"

REMOVED_COLUMNS = ("shard_id", "timer_execute_at", "timer_uuid")
LEASE_COLUMNS = ("shard_id", "shard_version")


@cache
def write(*, removes: bool, puts: bool, finished: bool) -> str:
    """Writes what is held, answers the shards that are lost: a fence and its writes in one.

    The shard rows are locked against claims until the commit, and none is written before all
    are: a claim has either committed, and its version is seen here, or waits for us. The
    arrays are those of LEASE_COLUMNS, then of what is to be written: REMOVED_COLUMNS,
    TIMER_COLUMNS, HISTORY_COLUMNS.
    """
    numbers = count(1)

    def arrays(columns: Sequence[str]) -> str:
        bound = ", ".join(f"${next(numbers)}::{_TYPES[column]}[]" for column in columns)
        return f"unnest({bound})"

    parts = [
        f"""
        lease (shard, version) AS MATERIALIZED (SELECT * FROM {arrays(LEASE_COLUMNS)}),
        held AS MATERIALIZED (
            SELECT shard FROM lease CROSS JOIN LATERAL (
                SELECT FROM timers
                WHERE shard_id = shard AND {_ZERO_KEY} AND shard_version = version
                OFFSET 0 FOR SHARE
            ) AS row
        ),
        lost AS MATERIALIZED (
            SELECT shard FROM lease WHERE shard NOT IN (SELECT shard FROM held)
        )
        """
    ]
    if removes:
        parts.append(f"""
            removed AS (
                DELETE FROM timers USING (
                    SELECT row.* FROM {arrays(REMOVED_COLUMNS)} AS gone (shard, execute_at, uuid)
                    CROSS JOIN LATERAL (
                        SELECT shard_id, timer_uuid, tableoid AS partition, ctid AS place
                        FROM timers
                        WHERE shard_id = shard AND row_type = 2
                          AND (timer_execute_at, timer_uuid) >= (execute_at, uuid)
                          AND timer_execute_at <= execute_at
                        ORDER BY timer_execute_at, timer_uuid LIMIT 1
                    ) AS row
                    WHERE timer_uuid = uuid AND shard NOT IN (SELECT shard FROM lost)
                ) AS found
                WHERE timers.shard_id = found.shard_id
                  AND timers.tableoid = partition AND timers.ctid = place
            )
        """)
    if puts:
        key = ("shard_id", "timer_namespace", "timer_id")
        changes = ", ".join(
            f"{name} = excluded.{name}" for name in TIMER_COLUMNS if name not in key
        )
        parts.append(f"""
            put AS (
                INSERT INTO timers ({_TIMER}, row_type)
                SELECT {_TIMER}, 2 FROM {arrays(TIMER_COLUMNS)} AS new ({_TIMER})
                WHERE shard_id NOT IN (SELECT shard FROM lost)
                ON CONFLICT (shard_id, row_type, timer_namespace, timer_id)
                DO UPDATE SET {changes}
            )
        """)
    if finished:
        parts.append(f"""
            recorded AS (
                INSERT INTO history ({_HISTORY})
                SELECT {_HISTORY} FROM {arrays(HISTORY_COLUMNS)} AS new ({_HISTORY})
                WHERE shard_id NOT IN (SELECT shard FROM lost)
                ON CONFLICT DO NOTHING
            )
        """)
    return f"WITH {', '.join(parts)} SELECT shard FROM lost"
