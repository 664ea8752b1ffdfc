"""REST: timers, one by one and in lists, and health."""

import re
import uuid
from typing import Any

import pytest

from duetime.errors import StoreUnavailable
from duetime.instants import format_instant
from tests.http.server import LATER, UNKNOWN_ID, URL, Server, new_rest_timer

SUMMARY_KEYS = [
    "id",
    "created_at",
    "execute_at",
    "callback_url",
    "callback_method",
    "status",
    "executed_at",
]
DETAIL_KEYS = {
    *SUMMARY_KEYS,
    "updated_at",
    "callback_headers",
    "callback_payload",
    "last_error",
    "metadata",
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def created(server: Server, **fields: Any) -> Any:
    reply = await server.ask("POST", "/timers", new_rest_timer(**fields))
    assert reply.status == 201, reply.json
    return reply.data


async def listed(server: Server, query: str = "") -> Any:
    reply = await server.ask("GET", f"/timers{query}")
    assert (reply.status, reply.json["message"]) == (200, "success")
    return reply.data


def ids(data: Any) -> list[str]:
    return [timer["id"] for timer in data["timers"]]


async def test_a_created_timer_is_answered_in_short_under_an_id_of_the_servers(
    server: Server,
) -> None:
    reply = await server.ask("POST", "/timers", new_rest_timer(metadata={"ref": 1}))
    assert reply.status == 201
    assert (reply.json["code"], reply.json["message"]) == (0, "timer created successfully")
    data = reply.data
    assert list(data) == SUMMARY_KEYS
    assert uuid.UUID(data["id"]).version == 4
    assert INSTANT.fullmatch(data["created_at"])
    assert {**data, "id": "", "created_at": ""} == {
        "id": "",
        "created_at": "",
        "execute_at": LATER,
        "callback_url": URL,
        "callback_method": "POST",
        "status": "pending",
        "executed_at": None,
    }


async def test_a_timer_is_read_with_everything_that_was_given(server: Server) -> None:
    given = {
        "callback_method": "PATCH",
        "callback_headers": {"Authorization": "Bearer token123", "X-Custom-Header": "value"},
        "callback_payload": {"event": "timer_triggered"},
        "metadata": {"client_ref": "order-456"},
    }
    short = await created(server, **given)
    reply = await server.ask("GET", f"/timers/{short['id']}")
    assert (reply.status, reply.json["message"]) == (200, "success")
    assert set(reply.data) == DETAIL_KEYS
    assert {name: reply.data[name] for name in given} == given
    assert reply.data["updated_at"] == reply.data["created_at"] == short["created_at"]
    assert reply.data["last_error"] is None


@pytest.mark.parametrize("payload", [[1, 2], "text", 17, 1.5, True, False, {}, {"a": None}])
async def test_the_payload_may_be_any_json(server: Server, payload: Any) -> None:
    short = await created(server, callback_payload=payload, metadata=payload)
    full = (await server.ask("GET", f"/timers/{short['id']}")).data
    assert full["callback_payload"] == full["metadata"] == payload


async def test_null_for_an_optional_field_is_its_absence(server: Server) -> None:
    optional = (
        "callback_method",
        "callback_headers",
        "callback_payload",
        "metadata",
        "retry_policy",
    )
    short = await created(server, **dict.fromkeys(optional))
    full = (await server.ask("GET", f"/timers/{short['id']}")).data
    assert set(full) == DETAIL_KEYS
    assert full["callback_method"] == "POST"
    assert full["callback_headers"] is full["callback_payload"] is full["metadata"] is None


async def test_a_retry_policy_is_taken_and_shown_where_there_is_one(server: Server) -> None:
    policy = {"max_attempts": 3, "initial_interval": "30s"}
    short = await created(server, retry_policy=policy)
    full = (await server.ask("GET", f"/timers/{short['id']}")).data
    assert full["retry_policy"] == policy


@pytest.mark.parametrize(
    ("ahead_ms", "message"),
    [
        (-1_000, "execute_at must be in the future"),
        (0, "execute_at must be in the future"),
        (4_900, "execute_at must be in the future, more than 5 seconds ahead"),
    ],
)
async def test_an_instant_less_than_five_seconds_ahead_is_refused(
    server: Server, ahead_ms: int, message: str
) -> None:
    near = format_instant(server.node.clock.now() + ahead_ms)
    short = await created(server)
    for method, path in (("POST", "/timers"), ("PUT", f"/timers/{short['id']}")):
        reply = await server.ask(method, path, new_rest_timer(execute_at=near))
        assert reply.status == 400
        assert reply.json == {"code": 2, "message": message, "data": None}


async def test_an_instant_before_1970_is_in_the_past_like_any_other(server: Server) -> None:
    for past in ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z"):
        reply = await server.ask("POST", "/timers", new_rest_timer(execute_at=past))
        assert (reply.status, reply.json["code"]) == (400, 2)
        assert reply.json["message"] == "execute_at must be in the future"


async def test_an_id_in_capitals_is_the_same_id(server: Server) -> None:
    short = await created(server)
    for method in ("GET", "DELETE"):
        reply = await server.ask(method, f"/timers/{short['id'].upper()}")
        assert (reply.status, reply.data["id"]) == (200, short["id"])


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_an_unknown_timer_is_not_found(server: Server, method: str) -> None:
    body: Any = {} if method == "PUT" else None
    reply = await server.ask(method, f"/timers/{UNKNOWN_ID}", body)
    assert reply.status == 404
    assert reply.json == {"code": 3, "message": "timer not found", "data": None}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "id",
    [
        "17",
        UNKNOWN_ID[:-1],
        UNKNOWN_ID + "0",
        UNKNOWN_ID.replace("-", ""),
        "{" + UNKNOWN_ID + "}",
        UNKNOWN_ID.replace("5", "g"),
        "%F0%9F%99%82",
        "%FF",
        "%00",
        "",
    ],
)
async def test_a_malformed_id_is_a_bad_request(server: Server, method: str, id: str) -> None:
    reply = await server.ask(method, f"/timers/{id}", {} if method == "PUT" else None)
    assert reply.status == 400
    assert reply.json == {"code": 2, "message": "id must be a UUID", "data": None}


