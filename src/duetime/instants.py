"""Instants and durations as text, at the edges of the system.

Inside, an instant is milliseconds since 1970 UTC and a duration is milliseconds.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from duetime.model import INSTANT_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,30}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DURATION = re.compile(r"(\d{1,12})(ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_instant(text: str) -> int:
    """The instant that RFC 3339 text names; ValueError says what is wrong with it.

    What is finer than a millisecond is rounded up, so that nothing is ever early. What lies
    before 1970 is its first moment: it is the past all the same, and some programs write a
    year of 1 for no time at all.
    """
    # The form that most programs write. Many timers share a second, and a batch has a thousand.
    if len(text) == 24 and text[19] == "." and text[23] == "Z":
        milliseconds = text[20:23]
        if milliseconds.isascii() and milliseconds.isdigit():
            return max(_parse_second(text[:19]) + int(milliseconds), 0)
    return max(_parse_any(text), 0)


@lru_cache(maxsize=1024)
def _parse_second(text: str) -> int:
    return _parse_any(text + "Z")


def _parse_any(text: str) -> int:
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError(
            "must be an RFC 3339 date and time with a zone, such as 2026-01-31T09:30:00Z"
        )
    date, time, fraction, zone = match.groups()
    if zone not in "Zz" and (int(zone[1:3]) > 23 or int(zone[4:]) > 59):
        raise ValueError(f"is not a valid date and time: zone {zone} is out of range")
    if time >= "24":  # ISO 8601 knows 24:00, and so do newer Pythons; RFC 3339 does not.
        raise ValueError("is not a valid date and time: hour must be in 0..23")
    try:
        seconds = datetime.fromisoformat(f"{date}T{time}{'+00:00' if zone in 'Zz' else zone}")
    except ValueError as error:
        raise ValueError(f"is not a valid date and time: {error}") from None
    at = (seconds - _EPOCH) // _MILLISECOND
    if fraction is not None:
        at += int(fraction[:3].ljust(3, "0")) + (fraction[3:].strip("0") != "")
    if at > INSTANT_MAX:
        raise ValueError("must not lie beyond the year 9999 in UTC")
    return at


@lru_cache(maxsize=1024)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.")


@lru_cache(maxsize=1024)
def format_instant(at: int) -> str:
    """The instant in UTC with milliseconds and `Z`."""
    second, millisecond = divmod(at, 1000)
    return f"{_second(second)}{millisecond:03d}Z"


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> int:
    """Milliseconds of `500ms`, `30s`, `5m`, `24h` or `7d`; ValueError says what is wrong."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a duration such as 500ms, 30s, 5m, 24h or 7d")
    return int(match[1]) * _UNIT_MS[match[2]]
