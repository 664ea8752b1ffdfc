"""What SQL Server says differently.

To it 'a' and 'a ' are equal, under binary collations too. Names are kept as the bytes of their
UTF-8, which are not, and whose order is that of code points.
"""

from collections.abc import Collection

from duetime.stores.sql.dialect import PURGE, Dialect
from duetime.stores.sql.instants import as_text, from_datetime
from duetime.stores.sql.listing import Condition, in_claimed_shards, nested_beyond, one_of
from duetime.stores.sql.listing import Dialect as Lists
from duetime.stores.sql.upserts import stepwise

ROWS_MAX = 128  # A statement has 2,100 values at most, and a row up to 15.
_JSON = "CHECK (ISJSON(timer_retry_policy) = 1), CHECK (ISJSON(timer_details) = 1)"


def _among(column: str, values: Collection[object]) -> Condition:
    """Uuids may be more than a statement has values: they are one, and it is split there."""
    uuids = [value.hex() for value in values if isinstance(value, bytes)]
    if not uuids:
        return one_of(column, values)
    split = "SELECT CONVERT(BINARY(16), value, 2) FROM STRING_SPLIT(?, ',')"
    return Condition(f"{column} IN ({split})", [",".join(uuids)])


def _page(limit: int, offset: int) -> Condition:
    return Condition("OFFSET ? ROWS FETCH NEXT ? ROWS ONLY", [offset, limit])


def _from_name(name: bytes) -> str:
    return name.decode()


SQLSERVER = Dialect(
    name="sqlserver",
    types={
        "integer": "INT",
        "small": "SMALLINT",
        "big": "BIGINT",
        "instant": "DATETIME2(3)",
        # A UNIQUEIDENTIFIER is not ordered as its bytes are.
        "uuid": "BINARY(16)",
        "name": "VARBINARY(1020)",
        # The entries of an index end at 1,700 bytes. A namespace that there can be no document
        # of is not made; one that fits leaves room for any id.
        "document": "VARBINARY(670)",
        "url": "NVARCHAR(MAX)",
        "status": "NVARCHAR(16)",
        "text": "NVARCHAR(MAX)",
        "json": "NVARCHAR(MAX)",
        # Clustered, as a primary key is by default.
        "timers_key": f"{_JSON}, PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid)",
        "history_key": f"entry BIGINT IDENTITY NOT NULL PRIMARY KEY, {_JSON}",
        "timers": "",
        "table": "",
        "index": "",
    },
    upsert=stepwise(rows_max=ROWS_MAX),
    lists=Lists(
        among=_among,
        in_shards=in_claimed_shards,
        source=lambda table, index: table,
        beyond=nested_beyond,
        page=_page,
        instant=as_text,
        name=str.encode,
        no_instant="CAST('1970-01-01' AS DATETIME2(3))",
        # A bare NULL is a number here.
        no_status="CAST(NULL AS NVARCHAR(16))",
    ),
    read_now="SELECT SYSUTCDATETIME()",
    purge=PURGE.format(page=_page(1, 0).text.replace("?", "0", 1)),
    # An update lock, which lets nobody have another one, and reads what is committed now, also
    # where other reads see versions of rows. Not HOLDLOCK: it locks the gap behind the row, too.
    lock_hint="WITH (UPDLOCK, ROWLOCK)",
    lock="",
    octets="datalength({}) / 2",  # UTF-16: its units are never more than the bytes of UTF-8.
    from_instant=from_datetime,
    from_name=_from_name,
    rows_max=ROWS_MAX,
)
