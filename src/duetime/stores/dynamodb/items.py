"""Timers as items, and items as timers: the columns of the unified table as attributes.

Absent is what is None. Instants are text in UTC, so that people can read them; a timer's place
in line is one text whose order is the cursor's.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import MsgspecError

from duetime.errors import StoreError
from duetime.instants import format_instant, parse_instant
from duetime.model import Cursor, Finished, Timer
from duetime.stores.dynamodb.client import Action, Item
from duetime.stores.dynamodb.tables import TIME_KEY
from duetime.stores.sql.rows import (
    TIMER_COLUMNS,
    Row,
    history_from,
    history_row,
    timer_from,
    timer_row,
)

SHARD_ROW = {"S": "SHARD"}
SORT_KEY_BYTES_MAX = 1024
SORT_KEY_BYTES_KEPT = SORT_KEY_BYTES_MAX - 37  # Beside it, `#` and a uuid.
BUCKETS = 16
_FIELDS = TIMER_COLUMNS[3:]  # Those before are in the keys.


def text(value: str) -> dict[str, str]:
    return {"S": value}


def number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def time_key(cursor: Cursor) -> str:
    """As text: the years have four digits each, and hexadecimal digits sort as they count."""
    return f"{format_instant(cursor.execute_at)}#{uuid_text(cursor.uuid)}"


def cursor_of(key: str) -> Cursor:
    at, _, uuid = key.partition("#")
    return Cursor(parse_instant(at), bytes.fromhex(uuid.replace("-", "")))


def uuid_text(uuid: bytes) -> str:
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def sort_key(namespace: str, id: str, uuid: bytes) -> str:
    """`TIMER#namespace#id`. Of what is longer than a key may be, the uuid stands for the rest:
    such a key is longer than any that is whole."""
    whole = sort_prefix(namespace, id)
    return whole if whole == f"TIMER#{namespace}#{id}" else f"{whole}#{uuid_text(uuid)}"


def sort_prefix(namespace: str, id_prefix: str) -> str:
    """What every sort key begins with, of timers whose id begins so."""
    whole = f"TIMER#{namespace}#{id_prefix}"
    return whole.encode()[:SORT_KEY_BYTES_KEPT].decode(errors="ignore")


def timer_key(timer: Timer) -> Item:
    return {
        "shard_id": number(timer.shard),
        "sort_key": text(sort_key(timer.namespace, timer.id, timer.uuid)),
    }


def shard_key(shard: int) -> Item:
    return {"shard_id": number(shard), "sort_key": SHARD_ROW}


def bucket(namespace: str, of: int) -> dict[str, str]:
    """A namespace's history is indexed in several parts."""
    return text(f"{namespace}#{of % BUCKETS:02}")


def timer_item(timer: Timer) -> Item:
    return {
        **timer_key(timer),
        "row_type": number(2),
        TIME_KEY: text(time_key(timer.cursor)),
        **_attributes(timer_row(timer)),
    }


def history_item(finished: Finished) -> Item:
    timer = finished.timer
    return {
        "timer_uuid": text(uuid_text(timer.uuid)),
        "finished_at": text(format_instant(finished.at)),
        "finished_status": text(finished.status),
        "history_bucket": bucket(timer.namespace, timer.uuid[0]),
        "shard_id": number(timer.shard),
        TIME_KEY: text(time_key(timer.cursor)),
        **_attributes(history_row(finished)),
    }


def timer_of(item: Item) -> Timer:
    try:
        at, uuid = cursor_of(item[TIME_KEY]["S"])
        shard = int(item["shard_id"]["N"])
        return timer_from(shard, at, uuid, *[_value(name, item.get(name)) for name in _FIELDS])
    except (KeyError, TypeError, ValueError, MsgspecError) as error:
        raise StoreError(f"a timer's item cannot be read ({type(error).__name__})") from error


def finished_of(item: Item) -> Finished:
    status: Any = item["finished_status"]["S"]
    return history_from(timer_of(item), parse_instant(item["finished_at"]["S"]), status)


def weight(action: Action) -> int:
    """Not less than its bytes in a request, where much of a text may have to be escaped."""
    (what,) = action.values()
    values = [value for it in what.get("Item", {}).values() for value in it.values()]
    return sum(len(value) * (2 if value.isascii() else 12) + 50 for value in values)


def bytes_of(timers: Iterable[Timer]) -> int:
    return sum(len(timer.payload or b"") + len(timer.metadata or b"") for timer in timers)


def _attributes(row: Row) -> Item:
    values = zip(_FIELDS, row[3:], strict=False)  # Behind them, history has its own.
    return {name: _attribute(name, value) for name, value in values if value is not None}


def _attribute(name: str, value: Any) -> dict[str, str]:
    if name == "timer_created_at":
        return text(format_instant(value))
    return text(value) if isinstance(value, str) else number(value)


def _value(name: str, attribute: dict[str, str] | None) -> Any:
    if attribute is None:
        return None
    if name == "timer_created_at":
        return parse_instant(attribute["S"])
    return attribute["S"] if "S" in attribute else int(attribute["N"])
