"""The collections and their indexes, version by version.

A row's `_id` is its primary key, in the order of the documents: MongoDB keeps an index of
`_id` in any case, and one field that is compared as a whole makes "after this cursor" a range.
Names and ids compare byte by byte: no collation is asked for anywhere.
"""

from typing import Any

from pymongo import IndexModel
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from duetime.errors import SchemaTooNew

LOOKUP = "idx_timer_lookup"
SHARD = "idx_shard"
PURGE = "idx_history_purge"
_PLACE = ("_id.timer_execute_at", "_id.timer_uuid")
_END = ("_id.finished_at", "finished_status")


def _index(name: str, *fields: str, **options: Any) -> IndexModel:
    return IndexModel([(field, 1) for field in fields], name=name, **options)


_VERSION_1 = {
    # `row_type` 1 is the shard's own row, 2 a timer: one collection, as every database has it.
    "timers": [
        _index(LOOKUP, "_id.shard_id", "_id.row_type", "timer_namespace", "timer_id", unique=True),
        _index("idx_timer_created", "timer_namespace", "timer_created_at", "_id.timer_uuid"),
        _index("idx_timer_execute", "timer_namespace", *_PLACE),
        _index(SHARD, "_id.shard_id", partialFilterExpression={"_id.row_type": 1}),
    ],
    "history": [
        _index(PURGE, "_id.timer_namespace", "_id.finished_at"),
        _index(
            "idx_history_created", "_id.timer_namespace", "timer_created_at", "timer_uuid", *_END
        ),
        _index(
            "idx_history_execute", "_id.timer_namespace", "timer_execute_at", "timer_uuid", *_END
        ),
    ],
}

MIGRATIONS: tuple[dict[str, list[IndexModel]], ...] = (_VERSION_1,)
"""What leads to each version from the one before; never changed once released."""


async def migrate(database: AsyncDatabase[Any], session: AsyncClientSession) -> None:
    """Bring the schema up to date. `SchemaTooNew` if it is ahead.

    Of nodes that start together each does all of it: an index that is there is made no more.
    """
    row = await database.duetime_schema.find_one({"_id": "version"}, session=session)
    found = 0 if row is None else int(row["version"])
    if found > len(MIGRATIONS):
        raise SchemaTooNew(found, len(MIGRATIONS))
    for collections in MIGRATIONS[found:]:
        for name, indexes in collections.items():
            await database[name].create_indexes(indexes, session=session)
    if found < len(MIGRATIONS):
        await database.duetime_schema.update_one(
            {"_id": "version"}, {"$max": {"version": len(MIGRATIONS)}}, upsert=True, session=session
        )