async def test_an_update_changes_what_is_given_and_answers_when(server: Server) -> None:
    short = await created(server, callback_payload=1, metadata=2)
    change = {"execute_at": "2098-10-26T16:00:00Z", "callback_method": "PUT"}
    reply = await server.ask("PUT", f"/timers/{short['id']}", change)
    assert (reply.status, reply.json["message"]) == (200, "timer updated successfully")
    assert set(reply.data) == {*SUMMARY_KEYS, "updated_at"}
    assert reply.data["execute_at"] == "2098-10-26T16:00:00.000Z"
    assert reply.data["created_at"] == short["created_at"]
    full = (await server.ask("GET", f"/timers/{short['id']}")).data
    assert (full["callback_payload"], full["metadata"]) == (1, 2)
    assert full["updated_at"] == reply.data["updated_at"]


async def test_an_update_clears_what_is_null(server: Server) -> None:
    given: dict[str, Any] = {
        "callback_method": "PUT",
        "callback_headers": {"X-A": "b"},
        "callback_payload": [1],
        "metadata": {},
        "retry_policy": {"max_attempts": 2},
    }
    short = await created(server, **given)
    reply = await server.ask("PUT", f"/timers/{short['id']}", dict.fromkeys(given))
    assert reply.status == 200
    full = (await server.ask("GET", f"/timers/{short['id']}")).data
    assert set(full) == DETAIL_KEYS
    assert full["callback_method"] == "POST"
    assert full["callback_headers"] is full["callback_payload"] is full["metadata"] is None


