"""The tables, version by version, and how a database is brought up to date.

On most databases a statement that makes a table is committed by itself. So nothing rests on
transactions or on locks here: each statement may be met again, by whoever comes second or
after a crash, and says then that its work is done already.
"""

from duetime.errors import SchemaTooNew
from duetime.stores.sql.connections import Connections
from duetime.stores.sql.dialect import Dialect

# `row_type` 1 is the shard's own row, 2 a timer: one table, as every database has it. Instants
# are UTC without a zone, so that no session's zone can move them. Names compare code point by
# code point, blanks at the end included. The caller's JSON is text: it comes back as it was.
# The numbers of the shards that were ever claimed have a table of their own: to find their rows
# in the other one every timer would need one more index entry.
TABLES = (
    """
    CREATE TABLE timers (
        shard_id {integer} NOT NULL,
        row_type {small} NOT NULL,
        timer_execute_at {instant} NOT NULL,
        timer_uuid {uuid} NOT NULL,
        timer_namespace {name},
        timer_id {name},
        timer_callback_url {url},
        timer_payload {text},
        timer_retry_policy {json},
        timer_callback_timeout_seconds {integer},
        timer_created_at {instant},
        timer_attempts {integer},
        timer_metadata {text},
        timer_details {json},
        shard_version {big},
        shard_owner_id {name},
        shard_claimed_at {instant},
        shard_metadata {json},
        {timers_key}
    ) {timers}
    """,
    """
    CREATE TABLE history (
        {history_key},
        shard_id {integer} NOT NULL,
        timer_execute_at {instant} NOT NULL,
        timer_uuid {uuid} NOT NULL,
        timer_namespace {name} NOT NULL,
        timer_id {name} NOT NULL,
        timer_callback_url {url} NOT NULL,
        timer_payload {text},
        timer_retry_policy {json},
        timer_callback_timeout_seconds {integer} NOT NULL,
        timer_created_at {instant} NOT NULL,
        timer_attempts {integer} NOT NULL,
        timer_metadata {text},
        timer_details {json},
        finished_at {instant} NOT NULL,
        finished_status {status} NOT NULL
    ) {table}
    """,
    """
    CREATE TABLE shards (shard_id {integer} NOT NULL PRIMARY KEY) {table}
    """,
    """
    CREATE TABLE documents (
        kind {document} NOT NULL,
        name {document} NOT NULL,
        version {big} NOT NULL,
        body {text} NOT NULL,
        PRIMARY KEY (kind, name)
    ) {table}
    """,
    "CREATE UNIQUE INDEX idx_timer_lookup"
    " ON timers (shard_id, row_type, timer_namespace, timer_id) {index}",
    "CREATE INDEX idx_timer_created ON timers (timer_namespace, timer_created_at, timer_uuid)"
    " {index}",
    "CREATE INDEX idx_timer_execute ON timers (timer_namespace, timer_execute_at, timer_uuid)"
    " {index}",
    "CREATE UNIQUE INDEX idx_history_lookup ON history (timer_namespace, timer_id, finished_at)",
    "CREATE INDEX idx_history_purge ON history (timer_namespace, finished_at)",
    "CREATE INDEX idx_history_created ON history"
    " (timer_namespace, timer_created_at, timer_uuid, finished_at, finished_status)",
    "CREATE INDEX idx_history_execute ON history"
    " (timer_namespace, timer_execute_at, timer_uuid, finished_at, finished_status)",
)
"""Of version 1, in the words of `Dialect.types`; of them `timers_key` is the primary key
(shard_id, row_type, timer_execute_at, timer_uuid), `history_key` a column that numbers the
entries, and `timers`, `table` and `index` what stands behind a definition."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (TABLES,)
"""What leads to each version from the one before; never changed once released."""

_VERSIONS = "CREATE TABLE duetime_schema (id {small} NOT NULL PRIMARY KEY, version {integer})"


async def migrate(connections: Connections, dialect: Dialect) -> None:
    """Bring the schema up to date. `SchemaTooNew` if it is ahead.

    Where nothing is missing, nothing is asked but the version: then an account needs no rights
    on the schema.
    """
    known = len(MIGRATIONS)
    found = await _version(connections)
    if found > known:
        raise SchemaTooNew(found, known)
    if found == known:
        return
    statements = [_VERSIONS, "INSERT INTO duetime_schema (id, version) VALUES (1, 0)"]
    for migration in MIGRATIONS[found:]:
        statements += migration
    for statement in statements:
        await connections.unless_there(statement.format_map(dialect.types))
    update = "UPDATE duetime_schema SET version = ? WHERE version < ?"
    await connections.execute(update, (known, known))


async def _version(connections: Connections) -> int:
    rows = await connections.fetch_if_table("SELECT version FROM duetime_schema")
    return int(rows[0][0]) if rows else 0
