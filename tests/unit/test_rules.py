"""What values are allowed: each bound from both sides, and who is told what."""

from collections.abc import Callable

import pytest

from duetime import rules
from duetime.errors import InvalidInput, PayloadTooLarge
from duetime.model import RetryPolicy

NOW = 1_000_000


def refused(check: Callable[[], object]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        check()
    return caught.value


@pytest.mark.parametrize("id", ["x", "x" * 255, "é" * 255, "a/b:c#d ?", "\U0001f600", "\n"])
def test_an_id_is_any_text_of_1_to_255_characters(id: str) -> None:
    rules.check_id(id)


@pytest.mark.parametrize("id", ["", "x" * 256, "a\0b", "\ud800", "x\udfff"])
def test_ids_that_no_store_could_keep_are_refused(id: str) -> None:
    assert refused(lambda: rules.check_id(id)).field == "id"


@pytest.mark.parametrize("name", ["n", "n" * 255, "with space", "ü"])
def test_a_namespace_name_is_text_without_the_separators_of_keys(name: str) -> None:
    rules.check_namespace_name(name)


@pytest.mark.parametrize("name", ["", "n" * 256, "a:b", "a#b", "a\0", "\ud800"])
def test_namespace_names_that_could_make_two_keys_one_are_refused(name: str) -> None:
    assert refused(lambda: rules.check_namespace_name(name)).field == "name"


def test_a_url_is_refused_with_its_reason() -> None:
    rules.check_url("https://example.com/hook?x=1")
    error = refused(lambda: rules.check_url("ftp://example.com/"))
    assert (error.field, error.problem) == ("callback_url", "must be an http or https URL")


def test_a_payload_at_its_bound_is_allowed_and_one_byte_more_is_not() -> None:
    rules.check_json_size(None, 10, "payload")
    rules.check_json_size(b"x" * 10, 10, "payload")
    error = refused(lambda: rules.check_json_size(b"x" * 11, 10, "payload"))
    assert isinstance(error, PayloadTooLarge)
    assert (error.size, error.size_max, error.field) == (11, 10, "payload")


def test_a_timeout_lies_between_a_second_and_the_configured_longest() -> None:
    rules.check_timeout(1, 30)
    rules.check_timeout(30, 30)
    for timeout_s in (-1, 0, 31):
        error = refused(lambda t=timeout_s: rules.check_timeout(t, 30))  # type: ignore[misc]
        assert error.field == "callback_timeout_seconds"


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(),
        RetryPolicy(max_attempts=1),
        RetryPolicy(max_attempts=1_000_000, backoff_multiplier=1_000.0),
        RetryPolicy(backoff_multiplier=1.0, initial_interval="1ms", max_interval="1ms"),
        RetryPolicy(max_attempts_duration="3660d"),
    ],
)
def test_retry_policies_within_bounds_are_allowed(policy: RetryPolicy) -> None:
    rules.check_retry(policy)


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (RetryPolicy(max_attempts=0), "max_attempts"),
        (RetryPolicy(max_attempts=1_000_001), "max_attempts"),
        (RetryPolicy(backoff_multiplier=0.99), "backoff_multiplier"),
        (RetryPolicy(backoff_multiplier=1_000.1), "backoff_multiplier"),
        (RetryPolicy(backoff_multiplier=float("nan")), "backoff_multiplier"),
        (RetryPolicy(backoff_multiplier=float("inf")), "backoff_multiplier"),
        (RetryPolicy(initial_interval="0s"), "initial_interval"),
        (RetryPolicy(initial_interval="30"), "initial_interval"),
        (RetryPolicy(max_interval="3661d"), "max_interval"),
        (RetryPolicy(max_attempts_duration="soon"), "max_attempts_duration"),
        (RetryPolicy(initial_interval="2s", max_interval="1s"), "max_interval"),
    ],
)
def test_a_retry_policy_is_refused_by_its_field(policy: RetryPolicy, field: str) -> None:
    assert refused(lambda: rules.check_retry(policy)).field == f"retry_policy/{field}"


def test_a_value_between_its_bounds_is_given_back() -> None:
    assert rules.check_between(1, 1, 3, "n") == 1
    assert rules.check_between(3, 1, 3, "n") == 3
    for value in (0, 4):
        error = refused(lambda v=value: rules.check_between(v, 1, 3, "n"))  # type: ignore[misc]
        assert str(error) == f"n must lie between 1 and 3, got {value}"


def test_on_v1_the_past_is_refused_and_the_near_future_rounded_up() -> None:
    assert refused(lambda: rules.v1_execute_at(NOW - 1, NOW, 1)).field == "execute_at"
    assert rules.v1_execute_at(NOW, NOW, 1) == NOW + 1_000
    assert rules.v1_execute_at(NOW + 999, NOW, 1) == NOW + 1_000
    assert rules.v1_execute_at(NOW + 1_001, NOW, 1) == NOW + 1_001
    assert rules.v1_execute_at(NOW + 5, NOW, 0) == NOW + 5


def test_on_rest_it_must_be_more_than_five_seconds_ahead() -> None:
    near = "must be in the future, more than 5 seconds ahead"
    for execute_at, problem in (
        (NOW - 1, "must be in the future"),
        (NOW, "must be in the future"),
        (NOW + 1, near),
        (NOW + 5_000, near),
    ):
        error = refused(lambda at=execute_at: rules.rest_execute_at(at, NOW, 60))  # type: ignore[misc]
        assert (error.field, error.problem) == ("execute_at", problem)
    assert rules.rest_execute_at(NOW + 5_001, NOW, 60) == NOW + 5_001
