"""Instants, durations, URLs, headers and callback answers: a value, or the one refusal."""

from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duetime.callback import check_headers, destination, header_text, parse_url
from duetime.errors import InvalidInput
from duetime.instants import format_instant, parse_duration, parse_instant
from duetime.model import INSTANT_MAX, RetryPolicy
from duetime.retry import Answer, Completed, Failed, Rescheduled, next_try, verdict
from duetime.rules import check_retry
from tests.fuzz import fuzzed

INSTANT_LIKE = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,31})?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?",
    fullmatch=True,
)
DURATION_LIKE = st.from_regex(r"[0-9]{1,13}(ms|s|m|h|d|w|)", fullmatch=True)
URL_LIKE = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["http://", "https://", "HTTP://", "http:/", "ftp://", "//", ""]),
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(
            [
                "a.example",
                "[::1]",
                "[::ffff:1.2.3.4]",
                "user:pw@a",
                "bücher.example",
                "a..b",
                "1.2.3.4",
            ]
        ),
    ),
    st.sampled_from(["", ":80", ":0", ":99999", ":", ":8080", ":٣"]),
    st.text(max_size=30),
)
VERDICT_LIKE = st.builds(
    '{{"ok":{},"nextExecuteAt":{}}}'.format,
    st.sampled_from(["true", "false", "null", "1", '"true"']),
    st.one_of(
        st.sampled_from(["null", "17", '""', '"2099-01-01T00:00:00Z"', '"1960-01-01T00:00:00Z"']),
        INSTANT_LIKE.map('"{}"'.format),
    ),
).map(str.encode)


@fuzzed
@given(st.one_of(st.text(max_size=60), INSTANT_LIKE))
@example("9999-12-31T23:59:59.9999Z")
@example("0001-01-01T00:00:00+23:59")
def test_an_instant_is_never_earlier_than_its_text(text: str) -> None:
    try:
        at = parse_instant(text)
    except ValueError:
        return
    assert 0 <= at <= INSTANT_MAX
    exact = datetime.fromisoformat(text[:19].upper() + "+00:00")
    if text[-1] in "Zz":
        assert at >= exact.timestamp() * 1000
    assert parse_instant(format_instant(at)) == at


@fuzzed
@given(st.integers(0, INSTANT_MAX))
def test_an_instant_reads_back_as_it_was_written(at: int) -> None:
    text = format_instant(at)
    assert parse_instant(text) == at
    assert datetime.fromisoformat(text) == datetime.fromtimestamp(at // 1000, UTC).replace(
        microsecond=at % 1000 * 1000
    )


@fuzzed
@given(st.one_of(st.text(max_size=20), DURATION_LIKE))
def test_a_duration_is_a_whole_number_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert parse_duration(text) >= 0


@fuzzed
@given(st.one_of(st.text(max_size=80), URL_LIKE))
@example("http://a/\x00")
@example("http://" + "ß" * 250)
def test_of_a_url_nothing_can_split_the_request(url: str) -> None:
    try:
        target = parse_url(url)
    except ValueError:
        return
    for part in (target.path, target.host_header, target.origin.encode()):
        assert part
        assert all(0x21 <= byte <= 0x7E for byte in part)
    assert 1 <= target.port <= 65_535
    assert destination(url) == target.origin
    again = parse_url(f"{'https' if target.tls else 'http'}://{target.host_header.decode()}/")
    assert (again.host, again.port, again.origin) == (target.host, target.port, target.origin)


@fuzzed
@given(
    st.dictionaries(
        st.one_of(st.text(max_size=12), st.sampled_from(["Host", "X-Timer-Id", "x-a", "X-A"])),
        st.one_of(st.text(max_size=20), st.text(alphabet="\t\r\n ab\x7f", max_size=6)),
        max_size=4,
    )
)
def test_of_headers_nothing_can_split_the_request(headers: dict[str, str]) -> None:
    try:
        check_headers(headers)
    except InvalidInput:
        return
    for name, value in headers.items():
        line = f"{name}: {value}"
        assert line.isascii()
        assert not set(line) & {"\r", "\n", "\0"}
        assert name.lower() not in ("host", "x-timer-id")


@fuzzed
@given(st.text(max_size=255))
def test_an_id_goes_out_in_a_header_and_can_be_read_back(id: str) -> None:
    if any("\ud800" <= char <= "\udfff" for char in id):
        return  # Refused when the timer is created.
    text = header_text(id)
    assert text.isascii()
    assert text == text.strip()
    assert text.isprintable()
    assert unquote(text) == id


@pytest.mark.parametrize("reply", ["v1", "rest"])
@fuzzed
@given(status=st.integers(0, 999), body=st.one_of(st.binary(max_size=60), VERDICT_LIKE))
@example(status=200, body=b"[" * 100_000)
@example(status=200, body=b'{"ok": true, "ok": false}')
def test_every_answer_of_a_callback_means_something(reply: str, status: int, body: bytes) -> None:
    means = verdict("v1" if reply == "v1" else "rest", Answer(status, body))
    assert isinstance(means, Completed | Rescheduled | Failed)
    if not 200 <= status <= 299:
        assert isinstance(means, Failed)
    if isinstance(means, Failed):
        assert means.error


@fuzzed
@given(
    policy=st.builds(
        RetryPolicy,
        max_attempts=st.none() | st.integers(-1, 10**7),
        max_attempts_duration=st.none() | DURATION_LIKE,
        initial_interval=st.none() | DURATION_LIKE,
        backoff_multiplier=st.none() | st.floats(),
        max_interval=st.none() | DURATION_LIKE,
    ),
    attempt=st.integers(1, 10**6),
    jitter=st.floats(0, 1),
)
def test_a_policy_that_is_accepted_never_goes_back_in_time(
    policy: RetryPolicy, attempt: int, jitter: float
) -> None:
    try:
        check_retry(policy)
    except InvalidInput:
        return
    now = 1_800_000_000_000
    at = next_try(policy, attempt=attempt, first_attempt_at=now - 5, now=now, jitter=jitter)
    assert at is None or now <= at <= INSTANT_MAX
