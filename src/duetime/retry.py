"""What a callback's answer means, and when a failed attempt is repeated. Pure.

Two rules read an answer. `rest`: any 2xx completes, anything else fails and is retried.
`v1`: a 200 must carry a verdict; most failures are retried, but a 4xx other than 408 and
429 says that the request itself is wrong, and is not.
"""

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from duetime.instants import parse_duration, parse_instant
from duetime.model import INSTANT_MAX, Reply, RetryPolicy

INITIAL_INTERVAL_MS = 1_000
BACKOFF_MULTIPLIER = 2.0
INTERVAL_MS_MAX = 300_000
# A policy that names neither a number of attempts nor a duration ends after this.
ATTEMPTS_DURATION_MS = 86_400_000
JITTER_MIN = 0.8


class Answer(Struct, frozen=True, gc=False):
    """What came back from one attempt: an HTTP status and body, or the error that stood in
    their place (`status` is 0 then). `error` names the cause for people; beside a 2xx it says
    why the body is not whole."""

    status: int
    body: bytes = b""
    error: str | None = None


NOT_SENT = Answer(0, b"", "not sent")
"""Of an attempt that stood no more when its first byte was to go out. Told apart by identity."""


class Completed(Struct, frozen=True, gc=False):
    """The callback has done its work."""


class Rescheduled(Struct, frozen=True, gc=False):
    """The callback asked to be called again at `at`, attempts counted anew."""

    at: int


class Failed(Struct, frozen=True, gc=False):
    """The attempt failed. Only where `retryable` may the policy try again."""

    error: str
    retryable: bool


Verdict = Completed | Rescheduled | Failed

COMPLETED = Completed()


class _CallbackResponse(Struct, rename="camel"):
    ok: bool
    next_execute_at: str | None = None


_decode = Decoder(_CallbackResponse).decode
_PLAIN_OK = frozenset({b'{"ok":true}', b'{"ok": true}'})


def verdict(reply: Reply, answer: Answer) -> Verdict:
    """What one attempt's answer means under the rule that the timer was created with."""
    if answer.status == 0:
        return Failed(answer.error or "no answer", True)
    if reply == "rest":
        if 200 <= answer.status <= 299:
            return COMPLETED
        return Failed(answer.error or f"HTTP {answer.status}", True)
    if answer.status != 200 or answer.error is not None:
        given_up = 400 <= answer.status <= 499 and answer.status not in (408, 429)
        # Only a 2xx has no error of its own, and its sender will wonder what is wrong with it.
        error = answer.error or f"HTTP {answer.status}, not 200 with a verdict"
        return Failed(error, not given_up)
    return _v1_verdict(answer.body)


def _v1_verdict(body: bytes) -> Verdict:
    if body in _PLAIN_OK:
        return COMPLETED
    if not body:
        return Failed("HTTP 200 without a valid verdict: the body is empty", True)
    try:
        response = _decode(body)
    except (ValidationError, DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Failed(f"HTTP 200 without a valid verdict: {error}", True)
    if response.next_execute_at is not None:
        try:
            return Rescheduled(parse_instant(response.next_execute_at))
        except ValueError as error:
            return Failed(f"HTTP 200 without a valid verdict: nextExecuteAt {error}", True)
    return COMPLETED if response.ok else Failed("the callback answered ok: false", True)


def next_try(
    policy: RetryPolicy, *, attempt: int, first_attempt_at: int, now: int, jitter: float
) -> int | None:
    """When to try again after failed attempt number `attempt` (1-based); None when spent.

    `jitter` in 0..1 becomes a factor between 0.8 and 1.0, so that what failed together does
    not come back together. Attempts are counted, and their duration measured, from the first.
    """
    if policy.max_attempts is not None and attempt >= policy.max_attempts:
        return None
    wait = int(_interval_ms(policy, attempt) * (JITTER_MIN + (1 - JITTER_MIN) * jitter))
    at = min(now + wait, INSTANT_MAX)
    if policy.max_attempts_duration is not None:
        duration = parse_duration(policy.max_attempts_duration)
    elif policy.max_attempts is None:
        duration = ATTEMPTS_DURATION_MS
    else:
        return at
    return at if at <= first_attempt_at + duration else None


def _interval_ms(policy: RetryPolicy, attempt: int) -> float:
    initial = (
        INITIAL_INTERVAL_MS
        if policy.initial_interval is None
        else parse_duration(policy.initial_interval)
    )
    ceiling = (
        max(INTERVAL_MS_MAX, initial)
        if policy.max_interval is None
        else parse_duration(policy.max_interval)
    )
    multiplier = (
        BACKOFF_MULTIPLIER if policy.backoff_multiplier is None else policy.backoff_multiplier
    )
    try:
        return min(initial * multiplier ** (attempt - 1), ceiling)
    except OverflowError:
        return ceiling
