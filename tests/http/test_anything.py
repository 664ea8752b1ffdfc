"""Whatever is sent, the answer is a refusal in its shape or a success, never an accident."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.http.server import LATER, UNKNOWN_ID, URL, Server, new_rest_timer, new_timer
from tests.http.test_admission import V1_PATHS

NAMES = st.sampled_from(
    [
        "namespace",
        "id",
        "timerId",
        "executeAt",
        "callbackUrl",
        "payload",
        "metadata",
        "retryPolicy",
        "callbackHeaders",
        "callbackTimeoutSeconds",
        "limit",
        "cursor",
        "status",
        "idPrefix",
        "executeAfter",
        "executeBefore",
        "name",
        "timers",
        "numShards",
        "historyRetentionSeconds",
        "minDelaySeconds",
        "execute_at",
        "callback_url",
        "callback_method",
        "callback_headers",
        "callback_payload",
        "retry_policy",
        "maxAttempts",
        "maxRetries",
        "initialInterval",
        "backoffMultiplier",
        "max_attempts",
        "X-A",
    ]
)
VALUES = st.sampled_from(["default", LATER, URL, "POST", "pending", "30s", "n", "http://[::1"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | VALUES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
STARTS: list[dict[str, Any]] = [
    {},
    new_timer(),
    new_rest_timer(),
    {"timers": [new_timer()]},
    {"namespace": "default", "timerId": "a"},
    {"name": "n", "numShards": 2},
]
ROUTES = st.sampled_from(
    [
        *(("POST", path) for path in V1_PATHS[:10]),
        ("POST", "/timers"),
        ("PUT", f"/timers/{UNKNOWN_ID}"),
    ]
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A request that is nearly right: some fields replaced, perhaps a byte as well."""
    fields = {**draw(st.sampled_from(STARTS)), **draw(st.dictionaries(NAMES, JSON, max_size=3))}
    body = bytearray(json.dumps(fields).encode())
    if draw(st.booleans()):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body)


@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(route=ROUTES, body=bodies())
async def test_no_request_however_strange_is_an_accident(
    server: Server, route: tuple[str, str], body: bytes
) -> None:
    method, path = route
    reply = await server.ask(method, path, body)
    assert reply.status in (200, 201, 204, 400, 404, 409, 413), reply.body
    if path in V1_PATHS and reply.status >= 400:
        assert set(reply.json) == {"error", "message", "details", "timestamp"}
    elif path not in V1_PATHS:
        assert set(reply.json) == {"code", "message", "data"}


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    query=st.lists(
        st.tuples(
            st.sampled_from(["limit", "offset", "status", "sort", "order", "%00", "x", ""]),
            st.sampled_from(
                ["", "1", "-1", "9" * 99, "asc", "pending", "created_at", "%ff", "+1", "="]
            ),
        ),
        max_size=4,
    )
)
async def test_no_query_however_strange_is_an_accident(
    server: Server, query: list[tuple[str, str]]
) -> None:
    reply = await server.ask(
        "GET", "/timers?" + "&".join(f"{name}={value}" for name, value in query)
    )
    assert reply.status in (200, 400), reply.body
    assert set(reply.json) == {"code", "message", "data"}
