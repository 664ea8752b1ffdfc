"""What V1 takes and gives. The decoders, the answers and OpenAPI are all made of these."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct

from duetime import rules
from duetime.http.fields import (
    DURATION_PATTERN,
    METADATA,
    PAYLOAD_SHOWN,
    Duration,
    HeadersChange,
    Instant,
    LastError,
    MaxAttempts,
    Metadata,
    Multiplier,
    OptionalHeaders,
    OptionalInstant,
    PayloadObject,
    Status,
    Url,
)
from duetime.model import Method, RetryPolicy
from duetime.model import Status as StatusFilter

BATCH_TIMERS_MAX = 1_000

NamespaceName = Annotated[
    str,
    Meta(
        description="A namespace that exists; `default` always does.",
        examples=["default"],
        extra_json_schema={"minLength": 1, "maxLength": rules.NAMESPACE_CHARS_MAX},
    ),
]
NewNamespaceName = Annotated[
    str,
    Meta(
        description="A name that no namespace has yet, without `:` and `#`.",
        examples=["billing"],
        extra_json_schema={
            "minLength": 1,
            "maxLength": rules.NAMESPACE_CHARS_MAX,
            "pattern": "^[^:#]*$",
        },
    ),
]
TimerId = Annotated[
    str,
    Meta(
        description="Your own name for the timer, unique in its namespace.",
        examples=["user-notification-123"],
        extra_json_schema={"minLength": 1, "maxLength": rules.ID_CHARS_MAX},
    ),
]
TimeoutSeconds = Annotated[
    int | None,
    Meta(
        description="How long one attempt may take; the server's limit (30 by default) if absent.",
        extra_json_schema={"minimum": 1},
    ),
]
Retention = Annotated[
    int | None,
    Meta(
        description="For how long finished timers are kept; 0 keeps none.",
        extra_json_schema={"minimum": 0, "maximum": rules.RETENTION_S_MAX},
    ),
]
MinDelay = Annotated[
    int | None,
    Meta(
        description="A timer due sooner than this is moved to it.",
        extra_json_schema={"minimum": 0, "maximum": rules.MIN_DELAY_S_MAX},
    ),
]
Limit = Annotated[
    int | None, Meta(description="How many to answer; clamped to 1..200.", examples=[50])
]
PageCursor = Annotated[str | None, Meta(description="The `nextCursor` of the page before. Opaque.")]


class _Request(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    pass


class _Answer(Struct, rename="camel", gc=False):
    pass


class RetryPolicyInput(_Request):
    """How failed attempts are repeated. Without a policy there is one attempt."""

    max_attempts: MaxAttempts = None
    max_attempts_duration: Duration = None
    initial_interval: Duration = None
    backoff_multiplier: Multiplier = None
    max_interval: Duration = None
    max_retries: Annotated[
        int | None,
        Meta(
            description="The older name: `maxAttempts` less one.",
            extra_json_schema={
                "deprecated": True,
                "minimum": 0,
                "maximum": rules.ATTEMPTS_MAX - 1,
            },
        ),
    ] = None
    max_retry_attempts_duration: Annotated[
        str | None,
        Meta(
            description="The older name of `maxAttemptsDuration`.",
            extra_json_schema={"deprecated": True, "pattern": DURATION_PATTERN},
        ),
    ] = None


class CreateTimerRequest(_Request):
    """A timer to create, or to put in place of the one with the same namespace and id."""

    namespace: NamespaceName
    id: TimerId
    execute_at: Instant
    callback_url: Url
    payload: PayloadObject = UNSET
    retry_policy: RetryPolicyInput | None = None
    callback_timeout_seconds: TimeoutSeconds = None
    callback_headers: OptionalHeaders = None
    metadata: Metadata = UNSET


class TimerSelection(_Request):
    """Which timer."""

    namespace: NamespaceName
    timer_id: TimerId


class UpdateTimerRequest(_Request):
    """What to change: an absent field stays as it is, null clears an optional one."""

    namespace: NamespaceName
    timer_id: TimerId
    execute_at: Instant | UnsetType = UNSET
    callback_url: Url | UnsetType = UNSET
    payload: PayloadObject = UNSET
    retry_policy: RetryPolicyInput | None | UnsetType = UNSET
    callback_timeout_seconds: TimeoutSeconds | UnsetType = UNSET
    callback_headers: HeadersChange = UNSET
    metadata: Metadata = UNSET


class ListTimersRequest(_Request):
    """Which timers to list, in the order of (executeAt, uuid)."""

    namespace: NamespaceName
    status: StatusFilter | None = None
    id_prefix: str | None = None
    execute_after: Annotated[str | None, Meta(description="Inclusive.")] = None
    execute_before: Annotated[str | None, Meta(description="Exclusive.")] = None
    limit: Limit = None
    cursor: PageCursor = None


class BatchRequest(_Request):
    """Timers to create, 1 to 1,000; each is judged on its own."""

    timers: Annotated[
        list[CreateTimerRequest],
        Meta(extra_json_schema={"minItems": 1, "maxItems": BATCH_TIMERS_MAX}),
    ]


class LooseBatch(_Request):
    """A batch whose items are not looked at yet."""

    timers: Raw


NO_ITEM = Raw()
# Decoding a list ends with the list; decoding a struct of so many places ends with the first
# item too many, before millions of them cost memory.
BATCH_ITEMS: type[Struct] = defstruct(
    "BatchItems",
    [(f"item_{n}", Raw, NO_ITEM) for n in range(BATCH_TIMERS_MAX)],
    array_like=True,
    forbid_unknown_fields=True,
)


class CreateNamespaceRequest(_Request):
    """A namespace to create. Its number of shards never changes."""

    name: NewNamespaceName
    num_shards: Annotated[
        int,
        Meta(
            examples=[16],
            extra_json_schema={"minimum": 1, "maximum": rules.NUM_SHARDS_MAX},
        ),
    ]
    history_retention_seconds: Retention = None
    min_delay_seconds: MinDelay = None
    retry_policy: RetryPolicyInput | None = None


class NamespaceSelection(_Request):
    """Which namespace."""

    name: NamespaceName


class UpdateNamespaceRequest(_Request):
    """What to change: an absent field stays as it is, null brings back the default."""

    name: NamespaceName
    num_shards: Annotated[
        int | UnsetType, Meta(description="Only the value it has: it never changes.")
    ] = UNSET
    history_retention_seconds: Retention | UnsetType = UNSET
    min_delay_seconds: MinDelay | UnsetType = UNSET
    retry_policy: RetryPolicyInput | None | UnsetType = UNSET


class NoFields(_Request):
    """Nothing: an empty object, or no body at all."""


class Timer(_Answer):
    """A timer as it stands."""

    id: str
    namespace: str
    execute_at: Instant
    callback_url: Url
    callback_method: Method
    callback_headers: OptionalHeaders
    callback_timeout_seconds: int
    payload: Annotated[Raw, PAYLOAD_SHOWN]
    metadata: Annotated[Raw, METADATA]
    retry_policy: RetryPolicy | None
    status: Status
    attempts: Annotated[int, Meta(description="How many attempts have been made.")]
    last_error: LastError
    created_at: Instant
    updated_at: Instant
    executed_at: OptionalInstant


class TimerPage(_Answer):
    """Some timers, and where to go on."""

    timers: list[Timer]
    next_cursor: PageCursor


class ErrorDetails(_Answer):
    """Which field."""

    field: Annotated[str, Meta(description="A JSON pointer.", examples=["/callbackUrl"])]


class Error(_Answer):
    """What went wrong."""

    error: Annotated[str, Meta(description="The code, for programs.", examples=["INVALID_INPUT"])]
    message: Annotated[str, Meta(description="For people.")]
    details: ErrorDetails | None
    timestamp: Instant


class BatchResult(_Answer):
    """The timer that was created, or why it was not."""

    timer: Timer | UnsetType = UNSET
    error: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    details: ErrorDetails | None | UnsetType = UNSET


class BatchResults(_Answer):
    """An answer for each item, in the order asked."""

    results: list[BatchResult]


class Namespace(_Answer):
    """A namespace and its settings."""

    name: str
    num_shards: int
    history_retention_seconds: int
    min_delay_seconds: int
    retry_policy: RetryPolicy | None
    created_at: Instant
    updated_at: Instant


class Namespaces(_Answer):
    """All namespaces, by name."""

    namespaces: list[Namespace]


class ClusterNode(_Answer):
    """A node that is alive, as it last described itself."""

    name: str
    address: Annotated[str, Meta(description="Where other nodes reach it; empty if they cannot.")]
    version: Annotated[str, Meta(description="Duetime's.")]
    started_at: Instant
    shards: Annotated[int, Meta(description="How many it owns.")]
    in_flight: Annotated[int, Meta(description="Callbacks under way.")]
    backlog: Annotated[int, Meta(description="Due timers that wait for room.")]
    skew_ms: Annotated[
        int | None, Meta(description="How far its clock is ahead of the database's.")
    ]
    draining: Annotated[bool, Meta(description="It hands its shards over, and takes none.")]


class ClusterShard(_Answer):
    """A shard, as the database has it."""

    number: int
    version: Annotated[int, Meta(description="How often it has been claimed.")]
    owner: Annotated[
        str | None, Meta(description="The name of the node that owns it; null if none does.")
    ]


class Cluster(_Answer):
    """The nodes, by name, and the shards, by number."""

    nodes: list[ClusterNode]
    shards: list[ClusterShard]
    namespaces: Annotated[int, Meta(description="How many there are.")]


class DrainRequest(_Request):
    """Which node is to hand its shards over; or, to `undo` that, to take part again."""

    node: Annotated[str, Meta(description="The name of a node that is alive.")]
    undo: bool = False


class Drained(_Answer):
    """What the node has begun to do. It is done when the node owns no shard any more."""

    node: str
    draining: bool
