"""The fields that both surfaces share: their types, and what OpenAPI says about them.

The types decide what is accepted; bounds on values are described here and enforced by the
service, once, for every surface.
"""

from typing import Annotated, Any

from msgspec import Meta, Raw, UnsetType

from duetime import rules
from duetime.callback import URL_CHARS_MAX


def _meta(description: str, **schema: Any) -> Meta:
    return Meta(description=description, extra_json_schema=schema or None)


DURATION_PATTERN = r"^\d{1,12}(ms|s|m|h|d)$"

Instant = Annotated[
    str,
    _meta(
        "An instant as RFC 3339 with a zone. Finer than a millisecond is rounded up.",
        format="date-time",
        examples=["2030-01-31T09:30:00.000Z"],
    ),
]
OptionalInstant = Annotated[
    str | None,
    _meta("An instant as RFC 3339 in UTC, or null.", examples=["2030-01-31T09:30:00.000Z"]),
]
Url = Annotated[
    str,
    _meta(
        "Where the callback is sent: an http or https URL.",
        format="uri",
        maxLength=URL_CHARS_MAX,
        examples=["https://api.example.com/webhook"],
    ),
]
HEADERS = _meta("Headers to send with the callback; not those that frame a message.")
PAYLOAD_OBJECT = _meta(
    "An object for the callback, passed on byte for byte.", type=["object", "null"]
)
PAYLOAD_SHOWN = _meta(
    "What the callback is sent, byte for byte: an object, or any JSON if REST created the timer."
)
PAYLOAD_ANY = _meta("Any JSON: the callback's body, sent byte for byte.")
METADATA = _meta("Any JSON of your own, kept with the timer and never sent.")

OptionalHeaders = Annotated[dict[str, str] | None, HEADERS]
HeadersChange = Annotated[dict[str, str] | None | UnsetType, HEADERS]
PayloadObject = Annotated[Raw | UnsetType, PAYLOAD_OBJECT]
PayloadAny = Annotated[Raw | UnsetType, PAYLOAD_ANY]
Metadata = Annotated[Raw | UnsetType, METADATA]

Status = Annotated[
    str,
    _meta(
        "`executing` while a callback is under way; the last three are final.",
        enum=["pending", "executing", "completed", "failed", "canceled"],
    ),
]
LastError = Annotated[
    str | None, _meta("Why the last attempt failed.", examples=["HTTP 503 from api.example.com"])
]
MaxAttempts = Annotated[
    int | None,
    _meta(
        "How often to try at most, the first try included.",
        minimum=1,
        maximum=rules.ATTEMPTS_MAX,
    ),
]
Duration = Annotated[
    str | None,
    _meta(
        "A duration such as 500ms, 30s, 5m, 24h or 7d.",
        pattern=DURATION_PATTERN,
        examples=["30s"],
    ),
]
Multiplier = Annotated[
    float | None,
    _meta(
        "By how much the wait grows after each failure; 2 if absent.",
        minimum=1,
        maximum=rules.MULTIPLIER_MAX,
    ),
]
