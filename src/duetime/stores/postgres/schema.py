"""The tables, version by version, and how a database is brought up to date."""

from asyncpg import Connection

from duetime.errors import SchemaTooNew

PARTITIONS = 32

# Rows come and go: a partition is cleaned after some thousands of dead ones, however many live
# ones it has, so that a due read never has to walk over many.
_AUTOVACUUM = """
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 2000
"""

_VERSION_1 = (
    # `row_type` 1 is the shard's own row, 2 a timer: one table, as every database has it.
    # Instants are UTC without a zone, so that no session's zone can move them. Namespaces and
    # ids compare byte by byte. The caller's JSON is text: it comes back as it was, and may hold
    # what PostgreSQL's JSON types refuse.
    """
    CREATE TABLE timers (
        shard_id integer NOT NULL,
        row_type smallint NOT NULL,
        timer_execute_at timestamp(3) NOT NULL,
        timer_uuid uuid NOT NULL,
        timer_namespace text COLLATE "C",
        timer_id text COLLATE "C",
        timer_callback_url text,
        timer_payload text,
        timer_retry_policy json,
        timer_callback_timeout_seconds integer,
        timer_created_at timestamp(3),
        timer_attempts integer,
        timer_metadata text,
        timer_details json,
        shard_version bigint,
        shard_owner_id text,
        shard_claimed_at timestamp(3),
        shard_metadata json,
        PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid)
    ) PARTITION BY HASH (shard_id)
    """,
    *(
        f"""
        CREATE TABLE timers_{number} PARTITION OF timers
        FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number}) WITH ({_AUTOVACUUM})
        """
        for number in range(PARTITIONS)
    ),
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
    "CREATE INDEX idx_shard ON timers (shard_id) WHERE row_type = 1",
    f"""
    CREATE TABLE history (
        shard_id integer NOT NULL,
        timer_execute_at timestamp(3) NOT NULL,
        timer_uuid uuid NOT NULL,
        timer_namespace text COLLATE "C" NOT NULL,
        timer_id text COLLATE "C" NOT NULL,
        timer_callback_url text NOT NULL,
        timer_payload text,
        timer_retry_policy json,
        timer_callback_timeout_seconds integer NOT NULL,
        timer_created_at timestamp(3) NOT NULL,
        timer_attempts integer NOT NULL,
        timer_metadata text,
        timer_details json,
        finished_at timestamp(3) NOT NULL,
        finished_status text NOT NULL
    ) WITH ({_AUTOVACUUM})
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
        kind text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        version bigint NOT NULL,
        body text NOT NULL,
        PRIMARY KEY (kind, name)
    )
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_VERSION_1,)
"""What leads to each version from the one before; never changed once released."""

_LOCK = 0x64756574696D65  # "duetime", for pg_advisory_xact_lock.


async def migrate(connection: Connection) -> None:
    """Bring the schema up to date, in one transaction. `SchemaTooNew` if it is ahead.

    Of nodes that start together, one migrates and the others wait for it. Where nothing is
    missing, nothing is asked but the version: then a role needs no rights on the schema.
    """
    if await _version(connection) == len(MIGRATIONS):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        found = await _version(connection)
        if found == 0:
            await connection.execute("CREATE TABLE duetime_schema (version integer NOT NULL)")
            await connection.execute("INSERT INTO duetime_schema VALUES (0)")
        for statements in MIGRATIONS[found:]:
            for statement in statements:
                await connection.execute(statement)
        await connection.execute("UPDATE duetime_schema SET version = $1", len(MIGRATIONS))


async def _version(connection: Connection) -> int:
    if await connection.fetchval("SELECT to_regclass('duetime_schema')") is None:
        return 0
    found = int(await connection.fetchval("SELECT version FROM duetime_schema"))
    if found > len(MIGRATIONS):
        raise SchemaTooNew(found, len(MIGRATIONS))
    return found
