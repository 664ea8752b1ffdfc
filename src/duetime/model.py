"""The values of the core: what a timer is, where it stands in line, what became of it.

An instant is a whole number of milliseconds since 1970 in UTC, everywhere inside Duetime:
it compares, sorts and travels to a database for next to nothing, and cannot lack a zone.
Text appears only at the edges (`instants`). Values are frozen; `gc=False` keeps a million
of them out of the garbage collector's way, which is safe because none can form a cycle.
"""

from typing import Literal, NamedTuple

from msgspec import Struct

Status = Literal["pending", "executing", "completed", "failed", "canceled"]
FinalStatus = Literal["completed", "failed", "canceled"]
Method = Literal["POST", "PUT", "PATCH"]
Reply = Literal["v1", "rest"]

STATUSES: tuple[Status, ...] = ("pending", "executing", "completed", "failed", "canceled")
DEFAULT_NAMESPACE = "default"
INSTANT_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last one RFC 3339 can write


class Cursor(NamedTuple):
    """A place in the order in which a shard's timers fire. Uuids compare as unsigned bytes."""

    execute_at: int
    uuid: bytes


CURSOR_MIN = Cursor(0, bytes(16))
CURSOR_MAX = Cursor(INSTANT_MAX, b"\xff" * 16)


class RetryPolicy(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How failed attempts are repeated. What is absent has the default that `retry` names.

    Durations stay the text they were given as ("30s"): a policy reads back as it was sent.
    """

    max_attempts: int | None = None
    max_attempts_duration: str | None = None
    initial_interval: str | None = None
    backoff_multiplier: float | None = None
    max_interval: str | None = None


class Timer(Struct, frozen=True, gc=False, kw_only=True):
    """One unfinished timer, as it stands in the store.

    `payload` and `metadata` are JSON as it was received, never parsed again. `execute_at`
    is when it fires next; `scheduled_at` is what was asked for before retries moved it.
    """

    namespace: str
    id: str
    uuid: bytes
    shard: int
    execute_at: int
    callback_url: str
    created_at: int
    updated_at: int
    scheduled_at: int
    timeout_s: int
    reply: Reply
    method: Method = "POST"
    headers: dict[str, str] | None = None
    payload: bytes | None = None
    metadata: bytes | None = None
    retry: RetryPolicy | None = None
    attempts: int = 0
    first_attempt_at: int | None = None
    last_error: str | None = None

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.execute_at, self.uuid)


class Finished(Struct, frozen=True, gc=False):
    """What became of a timer. `attempts` and `last_error` replace those of `timer`."""

    timer: Timer
    status: FinalStatus
    at: int
    attempts: int
    last_error: str | None = None


class Lease(Struct, frozen=True, gc=False):
    """The right to write to a shard. Claiming adds one to the version; only the newest holds."""

    shard: int
    version: int
    owner: str


class Namespace(Struct, frozen=True, kw_only=True):
    """The scope of ids and of settings. `num_shards` never changes once created.

    `history_retention_s` of 0 keeps no history.
    """

    name: str
    num_shards: int
    history_retention_s: int
    min_delay_s: int
    retry_policy: RetryPolicy | None
    created_at: int
    updated_at: int


class View(Struct, frozen=True, gc=False):
    """A timer as a surface shows it: unfinished ones and finished ones alike."""

    timer: Timer
    status: Status
    attempts: int
    last_error: str | None
    updated_at: int
    executed_at: int | None = None
