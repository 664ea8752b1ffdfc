"""Timers as rows, and rows as timers: the columns of the unified table and their values.

Instants are milliseconds, uuids are bytes, JSON is text. Where a database has types of its own
for these, its driver converts.
"""

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


_encode = msgspec.json.Encoder().encode
_decode_details = msgspec.json.Decoder(_Details).decode

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


def timer_from(
    shard: int,
    execute_at: int,
    uuid: bytes,
    namespace: str,
    id: str,
    callback_url: str,
    payload: str | None,
    retry: str | None,
    timeout_s: int,
    created_at: int,
    attempts: int,
    metadata: str | None,
    details_text: str | None,
) -> Timer:
    """The timer of the values of TIMER_COLUMNS."""
    details = _PLAIN.get(details_text) or _decode_details(details_text or "{}")
    return Timer(
        namespace=namespace,
        id=id,
        uuid=uuid,
        shard=shard,
        execute_at=execute_at,
        callback_url=callback_url,
        created_at=created_at,
        updated_at=created_at if details.updated_at is None else details.updated_at,
        scheduled_at=execute_at if details.scheduled_at is None else details.scheduled_at,
        timeout_s=timeout_s,
        reply=details.reply,
        method=details.method,
        headers=details.headers,
        payload=None if payload is None else payload.encode(),
        metadata=None if metadata is None else metadata.encode(),
        retry=None if retry is None else _policy(retry),
        attempts=attempts,
        first_attempt_at=details.first_attempt_at,
        last_error=details.last_error,
    )


def history_from(timer: Timer, at: int, status: FinalStatus) -> Finished:
    """The entry of a row of HISTORY_COLUMNS, of which all but the last two are the timer's."""
    return Finished(timer, status, at, timer.attempts, timer.last_error)


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


@lru_cache(maxsize=256)
def _policy_text(policy: RetryPolicy) -> str:
    return _encode(policy).decode()


@lru_cache(maxsize=256)
def _policy(text: str) -> RetryPolicy:
    return msgspec.json.decode(text, type=RetryPolicy)
