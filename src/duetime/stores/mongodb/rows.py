"""Timers as BSON documents, and back: the columns of the unified table as fields."""

from collections.abc import Sequence
from typing import Any

from bson import Binary, MaxKey
from bson.binary import UUID_SUBTYPE
from bson.datetime_ms import DatetimeMS

from duetime.model import Cursor, Finished, Timer
from duetime.store import Key
from duetime.stores.sql.rows import (
    TIMER_COLUMNS,
    history_from,
    history_row,
    timer_from,
    timer_row,
)

Document = dict[str, Any]

_KEY_COLUMNS = 5  # Shard, instant, uuid, namespace and id come first.


def shard_key(shard: int) -> Document:
    """The `_id` of a shard's own row: the zero key."""
    return _key(shard, 1, Cursor(1_000, bytes(16)))


def timer_key(shard: int, cursor: Cursor) -> Document:
    return _key(shard, 2, cursor)


def binary(uuid: bytes) -> Binary:
    """In order as unsigned bytes, as BSON compares what is equally long."""
    return Binary(uuid, UUID_SUBTYPE)


def timer_document(timer: Timer) -> Document:
    return {
        "_id": timer_key(timer.shard, timer.cursor),
        "timer_namespace": timer.namespace,
        "timer_id": timer.id,
    } | _fields(timer_row(timer)[_KEY_COLUMNS:])


def history_document(entry: Finished) -> Document:
    *row, at, status = history_row(entry)
    timer = entry.timer
    return {
        "_id": history_key(timer.namespace, timer.id) | {"finished_at": DatetimeMS(at)},
        "shard_id": timer.shard,
        "timer_execute_at": DatetimeMS(timer.execute_at),
        "timer_uuid": binary(timer.uuid),
        "finished_status": status,
    } | _fields(row[_KEY_COLUMNS:])


def history_key(namespace: str, id: str) -> Document:
    """The beginning of the `_id` of each entry of a timer; the whole is more than its parts."""
    return {"timer_namespace": namespace, "timer_id": id}


def history_of(key: Key) -> Document:
    """The range of a timer's entries."""
    first = history_key(key.namespace, key.id)
    return {"$gte": first, "$lt": first | {"finished_at": MaxKey()}}


def timer_of(document: Document) -> Timer:
    """The timer of a row of either collection."""
    fields = document | document["_id"]
    for name in ("timer_execute_at", "timer_created_at"):
        fields[name] = int(fields[name])
    fields["timer_uuid"] = bytes(fields["timer_uuid"])
    return timer_from(*map(fields.get, TIMER_COLUMNS))


def finished_of(document: Document) -> Finished:
    at = int(document["_id"]["finished_at"])
    return history_from(timer_of(document), at, document["finished_status"])


def weight(timer: Timer) -> int:
    return len(timer.payload or b"") + len(timer.metadata or b"")


def _key(shard: int, row_type: int, cursor: Cursor) -> Document:
    return {
        "shard_id": shard,
        "row_type": row_type,
        "timer_execute_at": DatetimeMS(cursor.execute_at),
        "timer_uuid": binary(cursor.uuid),
    }


def _fields(values: Sequence[Any]) -> Document:
    """What is no part of a key, without what is null."""
    pairs = zip(TIMER_COLUMNS[_KEY_COLUMNS:], values, strict=True)
    fields = {name: value for name, value in pairs if value is not None}
    fields["timer_created_at"] = DatetimeMS(fields["timer_created_at"])
    return fields
