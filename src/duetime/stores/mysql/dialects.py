# ruff: noqa: S608 - statements are put together from constants; values are always bound.
"""MySQL, MariaDB and TiDB, and in what they differ."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from duetime.stores.sql.dialect import Dialect, Step, Upsert, by_keys
from duetime.stores.sql.instants import as_text, from_datetime
from duetime.stores.sql.listing import Dialect as Lists
from duetime.stores.sql.listing import limit_offset, nested_beyond, one_of

TRANSACTION_IDLE_S_MAX = 4
"""A node that freezes or loses its machine within a transaction holds its shards' rows, and who
takes over waits for them. Ours stand still for a round trip at most."""


class Product(Struct, frozen=True, kw_only=True):
    """A server's name and age, and what its sessions are to be like."""

    dialect: Dialect
    title: str
    mark: str
    """What `version()` says of this product and of no other; of MySQL, nothing."""
    version_min: tuple[int, int, int]
    port: int
    collation: str
    """Code points in their order, blanks at the end included."""
    settings: str
    """Session variables, with {ms} and {s} for the longest that a statement may take, and
    {idle_s} for how long a transaction may stand still."""
    idle_s_max: float = 600
    """How long a connection may lie unused."""


def _on_duplicate_key(new: str, alias: str = "") -> Callable[[Upsert, int], Sequence[Step]]:
    """`Dialect.upsert`. `new` is the new row's value of a column, as a format."""

    def upsert(what: Upsert, rows: int) -> Sequence[Step]:
        row = f"({', '.join('?' * len(what.columns))})"
        changes = [f"{name} = {new.format(name)}" for name in what.replaced]
        changes += [f"{name} = {what.table}.{name} + 1" for name in what.counted]
        nothing = f"{what.key[0]} = {what.table}.{what.key[0]}"
        statement = (
            f"INSERT INTO {what.table} ({', '.join(what.columns)})"
            f" VALUES {', '.join([row] * rows)} {alias}"
            f" ON DUPLICATE KEY UPDATE {', '.join(changes) or nothing}"
        )
        return (Step(statement),)

    return upsert


def _by_index(table: str, index: str) -> str:
    """Not left to the optimizer: statistics of tables that were just filled are wrong, and a
    scan would wait for locks on rows that are none of its business."""
    name = "PRIMARY" if index == "key" else f"idx_{table.removesuffix('s')}_{index}"
    return f"{table} FORCE INDEX ({name})"


def _by_join(rows: int) -> str:
    """By a join, which cannot be anything but a seek for each key. A condition with the keys
    becomes a scan as soon as a table seems small, whatever index it is to use; and a scan
    locks what it passes, the rows of other shards too."""
    key = (
        "SELECT ? AS shard, ? AS type, CAST(? AS DATETIME(3)) AS at, CAST(? AS BINARY(16)) AS uuid"
    )
    return (
        f"DELETE timers FROM ({' UNION ALL '.join([key] * rows)}) gone"
        f" STRAIGHT_JOIN {_by_index('timers', 'key')}"
        " ON shard_id = shard AND row_type = type AND timer_execute_at = at AND timer_uuid = uuid"
    )


_LISTS = Lists(
    among=one_of,
    in_shards=lambda num_shards: one_of("shard_id", range(num_shards)),
    source=_by_index,
    # Rows compare, but only column by column does that become a range of an index.
    beyond=nested_beyond,
    page=limit_offset,
    instant=as_text,  # For the driver that is less work than a datetime.
    no_instant="TIMESTAMP '1970-01-01 00:00:00'",
)


def _types(collation: str, *, key: str = "", entry: str, partitions: int) -> dict[str, str]:
    text = f"CHARACTER SET utf8mb4 COLLATE {collation}"
    table = f"ENGINE = InnoDB DEFAULT {text}"
    return {
        "integer": "INT",
        "small": "SMALLINT",
        "big": "BIGINT",
        # Not TIMESTAMP, which ends in 2038 and moves with the session's zone.
        "instant": "DATETIME(3)",
        "uuid": "BINARY(16)",
        "name": f"VARCHAR(255) {text}",
        "document": f"VARCHAR(255) {text}",
        "url": f"VARCHAR(2048) {text}",
        "status": f"VARCHAR(16) {text}",
        "text": f"LONGTEXT {text}",
        "json": "JSON",
        "timers_key": f"PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid) {key}",
        "history_key": f"entry BIGINT NOT NULL {entry} PRIMARY KEY {key}",
        "timers": f"{table} PARTITION BY HASH (shard_id) PARTITIONS {partitions}",
        "table": table,
        "index": "",
    }


def _dialect(
    name: str,
    upsert: Callable[[Upsert, int], Sequence[Step]],
    types: dict[str, str],
    remove: Callable[[int], str],
) -> Dialect:
    return Dialect(
        name=name,
        types=types,
        upsert=upsert,
        lists=_LISTS,
        read_now="SELECT SYSDATE(3)",
        purge="""
            DELETE FROM history WHERE timer_namespace = ? AND finished_at <= ?
            ORDER BY finished_at LIMIT ?
        """,
        # An exclusive lock, also where there are shared ones: of one shard a single write is
        # under way at a time, and nothing has to become exclusive later, which would deadlock.
        lock="FOR UPDATE",
        remove=remove,
        from_instant=from_datetime,
    )


_VALUES = _on_duplicate_key("VALUES({})")

MYSQL = Product(
    dialect=_dialect(
        "mysql",
        # It warns of VALUES(): an answer more to ask for, after each statement.
        _on_duplicate_key("fresh.{}", alias="AS fresh"),
        _types("utf8mb4_0900_bin", entry="AUTO_INCREMENT", partitions=32),
        _by_join,
    ),
    title="MySQL",
    mark="",
    version_min=(8, 0, 19),  # The first whose upserts can name the new row.
    port=3306,
    collation="utf8mb4_0900_bin",
    # For reading only, as it says; a write ends by its locks' timeout, or by ours. And it has no
    # word for transactions that stand still: so no connection may.
    settings="max_execution_time = {ms}, wait_timeout = {idle_s}",
    idle_s_max=TRANSACTION_IDLE_S_MAX / 2,
)
MARIADB = Product(
    dialect=_dialect(
        "mariadb",
        _VALUES,
        _types("utf8mb4_nopad_bin", entry="AUTO_INCREMENT", partitions=32),
        _by_join,
    ),
    title="MariaDB",
    mark="MariaDB",
    version_min=(10, 6, 0),
    port=3306,
    collation="utf8mb4_nopad_bin",
    settings="max_statement_time = {s}, idle_transaction_timeout = {idle_s}",
)
TIDB = Product(
    dialect=_dialect(
        "tidb",
        _VALUES,
        _types(
            "utf8mb4_0900_bin",
            key="CLUSTERED",
            # Numbers in a row would all be written in one place.
            entry="AUTO_RANDOM",
            partitions=1_024,
        ),
        by_keys,  # It locks what it deletes, however it looked for that.
    ),
    title="TiDB",
    mark="TiDB",
    version_min=(8, 0, 0),
    port=4000,
    collation="utf8mb4_0900_bin",
    # A lock is taken when a statement asks for it, not found broken at the commit.
    settings=(
        "max_execution_time = {ms}, tidb_idle_transaction_timeout = {idle_s},"
        " tidb_txn_mode = 'pessimistic'"
    ),
)
