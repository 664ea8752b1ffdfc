"""The tables, version by version, and how a database is brought up to date."""

import sqlite3

from duetime.errors import SchemaTooNew

_VERSION_1 = (
    # `row_type` 1 is the shard's own row, 2 a timer: one table, as every database has it.
    # Instants are milliseconds since 1970 UTC. A blob compares byte by byte, unsigned.
    """
    CREATE TABLE timers (
        shard_id INTEGER NOT NULL,
        row_type INTEGER NOT NULL,
        timer_execute_at INTEGER NOT NULL,
        timer_uuid BLOB NOT NULL,
        timer_namespace TEXT,
        timer_id TEXT,
        timer_callback_url TEXT,
        timer_payload TEXT,
        timer_retry_policy TEXT,
        timer_callback_timeout_seconds INTEGER,
        timer_created_at INTEGER,
        timer_attempts INTEGER,
        timer_metadata TEXT,
        timer_details TEXT,
        shard_version INTEGER,
        shard_owner_id TEXT,
        shard_claimed_at INTEGER,
        shard_metadata TEXT,
        PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE UNIQUE INDEX idx_timer_lookup
    ON timers (shard_id, row_type, timer_namespace, timer_id)
    """,
    """
    CREATE INDEX idx_timer_created ON timers (timer_namespace, timer_created_at, timer_uuid)
    """,
    """
    CREATE INDEX idx_timer_execute ON timers (timer_namespace, timer_execute_at, timer_uuid)
    """,
    # With a rowid, so that entries go to the end however they come; what must be found in
    # another order has a small index.
    """
    CREATE TABLE history (
        entry INTEGER PRIMARY KEY,
        shard_id INTEGER NOT NULL,
        timer_execute_at INTEGER NOT NULL,
        timer_uuid BLOB NOT NULL,
        timer_namespace TEXT NOT NULL,
        timer_id TEXT NOT NULL,
        timer_callback_url TEXT NOT NULL,
        timer_payload TEXT,
        timer_retry_policy TEXT,
        timer_callback_timeout_seconds INTEGER NOT NULL,
        timer_created_at INTEGER NOT NULL,
        timer_attempts INTEGER NOT NULL,
        timer_metadata TEXT,
        timer_details TEXT,
        finished_at INTEGER NOT NULL,
        finished_status TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE UNIQUE INDEX idx_history_lookup
    ON history (timer_namespace, timer_id, finished_at)
    """,
    "CREATE INDEX idx_history_purge ON history (timer_namespace, finished_at)",
    """
    CREATE INDEX idx_history_created
    ON history (timer_namespace, timer_created_at, timer_uuid, finished_at, finished_status)
    """,
    """
    CREATE INDEX idx_history_execute
    ON history (timer_namespace, timer_execute_at, timer_uuid, finished_at, finished_status)
    """,
    """
    CREATE TABLE documents (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) STRICT, WITHOUT ROWID
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_VERSION_1,)
"""What leads to each version from the one before; never changed once released."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, in one transaction. `SchemaTooNew` if it is ahead."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        known = len(MIGRATIONS)
        if found > known:
            raise SchemaTooNew(found, known)
        for statements in MIGRATIONS[found:]:
            for statement in statements:
                connection.execute(statement)
        if found < known:
            connection.execute(f"PRAGMA user_version = {known:d}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