@pytest.mark.parametrize("field", ["execute_at", "callback_url"])
async def test_an_update_refuses_null_for_a_required_field(server: Server, field: str) -> None:
    short = await created(server)
    reply = await server.ask("PUT", f"/timers/{short['id']}", {field: None, "metadata": 1})
    assert (reply.status, reply.json["code"]) == (400, 2)
    assert reply.json["message"] == f"{field} must be a string, not null"
    assert (await server.ask("GET", f"/timers/{short['id']}")).data["metadata"] is None


async def test_a_canceled_timer_stays_and_can_be_canceled_again(server: Server) -> None:
    short = await created(server)
    for _ in range(2):
        reply = await server.ask("DELETE", f"/timers/{short['id']}")
        assert (reply.status, reply.json["message"]) == (200, "timer canceled successfully")
        assert reply.data == {"id": short["id"], "status": "canceled"}
    assert (await server.ask("GET", f"/timers/{short['id']}")).data["status"] == "canceled"
    reply = await server.ask("PUT", f"/timers/{short['id']}", {"metadata": 1})
    assert reply.status == 400
    assert reply.json["message"] == "cannot update timer with status 'canceled'"


@pytest.mark.parametrize(("status", "name"), [(200, "completed"), (404, "failed")])
async def test_a_finished_timer_can_be_read_and_no_longer_changed(
    server: Server, status: int, name: str
) -> None:
    await server.ended(UNKNOWN_ID, status=status)
    full = (await server.ask("GET", f"/timers/{UNKNOWN_ID}")).data
    assert full["status"] == name
    assert INSTANT.fullmatch(full["executed_at"])
    for method, verb in (("PUT", "update"), ("DELETE", "cancel")):
        body = {"metadata": 1} if method == "PUT" else None
        reply = await server.ask(method, f"/timers/{UNKNOWN_ID}", body)
        assert reply.status == 400
        message = f"cannot {verb} timer with status '{name}'"
        assert reply.json == {"code": 2, "message": message, "data": None}


async def test_while_its_callback_is_under_way_a_timer_cannot_be_changed(server: Server) -> None:
    await server.executing(UNKNOWN_ID)
    full = (await server.ask("GET", f"/timers/{UNKNOWN_ID}")).data
    assert full["status"] == "executing"
    for method, verb in (("PUT", "update"), ("DELETE", "cancel")):
        body = {"metadata": 1} if method == "PUT" else None
        reply = await server.ask(method, f"/timers/{UNKNOWN_ID}", body)
        assert (reply.status, reply.json["code"]) == (400, 2)
        assert reply.json["message"] == f"cannot {verb} timer with status 'executing'"


async def test_a_list_is_newest_first_in_short_with_an_exact_total(server: Server) -> None:
    assert await listed(server) == {"timers": [], "total": 0, "limit": 50, "offset": 0}
    for number in range(3):
        await created(server, execute_at=f"2099-01-0{3 - number}T00:00:00Z", metadata=number)
    data = await listed(server, "?limit=2")
    assert (len(data["timers"]), data["total"], data["limit"], data["offset"]) == (2, 3, 2, 0)
    assert all(list(timer) == SUMMARY_KEYS for timer in data["timers"])
    times = [timer["created_at"] for timer in (await listed(server))["timers"]]
    assert times == sorted(times, reverse=True)


async def test_a_list_is_sorted_filtered_and_paged(server: Server) -> None:
    timers = [
        await created(server, execute_at=f"2099-01-0{number}T00:00:00Z") for number in (2, 3, 1)
    ]
    second, third, first = (timer["id"] for timer in timers)
    assert ids(await listed(server, "?sort=execute_at&order=asc")) == [first, second, third]
    assert ids(await listed(server, "?sort=execute_at")) == [third, second, first]
    assert ids(await listed(server, "?sort=execute_at&order=asc&offset=1&limit=1")) == [second]
    await server.ask("DELETE", f"/timers/{second}")
    data = await listed(server, "?status=pending&sort=execute_at&order=asc")
    assert (ids(data), data["total"]) == ([first, third], 2)
    data = await listed(server, "?status=canceled")
    assert (ids(data), data["total"]) == ([second], 1)
    assert (await listed(server))["total"] == 3


