"""Timers as rows, and rows as timers.

Rows are written as bound values. They are read as JSON, up to a hundred to a text: Python's
sqlite3 lets the GIL go and takes it back for every row it fetches, and beside a busy event
loop that costs fifty microseconds a row where this costs seven.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from duetime.model import FinalStatus, Finished, Method, Reply, RetryPolicy, Timer

Row = tuple[Any, ...]

TIMER_COLUMNS = (
    "shard_id",
    "timer_execute_at",
    "timer_uuid",
    "timer_namespace",
    "timer_id",
    "timer_callback_url",
    "timer_payload",
    "timer_retry_policy",
    "timer_callback_timeout_seconds",
    "timer_created_at",
    "timer_attempts",
    "timer_metadata",
    "timer_details",
)
HISTORY_COLUMNS = (*TIMER_COLUMNS, "finished_at", "finished_status")


def _as_json(columns: Sequence[str]) -> str:
    texts = ", ".join(f"hex({name})" if name == "timer_uuid" else name for name in columns)
    return f"json_group_array(json_array({texts}))"


TIMERS_AS_JSON = _as_json(TIMER_COLUMNS)
HISTORY_AS_JSON = _as_json(HISTORY_COLUMNS)


class _Details(Struct, gc=False, omit_defaults=True):
    """What the documents have no column for. `{}` is stored as NULL."""

    method: Method = "POST"
    reply: Reply = "v1"
    headers: dict[str, str] | None = None
    scheduled_at: int | None = None
    """Absent where it is execute_at."""
    updated_at: int | None = None
    """Absent where it is created_at."""
    first_attempt_at: int | None = None
    last_error: str | None = None


class _TimerRow(Struct, gc=False, array_like=True):
    """TIMER_COLUMNS as JSON. All null where an outer join found nothing."""

    shard: int
    execute_at: int
    uuid: str
    namespace: str
    id: str
    callback_url: str
    payload: str | None
    retry: str | None
    timeout_s: int
    created_at: int
    attempts: int
    metadata: str | None
    details: str | None


class _HistoryRow(_TimerRow, gc=False, array_like=True):
    at: int
    status: FinalStatus


_encode = msgspec.json.Encoder().encode
_decode_details = msgspec.json.Decoder(_Details).decode
_decode_timers = msgspec.json.Decoder(list[_TimerRow]).decode
_decode_history = msgspec.json.Decoder(list[_HistoryRow]).decode

# Most timers have one of these; neither is worth parsing again for each.
_PLAIN: dict[str | None, _Details] = {
    None: _Details(),
    '{"reply":"rest"}': _Details(reply="rest"),
}
_PLAIN_TEXTS: dict[Reply, str | None] = {details.reply: text for text, details in _PLAIN.items()}


def timer_row(timer: Timer) -> Row:
    """The values of TIMER_COLUMNS."""
    return _row(timer, timer.attempts, timer.last_error)


def history_row(finished: Finished) -> Row:
    """The values of HISTORY_COLUMNS."""
    row = _row(finished.timer, finished.attempts, finished.last_error)
    return (*row, finished.at, finished.status)


def timers_from(text: str) -> list[Timer]:
    """The timers in what TIMERS_AS_JSON selected."""
    return [_timer(row) for row in _decode_timers(text)]


def history_from(text: str) -> list[Finished]:
    """The entries in what HISTORY_AS_JSON selected."""
    return [
        Finished(_timer(row), row.status, row.at, row.attempts, _details(row).last_error)
        for row in _decode_history(text)
    ]


def _row(timer: Timer, attempts: int, last_error: str | None) -> Row:
    return (
        timer.shard,
        timer.execute_at,
        timer.uuid,
        timer.namespace,
        timer.id,
        timer.callback_url,
        None if timer.payload is None else timer.payload.decode(),
        None if timer.retry is None else _policy_text(timer.retry),
        timer.timeout_s,
        timer.created_at,
        attempts,
        None if timer.metadata is None else timer.metadata.decode(),
        _details_text(timer, last_error),
    )


def _details_text(timer: Timer, last_error: str | None) -> str | None:
    if (
        last_error is None
        and timer.headers is None
        and timer.first_attempt_at is None
        and timer.scheduled_at == timer.execute_at
        and timer.updated_at == timer.created_at
        and timer.method == "POST"
    ):
        return _PLAIN_TEXTS[timer.reply]
    details = _Details(
        timer.method,
        timer.reply,
        timer.headers,
        None if timer.scheduled_at == timer.execute_at else timer.scheduled_at,
        None if timer.updated_at == timer.created_at else timer.updated_at,
        timer.first_attempt_at,
        last_error,
    )
    return _encode(details).decode()


def _timer(row: _TimerRow) -> Timer:
    created_at = row.created_at
    execute_at = row.execute_at
    details = _details(row)
    return Timer(
        namespace=row.namespace,
        id=row.id,
        uuid=bytes.fromhex(row.uuid),
        shard=row.shard,
        execute_at=execute_at,
        callback_url=row.callback_url,
        created_at=created_at,
        updated_at=created_at if details.updated_at is None else details.updated_at,
        scheduled_at=execute_at if details.scheduled_at is None else details.scheduled_at,
        timeout_s=row.timeout_s,
        reply=details.reply,
        method=details.method,
        headers=details.headers,
        payload=None if row.payload is None else row.payload.encode(),
        metadata=None if row.metadata is None else row.metadata.encode(),
        retry=None if row.retry is None else _policy(row.retry),
        attempts=row.attempts,
        first_attempt_at=details.first_attempt_at,
        last_error=details.last_error,
    )


def _details(row: _TimerRow) -> _Details:
    return _PLAIN.get(row.details) or _decode_details(row.details or "{}")


@lru_cache(maxsize=256)
def _policy_text(policy: RetryPolicy) -> str:
    return _encode(policy).decode()


@lru_cache(maxsize=256)
def _policy(text: str) -> RetryPolicy:
    return msgspec.json.decode(text, type=RetryPolicy)
