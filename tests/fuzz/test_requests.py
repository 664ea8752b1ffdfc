"""Bodies, queries, paths, headers and cursors as anybody may send them."""

import asyncio
import base64
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duetime.model import INSTANT_MAX
from tests.fuzz import fuzzed
from tests.fuzz.app import Application, check
from tests.http.server import LATER, UNKNOWN_ID, URL

OPERATIONS = [
    *(
        ("POST", f"/timers/{name}", surface)
        for surface in ("", "/api/v1")
        for name in ("create", "get", "update", "delete", "list", "batch")
    ),
    *(
        ("POST", f"/namespaces/{name}", surface)
        for surface in ("", "/api/v1")
        for name in ("create", "get", "update", "list")
    ),
    ("POST", "/timers", ""),
    ("PUT", f"/timers/{UNKNOWN_ID}", ""),
]
PATHS = [(method, surface + path) for method, path, surface in OPERATIONS]

NAMES = [
    "namespace",
    "id",
    "timerId",
    "executeAt",
    "callbackUrl",
    "payload",
    "retryPolicy",
    "callbackTimeoutSeconds",
    "callbackHeaders",
    "metadata",
    "status",
    "idPrefix",
    "limit",
    "executeAfter",
    "executeBefore",
    "cursor",
    "timers",
    "name",
    "numShards",
    "minDelaySeconds",
    "historyRetentionSeconds",
    "execute_at",
    "callback_url",
    "callback_method",
    "callback_headers",
    "callback_payload",
    "retry_policy",
]
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=12),
        st.sampled_from(
            ["default", "a", LATER, URL, "pending", "30s", "POST", 2**63, -(2**63), 1e400]
        ),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
POLICY_NAMES = [
    "maxAttempts",
    "maxAttemptsDuration",
    "initialInterval",
    "backoffMultiplier",
    "maxInterval",
    "maxRetries",
    "maxRetryAttemptsDuration",
    "max_attempts",
    "x",
]
POLICY = st.dictionaries(st.sampled_from(POLICY_NAMES), JSON, max_size=3)
JSON_BYTES = JSON.map(json.dumps).map(str.encode)
FIELDS = st.dictionaries(st.sampled_from(NAMES), st.one_of(JSON, POLICY), max_size=4)
# What makes the rest of the fields matter: without these every request ends at the first check.
GROUNDS: list[dict[str, Any]] = [
    {},
    {"namespace": "default", "id": "a", "executeAt": LATER, "callbackUrl": URL},
    {"namespace": "default", "timerId": "a"},
    {"namespace": "default"},
    {"name": "default"},
    {"name": "n", "numShards": 2},
    {"execute_at": LATER, "callback_url": URL},
]
BODIES = st.builds(
    lambda ground, fields: json.dumps({**ground, **fields}).encode(),
    st.sampled_from(GROUNDS),
    FIELDS,
)


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    with asyncio.Runner() as runner:
        application = Application(runner)
        yield application
        application.close()


@fuzzed
@given(st.sampled_from(PATHS), st.one_of(st.binary(max_size=60), JSON_BYTES))
@example(PATHS[0], b"[" * 200_000)
@example(PATHS[0], b'{"payload":' * 30_000)
def test_any_body_is_answered(
    application: Application, target: tuple[str, str], body: bytes
) -> None:
    method, path = target
    check(path, application.ask(method, path, [body]))


@fuzzed
@given(st.sampled_from(PATHS), BODIES, st.lists(st.integers(0, 200), max_size=3))
def test_any_fields_are_answered_in_however_many_parts_they_come(
    application: Application, target: tuple[str, str], body: bytes, cuts: list[int]
) -> None:
    method, path = target
    at = [0, *sorted(cuts), len(body)]
    parts = [body[since:until] for since, until in pairwise(at)]
    check(path, application.ask(method, path, parts))


@fuzzed
@given(st.sampled_from(PATHS), BODIES, st.integers(0, 300), st.binary(min_size=1, max_size=3))
def test_any_broken_body_is_answered(
    application: Application, target: tuple[str, str], body: bytes, at: int, noise: bytes
) -> None:
    method, path = target
    at = min(at, len(body))
    check(path, application.ask(method, path, [body[:at] + noise + body[at + 1 :]]))


@fuzzed
@given(st.lists(st.one_of(BODIES, JSON_BYTES), max_size=4))
def test_each_item_of_a_batch_is_judged_on_its_own(
    application: Application, items: list[bytes]
) -> None:
    reply = application.ask("POST", "/timers/batch", [b'{"timers":[%b]}' % b",".join(items)])
    check("/timers/batch", reply)
    if reply.status == 200:
        assert len(json.loads(reply.body)["results"]) == len(items)


@fuzzed
@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(
            st.tuples(
                st.sampled_from([b"status", b"limit", b"offset", b"sort", b"order", b"x", b""]),
                st.sampled_from([b"pending", b"5", b"-1", b"9" * 5_000, b"%00", b"%", b"asc", b""])
                | st.binary(max_size=6),
            ).map(b"=".join),
            max_size=4,
        ).map(b"&".join),
    )
)
def test_any_query_is_answered(application: Application, query: bytes) -> None:
    check("/timers", application.ask("GET", "/timers", query=query))


@fuzzed
@given(
    st.sampled_from(["GET", "PUT", "DELETE", "POST", "HEAD", "OPTIONS", "BREW"]),
    st.one_of(
        st.text(max_size=40).map("/".__add__),
        st.text(max_size=40).map("/timers/".__add__),
        st.text(max_size=10).map("/api/v1/".__add__),
        st.sampled_from(["", "/", "//", "/timers/", "/api/v1", "/namespaces/", "/timers/create/"]),
    ),
)
def test_any_path_is_answered(application: Application, method: str, path: str) -> None:
    check(path, application.ask(method, path, [b"{}"]))


@fuzzed
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    b"content-type",
                    b"content-encoding",
                    b"accept",
                    b"x-api-key",
                    b"transfer-encoding",
                ]
            ),
            st.one_of(
                st.binary(max_size=20),
                st.sampled_from(
                    [b"application/json; charset=\xff", b"text/html", b"gzip", b"chunked"]
                ),
            ),
        ),
        max_size=3,
    )
)
def test_any_headers_are_answered(
    application: Application, headers: list[tuple[bytes, bytes]]
) -> None:
    body = b'{"namespace":"default","timerId":"a"}'
    check("/timers/get", application.ask("POST", "/timers/get", [body], headers=headers))


def _as_cursor(execute_at: int, uuid: bytes, finished_at: int) -> bytes:
    return execute_at.to_bytes(8, "big") + uuid + finished_at.to_bytes(8, "big")


@fuzzed
@given(
    st.one_of(
        st.text(max_size=50),
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                _as_cursor,
                st.integers(0, 2**64 - 1),
                st.binary(min_size=16, max_size=16),
                st.sampled_from([0, 1, INSTANT_MAX, INSTANT_MAX + 1, 2**63]),
            ),
        ).map(lambda raw: base64.urlsafe_b64encode(raw).decode()),
    )
)
def test_any_cursor_is_a_place_in_the_list_or_refused(
    application: Application, cursor: str
) -> None:
    body = json.dumps({"namespace": "default", "cursor": cursor}).encode()
    check("/timers/list", application.ask("POST", "/timers/list", [body]))
