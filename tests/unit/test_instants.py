"""Instants and durations as text."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.instants import format_instant, parse_duration, parse_instant
from duetime.model import INSTANT_MAX

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01t00:00:01z", 1_000),
        ("1970-01-01 00:00:01Z", 1_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:00:00-01:00", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000),
        ("2026-01-31T09:30:00.5+05:45", 1_769_830_200_500 - 20_700_000 + 21_600_000),
        ("9999-12-31T23:59:59.999Z", INSTANT_MAX),
        ("1970-01-01T00:00:00.1Z", 100),
        ("1970-01-01T00:00:00.12Z", 120),
    ],
)
def test_rfc_3339_is_read(text: str, at: int) -> None:
    assert parse_instant(text) == at


@pytest.mark.parametrize(
    ("fraction", "at"),
    [
        ("0001", 1),
        ("0010", 1),
        ("001000", 1),
        ("0010001", 2),
        ("999", 999),
        ("9991", 1_000),
        ("999999999", 1_000),
        ("000000000000000000000000000001", 1),
    ],
)
def test_what_is_finer_than_a_millisecond_is_rounded_up(fraction: str, at: int) -> None:
    assert parse_instant(f"1970-01-01T00:00:00.{fraction}Z") == at


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T09:30:00",  # No zone: whose time would it be?
        "2026-01-31T09:30Z",
        "2026-01-31T09:30:00.Z",
        "2026-01-31T09:30:00,5Z",
        "2026-01-31T09:30:00+0100",
        "2026-01-31T09:30:00+01",
        "2026-01-31T09:30:00 Z",
        " 2026-01-31T09:30:00Z",
        "2026-01-31T09:30:00Z\n",
        "20260131T093000Z",
        "+12026-01-31T09:30:00Z",
        "10000-01-01T00:00:00Z",
        "\uff12\uff10\uff12\uff16-01-31T09:30:00Z",
        "1769851800",
        "2026-01-31T09:30:00.0000000000000000000000000000001Z",
    ],
)
def test_what_is_not_rfc_3339_with_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be an RFC 3339 date and time with a zone"):
        parse_instant(text)


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T09:60:00Z",
        "2026-01-31T09:30:60Z",
        "2026-01-31T09:30:00+24:00",
        "2026-01-31T09:30:00+23:60",
    ],
)
def test_dates_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid date and time: "):
        parse_instant(text)


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "1969-12-31T23:59:59.999Z",
        "1969-12-31T23:59:59.9999Z",
        "1970-01-01T00:59:59+01:00",
    ],
)
def test_what_lies_before_1970_is_its_first_moment(text: str) -> None:
    assert parse_instant(text) == 0


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.9990001Z", "9999-12-31T23:59:59-00:01"])
def test_instants_beyond_the_year_9999_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must not lie beyond the year 9999"):
        parse_instant(text)


@given(st.integers(0, INSTANT_MAX))
def test_text_reads_back_as_the_instant_it_was_written_from(at: int) -> None:
    assert parse_instant(format_instant(at)) == at


@given(st.integers(0, INSTANT_MAX), st.integers(0, INSTANT_MAX))
def test_text_sorts_as_the_instants_do(one: int, other: int) -> None:
    assert (format_instant(one) < format_instant(other)) == (one < other)


@given(
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(9998, 12, 31)),
    st.integers(-1439, 1439),
)
def test_any_zone_names_the_same_instant_and_none_is_early(local: datetime, offset: int) -> None:
    aware = local.replace(tzinfo=timezone(timedelta(minutes=offset)))
    at = parse_instant(aware.isoformat(timespec="microseconds"))
    ahead = EPOCH + timedelta(milliseconds=at) - aware
    assert timedelta(0) <= ahead < timedelta(milliseconds=1)


@given(st.text())
def test_no_text_does_worse_than_a_value_error(text: str) -> None:
    for parse in (parse_instant, parse_duration):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("0s", 0),
        ("007s", 7_000),
    ],
)
def test_durations_are_a_whole_number_and_a_unit(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "s",
        "-1s",
        "+1s",
        "1.5s",
        "1 s",
        "1S",
        "1h30m",
        "1w",
        "\u0661s",
        "1s\n",
        "1" * 13 + "s",
    ],
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as"):
        parse_duration(text)
