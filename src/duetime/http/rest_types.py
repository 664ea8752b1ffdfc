"""What REST takes and gives. The decoders, the answers and OpenAPI are all made of these."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from duetime.http.fields import (
    METADATA,
    PAYLOAD_ANY,
    Duration,
    HeadersChange,
    Instant,
    LastError,
    MaxAttempts,
    Metadata,
    Multiplier,
    OptionalHeaders,
    OptionalInstant,
    PayloadAny,
    Status,
    Url,
)
from duetime.model import Method

Id = Annotated[
    str,
    Meta(
        description="A UUID that the server made.",
        examples=["550e8400-e29b-41d4-a716-446655440000"],
        extra_json_schema={"format": "uuid"},
    ),
]
ShownId = Annotated[
    str,
    Meta(
        description="A UUID that the server made, or the name that a V1 client gave.",
        examples=["550e8400-e29b-41d4-a716-446655440000"],
    ),
]
CallbackMethod = Annotated[Method | None, Meta(description="POST if absent.")]


class _Request(Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class RestRetryPolicy(_Request, omit_defaults=True):
    """How failed attempts are repeated. Without a policy there is one attempt."""

    max_attempts: MaxAttempts = None
    max_attempts_duration: Duration = None
    initial_interval: Duration = None
    backoff_multiplier: Multiplier = None
    max_interval: Duration = None


class NewTimer(_Request):
    """A timer to create. It must be due more than 5 seconds from now."""

    execute_at: Instant
    callback_url: Url
    callback_method: CallbackMethod = None
    callback_headers: OptionalHeaders = None
    callback_payload: PayloadAny = UNSET
    metadata: Metadata = UNSET
    retry_policy: RestRetryPolicy | None = None


class TimerChanges(_Request):
    """What to change: an absent field stays as it is, null clears an optional one."""

    execute_at: Instant | UnsetType = UNSET
    callback_url: Url | UnsetType = UNSET
    callback_method: CallbackMethod | UnsetType = UNSET
    callback_headers: HeadersChange = UNSET
    callback_payload: PayloadAny = UNSET
    metadata: Metadata = UNSET
    retry_policy: RestRetryPolicy | None | UnsetType = UNSET


class TimerSummary(Struct, gc=False):
    """A timer in short."""

    id: ShownId
    created_at: Instant
    execute_at: Instant
    callback_url: Url
    callback_method: Method
    status: Status
    executed_at: OptionalInstant


class UpdatedTimer(Struct, gc=False):
    """A timer in short, after a change."""

    id: Id
    created_at: Instant
    updated_at: Instant
    execute_at: Instant
    callback_url: Url
    callback_method: Method
    status: Status
    executed_at: OptionalInstant


class TimerDetails(Struct, gc=False):
    """Everything about a timer."""

    id: Id
    created_at: Instant
    updated_at: Instant
    execute_at: Instant
    callback_url: Url
    callback_method: Method
    callback_headers: OptionalHeaders
    callback_payload: Annotated[Raw, PAYLOAD_ANY]
    status: Status
    last_error: LastError
    executed_at: OptionalInstant
    metadata: Annotated[Raw, METADATA]
    retry_policy: RestRetryPolicy | UnsetType = UNSET
    """Only where the timer has one: without it, the answer is the documented one."""


class TimerList(Struct, gc=False):
    """A page of timers; `limit` and `offset` as they were applied."""

    timers: list[TimerSummary]
    total: Annotated[int, Meta(description="How many match, on all pages.")]
    limit: int
    offset: int


class CanceledTimer(Struct, gc=False):
    """A timer that will not be called back."""

    id: Id
    status: Status


class Health(Struct, gc=False):
    """How the server is."""

    status: Annotated[str, Meta(extra_json_schema={"enum": ["up", "degraded"]})]
    database: Annotated[str, Meta(extra_json_schema={"enum": ["connected", "disconnected"]})]
    timestamp: Instant


class Readiness(Struct, gc=False):
    """Whether the server is to be sent requests."""

    ready: bool


class Envelope(Struct, gc=False):
    """Every answer: 0 is success, 1 unexpected, 2 invalid, 3 not found, 4 unauthorized."""

    code: Annotated[int, Meta(extra_json_schema={"enum": [0, 1, 2, 3, 4]})]
    message: str
    data: Any