@pytest.mark.parametrize("status", ["executing", "completed", "failed"])
async def test_a_list_knows_every_status(server: Server, status: str) -> None:
    assert (await listed(server, f"?status={status}"))["total"] == 0
    if status == "executing":
        await server.executing("x")
    else:
        await server.ended("x", status=200 if status == "completed" else 404)
    data = await listed(server, f"?status={status}")
    assert (ids(data), data["total"]) == (["x"], 1)


@pytest.mark.parametrize(
    ("query", "limit", "offset"),
    [
        ("?limit=0", 1, 0),
        ("?limit=-3", 1, 0),
        ("?limit=201", 200, 0),
        ("?limit=000000000000000000000007", 7, 0),
        ("?limit=" + "9" * 5_000, 200, 0),
        ("?limit=-" + "9" * 5_000, 1, 0),
        ("?offset=-1", 50, 0),
        ("?offset=7", 50, 7),
        ("?offset=" + "9" * 5_000, 50, 2**53 - 1),
    ],
)
async def test_limit_and_offset_are_clamped_and_answered_as_used(
    server: Server, query: str, limit: int, offset: int
) -> None:
    await created(server)
    data = await listed(server, query)
    assert (data["limit"], data["offset"], data["total"]) == (limit, offset, 1)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("?limit=ten", "limit"),
        ("?limit=", "limit"),
        ("?limit=1.5", "limit"),
        ("?limit=1e3", "limit"),
        ("?limit=%D9%A3", "limit"),
        ("?offset=x", "offset"),
        ("?status=gone", "status"),
        ("?status=", "status"),
        ("?status=PENDING", "status"),
        ("?sort=id", "sort"),
        ("?order=up", "order"),
        ("?limit=1&limit=2", "limit"),
        ("?callback_type=http", "callback_type"),
        ("?%FF=1", "\ufffd"),
    ],
)
async def test_a_wrong_query_is_refused_by_its_parameter(
    server: Server, query: str, name: str
) -> None:
    reply = await server.ask("GET", f"/timers{query}")
    assert (reply.status, reply.json["code"], reply.json["data"]) == (400, 2, None)
    assert reply.json["message"].startswith(f"{name} ")


async def test_a_query_of_a_thousand_parameters_is_refused(server: Server) -> None:
    reply = await server.ask("GET", "/timers?" + "&".join(["limit=1"] * 1_000))
    assert (reply.status, reply.json["code"]) == (400, 2)


@pytest.mark.parametrize("path", ["/health", "/healthz"])
async def test_health_needs_no_key(server: Server, path: str) -> None:
    reply = await server.ask("GET", path, key=None)
    assert (reply.status, reply.json["message"]) == (200, "healthy")
    assert {**reply.data, "timestamp": ""} == {
        "status": "up",
        "database": "connected",
        "timestamp": "",
    }
    assert INSTANT.fullmatch(reply.data["timestamp"])
    head = await server.ask("HEAD", path, key=None)
    assert (head.status, head.body) == (200, b"")


async def test_health_says_that_the_database_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> int:
        raise StoreUnavailable("disk full")

    monkeypatch.setattr(server.node.store, "now", gone)
    reply = await server.ask("GET", "/health", key=None)
    assert (reply.status, reply.json["code"]) == (500, 1)
    assert reply.json["message"] == "database connection failed"
    data = reply.json["data"]
    assert (data["status"], data["database"]) == ("degraded", "disconnected")
    assert INSTANT.fullmatch(data["timestamp"])
    assert "disk full" not in reply.body.decode()
