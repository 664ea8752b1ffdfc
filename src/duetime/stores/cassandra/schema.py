"""The tables, version by version, and how a keyspace is brought up to date."""

import asyncio

from cassandra import InvalidRequest
from cassandra.protocol import ServerError

from duetime.errors import SchemaTooNew, StoreError
from duetime.stores.cassandra.driver import Driver

SETTLE_TRIES, SETTLE_S = 50, 0.1

_VERSIONS = (
    "CREATE TABLE IF NOT EXISTS $keyspace.duetime_schema (name text PRIMARY KEY, version int)"
)
_HAS_VERSIONS = """
    SELECT table_name FROM system_schema.tables
    WHERE keyspace_name = ? AND table_name = 'duetime_schema'
"""
_READ_VERSION = "SELECT version FROM $keyspace.duetime_schema WHERE name = 'timers'"
_WRITE_VERSION = "UPDATE $keyspace.duetime_schema SET version = ? WHERE name = 'timers'"

_VERSION_1 = (
    # The rows of a shard lie in one partition, because only what does can be written atomically
    # and on a condition; `statements` says what the types of rows are. Uuids are blobs: values
    # of the type `uuid` would be in the order of their version and time. The caller's JSON is
    # text: it comes back as it was. Rows are deleted long after they were written, so levels,
    # which bring the two together, and not windows of time.
    """
    CREATE TABLE IF NOT EXISTS $keyspace.timers (
        shard_id int,
        row_type int,
        timer_execute_at timestamp,
        timer_uuid blob,
        timer_namespace text,
        timer_id text,
        timer_callback_url text,
        timer_payload text,
        timer_retry_policy text,
        timer_callback_timeout_seconds int,
        timer_created_at timestamp,
        timer_attempts int,
        timer_metadata text,
        timer_details text,
        finished_at timestamp,
        finished_status text,
        key_execute_at timestamp,
        key_finished_type int,
        key_finished_at timestamp,
        key_finished_execute_at timestamp,
        shard_version bigint,
        shard_owner_id text,
        shard_claimed_at timestamp,
        shard_metadata text,
        shard_write blob,
        PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid)
    ) WITH compaction = {'class': 'LeveledCompactionStrategy'}
    """,
    """
    CREATE TABLE IF NOT EXISTS $keyspace.documents (
        kind text, name text, version bigint, body text, write blob,
        PRIMARY KEY (kind, name)
    )
    """,
)
MIGRATIONS = (_VERSION_1,)


async def migrate(driver: Driver, keyspace: str) -> None:
    """Safe to repeat, and to begin again where it was interrupted."""
    for tries_left in reversed(range(SETTLE_TRIES)):
        try:
            await _migrate(driver, keyspace)
        except StoreError as error:
            # Another node does the same: tables are announced before they can be used.
            if not tries_left or not isinstance(error.__cause__, InvalidRequest | ServerError):
                raise
            await asyncio.sleep(SETTLE_S)
        else:
            return


async def _migrate(driver: Driver, keyspace: str) -> None:
    version = 0
    if await driver.rows(_HAS_VERSIONS, keyspace):
        version = max([row[0] for row in await driver.rows(_READ_VERSION)], default=0)
    if version > len(MIGRATIONS):
        raise SchemaTooNew(version, len(MIGRATIONS))
    if version == len(MIGRATIONS):
        return
    await driver.define(_VERSIONS)
    for migration in MIGRATIONS[version:]:
        for statement in migration:
            await driver.define(statement)
    await driver.rows(_WRITE_VERSION, len(MIGRATIONS))
