"""Rows as SQLite hands them over: as JSON, up to a hundred to a text.

Python's sqlite3 lets the GIL go and takes it back for every row it fetches, and beside a busy
event loop that costs fifty microseconds a row where this costs seven.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from duetime.model import FinalStatus, Finished, Timer
from duetime.stores.sql.rows import HISTORY_COLUMNS, TIMER_COLUMNS, history_from, timer_from


def _as_json(columns: Sequence[str]) -> str:
    texts = ", ".join(f"hex({name})" if name == "timer_uuid" else name for name in columns)
    return f"json_group_array(json_array({texts}))"


TIMERS_AS_JSON = _as_json(TIMER_COLUMNS)
HISTORY_AS_JSON = _as_json(HISTORY_COLUMNS)


class _TimerRow(Struct, gc=False, array_like=True):
    """TIMER_COLUMNS as JSON."""

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


_decode_timers = msgspec.json.Decoder(list[_TimerRow]).decode
_decode_history = msgspec.json.Decoder(list[_HistoryRow]).decode


def timers_in(text: str) -> list[Timer]:
    """The timers in what TIMERS_AS_JSON selected."""
    return [_timer(row) for row in _decode_timers(text)]


def history_in(text: str) -> list[Finished]:
    """The entries in what HISTORY_AS_JSON selected."""
    return [history_from(_timer(row), row.at, row.status) for row in _decode_history(text)]


def _timer(row: _TimerRow) -> Timer:
    return timer_from(
        row.shard,
        row.execute_at,
        bytes.fromhex(row.uuid),
        row.namespace,
        row.id,
        row.callback_url,
        row.payload,
        row.retry,
        row.timeout_s,
        row.created_at,
        row.attempts,
        row.metadata,
        row.details,
    )
