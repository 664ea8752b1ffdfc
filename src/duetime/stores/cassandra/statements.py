# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""The table of everything that belongs to shards, and its statements.

A shard is a partition, because only what lies in one partition can be written atomically and
on a condition. Its rows, by `row_type`:

1 SHARD      the shard's own row: who owns it, and `shard_write`, the mark of its last write
2 TIMER      an unfinished timer, where it stands in line
3 KEY        of a timer's key: where it stands, and where its newest outcome stands
4 FINISHED   history, in the order of lists: behind the uuid comes when it finished
5 FINISHING  history, in the order in which it is purged: behind the uuid comes when it was due

The last two are those of the shard's first namespace; the next has 6 and 7, and so on: each is
purged in its own time, and so always from the front.

Uuids are blobs: as `uuid` they would be in the order of their version and time. Instants are
read by `toUnixTimestamp`, as the driver's `datetime` costs time and invites zones.
"""

from duetime.stores.sql.rows import HISTORY_COLUMNS, TIMER_COLUMNS

SHARD, TIMER, KEY, FINISHED = 1, 2, 3, 4
_ZERO_AT = "1000"  # 1970-01-01T00:00:01Z, as every database has it.
_INSTANTS = {"timer_execute_at", "timer_created_at", "finished_at"}

_ZERO_KEY = f"timer_execute_at = {_ZERO_AT} AND timer_uuid = 0x{bytes(16).hex()}"
_SHARD_ROW = f"WHERE shard_id = ? AND row_type = {SHARD} AND {_ZERO_KEY}"
_PLACE = "(timer_execute_at, timer_uuid)"
_ROW = "WHERE shard_id = ? AND row_type = ?"
RANGE = f"{_ROW} AND {_PLACE} >= (?, ?) AND {_PLACE} < (?, ?)"


def _read(columns: tuple[str, ...]) -> str:
    return ", ".join(
        f"toUnixTimestamp({column})" if column in _INSTANTS else column for column in columns
    )


READ_NOW = "SELECT toUnixTimestamp(now()) FROM $keyspace.duetime_schema WHERE name = 'timers'"
CLAIM_FIRST = f"""
    INSERT INTO $keyspace.timers (
        shard_id, shard_version, shard_owner_id, shard_claimed_at, shard_metadata, shard_write,
        row_type, timer_execute_at, timer_uuid
    ) VALUES (?, 1, ?, ?, '{{}}', 0x, {SHARD}, {_ZERO_AT}, 0x{bytes(16).hex()}) IF NOT EXISTS
"""
CLAIM = f"""
    UPDATE $keyspace.timers SET shard_version = ?, shard_owner_id = ?, shard_claimed_at = ?
    {_SHARD_ROW} IF shard_version = ?
"""
RELEASE = f"UPDATE $keyspace.timers SET shard_owner_id = null {_SHARD_ROW} IF shard_version = ?"
READ_SHARD = f"SELECT shard_version, shard_write, shard_metadata FROM $keyspace.timers {_SHARD_ROW}"
# Of each partition no more than this row is read.
READ_SHARDS = f"""
    SELECT shard_id, shard_version, shard_owner_id, toUnixTimestamp(shard_claimed_at)
    FROM $keyspace.timers WHERE row_type = {SHARD} ALLOW FILTERING
"""
# The fence of every write, and what makes it happen once.
GUARD = f"""
    UPDATE $keyspace.timers SET shard_write = ?, shard_metadata = ?
    {_SHARD_ROW} IF shard_version = ? AND shard_write = ?
"""

TIMER_ROW = _read(TIMER_COLUMNS)
HISTORY_ROW = _read(HISTORY_COLUMNS)
READ_DUE = f"SELECT {TIMER_ROW} FROM $keyspace.timers {RANGE} LIMIT ?"
READ_KEYS = f"""
    SELECT timer_uuid, toUnixTimestamp(key_execute_at), key_finished_type,
        toUnixTimestamp(key_finished_at), toUnixTimestamp(key_finished_execute_at)
    FROM $keyspace.timers WHERE shard_id = ? AND row_type = {KEY}
        AND timer_execute_at = {_ZERO_AT} AND timer_uuid IN ?
"""
READ_ROWS = f"""
    SELECT {HISTORY_ROW} FROM $keyspace.timers
    WHERE shard_id = ? AND (row_type, timer_execute_at, timer_uuid) IN ?
"""
READ_PLACES = f"""
    SELECT toUnixTimestamp(timer_execute_at), timer_uuid FROM $keyspace.timers {RANGE} LIMIT ?
"""

PUT = f"""
    INSERT INTO $keyspace.timers ({", ".join(TIMER_COLUMNS)}, row_type)
    VALUES ({", ".join("?" * len(TIMER_COLUMNS))}, {TIMER})
"""
RECORD = f"""
    INSERT INTO $keyspace.timers ({", ".join(HISTORY_COLUMNS)}, row_type)
    VALUES ({", ".join("?" * len(HISTORY_COLUMNS))}, ?)
"""
RECORD_FINISHING = """
    INSERT INTO $keyspace.timers (shard_id, row_type, timer_execute_at, timer_uuid)
    VALUES (?, ?, ?, ?)
"""
PUT_KEY = f"""
    INSERT INTO $keyspace.timers (
        shard_id, timer_uuid,
        key_execute_at, key_finished_type, key_finished_at, key_finished_execute_at,
        row_type, timer_execute_at
    ) VALUES (?, ?, ?, ?, ?, ?, {KEY}, {_ZERO_AT})
"""
DELETE_KEY = f"""
    DELETE FROM $keyspace.timers
    WHERE shard_id = ? AND row_type = {KEY} AND timer_execute_at = {_ZERO_AT} AND timer_uuid = ?
"""
DELETE = f"DELETE FROM $keyspace.timers {_ROW} AND timer_execute_at = ? AND timer_uuid = ?"
DELETE_RUN = f"DELETE FROM $keyspace.timers {RANGE}"

READ_DOCUMENTS = "SELECT kind, name, version, body FROM $keyspace.documents WHERE kind = ?"
INSERT_DOCUMENT = """
    INSERT INTO $keyspace.documents (body, write, kind, name, version)
    VALUES (?, ?, ?, ?, 1) IF NOT EXISTS
"""
UPDATE_DOCUMENT = """
    UPDATE $keyspace.documents SET body = ?, write = ?, version = ? WHERE kind = ? AND name = ?
    IF version = ? AND write != ?
"""
DELETE_DOCUMENT = "DELETE FROM $keyspace.documents WHERE kind = ? AND name = ? IF version = ?"
