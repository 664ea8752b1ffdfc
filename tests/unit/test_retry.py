"""What an answer means, and when a failed attempt is repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.instants import parse_duration, parse_instant
from duetime.model import INSTANT_MAX, Reply, RetryPolicy
from duetime.retry import COMPLETED, Answer, Failed, Rescheduled, Verdict, next_try, verdict

T = "2026-01-31T09:30:00Z"
NOW = parse_instant(T)
SURFACES: tuple[Reply, ...] = ("v1", "rest")


def failed(meaning: Verdict) -> Failed:
    assert isinstance(meaning, Failed)
    return meaning


@pytest.mark.parametrize("reply", SURFACES)
def test_no_answer_is_a_failed_attempt_that_may_be_repeated(reply: Reply) -> None:
    assert verdict(reply, Answer(0, error="timed out after 2 s")) == Failed(
        "timed out after 2 s", True
    )
    assert failed(verdict(reply, Answer(0))).error == "no answer"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
def test_on_rest_any_2xx_completes_whatever_the_body(status: int) -> None:
    assert verdict("rest", Answer(status, b"{not json")) is COMPLETED


@pytest.mark.parametrize("status", [300, 302, 304, 400, 404, 408, 429, 500, 503, 599])
def test_on_rest_anything_else_fails_and_may_be_repeated(status: int) -> None:
    assert verdict("rest", Answer(status)) == Failed(f"HTTP {status}", True)


@pytest.mark.parametrize("status", [201, 202, 204, 302, 408, 429, 500, 502, 503, 599])
def test_on_v1_most_failures_may_be_repeated(status: int) -> None:
    answer = Answer(status, b'{"ok": true}')
    assert verdict("v1", answer) == Failed(f"HTTP {status}, not 200 with a verdict", True)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 407, 409, 410, 428, 430, 499])
def test_on_v1_other_4xx_are_never_repeated(status: int) -> None:
    assert failed(verdict("v1", Answer(status))).retryable is False


@pytest.mark.parametrize("reply", SURFACES)
def test_the_cause_that_delivery_names_is_kept(reply: Reply) -> None:
    answer = Answer(503, error="HTTP 503 from http://x/")
    assert failed(verdict(reply, answer)).error == "HTTP 503 from http://x/"


@pytest.mark.parametrize(
    "body", [b'{"ok":true}', b'{"ok": true}', b' {"ok" : true, "more": [1]} ', b'{"ok":true}\n']
)
def test_on_v1_ok_completes(body: bytes) -> None:
    assert verdict("v1", Answer(200, body)) == COMPLETED


def test_on_v1_not_ok_is_a_failed_attempt() -> None:
    assert verdict("v1", Answer(200, b'{"ok": false}')) == Failed(
        "the callback answered ok: false", True
    )
    assert failed(verdict("v1", Answer(200, b'{"ok": false, "nextExecuteAt": null}'))).retryable


@pytest.mark.parametrize("ok", ["true", "false"])
def test_on_v1_a_next_instant_reschedules_whether_ok_or_not(ok: str) -> None:
    body = f'{{"ok": {ok}, "nextExecuteAt": "{T}"}}'.encode()
    assert verdict("v1", Answer(200, body)) == Rescheduled(NOW)


@pytest.mark.parametrize("past", ["0001-01-01T00:00:00Z", "1969-07-20T20:17:40Z"])
def test_on_v1_a_next_instant_of_the_past_reschedules_however_long_ago(past: str) -> None:
    body = f'{{"ok": false, "nextExecuteAt": "{past}"}}'.encode()
    assert verdict("v1", Answer(200, body)) == Rescheduled(0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"OK",
        b"null",
        b"[]",
        b"true",
        b"{}",
        b'{"ok": 1}',
        b'{"ok": "true"}',
        b'{"ok": null}',
        b'{"OK": true}',
        b'{"ok": true} trailing',
        b'{"ok": true, "nextExecuteAt": 5}',
        b'{"ok": false, "nextExecuteAt": "tomorrow"}',
        b'{"ok": false, "nextExecuteAt": "2026-01-31T09:30:00"}',
        b'{"ok": \xff}',
        b"[" * 100_000,
    ],
)
def test_on_v1_a_200_without_a_valid_verdict_is_a_failed_attempt(body: bytes) -> None:
    meaning = failed(verdict("v1", Answer(200, body)))
    assert meaning.error.startswith("HTTP 200 without a valid verdict: ")
    assert meaning.retryable


@given(st.binary())
def test_no_answer_of_a_callback_can_raise(body: bytes) -> None:
    assert isinstance(verdict("v1", Answer(200, body)), Verdict)


def intervals(policy: RetryPolicy, attempts: int, jitter: float = 1.0) -> list[int]:
    instants = [
        next_try(policy, attempt=n, first_attempt_at=NOW, now=NOW, jitter=jitter)
        for n in range(1, attempts + 1)
    ]
    return [at - NOW for at in instants if at is not None]


def test_intervals_grow_by_the_multiplier_up_to_the_longest() -> None:
    policy = RetryPolicy(
        max_attempts=9, initial_interval="30s", backoff_multiplier=2.0, max_interval="5m"
    )
    assert intervals(policy, 6) == [30_000, 60_000, 120_000, 240_000, 300_000, 300_000]


def test_what_a_policy_leaves_out_has_a_default() -> None:
    assert intervals(RetryPolicy(max_attempts=99), 10) == [
        *(1_000 * 2**n for n in range(9)),
        300_000,
    ]


def test_an_initial_interval_above_the_default_longest_is_kept() -> None:
    assert intervals(RetryPolicy(max_attempts=9, initial_interval="1h"), 2) == [3_600_000] * 2


def test_a_multiplier_of_one_keeps_the_interval() -> None:
    policy = RetryPolicy(max_attempts=9, initial_interval="2s", backoff_multiplier=1.0)
    assert intervals(policy, 3) == [2_000] * 3


def test_jitter_makes_an_interval_up_to_a_fifth_shorter() -> None:
    policy = RetryPolicy(max_attempts=9, initial_interval="10s")
    assert intervals(policy, 1, jitter=0.0) == [8_000]
    assert intervals(policy, 1, jitter=0.5) == [9_000]


def test_max_attempts_counts_the_first_one() -> None:
    assert len(intervals(RetryPolicy(max_attempts=3), 10)) == 2
    assert intervals(RetryPolicy(max_attempts=1), 10) == []


def test_the_duration_is_measured_from_the_first_attempt() -> None:
    policy = RetryPolicy(max_attempts_duration="60s", initial_interval="10s")

    def again(now: int) -> int | None:
        return next_try(policy, attempt=1, first_attempt_at=NOW, now=now, jitter=1.0)

    assert again(NOW + 50_000) == NOW + 60_000  # At its very end is still within.
    assert again(NOW + 50_001) is None


def test_whichever_bound_is_reached_first_ends_it() -> None:
    policy = RetryPolicy(max_attempts=2, max_attempts_duration="1s", initial_interval="900ms")
    assert next_try(policy, attempt=1, first_attempt_at=NOW, now=NOW, jitter=1.0) == NOW + 900
    assert next_try(policy, attempt=1, first_attempt_at=NOW, now=NOW + 200, jitter=1.0) is None
    assert next_try(policy, attempt=2, first_attempt_at=NOW, now=NOW, jitter=1.0) is None


def test_a_policy_without_a_bound_ends_after_a_day() -> None:
    policy = RetryPolicy(initial_interval="1h", backoff_multiplier=1.0)
    late = NOW + parse_duration("23h")
    assert next_try(policy, attempt=24, first_attempt_at=NOW, now=late, jitter=1.0) is not None
    assert next_try(policy, attempt=25, first_attempt_at=NOW, now=late + 1, jitter=1.0) is None


durations = st.builds("{}{}".format, st.integers(0, 10**12 - 1), st.sampled_from(["ms", "s", "d"]))
policies = st.builds(
    RetryPolicy,
    max_attempts=st.none() | st.integers(1, 10**9),
    max_attempts_duration=st.none() | durations,
    initial_interval=st.none() | durations,
    backoff_multiplier=st.none() | st.floats(1, allow_infinity=False),
    max_interval=st.none() | durations,
)


@given(policies, st.integers(1, 10**9), st.floats(0, 1), st.integers(0, INSTANT_MAX))
def test_the_next_try_is_spent_or_an_instant_from_now_on(
    policy: RetryPolicy, attempt: int, jitter: float, now: int
) -> None:
    at = next_try(policy, attempt=attempt, first_attempt_at=now, now=now, jitter=jitter)
    assert at is None or now <= at <= INSTANT_MAX
