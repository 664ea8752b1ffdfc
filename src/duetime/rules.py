"""What values are allowed in a request. Pure; every refusal is an `InvalidInput`."""

from collections.abc import Callable

from duetime import callback
from duetime.errors import InvalidInput, PayloadTooLarge
from duetime.instants import parse_duration
from duetime.model import RetryPolicy

ID_CHARS_MAX = 255
NAMESPACE_CHARS_MAX = 255
NUM_SHARDS_MAX = 4_096
ATTEMPTS_MAX = 1_000_000
MULTIPLIER_MAX = 1_000.0
RETENTION_S_MAX = 10 * 366 * 86_400
MIN_DELAY_S_MAX = 86_400
REST_AHEAD_MS_MIN = 5_000


def check_id(id: str) -> None:
    if not 1 <= len(id) <= ID_CHARS_MAX:
        raise InvalidInput(f"must have 1 to {ID_CHARS_MAX} characters, got {len(id)}", "id")
    _check_storable(id, "id")


def check_namespace_name(name: str, field: str = "name") -> None:
    if not 1 <= len(name) <= NAMESPACE_CHARS_MAX:
        raise InvalidInput(
            f"must have 1 to {NAMESPACE_CHARS_MAX} characters, got {len(name)}", field
        )
    # With a colon in it, two different keys could have one uuid.
    if ":" in name or "#" in name:
        raise InvalidInput("must contain neither ':' nor '#'", field)
    _check_storable(name, field)


def _check_storable(text: str, field: str) -> None:
    # PostgreSQL has no place for NUL, and nothing can write half a surrogate pair as UTF-8.
    if "\0" in text or (not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)):
        raise InvalidInput("must not contain NUL or unpaired surrogates", field)


def check_url(url: str) -> None:
    try:
        callback.check_url(url)
    except ValueError as error:
        raise InvalidInput(str(error), "callback_url") from None


def check_json_size(value: bytes | None, size_max: int, field: str) -> None:
    if value is not None and len(value) > size_max:
        raise PayloadTooLarge(len(value), size_max, field)


def check_timeout(timeout_s: int, timeout_s_max: int) -> None:
    if not 1 <= timeout_s <= timeout_s_max:
        raise InvalidInput(
            f"must lie between 1 and {timeout_s_max}, got {timeout_s}", "callback_timeout_seconds"
        )


def check_retry(policy: RetryPolicy) -> None:
    field = "retry_policy"
    if policy.max_attempts is not None and not 1 <= policy.max_attempts <= ATTEMPTS_MAX:
        raise InvalidInput(f"must lie between 1 and {ATTEMPTS_MAX}", f"{field}/max_attempts")
    multiplier = policy.backoff_multiplier
    if multiplier is not None and not 1.0 <= multiplier <= MULTIPLIER_MAX:
        raise InvalidInput(
            f"must lie between 1 and {MULTIPLIER_MAX:g}", f"{field}/backoff_multiplier"
        )
    _duration(policy.max_attempts_duration, f"{field}/max_attempts_duration")
    initial_ms = _duration(policy.initial_interval, f"{field}/initial_interval")
    ceiling_ms = _duration(policy.max_interval, f"{field}/max_interval")
    if initial_ms is not None and ceiling_ms is not None and ceiling_ms < initial_ms:
        raise InvalidInput("must not be below the initial interval", f"{field}/max_interval")


def _duration(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        duration_ms = parse_duration(text)
    except ValueError as error:
        raise InvalidInput(str(error), field) from None
    if not 1 <= duration_ms <= RETENTION_S_MAX * 1000:
        raise InvalidInput("must be more than nothing and at most ten years", field)
    return duration_ms


def check_between(value: int, low: int, high: int, field: str) -> int:
    if not low <= value <= high:
        raise InvalidInput(f"must lie between {low} and {high}, got {value}", field)
    return value


def v1_execute_at(execute_at: int, now: int, min_delay_s: int) -> int:
    """When a V1 timer fires: what is nearer than the least delay is rounded up to it."""
    if execute_at < now:
        raise InvalidInput("must be in the future", "execute_at")
    return max(execute_at, now + min_delay_s * 1000)


def rest_execute_at(execute_at: int, now: int, min_delay_s: int) -> int:
    """When a REST timer fires: it must be more than five seconds ahead."""
    if execute_at <= now:
        raise InvalidInput("must be in the future", "execute_at")
    if execute_at <= now + REST_AHEAD_MS_MIN:
        raise InvalidInput("must be in the future, more than 5 seconds ahead", "execute_at")
    return execute_at


EXECUTE_AT: dict[str, Callable[[int, int, int], int]] = {
    "v1": v1_execute_at,
    "rest": rest_execute_at,
}
