"""Instants in milliseconds, as drivers take them and hand them over: UTC, without a zone."""

from datetime import datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)


def as_text(at: int) -> str:
    return f"{_second(at // 1000)}.{at % 1000:03}"


def as_datetime(at: int) -> datetime:
    return _EPOCH + at * _MS


def from_datetime(at: datetime) -> int:
    return (at - _EPOCH) // _MS


@lru_cache(maxsize=4_096)
def _second(at: int) -> str:
    return str(_EPOCH + timedelta(seconds=at))
